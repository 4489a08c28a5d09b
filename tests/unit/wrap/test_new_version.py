"""The image of a version: an error of its build names the command, not the file that Argosy wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.builder.records import BuildReport, BuildRequest
from argosy.core.errors import CheckFailed
from argosy.core.session import Session
from argosy.wrap import new_version
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind
from argosy.wrap.new_version import extend_image
from tests.unit.machines import make_session


def test_the_hint_for_an_option_that_an_update_does_not_have_names_the_command_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: BuildRequest, _: Session) -> BuildReport:
        (file,) = request.sources
        hint = "change the version, or hide the base's: --allow-replace torch"
        raise CheckFailed("cannot install torch<2", evidence=f"{file}:1: torch<2", hint=hint)

    monkeypatch.setattr(new_version, "build_image", fail)
    recipe = PrefixRecipe(PrefixSourceKind.IMAGE, ("image.sif",), added=("torch<2",))
    with pytest.raises(CheckFailed) as caught:
        extend_image(recipe, tmp_path / "image.sif", tmp_path, make_session(tmp_path), after=())
    assert caught.value.evidence == "argosy wrap update: torch<2"
    assert caught.value.hint.endswith("--allow-replace torch (an option of 'argosy wrap new')")
