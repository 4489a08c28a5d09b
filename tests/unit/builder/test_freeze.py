"""The comparison of two images stays readable; a requirements file of an image's packages can be installed."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from pathlib import Path

from argosy.builder.bases.base import Base
from argosy.builder.freeze import FileChange, compare_trees, match_lock, render_files, render_requirements
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.core.session import PlainReporter
from argosy.images.open import OpenedImage
from argosy.images.sif.write import FileSlice
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, SourceKind, Tools
from tests.unit.machines import make_host, make_session

DIGEST = f"sha256:{'0' * 64}"
SITE = "opt/argosy/env/lib/python3.11/site-packages"


def test_a_folder_with_many_differences_takes_one_line() -> None:
    numpy = [FileChange("~", f"{SITE}/numpy/core/{number}.py") for number in range(900)]
    others = [
        FileChange("-", "opt/argosy/env/bin/f2py"),
        FileChange("+", f"{SITE}/six.py"),
        FileChange("~", "etc/motd"),
    ]
    assert render_files([*others, *numpy]) == [
        "- opt/argosy/env/bin/f2py",
        f"+ {SITE}/six.py",
        "~ etc/motd",
        f"~ {SITE}/numpy: 900 files differ; --json lists them",
    ]


def test_layers_are_compared_with_regard_to_their_bases(tmp_path: Path) -> None:
    """A layer holds a folder of its base as soon as a file in it changes, and a device for a removed file."""
    for file in ("etc/motd", "etc/version", "usr/bin/sh", "srv/old/one"):
        (tmp_path / "base" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "base" / file).touch()
    words = ("mksquashfs", tmp_path / "base", tmp_path / "base.sqfs", "-quiet", "-no-progress")
    subprocess.run(words, check=True)
    base = FileSlice(tmp_path / "base.sqfs", 0, (tmp_path / "base.sqfs").stat().st_size)

    def layer(*files: str, gone: Sequence[str] = ()) -> dict[str, bytes]:
        folders = {str(folder): f"40755 {folder}\0\0" for file in (*files, *gone) for folder in Path(file).parents}
        rows = {file: f"100644 {file}\0{DIGEST}\0" for file in files} | {
            file: f"20000 {file}\x000:0\x00" for file in gone
        }
        return {path: row.encode() for path, row in sorted((folders | rows).items())}

    one = layer("opt/argosy/six.py", gone=["srv/old"])
    two = layer("usr/lib/new/a", "usr/bin/sh", "data/a", "etc/motd", gone=["etc/version"])
    found = compare_trees(one, two, (base, base))
    assert [f"{change.sign} {change.path}" for change in found] == [
        "+ data", "~ etc/motd", "- etc/version", "- opt", "+ srv/old", "~ usr/bin/sh", "+ usr/lib",
    ]  # fmt: skip
    back = {f"{change.sign} {change.path}" for change in compare_trees(two, one, (base, base))}
    assert {"- data", "+ etc/version", "- srv/old", "- usr/lib", "~ usr/bin/sh"} < back


def test_requirements_of_an_image_name_the_origin_of_packages_that_no_index_has() -> None:
    """``name==version`` of a private package would install a stranger's package of that name."""
    git = "git+https://****@git.example/mine.git@0123456789abcdef0123456789abcdef01234567"
    packages = (
        LockedPackage("git-pkg", "1.2.3", source=SourceKind.VCS, url=git),
        LockedPackage("group-t", "1", source=SourceKind.VCS, url="git+https://git.example/t/mine/x.git@0123"),
        LockedPackage("hidden", "1", source=SourceKind.LOCAL, url="https://x.example/t/***/hidden-1.tar.gz"),
        LockedPackage("my-pkg", "2.0", source=SourceKind.LOCAL),
        LockedPackage("six", "1.17.0"),
        LockedPackage("wheel-of-url", "1.0", source=SourceKind.LOCAL, url="https://x.example/w-1.0-py3-none-any.whl"),
    )
    lock = Lock(LockedBase("base.sif", DIGEST, 1, "x86_64"), Tools("1"), 0, DIGEST, "3.11.2", packages)
    assert render_requirements(lock) == (
        "git-pkg @ git+https://git.example/mine.git@0123456789abcdef0123456789abcdef01234567\n"
        "group-t @ git+https://git.example/t/mine/x.git@0123\n"
        "hidden @ https://x.example/t/***/hidden-1.tar.gz\n"
        "# my-pkg==2.0 was installed from a folder or file, so no index has it: write its path or address here\n"
        "six==1.17.0\n"
        "wheel-of-url @ https://x.example/w-1.0-py3-none-any.whl\n"
    )


def test_a_lock_is_corrected_by_the_packages_of_an_environment_that_other_tools_changed(tmp_path: Path) -> None:
    names = (("kept", "1.0"), ("newer", "1.0"), ("gone", "1.0"))
    packages = tuple(LockedPackage(name, version, ("a" * 64,)) for name, version in names)
    lock = Lock(LockedBase("base.sif", DIGEST, 1, "amd64"), Tools("0.1.0"), 1, DIGEST, packages=packages)
    base = Base("base.tar", OpenedImage(Image("base.sif", ImageKind.SIF, "", "amd64"), lock), lambda: DIGEST)
    assert base.is_converted
    for name, version in (("Kept", "1"), ("newer", "2.0"), ("added", "0.3")):
        info = tmp_path / SITE / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText\n")
    (tmp_path / SITE / "linked-1.0.dist-info").symlink_to(tmp_path / SITE / "newer-2.0.dist-info")
    notes = io.StringIO()
    session = replace(make_session(tmp_path, make_host()), reporter=PlainReporter(notes))
    found = match_lock(base, tmp_path, session).lock
    assert found
    assert found.packages == (LockedPackage("added", "0.3"), packages[0], LockedPackage("newer", "2.0"))
    assert (
        notes.getvalue().strip().endswith("added 0.3 (locked: none), gone none (locked: 1.0), newer 2.0 (locked: 1.0)")
    )
    conda = replace(lock, packages=(LockedPackage("pytorch", "2.8.0", kind=PackageKind.CONDA),))
    other = replace(base, opened=replace(base.opened, lock=conda))
    assert match_lock(other, tmp_path, session) is other
