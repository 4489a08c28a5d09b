"""Find where the failure at the end of a log begins, and its first error line; pure.

An error line is quoted without a theory of its reason: a wrong cause costs the reader more than none.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Container, Sequence

from argosy.diagnostics.why.lines import NO_DIGITS, Line, rank_of

REPORTED = re.compile(
    r"\b(?:FATAL|CRITICAL|SEVERE|ERROR|ERRO|FAIL|FAILED|PANIC)\b|\b[Ee]rror\s*$"
    r"|\bError detected in\b|\b(?:[Ff]atal|[Ee]rror)(?: \w+)?(?:\[\w+\])?:"
    r"|UNRECOVERABLE|\bfatal error in\b"
    r"|\b(?:Fatal error|Error) (?:in|at|from|while|response|code|reading|opening|running|loading|invalid)\b"
    r"|\w(?:Error|Exception|NotFound)(?:: |:?$)|\b[Aa]ssertion\b.* failed|\b[Aa]ssertion failed\b"
    r"|\berror \(\d+\)|^Reason: \S|NCCL WARN|\|CCL_ERROR\|"
    r"|^\[E::\w+\]|^\[?[EF](?:\d{3,4} \d\d:| [\w./]+:\d+\])|: [EF] \S+:\d+\]|\bMPI_ERR_"
)
"""Marks of a line that a program reports as an error; NCCL reports its errors as warnings."""
REFUSED = re.compile(
    r"(?i)\b(?:failed|failure|can ?not|can't|could ?n[o']t|unable to|not found|denied|no such|refused|invalid"
    r"|unrecognized|unknown option|unsupported|not supported|undefined|mismatch|exceeded|timed out|expired"
    r"|does not exist|doesn't exist|not permitted|not allowed|aborting|incompatible|unexpectedly|marked dead"
    r"|must be used with|is not valid)\b"
)
"""Phrases of a line that reports an error without a mark."""
HARMLESS = re.compile(
    r"(?i)(?<!nccl )warn(?:ing)?s?\b|\b(?:info|debug|trace|deprecated|ignor\w*|retry\w*|optional|fall(?:ing)? ?back"
    r"|skipp\w+)\b|^\++ |^\s*frame #\d|(?<![\w/])(?:no|zero|(?<![a-z] )0|without) (?:tests? )?(?:errors?|failures?"
    r"|failed)"
    r"|(?:errors?|fail(?:ed|ures?)?)(?: +\w+){0,2}(?:\W{1,3}0\b| *= +0$)|^\W*(?:failed|errors?) *: \d+$|% failed\)"
    r"|\berror rate\b"
    r"|(?:of|cached:) \d+, failed: \d"
    r"|(?:rate|mean|max|min|abs|rel|absolute|relative|squared?|train|test|val\w*|l[12]|rms|standard)\W{0,2}errors?\b"
    r"|(?:^|: |\[)[IW] \S+:\d+\]|(?:^|:)\[[IW]\d{3,4} \d\d:|^\[[WM]::\w+\]|^\[?[IW]\d{3,4} \d\d:"
    r"|errors?\W{0,3}[=:]\s*[\d.+-]+(?:e[+-]?\d+)?\s*$"
    r"|checking (?:for|whether)|-- (?:Performing|Looking)|Unable to find image|pip's dependency resolver"
    r"|Unable to create TMPDIR|Setting TMPDIR to|meta_optimizer\.cc:\d+\]"
    r"|^\[\d+\] MPI startup\(\)|\balgbw +busbw\b|^(?:find|ls|rm): |^wandb: |^\[[DIW] \d\d?:\d\d:"
    r"|\bwill not be (?:computed|used|logged|saved|loaded)\b|\bsupport is disabled\b|: remark #\d+:"
    r"|(?:site|dist)-packages/\S+\.py:\d+: (?!.*(?:Error|Exception))"
    r"|Unable to register cu\w+ factory|unimplemented for this stream|computation placer already registered"
    r"|Setting `use_cache=False`"
    r"|no version information available|\bis not an error\b|have sent help message|orte_base_help_aggregate"
    r"|-{8} Error Message -{8}"
    r"|^\s*(?:\S*/)?(?:g\+\+|gcc|clang(?:\+\+)?|cc|c\+\+|mpi\w+|nvcc|hipcc|icp?x|icp?c|ifx|ifort|gfortran) +-"
)
"""Lines that only look like an error."""
CONSEQUENCE = re.compile(
    r"(?:ChildFailedError|DistBackendError|DistNetworkError|DistStoreError|BrokenPipeError|ConnectionResetError"
    r"|ConnectionAbortedError|KeyboardInterrupt|SystemExit|SignalException|GracefulShutdown|ProcessExitedException"
    r"|ProcessRaisedException|CalledProcessError|HorovodInternalError|ActorDiedError|RayActorError|WorkerCrashedError"
    r"|EngineDeadError|EngineGenerationError|BrokenProcessPool|RemoteTraceback|EOFError|CancelledError"
    r"|PapermillExecutionError|PropagationError|OSError: handle is closed"
    r"|ClobberError|SafetyError|CommClosedError|StreamClosedError)(?::|$)"
    r"|(?i:watchdog|engine core initialization failed|engine process failed|workerproc initialization failed"
    r"|see root cause above|connection closed|broken pipe|nccl error|child process|returned non-zero exit"
    r"|MESSAGE_TASK_EXIT|worker .*(?:died|exited)|MPI_A(?:BORT|bort)\b"
    r"|\baborting job\b|signal received\W*$|caught signal number 15\b|terminated unexpectedly|aborted due to"
    r"|because of the following error|^Removing output files of failed job|Caught \w+ in )"
)
"""Exceptions, with their messages, that follow from the end of another process, or after which conda continues."""
ENDED = re.compile(
    r"Traceback|exitcode|Error [1-9]\d*$|srun: error: \S+: tasks? |make(?:\[\d+\])?: \*\*\*|Terminating|CANCELLED"
    r"|closing signal|^\S+(?: [^\n]*\.py)? FAILED\s*$|traceback :|error_file|Root Cause|\braise \w+"
    r"|\[(?:mpiexec|proxy)[:@]|:mpispawn_\d+\]|:mpirun_rsh\]"
    r"|^(?!\W*(?:Error|ERROR|FATAL)\b)[^\n]*(?:[Ee]xited with|exit status|non-?zero|exit code:? \d+$)"
    r"|recipe for target '.*' failed$|^\d+ errors? generated\.$"
    r"|exits with return code|MPT ERROR: MPI_COMM_WORLD rank|^\[\S+\] Local abort (?:before|after) MPI_"
    r'|\bFile "[^"]+", line \d|^It looks like \w+ failed for|^fail during \w+_init|This failure appears to be'
    r"|^(?:\([^()]* pid=\d+\) )?ERROR [\d: -]+\[?[\w./]+:\d+\]\s{3,}\S"
    r"|^argosy: rank \d+ (?:on \S+ )?failed first|^usage: \S"
    r"|\bError executing process >|^Command (?:error|output|exit status):\s*$"
    r"|Failed to pull (?:singularity|apptainer) image"
    r"|^Error in (?:rule|group) \w+:|^Exiting because a job execution failed|^(?:WorkflowError|RuleException):\s*$"
)
"""Reports of how another program, task of a workflow or rank ended, and lines of code."""
EXIT_ZERO = r"exit(?:ed| code:?) (?:with code )?0\b"
"""The report of a program that ended without a failure."""
WELL = re.compile(
    r"(?i)^#? *Avg bus bandwidth\b|^[=\s]*(?:final )?results?(?: summar(?:y|ies))?[=:\s]*$"
    r"|^argosy: verdict:|^Finalising parallel run|^End\s*$|^\s*JOB DONE\."
    r"|\b(?<!completed )(?:completed?|finished|done|ended) (?:successfully|ok|well)\b"
    rf"|successfully (?:completed|finished)|{EXIT_ZERO}"
    r"|\b(?:training|job|run|tests?|evaluation|build|simulation) (?:is |has )?(?:completed?|finished|done)\b"
    r"(?!.*(?:error|fail|code [1-9]|with))"
    r"|^(?:\+ )?exit 0$|^\W*finished training\b|\breached max_\w+=|\bresult: ok\b|^all good\b|^finished\."
    r"|\bverification successful\b|^\W*verified$|\b(?:all|100%) tests passed\b|\bsuccessfully installed\b"
    r"|\b\d+ passed\b(?!.* (?:failed|errors?)\b)"
)
"""Lines that end a run without a failure."""
CONFIGURED = re.compile(r"configure: exit 0$")
"""The end of a config.log whose configure succeeded: the errors above are those of its tests."""
CMAKE_TESTS = re.compile(r"(?:Determining if|Performing C\w* SOURCE FILE Test) .* failed with the following output:$")
"""The first line of a CMakeError.log, which has the tests of CMake that failed, whatever became of the build."""
BUILT = re.compile(
    r"\[(\d+)/\1\] |\.\.\.updated \d+ targets?\.\.\.$|make: Leaving directory|-- (?:Installing|Up-to-date): "
)
"""The end of a build that succeeded: of ninja, b2, make and the installation step of CMake."""
STOPPED_BUILD = re.compile(r"\*\*\*|^FAILED: |build stopped|\.\.\.failed ")
"""Lines of a build that did not succeed."""
DONE = re.compile(r"(?i)^\W*(?:all )?(?:done|finished|completed)[.!\s]*$")
"""Lines that end a run or only its script, which continues after a program that failed."""

REPORTED_WELL = re.compile(
    r"(?i)\b(?:state\W{1,20}completed\b|exit(?: ?(?:code|status))?\W{1,12}0(?::0)?\b)(?!.*\b(?:fail|error))"
)
"""The report of a scheduler or an epilogue that a job ended well, even if one of its programs failed."""
HANDLED = re.compile(
    r"(?i)\bcaught\b|\bretr(?:y(?:ing)?|ied)\b|\bskipp(?:ing|ed)\b|\bignor(?:ed|ing)\b|\bcontinuing\b|\bfalling back\b"
    r"|\brestart(?:ed|ing)?\b|\bis expected\b|, expected\b(?! \w)|, accepted\b|\bwill be skipped\b"
    r"|\b(?:pruned|failed with parameters)\b"
)
"""Words of a program that continues after an error."""
HANDLED_ABOVE, HANDLED_BELOW = 1, 3
"""Lines above and below the last one of an error in which a program says that it continues."""
LEAST_STEPS = 2
"""Lines that are repeated after an error and show that a loop continued; one more after an exception or two errors."""
FORTRAN_STACK = r"^\S+ +[0-9A-F]{16} +\S+ +(?:Unknown|\d+) +\S+ *$"
"""A line of the stack that Intel's Fortran runtime prints."""
RUN_TIME = r"^(?:real|user|sys)\s+\d"
"""The shell's ``time`` prints this after a command that failed, too."""
NO_STEP = re.compile(
    rf"^\s|^#|(?i:warn)|(?:^|[:\[])W\d{{3,4}} |\bframe #|^Load(?:ed|ing) (?:module|dependency|requirement)"
    rf"|{FORTRAN_STACK}|{RUN_TIME}"
)
"""Lines that are repeated, but not by a loop: of a stack, a box, of modules, or warnings of several ranks."""

HEADLINE = re.compile(r"(?::|library error|FATAL CALLED -*)\s*$")
"""The end of an error line whose message is in the next line."""
INNER = re.compile(
    r"  Caused by: |(?!free\(|malloc\(|realloc\()\w+(?:\(\d*\))\.*: *\S"
    r"|\(unknown\)\(\): (?!Other MPI|Unknown error)|\s+#\d{3}: "
)
"""Inner causes below an error: those of uv and cargo, and the error stacks of MPICH and HDF5."""
OUTER = re.compile(r"\w+\(\d*\)\.*: *$|\s+(?:major|minor): ")
"""Lines of an error stack without a message."""

MOST_BELOW = 3
"""Lines of a quoted message below its first one."""

BOX = "-" * 74
"""The line before and after a message of Open MPI or of its launcher."""
BOX_LINES = 40
"""Lines of the longest message in a box."""
BOXED_ERROR = re.compile(
    r"(?i)error|fail|unable|cannot|could not|invalid|abort|no (?:\w+ ){1,4}(?:were|was) found"
    r"|not (?:enough|found|supported|recognized|available|included)"
    r"|unrecognized|terminat|already|out of|exhausted|exceed|unreachable|lost|missing|no (?:nodes|hosts|allocated)"
    r"|erroneous|bad |malformed|improper|incorrect|mismatch|conflict|too (?:large|small|big|many|long)|more .* than"
    r"|not (?:correct|match|built|compiled)|without support"
)
HARMLESS_BOX = re.compile(
    r"(?i)warning|deprecated|by default|will continue|ignored|will be (?:disabled|used)|no openfabrics|multiple .*nics"
    r"|supposed to get help|inbound"
)
"""Words of a message in a box after which the program continues."""

WENT_ON = 12
"""Lines of ordinary output after an error that show that the program continued."""
PROMPT = re.compile(r"(?:\(\w+\) )?[^\s@]+@[^\n$#]{1,80}[$#] *$")
"""The prompt of a shell without a command."""
FAILURE_TALK = re.compile(
    r"(?i)^\s|^$|error|fail|abort|traceback|terminat|killed|kill |signal|core dumped|exit|srun:|slurmstepd|nccl|torch"
    r"|rank|wandb|exception|^[=*+|-]{3}|cancel|warn|time *:|host *:|closing|shut|stack|frame|\bat [\w./]|^#\d"
    r"|root cause|argosy:|^\[(?!DEBUG|INFO|TRACE|[DI] \d)|^\(|shm|leaked|nohup|mpi|process|compar|restart"
    r"|hint|note:|please|see |see:|try "
    r"|work dir:|tip:|-- check |caused by:|command \w+:|container:"
    r"|^[^\s@]+@[^\n$#]{1,80}[$#](?: |$)|^[$#] "  # the prompt of a shell
    rf"|\b[0-9a-f]{{12,}}\b|^image +pc |^in file included|^#include |: in function |{FORTRAN_STACK}|{RUN_TIME}"
)
"""Lines that are usual after a failure."""
FATAL = re.compile(r"\bFATAL ERROR\b|\bCalled CmiAbort\b|^FATAL: {3}")
"""Marks of an error after which the program itself cannot continue; a few ordinary lines are those of the next one."""
PROGRESS = re.compile(r"\d%\|.*\d/\d+ \[[\d:]+<")
"""A progress bar. One is often printed again after a failure, many show that the program continued."""


def find_boxed(lines: Sequence[str]) -> tuple[set[int], set[int]]:
    """Return the lines (from 0) of Open MPI's messages: those that report an error, and harmless ones."""
    boxed, harmless = set[int](), set[int]()
    edges = deque(at for at, line in enumerate(lines) if line.startswith(BOX))
    while len(edges) > 1:
        begin, end = edges.popleft(), edges[0]
        if end - begin <= BOX_LINES:
            edges.popleft()
            message, inside = " ".join(line.strip() for line in lines[begin + 1 : end]), range(begin + 1, end)
            if HARMLESS_BOX.search(message):
                harmless.update(inside)
            elif BOXED_ERROR.search(message) and not (CONSEQUENCE.search(message) or ENDED.search(message)):
                boxed.update(inside)
    return boxed, harmless


def is_error_line(line: str) -> bool:
    """Return whether a line reports an error of its own."""
    if not (REPORTED.search(line) or REFUSED.search(line)):
        return False
    return not (HARMLESS.search(line) or CONSEQUENCE.search(line) or ENDED.search(line))


def failure_start(lines: Sequence[str], explained: Container[int]) -> int:
    """Return the line (from 0) where the failure at the end of a log begins: after it, the program did not go on.

    Parameters
    ----------
    explained
        Lines (from 0) with a known error.
    """
    start, ordinary = len(lines), 0
    for at in range(len(lines) - 1, -1, -1):
        if at in explained or is_error_line(lines[at]):
            start, ordinary = at, 0
        elif _is_ordinary(lines[at]):
            ordinary += 1
            if ordinary > WENT_ON:
                break
    return start


def _is_ordinary(line: str) -> bool:
    """Return whether a line is one of a program that works."""
    return bool(PROGRESS.search(line)) or not FAILURE_TALK.search(line)


def went_on(lines: Sequence[str], last: int, *, uncaught: bool, mild: bool = False) -> bool:
    """Return whether the lines after an error are those of a program that continued, and nothing fails in them.

    Parameters
    ----------
    last
        The last line (from 0) of the last error; the number of lines if there is no error.
    uncaught
        Whether the error is an exception, which usually ends a program.
    mild
        Whether scripts and programs usually continue after the error.
    """
    handled = mild or any(
        HANDLED.search(line) for line in lines[max(0, last - HANDLED_ABOVE) : last + 1 + HANDLED_BELOW]
    )
    known, first = {_template(line) for line in lines[:last]}, lines[0] if lines else ""
    lines = lines[last + 1 :]
    if CMAKE_TESTS.match(first) or _is_built(lines):
        return True
    failed = [at for at, line in enumerate(lines) if is_failure(line)]
    if failed:
        return _goes_on(lines[failed[-1] + 1 :], known, uncaught=uncaught, least=LEAST_STEPS + 1)
    ordinary = [line for line in lines if _is_ordinary(line)]
    if len(ordinary) > (0 if handled else WENT_ON) or any(WELL.search(line) for line in lines):
        return True
    if _goes_on(lines, known, uncaught=uncaught, least=LEAST_STEPS + uncaught):
        return True
    return not uncaught and any(DONE.search(line) or REPORTED_WELL.search(line) for line in lines)


def _is_built(lines: Sequence[str]) -> bool:
    """Return whether the lines are the end of a build or of its configuration that succeeded."""
    end = next((line for line in reversed(lines) if line.strip() and not PROMPT.match(line)), "")
    return bool(CONFIGURED.match(end) or (BUILT.match(end) and not any(map(STOPPED_BUILD.search, lines))))


def _goes_on(lines: Sequence[str], before: Container[str], *, uncaught: bool, least: int) -> bool:
    """Return whether some lines differ only in numbers from those before or from each other: steps of a loop.

    After an exception, only lines as those before count: another part of the script may follow it.
    """
    times = Counter(_template(line) for line in lines if not NO_STEP.search(line))
    steps = (number for each, number in times.items() if each and (each in before or (number > 1 and not uncaught)))
    return sum(steps) >= least


def _template(line: str) -> str:
    """Return a line without its numbers, which differ between the steps of a loop; empty if nothing is left."""
    text = re.sub(r"[-+.]?\d[\d.eE+:-]*", "0", line).strip()
    return text if "0" in text and re.search(r"[A-Za-z]{2}", text) else ""


def is_failure(line: str) -> bool:
    """Return whether a line reports an error, or an end that was not a success, and not that the program continued."""
    if HANDLED.search(line) or REPORTED_WELL.search(line):
        return False
    ended = ENDED.search(line) and not re.search(EXIT_ZERO, line)
    return is_error_line(line) or bool(CONSEQUENCE.search(line) or ended)


def find_first_error(
    lines: Sequence[str], start: int, explained: Collection[int], boxed: Collection[int]
) -> int | None:
    """Return the first error line (from 0) of the failure that begins at a line.

    None if there is none, if a known consequence precedes it, or if ordinary output ends the log.
    """
    reported = {*explained, *boxed}
    # After a message that came before, the program went on.
    before = {line.translate(NO_DIGITS) for line in lines[:start]}
    first = next((at for at in range(start, len(lines)) if at in reported or _is_new_error(lines[at], before)), None)
    if first is None or first in explained or _ends_well(lines[first:], reported, first):
        return None
    inner = first if first in boxed else _innermost(lines, first)
    return None if inner in explained else inner


def _is_new_error(line: str, before: Container[str]) -> bool:
    return is_error_line(line) and line.translate(NO_DIGITS) not in before


def lines_below(lines: Sequence[Line], at: int) -> list[str]:
    """Return up to three lines that continue the message at a line: of the same rank, until a blank line."""
    below: list[str] = []
    for line in lines[at + 1 :]:
        if rank_of(line) != rank_of(lines[at]):
            continue
        if not line.text.strip(" *|-") and not below and HEADLINE.search(lines[at].text):
            continue
        if line.text == lines[at].text:  # of another rank
            break
        if len(below) == MOST_BELOW or not line.text.strip() or ENDED.search(line.text) or line.text.startswith(BOX):
            break
        below.append(line.text)
    return below


def _innermost(lines: Sequence[str], first: int) -> int:
    """Return the innermost cause of an error that lists its causes below it."""
    inner = first
    for at in range(first + 1, len(lines)):
        if INNER.match(lines[at]):
            inner = at
        elif not OUTER.match(lines[at]):
            break
    return inner


def _ends_well(failure: Sequence[str], explained: Container[int], start: int) -> bool:
    """Return whether the lines end with those of a run that went on."""
    if FATAL.search(failure[0]) and sum(map(_is_ordinary, failure)) <= WENT_ON:
        return False
    for at in range(len(failure) - 1, 0, -1):
        line = failure[at]
        if WELL.search(line) or DONE.search(line):
            return True
        if start + at in explained or is_error_line(line) or CONSEQUENCE.search(line) or ENDED.search(line):
            return False
        if not FAILURE_TALK.search(line) and not HEADLINE.search(failure[0]):
            return True
    return False
