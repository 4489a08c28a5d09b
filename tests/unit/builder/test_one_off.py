"""The image of ``--with``: what is refused before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.one_off import add_packages
from argosy.builder.records import BuildRequest
from argosy.core.errors import CheckFailed, UsageError
from tests.unit.machines import make_session


def test_without_packages_an_image_stays_as_it_is() -> None:
    assert add_packages("absent.sif", (), make_session()) == "absent.sif"


@pytest.mark.parametrize("package", ["./mine", "mine/", "/abs/mine", "~/mine", "mine-1.0.whl", "-r", "list.txt", "a/b"])
def test_a_path_or_an_option_is_not_a_package(package: str) -> None:
    with pytest.raises(UsageError, match="invalid package") as caught:
        add_packages("absent.sif", (package,), make_session())
    assert "--dev" in caught.value.hint


@pytest.mark.parametrize(("image", "runtime"), [("docker://python:3.12", "docker"), ("bare:", "")])
def test_an_image_that_argosy_does_not_open_gets_no_packages(image: str, runtime: str) -> None:
    with pytest.raises(UsageError, match="does not open this image"):
        add_packages(image, ("rich>=13",), make_session(), runtime=runtime)


def test_requirements_of_any_form_are_accepted() -> None:
    for package in ("rich", "rich[jupyter]>=13,<14", "tool @ git+https://host/tool.git", "a==1; python_version > '3'"):
        with pytest.raises(UsageError, match=r"absent\.sif"):
            add_packages("absent.sif", (package,), make_session())


def test_an_option_of_the_build_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: BuildRequest, _: object) -> None:
        (file,) = request.sources
        raise CheckFailed(
            "cannot install httpx", evidence=f"{file}:1: httpx==0.26", hint="hide the base's: --allow-replace httpx"
        )

    monkeypatch.setattr("argosy.builder.one_off.build_image", refuse)
    image = tmp_path / "image"
    (image / "usr/bin").mkdir(parents=True)
    with pytest.raises(CheckFailed) as caught:
        add_packages(str(image), ("httpx==0.26",), make_session(tmp_path))
    assert "--allow-replace httpx (an option of 'argosy build" in caught.value.hint
    assert caught.value.evidence == "--with: httpx==0.26"
