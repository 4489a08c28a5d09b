"""Build the kit for a machine without a network: ``python -m gpu.kit`` (`make gpu-kit`).

It contains a small image with Python, the wheels of Argosy's dependencies for several versions of Python, bubblewrap
and unsquashfs. The wheels of rattler and uv stay out: only builds need them, and they would double the size.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from gpu.environment import IMAGE, KIT, PROGRAMS, REPO, WHEELS

LIMIT_MB = 60
SUITE = "bookworm"
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
PACKAGES = (
    "base-files",
    "coreutils",
    "dash",
    "libc-bin",
    "libc6",
    "libexpat1",
    "libffi8",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "python3-minimal",
    "python3.11-minimal",
    "zlib1g",
)
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache", "var/log", "var/lib")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
ONLY_BUILDS = frozenset({"py-rattler", "uv"})
CARRIED = ("bwrap", "unsquashfs")
HOST_LIBRARIES = re.compile(r"(ld-linux|libc\.|libm\.|libpthread|libdl|librt)")
LDD = re.compile(r"=> (/\S+)")
LOADER = "/lib64/ld-linux-x86-64.so.2"


def main() -> None:
    """Build what is missing, and check the size."""
    KIT.mkdir(parents=True, exist_ok=True)
    build_image(KIT / IMAGE)
    download_wheels(KIT / WHEELS)
    copy_programs(KIT / PROGRAMS)
    size = sum(path.stat().st_size for path in kit_files(KIT)) / 1e6
    if size > LIMIT_MB:
        sys.exit(f"gpu-kit: {KIT} has {size:.0f} MB, but at most {LIMIT_MB} MB can be carried")
    sys.stdout.write(f"gpu-kit: {KIT.relative_to(REPO)} is complete ({size:.0f} MB)\n")


def kit_files(kit: Path) -> list[Path]:
    """Return the files to carry."""
    return [kit / IMAGE, *sorted((kit / WHEELS).glob("*")), *sorted((kit / PROGRAMS).rglob("*.*")), kit / PROGRAMS]


def build_image(path: Path) -> None:
    """Build a squashfs image with a shell and Python: Debian's packages, extracted and not configured."""
    if path.exists():
        return
    root = path.with_name("image-root")
    shutil.rmtree(root, ignore_errors=True)
    options = ("--quiet", "--variant=extract", f"--hook-dir={MERGED_USR}", f"--include={','.join(PACKAGES)}")
    _run("mmdebstrap", *options, SUITE, str(root))
    for name in UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "usr/bin/python").symlink_to("python3")
    draft = path.with_suffix(".draft")
    _run("mksquashfs", str(root), str(draft), "-comp", "zstd", "-all-root", "-noappend", "-quiet", "-no-progress")
    draft.rename(path)
    shutil.rmtree(root)


def download_wheels(folder: Path) -> None:
    """Download the wheels of Argosy's dependencies for each version of Python."""
    if folder.exists():
        return
    draft = folder.with_name("wheels-draft")
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for python in PYTHONS:
        # pip would evaluate a condition for the Python that runs it.
        needed = [each for each in map(Requirement, project["dependencies"]) if each.name not in ONLY_BUILDS]
        there = [each for each in needed if not each.marker or each.marker.evaluate({"python_version": python})]
        wanted = [f"{each.name}{each.specifier}" for each in there]
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        options = ("--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms)
        _run(sys.executable, "-m", "pip", "download", "-q", *options, "-d", str(draft), *wanted)
    draft.rename(folder)


def copy_programs(folder: Path) -> None:
    """Copy programs that the machine may lack, each with its libraries and a wrapper that finds them."""
    libraries = folder / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    for name in CARRIED:
        program = shutil.which(name)
        if program is None:
            sys.exit(f"gpu-kit: {name} is not installed here")
        shutil.copy2(program, libraries / f"{name}.bin")
        listed = subprocess.run(("/usr/bin/ldd", program), capture_output=True, text=True, check=True).stdout
        for library in LDD.findall(listed):
            if not HOST_LIBRARIES.match(Path(library).name):
                shutil.copy2(library, libraries / Path(library).name)
        wrapper = folder / name
        # LD_LIBRARY_PATH would also reach the programs in the container.
        lines = (
            "#!/bin/sh",
            'here=$(dirname "$(readlink -f "$0")")',
            f'exec {LOADER} --library-path "$here/lib" "$here/lib/{name}.bin" "$@"',
        )
        wrapper.write_text("\n".join(lines) + "\n", encoding="utf-8")
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode:
        sys.exit(f"gpu-kit: {' '.join(argv[:4])} … failed\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
