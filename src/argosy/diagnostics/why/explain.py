"""Explain why a job failed: read its log, find the known errors, and render them."""

from __future__ import annotations

import contextlib
import signal
import stat
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.why.find import OF_LAUNCHERS, OF_OTHERS, KnownError, find_errors
from argosy.diagnostics.why.lines import text_of_last_job
from argosy.diagnostics.why.signatures import Signature, read_known_errors
from argosy.jobs.first_failure import find_first_failure, last_runs
from argosy.jobs.local_run import find_run, refuse_unrecorded_output
from argosy.jobs.names import names_run, unknown_log
from argosy.jobs.outputs import can_read
from argosy.jobs.query import JobFacts
from argosy.slurm.states import ENDED, FROM_OUTSIDE, RUNNING, state_word

FOLLOWING = ("end", "symptom", "survived", "warning")
"""Levels of errors that are shown in one line each if there is a cause."""
HARMLESS_LEVELS = ("survived", "warning")
"""Levels of errors after which the program went on."""


def _count(error: KnownError) -> str:
    return f", {error.times} times" if error.times > 1 else ""


def _render_error(error: KnownError, log: str, width: int = 0) -> str:
    perhaps = "perhaps " if error.level == "maybe" else ""
    place = f"{log}{':' if log else 'line '}{error.line}{_count(error)}: "
    lines = [
        f"{place}{error.text}",
        *(f"{'':{len(place)}}{each}" for each in error.below),
        _render_field("cause", f"{perhaps}{error.cause}", width),
        *(_render_field("often" if not at else "", reason, width) for at, reason in enumerate(error.often)),
        _render_field("fix", error.fix, width),
    ]
    return "\n".join([*lines, f"  see    {error.source}"] if error.source else lines)


def _render_field(name: str, text: str, width: int) -> str:
    """Render a field of an error; its further lines begin below its text."""
    start = f"  {name:5}  "
    if not width:
        return start + text
    return textwrap.fill(
        text, width, initial_indent=start, subsequent_indent=" " * len(start),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def render_errors(errors: Sequence[KnownError], log: str = "", width: int = 0) -> str:
    """Render the causes in full and the symptoms in one line each; without a cause, the first symptom in full.

    An error after which the program went on is not a cause.

    Parameters
    ----------
    width
        Columns at which long lines are wrapped; 0 for no limit.
    """
    causes = [each for each in errors if each.level not in FOLLOWING]
    full = causes or [each for each in errors[:1] if each.level not in HARMLESS_LEVELS]
    rest = [each for each in errors if each not in full]
    lines = [_render_error(each, log, width) for each in full]
    if rest and not full:
        lines.append(f"{log}{': ' if log else ''}no known error ended the program; it went on after these:")
    lines += [f"line {each.line}{_count(each)}: {each.cause}" for each in rest]
    return "\n".join(lines)


MOST_BYTES = 2 << 20
"""Bytes at the end of a log that are searched; errors are usually at the end."""

BLOCK = 1 << 20

UNEXPLAINED = (
    "the program ended with code {code} and wrote no error that is known: read its last lines (argosy logs), or "
    "trace it in a new job: sh -x SCRIPT, python -X dev PROGRAM, strace -f PROGRAM"
)

SILENT_ENDS = {128 + signal.SIGKILL: "killed", 128 + signal.SIGSEGV: "segfault", 128 + signal.SIGBUS: "bus-error"}
"""The symptom for the exit code of a rank that a signal ended; such a rank prints nothing itself."""


ENDED_BY_OTHERS = 128 + signal.SIGTERM
"""Exit code of a rank that the launcher ended because another one had failed."""

SILENT_RANK = "read the last lines of that rank (argosy logs JOB --rank R), and where its program exits with this code"


IMAGE_MISSING = "image-missing"
WAS_THERE = "the image was there when the job was launched, and somebody removed or moved it since: 'ls -l' of its path"


class Explained(msgspec.Struct, frozen=True):
    """A log, its known errors, and how the job ended or which rank failed first."""

    log: str
    errors: tuple[KnownError, ...]
    end: str = ""
    hint: str = ""
    """The next step for a job that failed without a known error; empty for others."""
    notes: tuple[str, ...] = ()
    """Mistakes in the user's or the system's files of known errors."""

    @property
    def failed(self) -> bool:
        """Whether an error ended the program, as far as the log shows."""
        return any(each.level not in HARMLESS_LEVELS for each in self.errors)


def explain_log(session: Session, log: str) -> Explained:
    """Find the known errors in a log. For a job that was ended from outside, symptoms are left out.

    Parameters
    ----------
    log
        A file, the number or name of a job, ``last`` for the newest job or run, or ``-`` for standard input.

    Raises
    ------
    UsageError
        When the file or job does not exist, or has written nothing.
    """
    known = read_known_errors(session.host.environment)
    return replace(_explain_log(session, log, known.signatures), notes=known.notes)


def _explain_log(session: Session, log: str, signatures: Sequence[Signature]) -> Explained:
    if log == "-":
        text, before = _read_stream_end(sys.stdin.buffer)
        piped = _find_errors(text, signatures)
        shown = tuple(replace(each, line=each.line + before) for each in piped)
        return Explained("standard input", shown, describe_first_rank(text, piped))
    path, facts = _find_log(session, log)
    text, before = _read_end(path)
    is_running = facts is not None and facts.kind == RUNNING
    all_errors = _find_errors(text, signatures, is_running=is_running)
    found = [_of_job(each, facts) for each in all_errors if facts is None or _is_relevant(each, facts)]
    if facts is None:
        end = describe_first_rank(text, found)
    else:
        end = facts.verdict if facts.kind == ENDED else f"{facts.subject} {facts.meaning}"
    failed = facts is not None and facts.code and state_word(facts.state) not in FROM_OUTSIDE
    is_known = any(each.level not in HARMLESS_LEVELS for each in found)
    hint = UNEXPLAINED.format(code=facts.code) if facts and failed and not is_known else ""
    return Explained(str(path), tuple(replace(each, line=each.line + before) for each in found), end, hint)


def _find_errors(text: str, signatures: Sequence[Signature], *, is_running: bool = False) -> tuple[KnownError, ...]:
    """Find the known errors; if a signal ended the rank that failed first, what others print about it comes later."""
    found = find_errors(text, signatures, is_running=is_running)
    first = find_first_failure(text_of_last_job(text))
    silent = first and first.code not in {ENDED_BY_OTHERS, *SILENT_ENDS}
    if first and silent and all(each.name in (*OF_OTHERS, *OF_LAUNCHERS) for each in found):
        cause = f"{first.text}, without an error that is known; the other ranks were ended then"
        return tuple(replace(each, cause=cause, fix=SILENT_RANK, often=()) for each in found[:1])
    symptom = SILENT_ENDS.get(first.code) if first else None
    if symptom is None or any(each.level not in {"symptom", *HARMLESS_LEVELS} for each in found):
        return found
    return tuple(sorted(found, key=lambda each: each.name != symptom))


def describe_first_rank(text: str, found: Sequence[KnownError]) -> str:
    """Name the rank that failed first: by the messages of srun or torchrun, else the one that wrote the first cause."""
    judged = find_first_failure(text_of_last_job(text))
    if judged:
        return judged.text
    cause = next((each for each in found if each.level in {"cause", "maybe", "end"}), None)
    return f"rank {cause.rank} wrote the first error" if cause and cause.rank else ""


def _of_job(error: KnownError, facts: JobFacts | None) -> KnownError:
    """Return an error with what is known about its job: whether it ended well, and that its launch had the image."""
    if facts and facts.record and error.name == IMAGE_MISSING:
        error = replace(error, often=(WAS_THERE, *(each for each in error.often if "mistyped" not in each)))
    ended_well = facts is not None and state_word(facts.state) == "COMPLETED" and not facts.code
    return replace(error, level="survived") if ended_well and error.level not in HARMLESS_LEVELS else error


def _is_relevant(error: KnownError, facts: JobFacts) -> bool:
    """Return whether an error may explain the end of a job; if it was ended from outside, symptoms do not."""
    return not (facts.code and state_word(facts.state) in FROM_OUTSIDE and error.level in {"symptom", *HARMLESS_LEVELS})


def _find_log(session: Session, log: str) -> tuple[Path, JobFacts | None]:
    """Return the file of a log, and, for a job, the facts about it."""
    path = Path(log)
    # Python 3.14's is_file() hides errors such as a name that is too long.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISREG(path.stat().st_mode):
            return path, None
    if not names_run(session, log):
        if log and path.is_dir():
            raise UsageError(f"{log!r} is a folder, not a log", hint="name a file in it")
        raise unknown_log(session, log, "give a file, the number or name of a job, 'last', or - for standard input")
    facts = find_run(session, log)
    refuse_unrecorded_output(facts)
    if not facts.output or not can_read(facts.output):
        raise UsageError(
            f"{facts.subject} has no output",
            evidence=f"it {facts.meaning}; output: {facts.output}",
            hint=f"see its state and its reason: argosy jobs show {facts.id}",
        )
    return Path(facts.output), facts


def _read_end(path: Path) -> tuple[str, int]:
    """Read the end of a log, and count the lines before it."""
    before = 0
    with reading(path), path.open("rb") as source:
        left = max(0, source.seek(0, 2) - MOST_BYTES)
        source.seek(0)
        while left > 0:
            block = source.read(min(left, BLOCK))
            before, left = before + block.count(b"\n"), left - max(1, len(block))
        return _decode(source.read(MOST_BYTES)), before


def _read_stream_end(source: IO[bytes]) -> tuple[str, int]:
    """Read the end of a stream, and count the lines before it."""
    end, before = b"", 0
    while block := source.read(BLOCK):
        end += block
        extra = max(0, len(end) - MOST_BYTES)
        before, end = before + end.count(b"\n", 0, extra), end[extra:]
    return _decode(end), before


def _decode(data: bytes) -> str:
    """Decode a log: UTF-8, or UTF-16 as older versions of PowerShell write output to a file."""
    for encoding, zeros in (("utf-16-le", data[1::2]), ("utf-16-be", data[::2])):
        if zeros.count(0) > len(zeros) // 2:
            return data.decode(encoding, errors="replace").lstrip("\ufeff")
    return data.decode(errors="replace")


def _errors_of_last_run(session: Session, output: Path) -> tuple[KnownError, ...]:
    """Find the known errors of a job's last run. A requeued job appends to its output."""
    known = read_known_errors(session.host.environment)
    for note in known.notes:
        session.reporter.note(note)
    text, before = _read_end(output)
    for start, run in last_runs(text):
        if found := _find_errors(run, known.signatures):
            lines = before + text.count("\n", 0, start)
            return tuple(replace(each, line=each.line + lines) for each in found)
    return ()


def explain_job_end(session: Session, facts: JobFacts) -> str:
    """Render the first cause of a failed job with its fix; empty if no error is known or nothing failed."""
    if facts.code == 0 or not facts.output or not can_read(facts.output):
        return ""
    found = _errors_of_last_run(session, Path(facts.output))
    relevant = [each for each in found if _is_relevant(each, facts) and each.level not in HARMLESS_LEVELS]
    return _render_error(_of_job(relevant[0], facts), facts.output) if relevant else ""
