"""Find the error of the program itself: the uncaught exception that ended it; pure.

It is the cause if no known error explains the failure. An exception that the program caught, for example while it
looked for an optional package, is not a cause: ordinary output follows it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

HEADER = "Traceback (most recent call last)"
FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|:)?$")
BARE = re.compile(
    r"(?:\[rank\d+\]:? ?|E +|\(\w[^()]*\) |ERROR: )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|NotFound)): (\S.*)"
)
"""An exception without its traceback."""
OTHERS = re.compile(
    r"ERROR: (LoadError: .+)|forrtl: (severe \(\d+\): .+)|Fortran runtime error: (.+)"
    r"|(\S+: \S+:\d+: .+: Assertion [`'].*' failed)|thread '.+' (?:\(\d+\) )?panicked at (.+)|panic: (.+)"
    r"|Exception in thread \"[^\"]*\" (.+)|(Error in \S.* : .*)"
    r"|[\d\-:. ]*F \S+:\d+\] (Check failed: .+)|(--> FOAM FATAL .+)|ERROR(?: on proc \d+)?: (.+ \(\S+\.cpp:\d+\))"
)
"""Errors that end programs in Julia, Fortran, C, Rust, Go, Java and R, and those of TensorFlow, OpenFOAM and LAMMPS."""
CPP = re.compile(r"terminate called after throwing an instance of '([^']+)'")
WHAT = re.compile(r"\s*what\(\): +(.*)")
USAGE = re.compile(
    r"[\w./-]+(?: [\w-]+)?: error: ((?:unrecognized|argument|the following|ambiguous|invalid|one of) .*)"
)
"""Refusal of arguments by Python's argparse."""

CONSEQUENCES = re.compile(
    r"(ChildFailedError|DistBackendError|DistNetworkError|DistStoreError|BrokenPipeError|ConnectionResetError"
    r"|ConnectionAbortedError|KeyboardInterrupt|SystemExit|SignalException|GracefulShutdown|ProcessExitedException"
    r"|ProcessRaisedException|CalledProcessError|HorovodInternalError|ActorDiedError|RayActorError|WorkerCrashedError"
    r"|EngineDeadError|EngineGenerationError|BrokenProcessPool|RemoteTraceback|EOFError|CancelledError)$"
)
"""Exceptions that follow from the end of another process."""
CONSEQUENT = re.compile(
    r"(?i)watchdog|engine core initialization failed|engine process failed|workerproc initialization failed"
    r"|see root cause above|connection closed|broken pipe|nccl error|child process|returned non-zero exit"
    r"|worker .*(died|exited)|terminated unexpectedly|aborted due to"
)
"""Messages of exceptions that follow from the end of another process."""
AT_EXIT = re.compile(r"Exception ignored in|Error in atexit|Logging error|never retrieved|Error in sys\.excepthook")
"""A line before a traceback that does not end the program."""
CHAINED = re.compile(r"(The above exception was the direct|During handling of the above)")
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen|^<|/bin/\w+$")
PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")

MOST_FRAMES = 600
"""Lines of a traceback that are read."""
WENT_ON = 12
"""Lines of ordinary output after an exception that show that the program continued."""
FAILURE_TALK = re.compile(
    r"(?i)^\s|^$|error|fail|abort|traceback|terminat|killed|kill |signal|core dumped|exit|srun:|slurmstepd|nccl|torch"
    r"|rank|wandb|exception|^[=*+|-]{3}|cancel|warn|time *:|host *:|closing|shut|stack|frame|\bat \w|^#\d|root cause"
    r"|argosy:|^\[|^\(|shm|leaked|nohup|mpi|process|compar|restart|hint|note:|please|see |see:|try "
)
"""Lines that are usual after a failure."""


class ProgramError(msgspec.Struct, frozen=True):
    """An exception that ended the program.

    Attributes
    ----------
    at
        Line of its message, from 0.
    """

    at: int
    cause: str
    fix: str


class Raised(msgspec.Struct, frozen=True):
    """An exception in a log.

    Attributes
    ----------
    start, at
        Lines, from 0, where its traceback begins and where its message is.
    file, number
        The user's line that raised it, or called the package that did.
    package
        The package that raised it; empty for the user's code.
    """

    start: int
    at: int
    name: str
    message: str = ""
    file: str = ""
    number: str = ""
    package: str = ""


def find_program_error(lines: Sequence[str], explained: Container[int]) -> ProgramError | None:
    """Return the first exception that ended the program; None if there is none or a known error explains it.

    Parameters
    ----------
    explained
        Lines (from 0) with a known error.
    """
    raised = list(_find_tracebacks(lines) if any(HEADER in line for line in lines) else _find_bare(lines))
    own = [each for each in _last_failure(lines, raised) if not _is_consequence(each)]
    if not own or own[0].at in explained:
        return None
    return _describe(own[0])


def _is_consequence(raised: Raised) -> bool:
    return bool(CONSEQUENCES.search(raised.name) or CONSEQUENT.search(raised.message))


def _last_failure(lines: Sequence[str], raised: Sequence[Raised]) -> list[Raised]:
    """Return the exceptions after which the program did not go on."""
    ends: list[Raised] = []
    until = len(lines)
    for each in reversed(raised):
        ordinary = sum(1 for line in lines[each.at + 1 : until] if not FAILURE_TALK.search(line))
        if ordinary > WENT_ON:
            break
        ends.append(each)
        until = each.start
    return ends[::-1]


def _find_tracebacks(lines: Sequence[str]) -> Iterator[Raised]:
    """Find the last exception of each chain of tracebacks."""
    last: Raised | None = None
    for start, line in enumerate(lines):
        if HEADER not in line:
            continue
        if any(AT_EXIT.search(each) for each in lines[max(0, start - 2) : start]):
            continue
        raised = _read_traceback(lines, start, line[: line.index(HEADER)])
        if raised is None:
            continue
        if last and not any(CHAINED.search(each) for each in lines[last.at + 1 : start]):
            yield last
        last = raised
    if last:
        yield last


def _read_traceback(lines: Sequence[str], start: int, prefix: str) -> Raised | None:
    """Read a traceback. Lines without its prefix, a label or spaces, are those of other ranks."""
    frames: list[tuple[str, str]] = []
    for at in range(start + 1, min(len(lines), start + MOST_FRAMES)):
        text = lines[at].removeprefix(prefix)
        if prefix and text == lines[at]:
            continue
        frame = FRAME.match(text)
        if frame:
            frames.append((frame[1], frame[2]))
        elif frames and (match := EXCEPTION.match(text.rstrip())):
            return _with_place(Raised(start, at, match[1], match[2] or ""), frames)
    return None


def _with_place(raised: Raised, frames: Sequence[tuple[str, str]]) -> Raised:
    """Add the user's last line, and the package that raised the exception."""
    own = [frame for frame in frames if not LIBRARY.search(frame[0])]
    file, number = (own or frames)[-1]
    inside = PACKAGE.search(frames[-1][0])
    package = inside[1] if inside else ""
    return Raised(raised.start, raised.at, raised.name, raised.message, file, number, package)


def _find_bare(lines: Sequence[str]) -> Iterator[Raised]:
    """Find exceptions without their traceback, errors of other languages, and refused arguments."""
    for at, line in enumerate(lines):
        if match := BARE.match(line):
            yield Raised(at, at, match[1], match[2])
        elif match := CPP.match(line):
            what = WHAT.match(lines[at + 1]) if at + 1 < len(lines) else None
            yield Raised(at, at, match[1], what[1] if what else "")
        elif match := USAGE.match(line):
            yield Raised(at, at, "refused", match[1])
        elif match := OTHERS.match(line):
            yield Raised(at, at, next(filter(None, match.groups())))


def _describe(raised: Raised) -> ProgramError:
    """Describe an exception for the user."""
    message = raised.message[:120].strip()
    if raised.name == "refused":
        return ProgramError(
            raised.at,
            f"the program refused its arguments: {message}",
            "correct the arguments after '--'; 'PROGRAM --help' lists those that this version knows",
        )
    name = raised.name.rpartition(".")[2] if raised.name.replace(".", "").isidentifier() else raised.name[:120]
    error = f"{name}: {message}" if message else name
    if not raised.file:
        return ProgramError(
            raised.at,
            f"the program ended with {error}",
            "the traceback is not in this log: look for it in the logs of the other ranks, or set "
            "TORCHELASTIC_ERROR_FILE or PYTHONFAULTHANDLER=1 and run it again",
        )
    place = f"{PurePosixPath(raised.file).name}:{raised.number}"
    inside = f", in the package {raised.package}" if raised.package else ""
    fix = (
        f"read line {raised.number} of {raised.file}, which called the package; compare its arguments with the "
        f"documentation of the installed version of {raised.package}"
        if raised.package
        else f"read line {raised.number} of {raised.file}, where it was raised, and correct it or its input"
    )
    return ProgramError(raised.at, f"the program raised {error} at {place}{inside}", fix)
