"""Environment files as people write them, read as the files beside them say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError
from argosy.core.redact import redact
from argosy.recipes.conda_spec import render_conda_spec
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import render_constraints, render_requirements

CORPUS = Path(__file__).parents[2] / "corpus" / "env"
FILES = sorted(file.name for file in CORPUS.iterdir() if file.suffix in {".yml", ".txt"})


@pytest.mark.parametrize("name", FILES)
def test_a_file_parses_as_recorded(name: str) -> None:
    expected = CORPUS / f"{name}.expected"
    text = describe(name).replace(CORPUS.resolve().as_uri(), "file://CORPUS").replace(str(CORPUS.resolve()), "CORPUS")
    if os.environ.get("ARGOSY_RECORD"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


def test_every_expected_result_belongs_to_a_file() -> None:
    assert sorted(file.name.removesuffix(".expected") for file in CORPUS.glob("*.expected")) == FILES


def describe(name: str) -> str:
    try:
        recipe = read_recipe([name], environment={"TOKEN": "planted-secret"}, cwd=CORPUS)
    except ArgosyError as error:
        return f"exit {error.code}\n{error}\n"
    return "\n".join(recipe_lines(recipe)) + "\n"


def recipe_lines(recipe: Recipe) -> list[str]:
    lines = [f"name: {recipe.name}", f"python: {recipe.python} ({recipe.python_where})"]
    lines += [f"channel: {channel.name} ({channel.where})" for channel in recipe.channels]
    lines += [f"conda: {render_conda_spec(spec)} ({spec.where})" for spec in (*recipe.interpreter, *recipe.conda)]
    lines += [f"file: {pin.url} ({pin.where})" for pin in recipe.conda_pins]
    lines += [f"option: {option.name} {redact(option.value)} ({option.where})" for option in recipe.options]
    lines += [f"pip: {line.name or '?'} {line.kind} {redact(line.text)} ({line.where})" for line in recipe.pip]
    lines += [f"variable: {variable}={value!r}" for variable, value in recipe.variables]
    lines += [f"source: {source.path}" for source in recipe.sources]
    lines += [f"note: {note}" for note in recipe.notes]
    lines += ["--- requirements", *redact(render_requirements(recipe)).splitlines()]
    lines += ["--- constraints", *render_constraints(recipe).splitlines()]
    return lines
