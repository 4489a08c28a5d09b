"""Find the rank that failed first in the output of a job, and advise after the failure; pure.

The exit code of a job with several ranks is not enough: torchrun replaces every worker's code by 1, and srun reports
143 or 137 for the ranks that it ended because another one had failed. The advice is the option that asked for too
little, or the output that a node could not open.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from argosy.core.parse import parse_int
from argosy.slurm.messages import STEPD
from argosy.slurm.states import state_word

SIGNALS = {
    "Hangup": 1, "Interrupt": 2, "Quit": 3, "Illegal instruction": 4, "Trace/breakpoint trap": 5, "Aborted": 6,
    "Bus error": 7, "Floating point exception": 8, "Killed": 9, "Out Of Memory": 9, "User defined signal 1": 10,
    "Segmentation fault": 11, "User defined signal 2": 12, "Broken pipe": 13, "Alarm clock": 14, "Terminated": 15,
    "CPU time limit exceeded": 24, "File size limit exceeded": 25, "Bad system call": 31,
}  # fmt: skip
"""Names of signals in messages of srun: strsignal(3), and srun's own name for SIGKILL because of memory."""

LAST_SIGNAL = 64
"""The highest signal of Linux (signal(7)): the exit code 255 comes from a container or a shell."""

# srun appends to a line that a program left open, for example a progress bar.
SRUN_CODE = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): Exited with exit code (\d+)")
SRUN_SIGNAL = re.compile(rf"srun: error: (\S+): tasks? ([\d,-]+): ({'|'.join(SIGNALS)})")
ENDED_BY_OTHERS = re.compile(r"srun: (?:\S+: _step_signal: )?(?:Terminating |forcing |Job step aborted)|CANCELLED AT ")
"""From here on, SIGTERM comes from Slurm, which ends the remaining ranks."""
STOPPED = re.compile(r"srun: forcing job termination")
"""srun itself was ended: no rank failed before, and the way in which they end now is not their fault."""
BEFORE_RANKS = re.compile(
    r"^argosy: (?:the command of --before failed|the image cannot be copied to |the new folder .* cannot be created)",
    re.MULTILINE,
)
"""The run ended before its ranks started: the tasks of srun were those of `--before` or `--stage-to`."""
OF_ENDED = frozenset({143, 137})
"""Exit codes of shells whose ranks srun ended."""
ABORTED = re.compile(r"srun: Job step aborted")
"""Slurm or a rank (MPI_Abort) ended the step: ranks that are killed from here on did not fail first."""
STARTER = re.compile(
    r"^argosy: rank (?P<rank>\d+) on (?P<host>\S+) ended with (?P<how>code|signal) (?P<number>\d+)$", re.MULTILINE
)
"""Message of the program that starts the ranks of a node in one container (launch/launchers/start_ranks.py)."""
COPY = re.compile(r"^argosy: rank (?P<rank>\d+) failed first \((?P<how>code|signal) (?P<number>\d+)\)", re.MULTILINE)
"""Message of the script of a launch on this machine (launch/script/data/job.sh)."""
MPIRUN = re.compile(
    r"(?:mpirun|prterun) noticed that process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)"
)
TORCHRUN = re.compile(
    r"Root Cause \(first observed failure\):\s*\n\[\d+\]:\s*\n"
    r"\s*time\s*: \S+\s*\n\s*host\s*: (\S+)\s*\n\s*rank\s*: (\d+) [^\n]*\n\s*exitcode\s*: (-?\d+)"
)
TORCHRUN_TIME = re.compile(r"Root Cause \(first observed failure\):\s*\n\[\d+\]:\s*\n\s*time\s*: (\S+)")


RUN_ENDED = re.compile(r"^argosy: (?:the run wrote a new checkpoint|job [\d_]+ ended with code).*$", re.MULTILINE)
"""Message of a job script at the end of a run; a requeued job has several runs in one output."""

OUT_OF_MEMORY = re.compile(
    r"\b(?:oom|OOM)[-_ ][Kk]ill|^srun: error: [^\n]*: Out Of Memory\b|[Mm]emory cgroup out of memory"
    rf"|{STEPD}[^\n]*Exceeded \w+ memory limit",
    re.MULTILINE,
)
"""Messages of Slurm and the kernel about a process killed for its memory; the job's state may still be FAILED.

Programs print ``CUDA out of memory`` and ``CUDA_ERROR_OUT_OF_MEMORY`` for the memory of a GPU, which no Slurm option
increases.
"""

BEHIND: Mapping[str, tuple[str, ...]] = {
    "TIMEOUT": ("time",),
    "OUT_OF_MEMORY": ("mem-per-gpu", "mem", "mem-per-cpu"),
}
"""State -> the options whose value may have been too small, the most likely first."""

NO_OUTPUT = "0:53"
"""Slurm's exit code and signal of a job if its node cannot open the output file (seen with 24.11)."""


class RankEnd(msgspec.Struct, frozen=True):
    """How a rank ended."""

    rank: int
    host: str
    code: int
    """Exit code of the rank; 128 + number if a signal ended it."""

    @property
    def text(self) -> str:
        """The rank, its host and its exit code as a sentence."""
        number = self.code - 128
        how = f"code {self.code}, signal {number}" if 0 < number <= LAST_SIGNAL else f"code {self.code}"
        return f"rank {self.rank} on {self.host} failed first ({how})"


def find_first_failure(text: str) -> RankEnd | None:
    """Return the rank that failed first in the last run of a job; None if the output does not show it."""
    return next(filter(None, (_find_in_run(run) for _, run in last_runs(text))), None)


def last_runs(text: str) -> tuple[tuple[int, str], ...]:
    """Return the parts of an output that may be its last run, and where each begins.

    The last run follows the last end that a script printed.  If nothing follows, it is the run before that end, because
    a killed run prints none.
    """
    ends = [0, *(match.end() for match in RUN_ENDED.finditer(text)), len(text)]
    return tuple((start, text[start:end]) for start, end in reversed([*pairwise(ends)][-2:]))


def _find_in_run(text: str) -> RankEnd | None:
    """Return the rank that failed first in one run."""
    if BEFORE_RANKS.search(text):
        return None
    return next(filter(None, (find(text) for find in FINDERS)), None)


def exit_code(number: int, *, by_signal: bool) -> int:
    """Return the exit code of a process that ended with a code, or by a signal: 128 + its number."""
    return number + (128 if by_signal else 0)


def _find_in_torchrun(text: str) -> RankEnd | None:
    """Return the earliest of several reports of torchrun; nodes that only lost the others report later."""
    blocks = list(zip(TORCHRUN.finditer(text), TORCHRUN_TIME.findall(text), strict=False))
    own = [pair for pair in blocks if pair[0][3] != "-15"] or blocks  # TERM came from outside
    if not own:
        return None
    match, _ = min(own, key=lambda pair: pair[1])
    code = exit_code(parse_int(match[3].removeprefix("-")), by_signal=match[3].startswith("-"))
    return RankEnd(parse_int(match[2]), match[1], code)


def _find_in_own_message(text: str) -> RankEnd | None:
    match = STARTER.search(text) or COPY.search(text)
    if match is None:
        return None
    code = exit_code(parse_int(match["number"]), by_signal=match["how"] == "signal")
    return RankEnd(parse_int(match["rank"]), match.groupdict().get("host", "this machine"), code)


def _find_in_mpirun(text: str) -> RankEnd | None:
    match = MPIRUN.search(text)
    return RankEnd(parse_int(match[1]), match[2], exit_code(parse_int(match[3]), by_signal=True)) if match else None


def _find_in_srun(text: str) -> RankEnd | None:
    """Return the first rank in the messages of srun that it did not end itself; else the first one."""
    stopped = STOPPED.search(text)
    text = text[: stopped.start()] if stopped else text
    others, aborted = _find_start(ENDED_BY_OTHERS, text), _find_start(ABORTED, text)
    signals = (match for match in SRUN_SIGNAL.finditer(text) if match[3] != "Terminated" or match.start() < others)
    matches = sorted((*SRUN_CODE.finditer(text), *signals), key=re.Match.start)
    ends = [(match.start(), _of_srun(match)) for match in matches]
    ends = [(at, end) for at, end in ends if at < aborted or end.code not in OF_ENDED]
    first = [end for _, end in ends if end.code not in OF_ENDED] or [end for _, end in ends]
    return first[0] if first else None


def _find_start(message: re.Pattern[str], text: str) -> int:
    """Return where a message begins; the end of the text if it is missing."""
    match = message.search(text)
    return match.start() if match else len(text)


def _of_srun(match: re.Match[str]) -> RankEnd:
    is_signal = match[3] in SIGNALS
    code = exit_code(SIGNALS[match[3]] if is_signal else parse_int(match[3]), by_signal=is_signal)
    return RankEnd(parse_int(re.split("[,-]", match[2])[0]), match[1], code)


FINDERS = (_find_in_torchrun, _find_in_own_message, _find_in_mpirun, _find_in_srun)
"""Reports of torchrun and of ranks in one container come first, because srun sees a node as one task."""


def true_state(state: str, output: str) -> str:
    """Return Slurm's state of a job, or OUT_OF_MEMORY if its output shows that the kernel killed a rank."""
    return "OUT_OF_MEMORY" if state.startswith("FAILED") and OUT_OF_MEMORY.search(output) else state


def no_output(facts: Mapping[str, str], output: str) -> str:
    """Explain a job whose output file slurmd could not open: Slurm reports only a signal.  Empty for any other job."""
    if facts.get("ExitCode") != NO_OUTPUT:
        return ""
    where = facts.get("BatchHost", "") or "its node"
    return f"{where} could not open {output or 'its output'}, or the folder of the job: use another --output"


def advise_end(state: str, script: str, sources: Mapping[str, str]) -> str:
    """Return the line of the script, or of the project file, that asks for too little; empty if none is known.

    Parameters
    ----------
    script
        The job's script; empty without a record.
    sources
        Option, for example ``--time`` -> file and line that it came from.
    """
    name = state_word(state)
    options = BEHIND.get(name, ())
    if not options or not script:
        return ""
    is_resumable = name == "TIMEOUT" and not find_checkpoint(script)
    resume = "; or use --resume and --checkpoint to continue automatically" if is_resumable else ""
    return _line(options, script.splitlines(), sources) + resume


def find_checkpoint(script: str) -> str:
    """Return the checkpoint of a job with ``--resume`` from its script; empty for any other job."""
    found = re.search(r"^ *resume_from (.+) \d+$", script, re.MULTILINE)
    return "".join(shlex.split(found[1])[:1]) if found else ""


def _line(options: Sequence[str], lines: Sequence[str], sources: Mapping[str, str]) -> str:
    for number, line in enumerate(lines, 1):
        for option in options:
            if line.startswith(f"#SBATCH --{option}="):
                source = sources.get(f"--{option}", "")
                where = source if re.search(r":\d+$", source) else f"line {number} of its script"
                return f"increase --{option}, which was {line.partition('=')[2]} ({where})"
    return f"add --{options[0]}, which the job did not have"
