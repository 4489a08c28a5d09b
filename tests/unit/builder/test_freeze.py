"""The comparison of two images stays readable when a package has another version."""

from __future__ import annotations

from argosy.builder.freeze import FileChange, render_files

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
