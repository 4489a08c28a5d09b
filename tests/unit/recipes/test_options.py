"""The tables of options fit the records that take their values."""

from __future__ import annotations

import pytest
from click import Command

from argosy.builder.backends.plan import BACKENDS
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.inputs import LOCK_FILE
from argosy.builder.on_node import NodeOptions
from argosy.builder.records import BuildRequest
from argosy.cli.cmd_build import build
from argosy.cli.cmd_launch import launch
from argosy.core.model import GpuMode
from argosy.images.formats import FORMATS
from argosy.launch.launchers.launcher import LAUNCHERS
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.recipes.build_options import BUILD_ROWS, NODE_ROWS
from argosy.recipes.launch_options import LAUNCH
from argosy.recipes.option_row import GROUPS, Row
from argosy.runtimes.runtime import RUNTIMES
from argosy.slurm.sbatch import JobOptions

RECORDS = {"shape": ResourceRequest, "slurm": JobOptions, "request": LaunchRequest}
BUILD_RECORDS = {"request": BuildRequest, "engine": EngineOptions}


@pytest.mark.parametrize(("name", "row"), LAUNCH.items(), ids=LAUNCH)
def test_every_option_of_a_launch_has_a_field_that_takes_it(name: str, row: Row) -> None:
    if row.record in RECORDS:
        assert (row.field or name) in RECORDS[row.record].__struct_fields__
    assert row.group in GROUPS
    assert row.help.endswith((".", "]"))


def test_every_field_of_a_job_and_its_shape_has_an_option() -> None:
    for kind, record in (("shape", ResourceRequest), ("slurm", JobOptions)):
        assert {row.field or name for name, row in LAUNCH.items() if row.record == kind} == set(
            record.__struct_fields__
        )


@pytest.mark.parametrize(("name", "row"), BUILD_ROWS.items(), ids=BUILD_ROWS)
def test_every_option_of_a_build_has_a_field_that_takes_it(name: str, row: Row) -> None:
    if row.record in BUILD_RECORDS:
        assert (row.field or name) in BUILD_RECORDS[row.record].__struct_fields__


def test_the_job_of_a_build_has_the_options_of_its_record() -> None:
    assert tuple(NODE_ROWS) == NodeOptions.__struct_fields__


def test_values_to_choose_from_are_those_of_the_program() -> None:
    assert LAUNCH["launcher"].choices == tuple(LAUNCHERS)
    assert LAUNCH["runtime"].choices == tuple(RUNTIMES), "edit RUNTIME_NAMES in core/model.py"
    assert LAUNCH["gpu"].choices == tuple(mode.value for mode in GpuMode)
    assert set(BUILD_ROWS["format"].choices) == {*FORMATS, "flat", "delta"}
    assert BUILD_ROWS["build_backend"].choices == tuple(BACKENDS)
    assert BUILD_ROWS["locked"].bare == LOCK_FILE


@pytest.mark.parametrize("command", [launch, build], ids=lambda command: command.name)
def test_no_two_options_of_a_command_share_a_name(command: Command) -> None:
    names = [name for option in command.params if option.param_type_name == "option" for name in option.opts]
    assert len(names) == len(set(names))
