"""Start Argosy: signals, errors and exit codes of the whole program."""

from __future__ import annotations

import errno
import gc
import io
import os
import resource
import signal
import sys
from types import FrameType
from typing import TextIO

import click

from argosy.cli.app import RUNS_A_PROGRAM, app
from argosy.core.children import wake_on_signals
from argosy.core.errors import (
    USER_PROGRAM_FAILURE,
    ArgosyError,
    CheckFailed,
    DiskFull,
    Interrupted,
    Stopped,
    UsageError,
)
from argosy.core.render import escape_controls, shorten_message

SIGPIPE_CODE = 141

NEW_OBJECTS = 10_000
"""Objects to create between two searches for cycles; Python's default is 700.

Images have tens of thousands of files, and their records contain no cycles.
"""

COMPLETING = "_ARGOSY_COMPLETE"
"""Variable that a shell sets to get completions; click answers before any command runs, and exits."""

NO_ARGUMENTS: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised by click 8.2 and later for a group without a subcommand; its message is the help."""

STARTS_NOTHING = frozenset({"--dry-run", "--script"})
"""With one of these options no program of the user starts, so errors keep Argosy's own exit codes."""

VERBOSE = frozenset({"-v", "--verbose"})
"""With one of these options the notes of an error are printed, too."""

MEMORY_HINT = "use a machine with more memory, for example a compute node; 'ulimit -v' shows a limit"
PROCESSES_HINT = "end some of your other programs; 'ulimit -u' and 'ulimit -v' show the limits"

LEAST_MEMORY = 256 << 20
"""Bytes of address space. Python waits for ever for a new thread that has a stack, but no memory to begin
(`threading.Thread.start`, Python 3.11); each stack is 8 MB."""

MACHINE_REFUSES = {
    errno.ENOSPC: ("no space left on device", "free some space there, or write to another file system"),
    errno.EDQUOT: ("disk quota exceeded", "remove files there, or write to another file system"),
    errno.EROFS: ("read-only file system", "write to another folder; ARGOSY_CACHE sets the folder of the cache"),
    errno.EACCES: ("permission denied", "see the owner and mode of each folder with: namei -l PATH"),
    errno.ENAMETOOLONG: ("file name too long", "check the command line for a missing quote"),
    errno.ENOTDIR: ("a file is in the place of a folder", "check the path; ARGOSY_CACHE and ARGOSY_STATE are folders"),
    errno.ELOOP: ("too many levels of symbolic links", "see the target of the link with: ls -l PATH"),
    errno.E2BIG: ("the command line is longer than the system allows", "put the arguments into a file or script"),
    errno.ENOMEM: ("not enough memory", MEMORY_HINT),
    errno.EAGAIN: ("no more processes or threads can be started", PROCESSES_HINT),
    errno.ENFILE: ("too many open files on this machine", "try again later, or use another machine"),
    errno.EMFILE: ("too many open files", "raise the limit with: ulimit -n 4096"),
    errno.EIO: ("input/output error of the disk or file server", "try again; if it persists, contact the support team"),
    errno.ESTALE: ("stale file handle: the file server lost this file", "change to the folder again, and try again"),
}
"""Error number -> message and hint; these are never bugs of Argosy."""


def main() -> None:
    """Run the command line and exit with its exit code."""
    _use_utf8()
    gc.set_threshold(NEW_OBJECTS)
    sys.exit(run_app(sys.argv[1:]))


def _use_utf8() -> None:
    """Start Python again in its UTF-8 mode if the locale has another encoding.

    The bytes of arguments, variables and file names then pass unchanged, and files are UTF-8 everywhere.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - this program


def run_app(arguments: list[str]) -> int:
    """Run the command line, print at most one error, and return the exit code."""
    _open_standard_streams()
    try:
        _catch_signals()
        _refuse_little_memory()
        if not "".join(arguments).isascii():
            _note_dashes(arguments)
        code = app.main(arguments, prog_name="argosy", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except NO_ARGUMENTS as alone:
        return _print_help(alone.format_message())
    except (BrokenPipeError, SystemExit):
        if COMPLETING in os.environ:
            raise
        # The reader of the output has closed it, for example head.
        _discard_output()
        return SIGPIPE_CODE
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        # An exception without an explanation is a bug, and is reported as one.
        if os.environ.get("ARGOSY_DEBUG"):
            raise
        code = _report(_explain(error), arguments)
        _flush_output()
        return code


def _refuse_little_memory() -> None:
    """Refuse a limit of the address space that is too low for the threads of most commands."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
        evidence = f"'ulimit -v' is {limit >> 10}; Argosy needs {LEAST_MEMORY >> 10} (kB)"
        raise CheckFailed("not enough memory", evidence=evidence, hint="raise the limit with: ulimit -v unlimited")


def _note_dashes(arguments: list[str]) -> None:
    from argosy.cli.mistakes import refuse_typographic_dashes, typographic_dash_note

    refuse_typographic_dashes(arguments)
    if note := typographic_dash_note(arguments):
        click.echo(note, err=True)


def _print_help(text: str) -> int:
    """Print the help of a group that was called without a subcommand, and return the exit code."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return SIGPIPE_CODE
    return 0


def _flush_output() -> None:
    """Write buffered output; if that fails, discard it, because Python would report the failure again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _redirect(sys.stdout)


def _discard_output() -> None:
    """Redirect both streams to the null device, so that Python does not flush into a closed pipe."""
    for stream in (sys.stdout, sys.stderr):
        _redirect(stream)


def _redirect(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Messages(io.TextIOWrapper):
    """A standard error that cannot fail: if the disk is full, messages are lost, but the exit code stays correct."""

    def write(self, text: str) -> int:
        """Write a text, or discard the stream."""
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError:
            _redirect(self)
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or discard it."""
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError:
            _redirect(self)


def _report(error: ArgosyError, arguments: list[str]) -> int:
    """Print an error, with ``--json`` as an object on standard output, too, and return the exit code."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    options = {argument.partition("=")[0] for argument in own}
    starts_program = own[:1] and own[0] in RUNS_A_PROGRAM and not STARTS_NOTHING & options
    if "--work-dir" in error.hint:
        from argosy.cli.mistakes import with_own_options

        error.hint = with_own_options(error.hint, ["argosy", *own])
    if isinstance(error, DiskFull):
        from argosy.cli.mistakes import advise_on_cache

        error.hint += advise_on_cache(error)
    code = USER_PROGRAM_FAILURE if starts_program and not isinstance(error, Stopped) else error.code
    try:
        if "--json" in own:
            from argosy.cli.output import print_json

            texts = {"message": error.what, "evidence": error.evidence, "hint": error.hint}
            facts = {name: shorten_message(text) for name, text in texts.items()}
            print_json({"error": {**facts, "exit_code": code}})
        details = getattr(error, "__notes__", ()) if VERBOSE.intersection(own) else ()
        click.echo(escape_controls("\n".join((f"argosy: {error}", *(f"  {detail}" for detail in details)))), err=True)
    except BrokenPipeError:
        _discard_output()
    return code


def _explain(error: BaseException) -> ArgosyError:
    match error:
        case ArgosyError():
            return error
        case Interrupted():
            return Stopped(error.signal_number)
        case click.Abort() | KeyboardInterrupt():
            return Stopped(signal.SIGINT)
        case click.ClickException():
            from argosy.cli.mistakes import explain_mistake

            return explain_mistake(error, sys.argv)
    return _explain_os_error(_as_os_error(error)) or _explain_bug(error)


def _as_os_error(error: BaseException) -> OSError:
    """Return the error of the operating system that an exception means; one without a number if it is another one."""
    match error:
        case OSError():
            return error
        case MemoryError():
            return OSError(errno.ENOMEM, str(error))
        case ImportError() if "failed to map" in str(error):
            return OSError(errno.ENOMEM, str(error))
        case RuntimeError() if "can't start new thread" in str(error):
            return OSError(errno.EAGAIN, str(error))
    return OSError()


def _explain_os_error(error: OSError) -> ArgosyError | None:
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return UsageError("the current folder was removed", hint="change to an existing folder: cd")
    what, hint = MACHINE_REFUSES.get(error.errno or 0, ("", ""))
    return CheckFailed(what, evidence=str(error), hint=hint) if what else None


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - without importing pathlib
    except FileNotFoundError:
        return False
    return True


def _explain_bug(error: BaseException) -> ArgosyError:
    return ArgosyError(
        "this is a bug in Argosy",
        evidence=f"{type(error).__name__}: {error}",
        hint="set ARGOSY_DEBUG=1 to print the traceback, and report it",
    )


def _open_standard_streams() -> None:
    """Open the null device for each closed standard stream (``>&-``), so that no other file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A file name may contain any bytes, and PYTHONIOENCODING may lack a character of a message.
        sys.stdout.reconfigure(errors="surrogateescape" if sys.stdout.encoding == "utf-8" else "backslashreplace")
    if type(sys.stderr) is io.TextIOWrapper:  # tests replace it
        old, encoding, errors = sys.stderr, sys.stderr.encoding, sys.stderr.errors
        # A stream that was opened here closes its descriptor when nothing refers to it, unless its buffer is detached.
        buffer = old.buffer if old is sys.__stderr__ else old.detach()
        sys.stderr = _Messages(buffer, encoding=encoding, errors=errors, line_buffering=True)


def _catch_signals() -> None:
    """Turn the first signal into an exception, so that partial results are removed, and ignore later signals.

    A signal that was ignored when Argosy started (``nohup``, background jobs of scripts) stays ignored.
    """

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """Do nothing. Programs that start after a signal would inherit SIG_IGN, and could not be ended."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, ignore)
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    wake_on_signals()


if __name__ == "__main__":
    main()
