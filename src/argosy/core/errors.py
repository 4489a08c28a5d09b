"""The errors that users see, and their exit codes.

======================= ==== =====================================================================================
Error                   Code Meaning
======================= ==== =====================================================================================
`ArgosyError`              1 Base class.
`UsageError`               2 The command line or an input file is invalid.
`SiteError`                3 A site profile is invalid or does not allow the request.
`ToolMissing`              4 A required program is not installed.
`ToolFailed`               5 A program failed; the evidence shows the command and its last lines.
`ImageError`               6 A file is not an image, is damaged, or is the wrong image.
`CheckFailed`              7 The request cannot work on this machine: no GPU, wrong version, no space.
`Stopped`                130 The user or the system stopped Argosy: 128 + signal number (143 for SIGTERM).
======================= ==== =====================================================================================

``argosy run``, ``shell`` and ``launch`` pass on the exit code of the user's program; their own failures then exit with
`USER_PROGRAM_FAILURE`. Every error states what happened, shows the evidence, and gives a hint.
"""

from __future__ import annotations

from argosy.core.render import shorten_message

USER_PROGRAM_FAILURE = 125
"""Exit code of Argosy's own failures in commands that pass on the exit code of the user's program."""


class ArgosyError(Exception):
    """An error with an explanation for the user.

    Parameters
    ----------
    what
        One sentence that states what happened.
    evidence
        The facts that show it: ``file:line``, a command and its last lines, two numbers. May have several lines.
    hint
        The next action of the user: an imperative sentence or a command line.
    key
        Key of the site profile that caused the error, for example ``slurm.required``. The command line adds file and
        line of the profile.
    """

    code = 1

    def __init__(self, what: str, *, evidence: str = "", hint: str = "", key: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.evidence = evidence
        self.hint = hint
        self.key = key

    def __str__(self) -> str:
        """Render the message for a terminal or a log, without the middle of values that are too long for it."""
        lines = [self.what]
        lines += [f"  {line}" for line in self.evidence.splitlines()]
        if self.hint:
            lines.append(f"  -> {self.hint}")
        return shorten_message("\n".join(lines))


class UsageError(ArgosyError):
    """The request is invalid: an unknown option or value, a contradiction, a file that cannot be parsed."""

    code = 2


class SiteError(ArgosyError):
    """A site profile is invalid or does not allow the request."""

    code = 3


class ToolMissing(ArgosyError):
    """A required program is not installed."""

    code = 4


class ToolFailed(ArgosyError):
    """A program exited with a failure."""

    code = 5


class Unreachable(ToolFailed):
    """Another machine cannot be reached by ssh."""


class ImageError(ArgosyError):
    """A file is not an image, is damaged, or is an image for another purpose."""

    code = 6


class CheckFailed(ArgosyError):
    """A check found that the request cannot work on this machine."""

    code = 7


class DiskFull(CheckFailed):
    """No space is left below a folder.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, what: str, *, evidence: str, hint: str, folder: str) -> None:
        super().__init__(what, evidence=evidence, hint=hint)
        self.folder = folder


class NoVersions(CheckFailed):
    """No set of package versions satisfies all requirements."""


class Stopped(ArgosyError):
    """A signal stopped Argosy; partial results were removed, or the message names them."""

    def __init__(self, signal_number: int, what: str = "stopped; partial results were removed", hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.code = 128 + signal_number


class Interrupted(BaseException):
    """Raised by the signal handler; the command line reports it as `Stopped`.

    Like `KeyboardInterrupt`, it does not derive from `Exception`: libraries catch `Exception` and continue (click does
    so around every line that it prints), which would lose the request to stop.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
