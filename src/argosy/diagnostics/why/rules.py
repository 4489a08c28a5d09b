"""Read the known errors, find them in logs, and separate causes from symptoms."""

from __future__ import annotations

import bisect
import contextlib
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import parse_toml
from argosy.core.records import replace
from argosy.core.session import Session, config_folder
from argosy.jobs.first_failure import last_runs
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import can_read
from argosy.slurm.text import ENDED, FROM_OUTSIDE, is_job_id

SHIPPED = Path(__file__).with_name("signatures.toml")

Level = Literal["cause", "maybe", "symptom"]
LEVELS: tuple[Level, ...] = ("cause", "maybe", "symptom")


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known error.

    Attributes
    ----------
    match
        Regular expression, searched in each line.
    needs
        Words without digits. A line that matches contains at least one of them; empty if that is unknown.
    level
        ``cause``, ``maybe`` (not always the reason) or ``symptom`` (follows from another error).
    example
        A line as a program prints it.
    """

    name: str
    match: str
    needs: tuple[str, ...] = ()
    cause: str
    fix: str
    source: str = ""
    level: Level = "cause"
    example: str = ""

    def __post_init__(self) -> None:
        """Reject an invalid regular expression."""
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match of {self.name!r} is not a regular expression: {error}") from error


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: tuple[Signature, ...] = ()


def signature_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of signatures: the user's, the system's, then the shipped one."""
    folder = config_folder(environment)
    own = (folder / "signatures.toml",) if folder else ()
    return (*(path for path in (*own, Path("/etc/argosy/signatures.toml")) if path.is_file()), SHIPPED)


def read_signatures(files: Iterable[Path] = (SHIPPED,)) -> tuple[Signature, ...]:
    """Read signatures. If two have the same name, the first one counts.

    Raises
    ------
    UsageError
        When a file cannot be read or is invalid.
    """
    found: dict[str, Signature] = {}
    for path in files:
        try:
            table = msgspec.convert(parse_toml(path.read_text(encoding="utf-8")), _File)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(
                "cannot read the known errors",
                evidence=f"{path}: {error}",
                hint="a signature needs name, match, cause and fix; needs, source, level and example are optional",
            ) from error
        for signature in table.signature:
            found.setdefault(signature.name, signature)
    return tuple(found.values())


NO_DIGITS = str.maketrans("", "", "0123456789")


def without_digits(lines: Iterable[str]) -> str:
    """Return the lines without their digits, each once."""
    return "\n".join({line.translate(NO_DIGITS) for line in lines})


LONGEST_LINE = 2000
"""Characters of a line that are searched. A progress bar or a dump can write a line of megabytes."""

SHOWN = 200


class KnownError(msgspec.Struct, frozen=True):
    """A known error in a text.

    Attributes
    ----------
    line
        Number of the first line with the error, from 1.
    text
        That line, shortened.
    times
        Number of lines with the error.
    """

    name: str
    level: str
    line: int
    text: str
    times: int
    cause: str
    fix: str
    source: str


def find_errors(text: str, signatures: Sequence[Signature]) -> tuple[KnownError, ...]:
    """Find the known errors of a text: causes first, in the order of the text, then symptoms."""
    numbered = tuple(_split(text))
    lines = [line for _, line in numbered]
    whole, starts = "\n".join(lines), _starts(lines)
    first: dict[str, int] = {}
    times: dict[str, int] = {}
    taken: set[int] = set()
    # Most lines of a log differ only in their digits, so searching this short text first is ten times faster.
    short = without_digits(lines)
    for signature in signatures:
        if signature.needs and not any(word in short for word in signature.needs):
            continue
        for number in sorted(set(_matches(signature, whole, starts)) - taken):
            first.setdefault(signature.name, number)
            times[signature.name] = times.get(signature.name, 0) + 1
            taken.add(number)
    found = [
        KnownError(
            s.name,
            s.level,
            numbered[first[s.name]][0],
            _short(lines[first[s.name]]),
            times[s.name],
            s.cause,
            s.fix,
            s.source,
        )
        for s in signatures
        if s.name in first
    ]
    return tuple(sorted(found, key=lambda each: (LEVELS.index(each.level), each.line)))


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Split a text into lines with their numbers from 1. The parts of a progress bar share one, as in an editor."""
    for number, line in enumerate(text.split("\n"), 1):
        for part in line.split("\r"):
            yield number, part[:LONGEST_LINE]


def _matches(signature: Signature, text: str, starts: Sequence[int]) -> Iterator[int]:
    """Find the line numbers (from 0) that match a signature. Searching the whole text is faster than each line."""
    for match in re.finditer(signature.match, text, re.MULTILINE):
        yield bisect.bisect_right(starts, match.start()) - 1


def _starts(lines: Sequence[str]) -> list[int]:
    starts, offset = [], 0
    for line in lines:
        starts.append(offset)
        offset += len(line) + 1
    return starts


def _short(line: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in line).strip()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _count(error: KnownError) -> str:
    return f", {error.times} times" if error.times > 1 else ""


def _render_error(error: KnownError, log: str) -> str:
    """Render a known error: place, cause, fix and source."""
    perhaps = "perhaps " if error.level == "maybe" else ""
    lines = [
        f"{log}{':' if log else 'line '}{error.line}{_count(error)}: {error.text}",
        f"  cause  {perhaps}{error.cause}",
        f"  fix    {error.fix}",
    ]
    return "\n".join([*lines, f"  see    {error.source}"] if error.source else lines)


def render_errors(errors: Sequence[KnownError], log: str = "") -> str:
    """Render the causes in full and the symptoms in one line each; without a cause, the first symptom in full."""
    causes = [each for each in errors if each.level != "symptom"]
    full = causes or list(errors[:1])
    rest = [each for each in errors if each not in full]
    lines = [_render_error(each, log) for each in full]
    lines += [f"line {each.line}{_count(each)}: {each.cause}" for each in rest]
    return "\n".join(lines)


MOST_BYTES = 2 << 20
"""Bytes at the end of a log that are searched; errors are usually at the end."""

BLOCK = 1 << 20


class Explained(msgspec.Struct, frozen=True):
    """A log, its known errors, and, for a job, how it ended."""

    log: str
    errors: tuple[KnownError, ...]
    end: str = ""


def explain_log(session: Session, log: str) -> Explained:
    """Find the known errors in a log. For a job that was ended from outside, symptoms are left out.

    Parameters
    ----------
    log
        A file, a job number, or ``-`` for standard input.

    Raises
    ------
    UsageError
        When the file or job does not exist, or has written nothing.
    """
    signatures = read_signatures(signature_files(session.host.environment))
    if log == "-":
        text, before = _read_stream_end(sys.stdin.buffer)
        piped = find_errors(text, signatures)
        return Explained("standard input", tuple(replace(each, line=each.line + before) for each in piped))
    path, facts = _find_log(session, log)
    text, before = _read_end(path)
    found = [each for each in find_errors(text, signatures) if facts is None or _is_relevant(each, facts)]
    end = facts.verdict if facts and facts.kind == ENDED else f"job {log} {facts.meaning}" if facts else ""
    return Explained(str(path), tuple(replace(each, line=each.line + before) for each in found), end)


def _is_relevant(error: KnownError, facts: JobFacts) -> bool:
    """Return whether an error may explain the end of a job; if it was ended from outside, symptoms do not."""
    return not (facts.code and facts.state.partition(" ")[0] in FROM_OUTSIDE and error.level == "symptom")


def _find_log(session: Session, log: str) -> tuple[Path, JobFacts | None]:
    """Return the file of a log, and, for a job number, the facts about the job."""
    path = Path(log)
    # Python 3.14's is_file() hides errors such as a name that is too long.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISREG(path.stat().st_mode):
            return path, None
    if not is_job_id(log):
        raise UsageError(f"there is no log {log!r}", hint="give a file, a job number, or - for standard input")
    facts = find_job(session, log, or_record=True)
    if not facts.output or not can_read(facts.output):
        raise UsageError(
            f"job {log} has no output",
            evidence=f"it {facts.meaning}; output: {facts.output}",
            hint=f"see its state and its reason: argosy jobs show {log}",
        )
    return Path(facts.output), facts


def _read_end(path: Path) -> tuple[str, int]:
    """Read the end of a log, and count the lines before it.

    Raises
    ------
    UsageError
        When it cannot be read.
    """
    before, left = 0, 0
    try:
        with path.open("rb") as source:
            left = max(0, source.seek(0, 2) - MOST_BYTES)
            source.seek(0)
            while left > 0:
                block = source.read(min(left, BLOCK))
                before, left = before + block.count(b"\n"), left - max(1, len(block))
            return source.read(MOST_BYTES).decode(errors="replace"), before
    except OSError as error:
        raise UsageError(f"cannot read the log {path}", evidence=str(error), hint="check the path") from error


def _read_stream_end(source: IO[bytes]) -> tuple[str, int]:
    """Read the end of a stream, and count the lines before it."""
    end, before = b"", 0
    while block := source.read(BLOCK):
        end += block
        extra = max(0, len(end) - MOST_BYTES)
        before, end = before + end.count(b"\n", 0, extra), end[extra:]
    return end.decode(errors="replace"), before


def _errors_of_last_run(session: Session, output: Path) -> tuple[KnownError, ...]:
    """Find the known errors of a job's last run. A requeued job appends to its output."""
    signatures = read_signatures(signature_files(session.host.environment))
    text, before = _read_end(output)
    for start, run in last_runs(text):
        if found := find_errors(run, signatures):
            lines = before + text.count("\n", 0, start)
            return tuple(replace(each, line=each.line + lines) for each in found)
    return ()


def explain_job_end(session: Session, facts: JobFacts) -> str:
    """Render the first cause of a failed job with its fix; empty if no error is known or nothing failed."""
    if not facts.code or not facts.output or not can_read(facts.output):
        return ""
    found = _errors_of_last_run(session, Path(facts.output))
    relevant = [each for each in found if _is_relevant(each, facts)]
    return _render_error(relevant[0], facts.output) if relevant else ""
