"""Start Argosy: signals, errors and exit codes of the whole program."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
from types import FrameType
from typing import TextIO

import click

from argosy.cli.app import COMMANDS, RUNS_A_PROGRAM, app
from argosy.cli.synonyms import answer_option
from argosy.core.errors import USER_PROGRAM_FAILURE, ArgosyError, CheckFailed, Interrupted, Stopped, UsageError

SIGPIPE_CODE = 141

COMPLETING = "_ARGOSY_COMPLETE"
"""Set where a shell asks for completions, which click answers before any command, and ends."""

NO_ARGUMENTS: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised by click 8.2 and later for a group without a subcommand; its message is the help."""

STARTS_NOTHING = frozenset({"--dry-run", "--script"})
"""With one of these options no program of the user starts, so errors keep Argosy's own exit codes."""

VERBOSE = frozenset({"-v", "--verbose"})
"""With one of these options the notes of an error are printed, too."""

EVIDENCE = 300
"""Characters that are shown of a system error: the name in it may be as long as the command line."""

MACHINE_REFUSES = {
    errno.ENOSPC: ("no space is left on the disk", "free some space there, or write to another file system"),
    errno.EDQUOT: (
        "your quota of disk space or files is used up",
        "remove files there, or write to another file system",
    ),
    errno.EROFS: ("this file system is read-only", "write to another folder; ARGOSY_CACHE names the one of the cache"),
    errno.EACCES: ("reading or writing here is not permitted", "see who owns it with: ls -ld PATH"),
    errno.ENAMETOOLONG: (
        "a name is too long for the file system",
        "see whether a quote is missing on the command line",
    ),
    errno.ENOTDIR: (
        "a file stands where a folder should be",
        "check the path; ARGOSY_CACHE and ARGOSY_STATE name folders",
    ),
    errno.ELOOP: ("a symbolic link leads back to itself", "see where it leads with: ls -l PATH"),
    errno.E2BIG: ("the command line is longer than the system allows", "put the words into a file or script"),
    errno.EMFILE: ("too many files are open", "raise the limit with: ulimit -n 4096"),
    errno.EIO: ("the disk or file server cannot be read or written", "try again; tell the support team if it stays"),
    errno.ESTALE: ("the file server has lost this file", "change to the folder anew, and try again"),
}
"""What the machine refused, and what to do next; no defect of ours, wherever it is met."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    _speak_utf8()
    sys.exit(run_app(sys.argv[1:]))


def _speak_utf8() -> None:
    """Start Python again in its UTF-8 mode where the locale has another encoding.

    The bytes of arguments, variables and names of files then pass unchanged, and files are UTF-8 everywhere.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def run_app(arguments: list[str]) -> int:
    """Run the command line; every way out is an exit code and at most one message."""
    _catch_signals()
    _open_standard_streams()
    try:
        code = app.main(arguments, prog_name="argosy", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except NO_ARGUMENTS as alone:
        return _print_help(alone.format_message())
    except (BrokenPipeError, SystemExit):
        if COMPLETING in os.environ:
            raise  # a shell asked what may follow, and has its answer
        # Who reads us has seen enough (head), which click answers by an exit of its own.
        _say_no_more()
        return SIGPIPE_CODE
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        # The last line of defence: what no one explained is a defect of ours, and is said as one.
        if os.environ.get("ARGOSY_DEBUG"):
            raise
        code = _say(_explain(error), arguments)
        _let_go_of_output()
        return code


def _print_help(text: str) -> int:
    """Print the help of a group that was called without a subcommand, and return the exit code."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _say_no_more()
        return SIGPIPE_CODE
    return 0


def _let_go_of_output() -> None:
    """Write what is still buffered; where that cannot be written, Python would complain again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        _redirect(sys.stdout)


def _tell(text: str) -> None:
    """Write to the error stream; where nobody reads it any more, the exit code still says what happened."""
    try:
        click.echo(text, err=True)
    except BrokenPipeError:
        _say_no_more()


def _say_no_more() -> None:
    """Let both streams end at the null device, so that Python does not flush into a closed pipe."""
    for stream in (sys.stdout, sys.stderr):
        _redirect(stream)


def _redirect(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Messages(io.TextIOWrapper):
    """A standard error that cannot fail: on a full disk messages are lost, and neither the work nor its exit code."""

    def write(self, text: str) -> int:
        """Write, or give up this stream."""
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError:
            _redirect(self)
            return len(text)

    def flush(self) -> None:
        """Flush, or give up this stream."""
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError:
            _redirect(self)


def _say(error: ArgosyError, arguments: list[str]) -> int:
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    details = getattr(error, "__notes__", ()) if VERBOSE.intersection(ours) else ()
    _tell("\n".join((f"argosy: {error}", *(f"  {detail}" for detail in details))))
    starts_program = ours[:1] and ours[0] in RUNS_A_PROGRAM and not STARTS_NOTHING & {w.partition("=")[0] for w in ours}
    return USER_PROGRAM_FAILURE if starts_program and not isinstance(error, Stopped) else error.code


def _explain(error: BaseException) -> ArgosyError:
    match error:
        case ArgosyError():
            return error
        case Interrupted():
            return Stopped(error.signal_number)
        case click.Abort() | KeyboardInterrupt():
            return Stopped(signal.SIGINT)
        case click.ClickException():
            return _as_usage(error)
        case OSError():
            return _as_refusal(error) or _as_defect(error)
    return _as_defect(error)


def _as_refusal(error: OSError) -> ArgosyError | None:
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return UsageError("the folder that you are in was removed", hint="change to one that exists: cd")
    what, hint = MACHINE_REFUSES.get(error.errno or 0, ("", ""))
    return CheckFailed(what, evidence=_shorten(str(error)), hint=hint) if what else None


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd does the same; only whether it fails is asked
    except FileNotFoundError:
        return False
    return True


def _shorten(text: str) -> str:
    return text if len(text) <= EVIDENCE else f"{text[:EVIDENCE]}… ({len(text)} characters)"


def _as_usage(error: click.ClickException) -> ArgosyError:
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else _command_path(sys.argv)
    if isinstance(error, click.NoSuchOption) and (answer := answer_option(error.option_name, sys.argv)):
        return UsageError(f"{path} has no option {error.option_name}", hint=answer)
    if isinstance(error, click.NoSuchOption) and path.split()[-1] in RUNS_A_PROGRAM and "--" not in sys.argv:
        return UsageError(error.format_message(), hint=f"write -- before the command: {path} IMAGE -- python train.py")
    if isinstance(error, click.MissingParameter) and path.split()[-1] in {"run", "shell"}:
        hint = "write: argosy run IMAGE -- python train.py, or: argosy shell IMAGE"
        return UsageError(error.format_message(), hint=hint)
    what = re.sub(r"\s*\n\t", " ", error.format_message())
    if what.startswith("No such command") and what.endswith("'.") and isinstance(error, click.UsageError) and error.ctx:
        command = error.ctx.command
        what += f" Known: {', '.join(command.list_commands(error.ctx))}." if isinstance(command, click.Group) else ""
    return UsageError(what, hint=f"see '{path} --help'")


def _command_path(words: list[str]) -> str:
    """Name the command of a line that click could not read, such as one with an option without its value."""
    return f"argosy {words[1]}" if words[1:] and words[1] in COMMANDS else "argosy"


def _as_defect(error: BaseException) -> ArgosyError:
    return ArgosyError(
        "this is a defect of Argosy, not yours",
        evidence=f"{type(error).__name__}: {error}",
        hint="set ARGOSY_DEBUG=1 to see where, and report it",
    )


def _open_standard_streams() -> None:
    """Give a closed standard stream (``>&-``) the null device, so that no file we open takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A name of a file may be any bytes, and PYTHONIOENCODING may lack a letter of ours.
        sys.stdout.reconfigure(errors="surrogateescape" if sys.stdout.encoding == "utf-8" else "backslashreplace")
    if type(sys.stderr) is io.TextIOWrapper:  # a test has put another one in its place
        old = sys.stderr
        sys.stderr = _Messages(old.buffer, encoding=old.encoding, errors=old.errors, line_buffering=True)


def _catch_signals() -> None:
    """Turn the first signal into an exception, so that everything half-made is removed; let no second one disturb.

    What was to be ignored when we began (``nohup``, the background of a script) is ignored, also by what we start.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


if __name__ == "__main__":
    main()
