"""Find the error of the program itself: the uncaught exception that ended it; pure.

It is the cause if no known error explains the failure. An exception that the program caught, for example while it
looked for an optional package, is not a cause: ordinary output follows it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from argosy.core.records import replace
from argosy.diagnostics.why.message import find_advice, next_step
from argosy.diagnostics.why.phrases import LineKind, explain_exception
from argosy.jobs.outputs import TRACEBACK

FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)(?:, in (\w+))?')
LABELLED_FRAME = re.compile(r'(.*\S ?)  File "')
"""A frame after the label of a logger, for example that of vLLM."""
EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|:)?$")
ANNOTATED = re.compile(r"[a-z_]\w*: [\w.\[\], |]+ = \S")
"""A line of code that looks like an exception in a traceback whose indentation was lost."""
BARE = re.compile(
    r"(?:\d{4}-\d\d-\d\d[ T][\d:.,]+Z?:? (?:- \S+ - \w+ - )?)?(?:\[rank\d+\]:? ?|E +|\(\w[^()]*\) |ERROR: )?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ \[?[\w./]+:\d+\] )?"
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|NotFound)): (\S.*)"
)
"""An exception without its traceback."""
OTHERS = re.compile(
    r"ERROR: (LoadError: .+)|forrtl: (severe \(\d+\): (?!SIG).+)|Fortran runtime error: (.+)"
    r"|thread '.+' (?:\(\d+\) )?panicked at (.+)|panic: (.+)"
    r"|Exception in thread \"[^\"]*\" (.+)|(Error in \S.* :(?: .*)?$)"
    r"|[\d\-:. ]*F \S+:\d+\] (Check failed: .+)|(?:\[[\d:]+\] \S+:\d+: )+(Check failed: .+)"
    r"|(--> FOAM FATAL .+)|ERROR(?: on proc \d+)?: (.+ \(\S+\.cpp:\d+\))"
)
"""Errors that end programs in Julia, Fortran, C, Rust, Go, Java and R, and those of TensorFlow, OpenFOAM and LAMMPS."""
ASSERTION = re.compile(r"(?:\S+: )?(\S+?):(\d+): .*Assertion [`'](.+)' failed")
"""The assertion of C that ended a program, with its file and line."""
CPP = re.compile(r"terminate called after throwing an instance of '([^']+)'")
WHAT = re.compile(r"\s*what\(\): +(.*)")
USAGE = re.compile(
    r"(?:[\w.-]+: )?[\w./-]+(?: [\w-]+)?: error: ((?:unrecognized|argument|the following|ambiguous|invalid|one of) .*)"
)
"""Refusal of arguments by Python's argparse."""
NO_VALUE = re.compile(r"expected (?:one|at least one|\d+) arguments?$|: invalid \w+ value: ''$")
"""The reason of a refusal if an option has no value."""
ARGUMENTS_REFUSED = "refused"
"""Name of that error."""

FAILED_COMMAND = "CalledProcessError"
"""The exception of a command that failed; usually, its own message explains the failure."""

AT_EXIT = re.compile(r"Exception ignored in|Error in atexit|Logging error|never retrieved|Error in sys\.excepthook")
"""A line before a traceback that does not end the program."""
CHAINED = re.compile(r"(The above exception was the direct|During handling of the above)")
CAUSED = "The above exception was the direct"
STAMP = re.compile(r"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d[\d.,:]*(?:Z|[+-]\d\d:?\d\d)?\]?:? ?(?=\S| )")
"""The time in front of a line. It differs between the lines of one traceback."""
BOXED = re.compile(r"[╭+][─-]+ Traceback \(most recent call last\) ")
"""The upper border of a traceback in a box, as the package rich prints it."""
BOXED_FRAME = re.compile(r"\s*[│|]\s*(\S+\.py):(\d+) in (\w*)")
BOX_END = re.compile(r"\s*[╰+][─-]{8}")
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen|^<|/bin/\w+$|\.p(?:yx|x[di])$")
PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)|^(?:src/)?(\w+)/\S+\.p(?:yx|x[di])$")
TYPED = {"<string>": "the program after 'python -c'", "<stdin>": "the program on standard input"}
"""Python's name of a program that is not in a file -> what it is."""
INSTALLED = re.compile(r"^/(?:opt|usr|apps?|appl|sw|software|cvmfs|cray|soft)/|/libexec/|/EasyBuild/|/[Ss]pack/")
"""A program that the user runs but did not write."""

SHOWN = 120
"""Characters of a message that are shown."""
LONGEST = 1000
"""Characters of a message that are read."""
MOST_FRAMES = 600
"""Lines of a traceback that are read."""
NEAR = 30
"""Lines after the head of a traceback among which one has its label, also if several ranks write at once."""
OTHER_VERSION = re.compile(r"has no attribute|unexpected keyword argument|positional arguments?\b|cannot import name")
"""Messages of a program that was written for another version of a package."""


class ProgramError(msgspec.Struct, frozen=True):
    """An exception that ended the program."""

    at: int
    """Line of its message, from 0."""
    cause: str
    fix: str
    often: tuple[str, ...] = ()


class Raised(msgspec.Struct, frozen=True):
    """An exception in a log."""

    at: int
    """Line of its message, from 0."""
    name: str
    message: str = ""
    file: str = ""
    number: str = ""
    """The user's line that raised it, or called the package that did."""
    code: str = ""
    """The text of that line; empty if the log does not show it."""
    package: str = ""
    """The package that raised it; empty for the user's code."""
    function: str = ""
    """The function that raised it."""
    because: str = ""
    """The exception from which the program raised this one, with its message; empty if there is none."""


class Frame(msgspec.Struct, frozen=True):
    """A frame of a traceback."""

    file: str
    number: str
    function: str
    code: str = ""


NO_ERROR = re.compile(
    r"\bUCX +(?:DEBUG|TRACE|DATA|REQ|FUNC|POLL|ASYNC)\b"
    r"|(?:\bINFO\b.*|\[I\] |^I\d{4} .*)Unable to initialize backend '\w+': "
    r"|^to explain the failure, record the output: "
    r"|torch/_inductor/select_algorithm\.py:\d+\] |\bFailed to set NUMA affinity: "
)
"""Debug messages of UCX, those of JAX, PyTorch and verl about parts that they can do without, and Argosy's advice."""
LOGGER_LEVEL = re.compile(r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b")
"""Levels of a logger that writes a traceback of an exception after which the program continued."""

WARNS = re.compile(r"\bWARN(?:ING)?\b")
"""The level of a line above an exception of Java that the program only reports."""
LOGGED_ABOVE = re.compile(r"\[W \d{4}-|\S+ WARNING\b")
"""A line of a logger, for example of Jupyter, above the indented traceback of an exception that it only reports."""


def hide_ignored(lines: Sequence[str]) -> list[str]:
    """Return the lines without messages that report no error, and tracebacks that Python or a logger ignored.

    The process that cleans up shared memory also continues: it reports names that the ended processes had removed.
    """
    shown = ["" if NO_ERROR.search(line) else line for line in lines]
    for start, line in enumerate(lines):
        if AT_EXIT.search(line) and BARE.match("".join(lines[start + 1 : start + 2])):
            shown[start + 1] = ""
        if TRACEBACK not in line:
            continue
        label = line[: line.index(TRACEBACK)]
        raised = _read_traceback(lines, start, label)
        of_tracker = raised is not None and raised.file.endswith("multiprocessing/resource_tracker.py")
        is_logged = LOGGER_LEVEL.search(label) or (
            label.isspace() and LOGGED_ABOVE.match("".join(lines[start - 1 : start]))
        )
        if of_tracker or is_logged or any(AT_EXIT.search(each) for each in lines[max(0, start - 2) : start]):
            end = raised.at if raised else start
            shown[start : end + 1] = [""] * (end + 1 - start)
    return shown


def find_raised(lines: Sequence[str]) -> list[Raised]:
    """Find the uncaught exceptions of a log: in Python those with a traceback, else those without one."""
    lines = [STAMP.sub("", line, count=1) if STAMP.match(line) else line for line in lines]
    find = _find_tracebacks if any(TRACEBACK in line for line in lines) else _find_bare
    # A launcher, for example torchrun, prints a traceback of its own after a program refused its arguments.
    return sorted((*find(lines), *_find_thrown(lines), *_find_refused(lines)), key=lambda each: each.at)


def find_program_error(raised: Sequence[Raised], start: int, explained: Container[int]) -> ProgramError | None:
    """Return the first exception that ended the program; None if there is none or a known error explains it.

    Parameters
    ----------
    start
        Line (from 0) where the failure begins.
    explained
        Lines (from 0) with a known error.
    """
    own = [each for each in raised if each.at >= start and not _is_consequence(each)]
    if own and all(each.name == ARGUMENTS_REFUSED for each in own):
        own = own[-1:]  # of several attempts that were appended to one log
    return None if not own or own[0].at in explained else _describe(own[0])


def find_failed_command(raised: Sequence[Raised], start: int) -> ProgramError | None:
    """Return the exception of a command that the program started, for a log that does not show why it failed."""
    return next((_describe(each) for each in raised if each.at >= start and each.name.endswith(FAILED_COMMAND)), None)


def _is_consequence(raised: Raised) -> bool:
    # torch's spawn raises a plain Exception, whose message is the traceback of another process.
    if raised.name == "Exception" and not raised.message:
        return True
    return LineKind.CONSEQUENCE.matches(f"{raised.name}: {raised.message}")


def _find_tracebacks(lines: Sequence[str]) -> Iterator[Raised]:
    """Find the last exception of each chain of tracebacks."""
    last: Raised | None = None
    for start, line in enumerate(lines):
        if TRACEBACK not in line:
            continue
        boxed = BOXED.search(line)
        raised = _read_box(lines, start) if boxed else _read_traceback(lines, start, line[: line.index(TRACEBACK)])
        if raised is None:
            continue
        between = lines[last.at + 1 : start] if last else ()
        if last and any(CAUSED in each for each in between):
            raised = last if _is_raised_again(last, raised) else replace(raised, because=_reason(last, raised))
        elif last and not any(CHAINED.search(each) for each in between):
            yield last
        last = raised
    if last:
        yield last


def _is_raised_again(reason: Raised, raised: Raised) -> bool:
    """Return whether an exception is the same as its reason, raised again at another place that shows nothing new."""
    is_elsewhere = bool(reason.file) and (reason.file, reason.number) != (raised.file, raised.number)
    return is_elsewhere and reason.name == raised.name and raised.message in {"", reason.message}


def _reason(reason: Raised, raised: Raised) -> str:
    """Return the exception because of which another one was raised; empty if it says the same."""
    said = reason.because or _name_with_message(reason)
    return "" if said == _name_with_message(raised) else said


def _read_traceback(lines: Sequence[str], start: int, prefix: str) -> Raised | None:
    """Read a traceback. Lines without its prefix, a label or spaces, are those of other ranks."""
    frames: list[Frame] = []
    near = lines[start + 1 : start + 1 + NEAR]
    if not any(line.startswith(prefix) for line in near):
        # A progress bar that was not ended, or a message between the label and the traceback.
        labels = (match[1] for line in near if (match := LABELLED_FRAME.match(line)))
        prefix = next((label for label in labels if label in prefix), "")
    for at in range(start + 1, min(len(lines), start + MOST_FRAMES)):
        text = lines[at].removeprefix(prefix)
        if prefix and text == lines[at]:
            continue
        frame = FRAME.match(text)
        if frame:
            frames.append(Frame(frame[1], frame[2], frame[3] or ""))
        elif frames and not frames[-1].code and text.startswith("    "):
            frames[-1] = replace(frames[-1], code=text.strip())
        elif frames and not ANNOTATED.match(text) and (match := EXCEPTION.match(text.rstrip())):
            asserted = frames[-1].code if match[1] == "AssertionError" else ""
            message = match[2] or (asserted if asserted.startswith("assert ") else _message_below(lines, at, prefix))
            return _with_place(Raised(at, match[1], message), frames)
    return None


def _read_box(lines: Sequence[str], start: int) -> Raised | None:
    """Read a traceback in a box; the exception follows the box."""
    frames: list[Frame] = []
    ended = False
    for at in range(start + 1, min(len(lines), start + MOST_FRAMES)):
        if frame := BOXED_FRAME.match(lines[at]):
            frames.append(Frame(frame[1], frame[2], frame[3] or ""))
        elif ended and (match := EXCEPTION.match(lines[at].strip())):
            raised = Raised(at, match[1], match[2] or _message_below(lines, at, ""))
            return _with_place(raised, frames) if frames else raised
        ended = ended or bool(BOX_END.match(lines[at]))
    return None


def _message_below(lines: Sequence[str], at: int, prefix: str) -> str:
    """Return the message in the lines after 'RuntimeError:', as compiled modules write it."""
    if not lines[at].rstrip().endswith(":"):
        return ""
    below = (line.removeprefix(prefix).strip() for line in lines[at + 1 : at + 3])
    first = next(filter(None, below), "")
    return "" if first.startswith("--") or TRACEBACK in first else first


def _with_place(raised: Raised, frames: Sequence[Frame]) -> Raised:
    """Add the user's last line, and the package and the function that raised the exception."""
    own = [frame for frame in frames if not LIBRARY.search(frame.file)]
    if not own and frames[0].file in TYPED:
        own = [frames[0]]
    last = (own or frames)[-1]
    inside = PACKAGE.search(frames[-1].file)
    package = (inside[1] or inside[2]) if inside else ""
    return replace(
        raised, file=last.file, number=last.number, code=last.code, package=package, function=frames[-1].function
    )


def _find_refused(lines: Sequence[str]) -> Iterator[Raised]:
    for at, line in enumerate(lines):
        if match := USAGE.match(line):
            yield Raised(at, ARGUMENTS_REFUSED, match[1])


def _find_thrown(lines: Sequence[str]) -> Iterator[Raised]:
    """Find exceptions of C++ that ended the program."""
    for at, line in enumerate(lines):
        if match := CPP.search(line):
            what = WHAT.match(lines[at + 1]) if at + 1 < len(lines) else None
            yield Raised(at + bool(what), match[1], what[1] if what else "")


def _find_bare(lines: Sequence[str]) -> Iterator[Raised]:
    """Find exceptions without their traceback, and errors of other languages."""
    for at, line in enumerate(lines):
        if match := BARE.match(line):
            above = lines[at - 1] if at else ""
            if not (WARNS.search(above) and match[2] in above):
                yield Raised(at, match[1], match[2])
        elif match := ASSERTION.match(line):
            yield Raised(at, "assertion", match[3], match[1], match[2])
        elif match := OTHERS.match(line):
            message = next(filter(None, match.groups())).rstrip()
            below = "".join(lines[at + 1 : at + 2]).strip()
            yield Raised(at, f"{message} {below}" if message.endswith(":") else message)


def _describe(raised: Raised) -> ProgramError:
    message = raised.message[:SHOWN].strip()
    if raised.name == ARGUMENTS_REFUSED:
        cause = f"the program refused its arguments: {message}"
        if NO_VALUE.search(message):
            return ProgramError(raised.at, cause, "print the command (set -x): often a variable in it is empty")
        fix = "correct the arguments of the program; its option --help lists those that this version knows"
        return ProgramError(raised.at, cause, fix)
    if raised.name == "assertion":
        place = f"{PurePosixPath(raised.file).name}:{raised.number}"
        return ProgramError(
            raised.at,
            f"the program stopped, since its check '{message}' failed at {place}",
            f"read line {raised.number} of {raised.file}: it says what the program requires of its input",
        )
    named = re.fullmatch(r"[\w.:]+\w", raised.name)
    error = _name_with_message(raised) if named else f"the message '{raised.name[:SHOWN].strip()}'"
    because = f", because of {raised.because}" if raised.because else ""
    meaning = explain_exception(_name_with_message(raised, LONGEST), raised.code, raised.package)
    says = f": {meaning.says}" if meaning.says else ""
    advice = find_advice(raised.message)
    if not raised.file:
        cause, fix = f"the program ended with {error}{because}{says}", advice or next_step(error)
    else:
        place = f"at {PurePosixPath(raised.file).name}:{raised.number}"
        if raised.file in TYPED:
            place = f"in {_line(raised)}"
        inside = f", in the package {raised.package}" if raised.package else ""
        cause, fix = f"the program raised {error} {place}{inside}{because}{says}", advice or _next_step(raised)
    return ProgramError(raised.at, cause, fix, meaning.often)


def _line(raised: Raised) -> str:
    return f"line {raised.number} of {TYPED.get(raised.file, raised.file)}"


def _name_with_message(raised: Raised, most: int = SHOWN) -> str:
    """Return the name of an exception without its module, and the begin of its message or else its function."""
    name, message = raised.name.rpartition(".")[2], raised.message[:most].strip()
    if message:
        return f"{name}: {message}"
    return f"{name} in {raised.function}" if raised.function else name


def _next_step(raised: Raised) -> str:
    """Say which line to read, and with what to compare it."""
    versions = "; if it worked before, compare the versions of the packages" * bool(
        OTHER_VERSION.search(raised.message)
    )
    code = f" ({raised.code[:SHOWN]})" if raised.code else ""
    line = f"read {_line(raised)}{code}"
    if INSTALLED.search(raised.file):
        program = PurePosixPath(raised.file).name
        return f"check the files and options that the message is about; {program} is an installed program{versions}"
    if not raised.package:
        return f"{line}, where it was raised, and correct it or its input{versions}"
    if f"/{raised.package}/" in raised.file:
        return f"look above for what {raised.package} reports, and compare your input with its documentation{versions}"
    documentation = f"the documentation of the installed version of {raised.package}"
    return f"{line}, which called the package; compare its arguments with {documentation}{versions}"
