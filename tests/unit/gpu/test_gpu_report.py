"""The report keeps its schema, the page shows it, and the judges name what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.__main__ import PAGE
from gpu.environment import Reply, fits, run
from gpu.report import NOT_RUN, SCHEMA, Report, State, Step, parse_report, render_page, render_report
from gpu.steps import Stage, all_steps, judge_probes, judge_ranks, judge_reply

ROOT = Path(__file__).parents[3]


def device(uuid: str = "aa", *, tested: bool = True) -> dict[str, Any]:
    facts: dict[str, Any] = {"index": 0, "name": "Fake GPU", "uuid": uuid}
    return {**facts, "bandwidth": {"gb_per_s": 3000.5, "gb_per_s_best": 3001.0}} if tested else facts


def probe(*devices: dict[str, Any], error: dict[str, str] | None = None) -> dict[str, Any]:
    return {"devices": list(devices), "error": error}


REPORT = Report(
    date="2026-11-23 06:00",
    version="0.1.0",
    vendor="nvidia",
    machine={"GPUs": "1 nvidia", "driver": "NVRM version 580"},
    seconds=61.5,
    steps=(
        Step("run bwrap", State.OK, "", 3.25, "argosy run image.sqsh", {"probes": [probe(device())]}),
        Step("run apptainer", State.SKIPPED, "apptainer is not installed"),
        Step("launch --ranks", State.FAIL, "a | b\nc", 2.0),
    ),
)


def test_a_report_comes_back_as_it_was_written() -> None:
    text = render_report(REPORT)
    assert json.loads(text)["schema"] == SCHEMA
    assert render_report(parse_report(text)) == text
    assert REPORT.failed == ("launch --ranks",)


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": 1}', '{"schema": 2}', "nothing"])
def test_a_file_that_is_not_a_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schema|Expecting"):
        parse_report(text)


def test_the_page_shows_steps_and_bandwidths() -> None:
    page = render_page(REPORT)
    assert "| run bwrap | ok | 3.2 |  |" in page
    assert "| run apptainer | skipped | 0.0 | apptainer is not installed |" in page
    assert "| launch --ranks | fail | 2.0 | a \\| b c |" in page
    assert "| run bwrap | 0 | Fake GPU | 3000.5 | 3001.0 |" in page
    assert "`make gpu` has never run on an AMD GPU." in page


def test_without_a_report_the_page_contains_a_note() -> None:
    assert render_page(None) == NOT_RUN
    assert PAGE.read_text(encoding="utf-8").startswith("# GPUs\n\n`make gpu` ")


@pytest.mark.parametrize(
    ("probes", "reason"),
    [
        ([probe(device())], ""),
        ([], "0 of 1 processes reported"),
        ([probe(device(tested=False))], "0 of 1 GPUs were tested"),
        ([probe(error={"kind": "no driver", "text": "cannot load it"})], "no driver: cannot load it"),
    ],
)
def test_the_probes_are_judged(probes: list[dict[str, Any]], reason: str) -> None:
    assert judge_probes(probes, 1, 1) == reason


def test_two_ranks_on_one_gpu_are_found() -> None:
    assert judge_ranks([probe(device("aa")), probe(device("bb"))]) == ""
    assert judge_ranks([probe(device("aa")), probe(device("aa"))]) == "several ranks used the same GPU: aa, aa"


def test_a_reason_contains_the_exit_code_and_the_last_lines() -> None:
    assert judge_reply(Reply(0, "", "", 1.0), "") == ""
    assert judge_reply(Reply(6, "", "no file\n", 1.0), "0 of 1") == "0 of 1; exit code 6: no file"


def test_a_command_ends_at_its_limit() -> None:
    reply = run((sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"), {}, 1.0)
    assert (reply.code, reply.stdout) == (124, "1\n")
    assert "the time limit of 1 s is over" in reply.stderr
    assert run(("/no/program",), {}, 1.0).code == 127


def test_steps_without_their_program_or_image_are_skipped_with_a_reason(tmp_path: Path) -> None:
    program = tmp_path / "argosy"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    environment = {"PATH": str(tmp_path), "ARGOSY_LAB": str(tmp_path / "none")}
    stage = Stage((str(program),), environment, "nvidia", 1, tmp_path / "image.sqsh", "", lambda: 60.0)
    steps = {step.name: step for step in (start() for start in all_steps(stage))}
    skipped = {name for name, step in steps.items() if step.state is State.SKIPPED}
    runs = {"run bwrap", "run apptainer", "run podman", "run docker"}
    assert skipped == {*runs, "slurm gres", "bench nodes", "nccl and verify", "bench collectives"}
    assert all(steps[name].reason for name in skipped)
    assert steps["check"].reason == "exit code 3: "


@pytest.mark.parametrize(
    ("wheel", "minor", "fit"),
    [
        ("rich-15.0.0-py3-none-any.whl", 12, True),
        ("sortedcontainers-2.4.0-py2.py3-none-any.whl", 11, True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.whl", 12, True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.whl", 13, False),
        ("tree_sitter_bash-0.25.1-cp310-abi3-manylinux2014_x86_64.whl", 13, True),
        ("later-1-cp313-abi3-manylinux2014_x86_64.whl", 12, False),
        ("notes.txt", 12, False),
    ],
)
def test_a_wheel_fits_a_python(wheel: str, minor: int, *, fit: bool) -> None:
    assert fits(wheel, minor) is fit
