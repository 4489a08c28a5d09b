"""The measurement that ranks run is a command like any other: its text is an argument."""

from __future__ import annotations

import ast

import pytest

from argosy.bench.collectives_output import Measured
from argosy.bench.requests import OPERATIONS, benchmark_command, parse_size
from argosy.core.errors import UsageError
from argosy.core.model import ContainerRequest
from argosy.diagnostics.verify.logs import parse_netlog
from argosy.launch.model import name_of
from argosy.runtimes.command_check import plan_command_binds
from tests.unit.machines import make_host


@pytest.mark.parametrize(("text", "size"), [("4", 4), ("64K", 65536), ("256MiB", 256 << 20), ("4g", 4 << 30)])
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5G", "65G", "3", "12X", "٣K", "1e9"])
def test_an_invalid_message_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid message size"):
        parse_size(text)


def test_the_program_knows_each_operation_and_needs_only_torch() -> None:
    program = benchmark_command("all_reduce", "")[2]
    tree = ast.parse(program)
    assert set(OPERATIONS) <= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules | names == {
        "__future__",
        "collections.abc",
        "os",
        "statistics",
        "sys",
        "time",
        "typing",
        "torch",
        "torch.distributed",
    }


def test_a_long_text_among_the_arguments_is_not_used_as_a_path() -> None:
    assert plan_command_binds(("python", "-c", "a/b\n" * 5000, "x\0/y"), ContainerRequest(), make_host(cwd="/")) == ()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "-c", "a = 1\nprint(a / 2)"), "python"),
        (("python", "-u", "examples/train.py", "-c"), "train"),
        (("python", "-m", "torch.distributed.run"), "torch.distributed.run"),
    ],
)
def test_a_job_is_named_after_a_program_and_not_after_its_text(command: tuple[str, ...], name: str) -> None:
    assert name_of(command) == name


def test_its_last_line_is_read_as_the_bandwidth_of_the_run() -> None:
    printed = "# all_reduce · 8 ranks on 2 nodes · nccl on cuda\n# Peak bus bandwidth : 149.250 GB/s at 1 GiB\n"
    assert parse_netlog(printed).measured == Measured(149.25, 1 << 30, "all_reduce")
