"""The Python interface: 14 functions that behave as their commands do."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import pytest

from argosy import api
from argosy.core.errors import CheckFailed, SiteError, UsageError
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter, Session
from tests.unit.machines import make_host, make_session

NAMES = [name for name in api.__all__ if inspect.isfunction(getattr(api, name))]
ROW = "7|RUNNING|None|N/A|2|1:00|10:00|batch|n[1-2]|train\n"
NCCL_LOGS = Path(__file__).parents[2] / "corpus/nccl"


class StayingRunner(FakeRunner):
    """A runner that refuses to replace this process."""

    def exec_command(self, command: Command) -> int:
        raise AssertionError(command)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an unpacked image in a new current folder."""
    for name in ("bin", "usr", "etc"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    (tmp_path / "tree/bin/sh").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tree"


def session_of(tmp_path: Path, *replies: tuple[tuple[str, ...], Reply], **environment: str) -> Session:
    host = make_host("bwrap", cwd=str(tmp_path), environment=MappingProxyType(environment))
    return make_session(tmp_path, host, StayingRunner(list(replies)))


def shown(tmp_path: Path, state: str, code: str = "0:0") -> tuple[tuple[str, ...], Reply]:
    """Give scontrol's reply about job 7, whose output is ``out``."""
    text = f"JobId=7 JobName=train JobState={state} Reason=None Restarts=0 ExitCode={code} NodeList=n1"
    return ("scontrol", "show", "job"), Reply(0, f"{text} StdOut={tmp_path}/out Power=\n", "")


def test_the_interface_has_fourteen_functions() -> None:
    assert set(NAMES) == {
        *("build", "cancel_jobs", "check_image", "describe_image", "explain_failure", "find_job", "follow_job"),
        *("launch", "list_jobs", "open_session", "plan_launch", "read_logs", "run", "verify_run"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_typed_and_documented(name: str) -> None:
    function = getattr(api, name)
    doc = inspect.getdoc(function) or ""
    assert doc.splitlines()[0].endswith(".")
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation not in {"Any", Any, parameter.empty}
        assert parameter.kind is not parameter.VAR_KEYWORD or "Unpack[" in str(parameter.annotation)
    assert get_type_hints(function)["return"] is not Any


def test_a_run_returns_the_exit_code_and_this_process_continues(tree: Path) -> None:
    here = session_of(tree.parent, (("unshare", "--user"), Reply(5, "", "")))
    assert api.run(tree, ["false"], session=here) == 5


def test_a_run_uses_the_bind_mounts_and_variables_of_the_project_file(tree: Path) -> None:
    (tree.parent / "data").mkdir()
    (tree.parent / "argosy.toml").write_text(
        f'[launch]\nbind = ["{tree.parent}/data:/data", "/of/a/node"]\nenv = {{ A = "1", B = "1" }}\n'
    )
    stream = io.StringIO()
    here = replace(session_of(tree.parent), reporter=PlainReporter(stream))
    assert api.run(tree, ["true"], env={"B": "2"}, session=here) == 0
    assert isinstance(here.runner, FakeRunner)
    started = " ".join(here.runner.seen[-1].argv)
    assert f"--bind {tree.parent}/data /data" in started
    assert " A=1 B=2 " in started
    assert "/of/a/node does not exist here and is not mounted" in stream.getvalue()


@pytest.mark.parametrize(("command", "message"), [("true", "not a list of arguments"), ((), "no command is given")])
def test_a_command_is_a_list_of_arguments(tree: Path, command: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        api.run(tree, command, session=session_of(tree.parent))


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


def test_a_launch_on_this_machine_returns_the_exit_code_of_the_program(tree: Path) -> None:
    here = session_of(tree.parent, (("sh",), Reply(5, "", "")))
    launched = api.launch(tree, ["false"], site="local", session=here)
    assert (launched.code, launched.job) == (5, "")


@pytest.mark.parametrize("function", [api.plan_launch, api.launch])
@pytest.mark.parametrize(
    ("options", "name"), [({"packages": ["rich"]}, "--with"), ({"in_allocation": True}, "--in-allocation")]
)
def test_options_that_need_argosy_on_the_other_machine_are_refused(
    tree: Path, function: Any, options: dict[str, Any], name: str
) -> None:
    here = session_of(tree.parent)
    with pytest.raises(UsageError, match=f"{name} cannot be used with --ssh") as caught:
        function(tree, ["true"], ssh="far:/work", session=here, **options)
    assert caught.value.hint
    assert isinstance(here.runner, FakeRunner)
    assert here.runner.seen == []


def test_jobs_are_listed_found_and_cancelled(tmp_path: Path) -> None:
    here = session_of(tmp_path, (("squeue",), Reply(0, ROW, "")), shown(tmp_path, "RUNNING"))
    assert [(job.id, job.nodes) for job in api.list_jobs(session=here)] == [("7", "2")]
    assert api.find_job("7", session=here).output == f"{tmp_path}/out"
    assert api.cancel_jobs("7", session=here) == ("job 7 is cancelled (train, it ran on n1)",)


def test_a_job_is_followed_to_its_end_and_its_output_is_read(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("epoch 1\n")
    here, copied = session_of(tmp_path, shown(tmp_path, "FAILED", "3:0")), io.BytesIO()
    assert api.follow_job("7", stream=copied, session=here).code == 3
    assert copied.getvalue() == b"".join(api.read_logs("7", session=here)) == b"epoch 1\n"


def test_an_image_is_described(tree: Path) -> None:
    found = api.describe_image(tree, session=session_of(tree.parent))
    assert (found.path, found.made_by_argosy) == (str(tree), False)


def test_an_image_is_checked_for_the_configured_site(tree: Path) -> None:
    with pytest.raises(UsageError, match="no site is given"):
        api.check_image(tree, session=session_of(tree.parent))
    with pytest.raises(SiteError, match="unknown site 'nowhere'"):
        api.check_image(tree, session=session_of(tree.parent, ARGOSY_SITE="nowhere"))
    found = api.check_image(tree, session=session_of(tree.parent, ARGOSY_SITE="local"))
    assert "architecture" in {each.what for each in found}


def test_a_run_is_verified_by_its_logs(tmp_path: Path) -> None:
    here = session_of(tmp_path)
    _, verdict = api.verify_run(str(next(NCCL_LOGS.glob("nccl-2.27-sockets*"))), nodes=2, session=here)
    assert "network" in {each.what for each in verdict.findings}
    (tmp_path / "empty.log").write_text("hello\n")
    with pytest.raises(CheckFailed, match="cannot verify the run"):
        api.verify_run(str(tmp_path / "empty.log"), session=here)


def test_a_failure_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    found = api.explain_failure(str(log), session=session_of(tmp_path))
    assert [error.line for error in found.errors] == [1]


def test_a_build_is_refused_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"missing\.yml"):
        api.build("missing.yml", base="debian:bookworm", output="x.sif", session=session_of(tmp_path))


def test_an_error_of_the_system_is_an_error_of_argosy(tmp_path: Path) -> None:
    record = tmp_path / "runs" / "20260101-000000-abc"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": f"{tmp_path}/out", "site": "lab"}))
    here = session_of(tmp_path, shown(tmp_path, "FAILED", "3:0"))
    (tmp_path / "out").write_text("x\n")
    full = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115 - a device, closed below
    with full, pytest.raises(CheckFailed, match="no space left on device"):
        api.follow_job("7", stream=full, session=here)
