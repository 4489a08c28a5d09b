"""The comparison of two images stays readable; a requirements file of an image's packages can be installed."""

from __future__ import annotations

from argosy.builder.freeze import FileChange, render_files, render_requirements
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, SourceKind, Tools

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


def test_requirements_of_an_image_name_the_origin_of_packages_that_no_index_has() -> None:
    """``name==version`` of a private package would install a stranger's package of that name."""
    git = "git+https://****@git.example/mine.git@0123456789abcdef0123456789abcdef01234567"
    packages = (
        LockedPackage("git-pkg", "1.2.3", source=SourceKind.VCS, url=git),
        LockedPackage("my-pkg", "2.0", source=SourceKind.LOCAL),
        LockedPackage("six", "1.17.0"),
        LockedPackage("wheel-of-url", "1.0", source=SourceKind.LOCAL, url="https://x.example/w-1.0-py3-none-any.whl"),
    )
    lock = Lock(LockedBase("base.sif", DIGEST, 1, "x86_64"), Tools("1"), 0, DIGEST, "3.11.2", packages)
    assert render_requirements(lock) == (
        "git-pkg @ git+https://git.example/mine.git@0123456789abcdef0123456789abcdef01234567\n"
        "# my-pkg==2.0 was installed from a folder or file, so no index has it: write its path or address here\n"
        "six==1.17.0\n"
        "wheel-of-url @ https://x.example/w-1.0-py3-none-any.whl\n"
    )
