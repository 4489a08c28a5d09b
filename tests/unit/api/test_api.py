"""The Python interface has every command of the command line, typed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from argosy import api
from argosy.cli.app import app
from argosy.core.errors import UsageError
from tools.reference.commands import commands_of, walk

NAMES = [name for name in api.__all__ if inspect.isfunction(getattr(api, name)) and name != "open_session"]
ONLY_COMMANDS = {"compat ls", "compat install", "compat run", "completion"}
"""Commands without a function: they are about the shell."""


def leaves() -> set[str]:
    """Return every command that does something: those without subcommands, and groups that work alone."""
    found = {path: command for path, command in walk("argosy", app, None) if path != "argosy"}
    return {
        path.removeprefix("argosy ")
        for path, command in found.items()
        if not any(other.startswith(f"{path} ") for other in found) or getattr(command, "invoke_without_command", False)
    }


def test_every_command_has_a_function_and_every_function_a_command() -> None:
    commands = {name: commands_of(getattr(api, name)) for name in NAMES}
    assert [name for name, found in commands.items() if not found] == []
    assert leaves() == {command for found in commands.values() for command in found} | ONLY_COMMANDS


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_typed_and_documented(name: str) -> None:
    function = getattr(api, name)
    doc = inspect.getdoc(function) or ""
    assert doc.splitlines()[0].endswith(".")
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation not in {"Any", Any, parameter.empty}
        assert parameter.kind is not parameter.VAR_KEYWORD or "Unpack[" in str(parameter.annotation)
    assert get_type_hints(function)["return"] is not Any


def test_a_launch_is_planned_from_keyword_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = api.plan_launch(
        "/p/x.sif", ["./a.out"], site="lumi-g", account="p", nodes=2, ranks_per_node=8, time="1h", env={"A": "1"},
        launcher="srun",
    )  # fmt: skip
    assert (plan.shape.ranks, plan.shape.nodes) == (16, 2)
    assert "#SBATCH --time=1:00:00\n" in plan.script


def test_a_job_of_the_project_file_is_launched_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("argosy.toml").write_text(
        '[job.train]\nimage = "/p/x.sif"\nsite = "lumi-g"\naccount = "p"\ncommand = ["true"]\nnodes = 2\n'
    )
    assert api.plan_launch("train").shape.nodes == 2
    assert api.plan_launch("train", nodes=3).shape.nodes == 3
    with pytest.raises(UsageError, match="there is no job 'trian'"):
        api.plan_launch("trian")
