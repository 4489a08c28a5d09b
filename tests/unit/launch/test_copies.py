"""Copies on one machine: the first that fails ends the others and sets the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from shlex import quote

import pytest

from argosy.launch.script.helpers import render_script_functions

SHELLS = ("dash", "bash")
HEAD = "set -eu\nargosy_rank=0 argosy_pids='' argosy_code=''\n"


def copies_script(*programs: str) -> str:
    """Return the script that starts a copy of each program, a text for sh."""
    calls = "".join(f"start_beside sh -c {quote(program)}\n" for program in programs)
    main = f"{calls}wait_for_copies\n"
    return "\n".join(render_script_functions(main)) + HEAD + main


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_copy_that_fails_ends_the_others_whichever_it_is(shell: str, at: int) -> None:
    programs = ["while :; do sleep 0.1; done"] * 4
    programs[at] = "exit 7"
    done = subprocess.run([shell, "-c", copies_script(*programs)], timeout=60, check=False)
    assert done.returncode == 7


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("program", "how"), [("echo boom >&2; exit 3", "code 3"), ("kill -SEGV $$", "signal 11")])
def test_the_script_names_the_rank_that_failed_first_without_messages_of_the_shell(
    shell: str, program: str, how: str
) -> None:
    script = copies_script("exec sleep 100", program, "exec sleep 100")
    done = subprocess.run([shell, "-c", script], timeout=60, check=False, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line != "boom"]
    assert lines == [f"argosy: rank 1 failed first ({how}); the others were ended"]


@pytest.mark.parametrize("shell", SHELLS)
def test_copies_that_end_well_are_all_waited_for(shell: str) -> None:
    script = copies_script("echo one", "sleep 0.2; echo two", "echo three")
    done = subprocess.run([shell, "-c", script], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["one", "three", "two"])


@pytest.mark.parametrize("shell", SHELLS)
def test_a_signal_to_the_script_ends_all_copies_and_is_its_exit_code(shell: str) -> None:
    waits = 'trap "echo ended; exit 0" TERM; echo up; while :; do sleep 0.1; done'
    script = copies_script(waits, waits)
    # A caller such as nohup ignores SIGHUP, and a shell cannot trap a signal that was ignored when it started.
    command = ["env", "--default-signal", shell, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        assert [started.stdout.readline() for _ in range(2)] == ["up\n"] * 2
        started.send_signal(signal.SIGTERM)
        assert started.stdout.read() == "ended\n" * 2
    assert started.returncode == 128 + signal.SIGTERM


def test_why_names_a_rank_that_failed_without_a_line_in_its_log(tmp_path: Path) -> None:
    environment = {**os.environ, "ARGOSY_STATE": str(tmp_path / "state"), "ARGOSY_CONFIG": os.devnull}

    def argosy(*words: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "argosy.cli", *words)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, timeout=60, check=False, capture_output=True, text=True
        )

    program = '[ "$RANK" != 2 ] || exit 3; exec sleep 100'
    run = argosy("launch", "bare:", "--site", "local", "--ranks", "3", "--log-dir", "logs", "--", "sh", "-c", program)
    assert (run.returncode, run.stderr.splitlines()[0]) == (
        3,
        "argosy: rank 2 failed first (code 3); the others were ended",
    )
    said = argosy("why", "last")
    assert "failed first (code 3)\n" in said.stdout
    assert "rank-2.log: no known error\n" in said.stdout
    assert "ended with an error (code 3): rank 2 on " in said.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_script_ends_the_children_of_the_copies_after_them(shell: str, number: signal.Signals) -> None:
    child = "trap 'echo child; exit' TERM; echo $$; while :; do sleep 0.1; done"
    script = copies_script(*[f"sh -c {quote(child)} & wait"] * 2)
    # A caller such as nohup ignores SIGHUP, and a shell cannot trap a signal that was ignored when it started.
    command = ["env", "--default-signal", shell, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        children = [int(started.stdout.readline()) for _ in range(2)]
        started.send_signal(number)
        try:
            said, _ = started.communicate(timeout=10)
        finally:
            for each in children:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
    assert (started.returncode, said) == (128 + number, "child\n" * 2)
