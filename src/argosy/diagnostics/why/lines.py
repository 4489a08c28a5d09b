"""Split a log into lines, and read which rank wrote each of them; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from argosy.jobs.outputs import TRACEBACK
from argosy.slurm.messages import STEPD

LONGEST_LINE = 2000
"""Characters of a line that are searched. A progress bar or a dump can write a line of megabytes."""

COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
"""A command to the terminal, for example for a colour. It would hide where a word begins."""

LABEL = re.compile(r"\s*(\d+): ?(?!\d\d[:-])|\[\d+,(\d+)\]<std\w+>: ?")
"""Label of a line's rank: by ``srun --label``, or by ``mpirun --tag-output``."""
NAMED = re.compile(r"(?i)\[rank[ :]?(\d+)\]|\[Rank (\d+)\]|\brank[ =](\d+)\b")
"""A rank in the text of a line, as PyTorch writes it."""
LABELLED_SHARE = 0.5
"""Share of lines with a label from which on the log is taken for labelled: other programs number some lines."""

CANCELS = re.compile(STEPD + r"\*\*\*")
"""Begin of Slurm's message that it cancels a job or step."""
JOB_ENDED = re.compile(
    CANCELS.pattern + r" JOB (\d+) ON \S+ CANCELLED AT |The output \(if any\) is above this job summary"
)
"""Messages of Slurm, with the number of the job, and of LSF at the end of a job."""
STOPPED = re.compile(
    CANCELS.pattern + r" (?:JOB \d+ ON \S+ CANCELLED AT \S+ (?:DUE to SIGNAL [^\n]*)?\*\*\*"
    r"|(?:JOB|STEP) [^\n]*DUE TO TIME LIMIT)"
    r"|PBS: job killed: (?:walltime|cput)|TERM_RUNLIMIT|timeout: sending signal"
)
"""Messages that a program was ended from outside: at its time limit, or by a user. Its later lines show nothing."""
FROM_SLURM = re.compile(rf"srun: |slurmstepd\S*: |{STEPD}")
"""Begin of messages of Slurm, some of which have no label."""
SILENT = re.compile(rf"\W*$|{FROM_SLURM.pattern}")
"""Lines that are not the output of a program."""
LSF_REPORT = ("Sender: LSF System", "The output (if any)")
"""Begin of the first and of the last line of LSF's report of a job."""
LSF_END = re.compile(r"TERM_|Exited|Successfully|User defined signal")
"""Begin of the lines of that report that tell how the job ended."""
MOST_AFTER_END = 100
"""Lines that one job writes at most after this message; more are those of a later job that appended to the log."""
STACK = re.compile(
    r"\s*$|.* at (?:\S+ \(unknown line\)|\S+:\d+)|\[\d+\] signal |in expression starting at |unknown function "
)
"""Empty lines, and those of the stacks that a program of Julia prints for each thread when it is ended."""

TERMINALS = range(60, 241)
"""Widths of terminals."""
CUT_FRAME = re.compile(r'\s*File "[^"]*$')
"""A line of a traceback that ends in the name of a file, since the terminal was too narrow."""

NOHUP = "nohup: ignoring input"
"""Begin of what nohup writes before the output of its program."""

BEGIN = 2
"""Lines at the beginning of a log that come again where the next run of the same script was appended to it."""
LEAST_RUN = 12
"""Lines of the shortest run without a traceback."""
LEAST_BEGIN = 12
"""Characters of each of these lines: shorter ones are written more than once in a run."""
NO_DIGITS = str.maketrans("", "", "0123456789")


class Line(msgspec.Struct, frozen=True):
    """A line of a log."""

    number: int
    """From 1. The parts of a progress bar share one, as in an editor."""
    text: str
    """Without the label of the rank."""
    rank: str = ""
    """The rank that wrote it; empty if the log does not show it."""


def split_lines(text: str) -> tuple[Line, ...]:
    """Split a log into lines, without colours and the labels of their ranks."""
    lines = tuple(_split(COLOUR.sub("", text)))
    return tuple(_take_label(line) for line in lines) if _has_labels(lines) else lines


def lines_of_last_job(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines of the last job of a log to which several jobs were appended.

    The scheduler marks the end of a job, and nohup the beginning of a run. Else the log begins again after a traceback:
    with its first two lines, or with two others that came before the first traceback, for example where the output
    precedes the errors.
    """
    ends = [(at, match[1] or str(at)) for at, line in enumerate(lines) if (match := JOB_ENDED.match(line.text))]
    earlier = [at for at, job in ends if job != ends[-1][1]]
    if ends and sum(not STACK.match(line.text) for line in lines[ends[-1][0] + 1 :]) > MOST_AFTER_END:
        earlier.append(ends[-1][0])
    return lines[earlier[-1] + 1 :] if earlier else lines[max(_last_nohup(lines), _last_beginning(lines)) :]


def _last_nohup(lines: Sequence[Line]) -> int:
    """Return the line (from 0) at which the last run begins in a log to which nohup appended several; else 0."""
    first = next((line.text for line in lines if line.text.strip()), "")
    if not first.startswith(NOHUP):
        return 0
    return next(at for at in range(len(lines) - 1, -1, -1) if lines[at].text.startswith(NOHUP))


def _last_beginning(lines: Sequence[Line]) -> int:
    """Return the line (from 0) at which the last run begins: with lines that begin runs, after a traceback; else 0."""
    written = [(at, line.text.translate(NO_DIGITS)) for at, line in enumerate(lines) if line.text.strip()]
    pairs = [(text, following) for (_, text), (_, following) in pairwise(written)]
    beginnings = {pair for pair in (*pairs[:1], *_pairs_of_runs(pairs)) if _can_begin(pair)}
    begin, failed = 0, False
    for at, pair in enumerate(pairs):
        failed = failed or TRACEBACK in pair[0]
        # The last beginning may have been cut before the run did anything.
        if failed and pair in beginnings and (len(pairs) - at > LEAST_RUN or TRACEBACK in str(pairs[at:])):
            begin, failed = written[at][0], False
    return begin


def _can_begin(pair: tuple[str, str]) -> bool:
    return all(len(text) >= LEAST_BEGIN and TRACEBACK not in text for text in pair)


def _pairs_of_runs(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines that come before the first traceback, and mostly directly after the others."""
    tracebacks = [at for at, (text, _) in enumerate(pairs) if TRACEBACK in text]
    if len(tracebacks) < BEGIN:
        return
    before = set(pairs[: tracebacks[0]])
    ends = (next((at for at in range(begin + 1, len(pairs)) if pairs[at][0][:1] != " "), None) for begin in tracebacks)
    after, times = Counter(pairs[end + 1] for end in ends if end and end + 1 < len(pairs)), Counter(pairs)
    for pair, number in after.items():
        if number >= BEGIN and times[pair] <= 2 * number + 1 and pair in before:
            yield pair


def text_of_last_job(text: str) -> str:
    """Return the text of the last job of a log to which several jobs were appended."""
    lines = lines_of_last_job(split_lines(text))
    return "\n".join(text.split("\n")[lines[0].number - 1 :]) if lines else text


def last_output(lines: Sequence[Line], *, is_running: bool) -> int | None:
    """Return the last line (from 0) that a program wrote before it was stopped; None if it ended by itself.

    Parameters
    ----------
    is_running
        Whether the job still runs.
    """
    stopped = next((at for at, line in enumerate(lines) if STOPPED.search(line.text)), None)
    if stopped is None and not is_running:
        return None
    end = len(lines) if stopped is None else stopped
    return next((at for at in range(end - 1, -1, -1) if not SILENT.match(lines[at].text)), None)


FOAM_LIST = re.compile(r"(?:\[\d+\] )?Valid [\w ]{3,60} :$")
"""The line before a list of possible values, which OpenFOAM writes between brackets, one to a line."""
FOAM_LIST_BEGIN, FOAM_LIST_END = (re.compile(rf"(?:\[\d+\] )?\{bracket}$") for bracket in "()")
START_FILE = re.compile(r"\S*/\.(?:bash\w*|profile|zshrc|cshrc|login): line \d+: |\./configure: line \d+: ")
"""An error in a start file of the user's shell, or in one of configure's tests: the job continues after it."""
PROFILE = re.compile(r"\s*\d+(?:/\d+)?(?: +\d+\.\d{3}){4} \S")
"""A row of Python's profiler: the calls of a function, whose name can be that of an exception."""


def hide_reports(lines: Sequence[str]) -> list[str]:
    """Return the lines without LSF's reports of jobs, which repeat the script, errors in start files, and profiles.

    How the job ended stays. OpenFOAM's lists of possible values, which follow an error, are hidden, too.
    """
    shown, inside, in_list = [], False, False
    for at, line in enumerate(lines):
        inside = inside or line.startswith(LSF_REPORT[0])
        is_hidden = START_FILE.match(line) or PROFILE.match(line) or (inside and not LSF_END.match(line)) or in_list
        shown.append("" if is_hidden else line)
        inside = inside and not line.startswith(LSF_REPORT[1])
        in_list = not FOAM_LIST_END.match(line) if in_list else _begins_foam_list(lines[at : at + 4])
    return shown


def _begins_foam_list(lines: Sequence[str]) -> bool:
    """Return whether the first of these lines is that before a list, whose number of values and bracket follow it."""
    return bool(FOAM_LIST.match(lines[0])) and any(map(FOAM_LIST_BEGIN.match, lines[1:]))


def _split(text: str) -> Iterator[Line]:
    for number, line in _unwrap(text.split("\n")):
        for part in _parts(line):
            yield Line(number, part[:LONGEST_LINE])


def _unwrap(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; those that a terminal wrapped, before they were copied, are joined again."""
    width = max(map(len, lines))
    if width not in TERMINALS or not any(len(line) == width and CUT_FRAME.match(line) for line in lines):
        yield from enumerate(lines, 1)
        return
    whole, begin = "", 1
    for number, line in enumerate(lines, 1):
        whole += line
        if len(line) < width:
            yield begin, whole
            whole, begin = "", number + 1
    if whole:
        yield begin, whole


def _parts(line: str) -> list[str]:
    """Split a line at what was written over it, and at Slurm's message behind a question that has no newline."""
    parts = line.split("\r")
    cancels = CANCELS.search(parts[-1]) if "error: ***" in parts[-1] else None
    if cancels is None or not parts[-1][: cancels.start()].strip(" :0123456789"):  # at most the label of a rank
        return parts
    return [*parts[:-1], parts[-1][: cancels.start()], parts[-1][cancels.start() :]]


def _has_labels(lines: Sequence[Line]) -> bool:
    """Return whether most lines have a label; srun and slurmstepd write some without."""
    texts = [line.text for line in lines if line.text.strip() and not FROM_SLURM.match(line.text)]
    labelled = sum(1 for text in texts if LABEL.match(text))
    return labelled > 1 and labelled >= LABELLED_SHARE * len(texts)


def _take_label(line: Line) -> Line:
    label = LABEL.match(line.text)
    if not label:
        return line
    return Line(line.number, line.text[label.end() :], (label[1] or label[2]).lstrip("0") or "0")


def rank_of(line: Line) -> str:
    """Return the rank of a line: its label, or the rank that its text names; empty if there is none."""
    if line.rank:
        return line.rank
    named = NAMED.search(line.text)
    return next(filter(None, named.groups()), "") if named else ""
