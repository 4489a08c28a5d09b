"""A base with a vendor's own Python packages, as NGC and ROCm images are: they stay as they are, and see the layer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.images.flat import find_base_spans
from argosy.images.squashfs.superblock import read_superblock

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

VENDOR = "2.9.0a0+145a3a7bda.nv25.10"

RUN = """\
import subprocess
import sys


def main() -> None:
    for rank in range(2):
        subprocess.run([sys.executable, "-u", *sys.argv[1:]], check=True, env={"RANK": str(rank)})


if __name__ == "__main__":
    main()
"""
"""What torchrun is made of: it starts workers with its own interpreter."""

WORKER = """\
import os, sys
import torch, tinypkg
print(os.environ["RANK"], torch.__version__, tinypkg.VERSION, sys.prefix)
"""


@pytest.fixture(scope="module")
def vendor(pool: Shop) -> Shop:
    """Make the base: a fake torch with torchrun, pydantic, and the scripts that an installer would have written."""
    from dataclasses import replace  # noqa: PLC0415 - one fixture's

    tree = pool.folder / "vendor"
    pool.tool("unsquashfs", "-quiet", "-no-progress", "-d", tree, pool.squashfs)
    site = tree / "usr/local/lib/python3.11/dist-packages"
    site.mkdir(parents=True, exist_ok=True)
    files = {
        "torch/__init__.py": f'__version__ = "{VENDOR}"\n',
        "torch/distributed/__init__.py": "",
        "torch/distributed/run.py": RUN,
    }
    pool.make_wheel("torch", VENDOR, scripts={"torchrun": "torch.distributed.run:main"}, files=files).unpack(site)
    pool.make_wheel("pydantic", "2.12.0").unpack(site)
    (tree / "etc/pip").mkdir()
    (tree / "etc/pip/constraint.txt").write_text(f"# as NVIDIA's images have one\ntinypkg==1.0\ntorch=={VENDOR}\n")
    (tree / ".singularity.d/env").mkdir(parents=True, exist_ok=True)
    (tree / ".singularity.d/env/10-docker2singularity.sh").write_text("export PIP_CONSTRAINT=/etc/pip/constraint.txt\n")
    script = tree / "usr/local/bin/torchrun"
    script.write_text("#!/usr/bin/python3\nfrom torch.distributed.run import main\nmain()\n")
    script.chmod(0o755)
    base = pool.folder / "vendor.sqfs"
    pool.tool("mksquashfs", tree, base, "-comp", "zstd", "-Xcompression-level", "1", "-quiet", "-no-progress")
    return replace(pool, base=base)


@pytest.fixture
def bench(shop: Shop, vendor: Shop) -> Shop:
    from dataclasses import replace  # noqa: PLC0415

    return replace(shop, base=vendor.base)


def refused(bench: Shop, requirements: str, *more: str) -> Ended:
    recipe = bench.write("r.txt", requirements)
    done = bench.argosy("build", recipe, "--base", bench.base, "-o", bench.folder / "no.sif", *more)
    bench.nothing_left()
    assert not (bench.folder / "no.sif").exists()
    return done


def test_a_worker_of_plain_torchrun_imports_packages_of_the_layer(bench: Shop) -> None:
    image = bench.build("tinypkg\n")
    worker = bench.write("worker.py", WORKER)
    ranks = "".join(f"{rank} {VENDOR} 1.0 /opt/argosy/env\n" for rank in range(2))
    assert bench.run(image, "torchrun", str(worker)).out == ranks
    assert bench.run(image, "python", "-m", "torch.distributed.run", str(worker)).out == ranks
    assert bench.run(image, "sh", "-c", "command -v torchrun").out == "/opt/argosy/env/bin/torchrun\n"
    bare = bench.run(image, "/usr/local/bin/torchrun", str(worker))
    assert "No module named 'tinypkg'" in bare.err  # so the namesake is what makes the difference


def test_the_base_is_untouched_and_the_layer_holds_nothing_of_it(bench: Shop) -> None:
    image = bench.build("tinypkg\ntorch==2.9.0\n")
    base = bench.base.read_bytes()
    spans = find_base_spans(bench.sif(image), next(part for part in bench.sif(image).parts if part.partition))
    with image.open("rb") as file:
        found = b"".join(os.pread(file.fileno(), size, offset) for offset, size in spans)
    assert found == base[: len(found)]
    assert len(found) >= read_superblock(bench.base, 0).bytes_used
    layer = bench.run(image, "find", "/opt/argosy/env", "-name", "torch*").out.split()
    assert layer == ["/opt/argosy/env/bin/torchrun"]


@pytest.mark.parametrize("more", [(), ("--no-build-isolation", "oldtorch")], ids=["with the others", "last"])
def test_a_conflict_with_the_bases_torch_is_refused_and_both_are_named(bench: Shop, more: tuple[str, ...]) -> None:
    done = refused(bench, "oldtorch\n", *more)
    assert done.code == 7, done.err
    assert "torch<2" in done.err
    assert f"torch=={VENDOR}" in done.err


@pytest.mark.parametrize("wanted", ["torch==2.8.0", "torch<2.9", "torch>=2.9.1"])
def test_another_torch_than_the_bases_is_refused_and_never_replaces_it(bench: Shop, wanted: str) -> None:
    bench.make_wheel("torch", "2.8.0").write(bench.folder)
    done = refused(bench, f"--find-links {bench.folder}\n{wanted}\n")
    assert done.code == 7, done.err
    assert wanted in done.err
    assert f"torch=={VENDOR}" in done.err
    assert f"{bench.folder}/r.txt:2" in done.err


def test_a_torch_that_may_be_replaced_hides_the_bases_which_stays_and_its_lock_gives_it_again(bench: Shop) -> None:
    bench.make_wheel("torch", "2.8.0").write(bench.folder)
    recipe = bench.write("r.txt", "torch==2.8.0\n")
    wheels = {"PIP_FIND_LINKS": f"{bench.wheels} {bench.folder}"}
    words = ("build", recipe, "--base", bench.base, "--allow-replace", "Torch", "-o", bench.folder / "x.sif")
    done = bench.argosy(*words, **wheels)
    assert done.code == 0, done.err
    assert f"torch 2.8.0 hides the base's {VENDOR}" in done.err + done.out
    more = ("--locked", bench.folder / "x.sif", "--no-cache", "-o", bench.folder / "again.sif")
    again = bench.argosy("build", *more, **wheels)
    assert again.code == 0, again.err
    assert (bench.folder / "again.sif").read_bytes() == (bench.folder / "x.sif").read_bytes()
    show = (
        "python -c 'import torch; print(torch.VERSION)'; cat /usr/local/lib/python3.11/dist-packages/torch/__init__.py"
    )
    said = bench.run(bench.folder / "x.sif", "sh", "-c", show)
    assert said.out == f'2.8.0\n__version__ = "{VENDOR}"\n', said.err


@pytest.mark.parametrize("more", [(), ("--no-build-isolation", "torchvision")], ids=["with the others", "last"])
def test_a_requirement_of_a_release_is_satisfied_by_the_vendors_build_of_it(bench: Shop, more: tuple[str, ...]) -> None:
    image = bench.build("torchvision\n", *more)
    shown = bench.run(image, "python", "-c", "import torch, torchvision; print(torch.__version__, torchvision.VERSION)")
    assert shown.out == f"{VENDOR} 0.24.0\n"


EXTENSION = {"torchaudio/_C.cpython-311-x86_64-linux-gnu.so": "libc10.so"}
LAST = ("--no-build-isolation", "torchaudio")


@pytest.mark.parametrize("more", [(), LAST], ids=["with the others", "last"])
def test_a_wheel_of_an_index_that_needs_another_torch_is_refused(bench: Shop, more: tuple[str, ...]) -> None:
    bench.make_wheel("torchaudio", "2.9.0", "torch", files=EXTENSION).write(bench.folder)
    done = refused(bench, f"--find-links {bench.folder}\ntorchaudio\n", *more)
    assert "cannot install torchaudio 2.9.0: it was compiled against a different PyTorch" in done.err


def test_a_users_own_wheel_that_needs_torch_is_installed(bench: Shop) -> None:
    wheel = bench.make_wheel("torchaudio", "2.9.0", "torch", files=EXTENSION).write(bench.folder)
    image = bench.build(f"torchaudio @ file://{wheel}\n")
    again = bench.build("another\n", base=image, out="again.sif")
    assert bench.run(again, "python", "-c", "import torchaudio; print(torchaudio.VERSION)").out == "2.9.0\n"


SETUP = """\
import os, zipfile
import torch

FILES = {
    "torchaudio/__init__.py": f"AGAINST = {torch.__version__!r}\\n",
    "torchaudio/_C.cpython-311-x86_64-linux-gnu.so": "libc10.so",
    "torchaudio-2.9.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: torchaudio\\nVersion: 2.9.0\\n",
    "torchaudio-2.9.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}

def build_wheel(folder, settings=None, metadata=None):
    name = "torchaudio-2.9.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
        wheel.writestr("torchaudio-2.9.0.dist-info/RECORD", "".join(f"{path},,\\n" for path in FILES))
    return name
"""


def test_a_package_that_was_built_against_the_vendors_torch_is_installed(bench: Shop) -> None:
    source = bench.folder / "torchaudio-2.9.0"
    source.mkdir()
    (source / "setup_backend.py").write_text(SETUP)
    project = '[build-system]\nrequires = []\nbuild-backend = "setup_backend"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(project + '[project]\nname = "torchaudio"\nversion = "2.9.0"\n')
    (source / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: torchaudio\nVersion: 2.9.0\nRequires-Dist: torch\n")
    bench.tool("tar", "-C", bench.folder, "-czf", bench.folder / "torchaudio-2.9.0.tar.gz", source.name)
    image = bench.build(f"--find-links {bench.folder}\ntorchaudio\n", *LAST)
    shown = bench.run(image, "python", "-c", "import torchaudio; print(torchaudio.AGAINST)")
    assert shown.out == f"{VENDOR}\n", shown.err


def test_a_requirement_that_the_base_meets_adds_nothing(bench: Shop) -> None:
    image = bench.build("pydantic>=2\n")
    lock = bench.run(image, "ls", "/opt/argosy/env/lib/python3.11/site-packages").out.split()
    assert "pydantic" not in lock


def test_the_bases_own_packages_are_not_in_the_lock_of_the_layer(bench: Shop) -> None:
    image = bench.build("tinypkg\n")
    said = bench.argosy("images", "info", image).out
    assert "tinypkg==1.0" in said  # as the base's own constraint file wants it
    assert "torch" not in said.replace(str(Path(bench.base)), "")


PIP = "PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl) python -m pip install --no-index --find-links"
"""Debian's own pip: that of the shop's wheels only says its name."""

NEWER = ("sh", "-c", f'{PIP} "$@"', "sh")


def wheels_of_another_pydantic(bench: Shop) -> Path:
    """Write a package that wants a newer pydantic than the base's, which no constraint of the vendor names."""
    folder = bench.folder / "newer"
    folder.mkdir()
    bench.make_wheel("pydantic", "2.13.0").write(folder)
    bench.make_wheel("wantsnewer", "1.0", "pydantic>=2.13").write(folder)
    return folder


def pydantic_in(bench: Shop, *words: str | Path) -> str:
    """Ask for the version of pydantic that a start of the image finds."""
    ask = "import importlib.metadata as m; print(m.version('pydantic'))"
    return bench.argosy("run", *words, "--", "python", "-c", ask).out.strip()


def test_a_shell_that_may_write_keeps_the_bases_packages_until_the_user_lifts_it(bench: Shop) -> None:
    image = bench.build("tinypkg\n")
    wheels = wheels_of_another_pydantic(bench)
    done = bench.argosy("run", image, "--dev", "--", *NEWER, wheels, "wantsnewer")
    assert done.code != 0
    assert "pydantic==2.12.0" in done.out + done.err
    assert "unset PIP_CONSTRAINT UV_CONSTRAINT" in done.err
    assert pydantic_in(bench, image, "--dev") == "2.12.0"
    fits = bench.argosy("run", image, "--dev", "--", *NEWER, bench.wheels, "onemore")
    assert fits.code == 0, fits.err
    lifted = bench.argosy("run", image, "--dev", "--env", "PIP_CONSTRAINT=", "--", *NEWER, wheels, "wantsnewer")
    assert lifted.code == 0, lifted.err
    assert pydantic_in(bench, image, "--dev") == "2.13.0"


def test_a_package_from_a_folder_may_change_its_version_in_a_shell_that_may_write(bench: Shop) -> None:
    project = bench.folder / "mine"
    project.mkdir()
    bench.make_wheel("mine", "1.0").write(project)
    image = bench.build(f"{project}/mine-1.0-py3-none-any.whl\n")
    bench.make_wheel("mine", "1.1").write(project)
    done = bench.argosy("run", image, "--dev", "--", *NEWER, project, "mine==1.1")
    assert done.code == 0, done.err


def test_a_step_of_a_project_keeps_the_bases_packages_until_it_lifts_it_itself(bench: Shop) -> None:
    wheels_of_another_pydantic(bench)
    steps = f"""\
[image]
base = "{bench.base}"
pip = ["requirements.txt"]

[[step]]
copy = "newer"
to = "/"

[[step]]
run = "LIFT {PIP} /newer wantsnewer"
"""
    bench.write("requirements.txt", "tinypkg\n")
    bench.write("argosy.toml", steps.replace("LIFT ", ""))
    done = bench.argosy("build", "-o", "out.sif")
    assert done.code != 0
    assert "ResolutionImpossible" in done.err
    bench.write("argosy.toml", steps.replace("LIFT", "unset PIP_CONSTRAINT UV_CONSTRAINT;"))
    done = bench.argosy("build", "-o", "out.sif")
    assert done.code == 0, done.err
    assert pydantic_in(bench, bench.folder / "out.sif") == "2.13.0"


def test_a_script_after_an_update_of_a_prefix_keeps_the_bases_packages(bench: Shop) -> None:
    wheels = wheels_of_another_pydantic(bench)
    words = ("wrap", bench.write("requirements.txt", "tinypkg\n"), "--base", bench.base, "--prefix", "env")
    assert bench.argosy(*words).code == 0
    script = bench.write("post.sh", f"{PIP} newer wantsnewer\n")
    done = bench.argosy("wrap", "update", "env", "--post-install", script)
    assert done.code != 0
    assert "ResolutionImpossible" in done.err
    package = bench.argosy("wrap", "update", "env", "wantsnewer", PIP_FIND_LINKS=f"{bench.wheels} {wheels}")
    assert package.code == 7, package.err


def test_a_package_gets_the_newest_version_that_fits_the_bases_torch(shop: Shop) -> None:
    """The shop has torchvision 0.24.0 for torch 2.9.0, and the newest one is for another torch."""
    for name, version, *needs in (
        ("torch", "2.9.0+cpu"),
        ("torchvision", "0.25.0", "torch==2.10.0"),
        ("torchvision", "0.24.1", "torch>=2.9.1"),
    ):
        shop.make_wheel(name, version, *needs).write(shop.folder)
    wheels = f"--find-links {shop.folder}\n"
    first = shop.build(f"{wheels}torch\n", out="first.sif")
    recipe = shop.write("more.txt", f"{wheels}torchvision\n")
    words = ("build", recipe, "--base", first, "-o", shop.folder / "more.sif")
    done = shop.argosy(*words)
    assert done.code == 0, done.err
    assert "torchvision 0.24.0 instead of 0.25.0, which requires torch==2.10.0" in done.out + done.err
    assert "download.pytorch.org/whl/cpu" in done.out + done.err
    shown = shop.run(shop.folder / "more.sif", "python", "-c", "import torchvision as v; print(v.VERSION)")
    assert shown.out == "0.24.0\n"
    recipe.write_text(f"{wheels}torchvision>=0.24.1\n")
    done = shop.argosy(*words, "--force")
    assert done.code == 7, done.err
    assert "torchvision 0.25.0 requires torch==2.10.0" in done.err
    assert "torchvision<0.25.0" in done.err
