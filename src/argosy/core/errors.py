"""Every error a user can meet, with its exit code; this module imports nothing of the package.

The tree::

    ArgosyError            code  said when
    ├── UsageError           2   the words on the command line, or in argosy.toml, cannot be meant
    ├── SiteError            3   a site profile is wrong, or does not allow what was asked
    ├── ToolMissing          4   a program that the plan needs is not on this machine
    ├── ToolFailed           5   a program ran and failed: its command and last lines are the evidence
    ├── ImageError           6   a file is not the image it should be
    ├── CheckFailed          7   a check said no: no GPU, wrong version, not enough space
    └── Stopped            130   the user or the machine stopped us (143 for SIGTERM)

Each error says what happened, shows the evidence, and says what to do next.
"""

from __future__ import annotations

USER_PROGRAM_FAILURE = 125
"""Exit code of Argosy's own failures where a user's program runs and its code passes (run, shell, launch)."""


class ArgosyError(Exception):
    """A failure that is explained to the user in full.

    Parameters
    ----------
    what
        One sentence: what happened.
    evidence
        What shows it: ``file:line``, a command and its last lines, two numbers. May have several lines.
    hint
        What to do next, as an imperative sentence or a command line.
    key
        The value of a site's profile that says so, as ``slurm.required``; who knows the file adds file and line.
    """

    code = 1

    def __init__(self, what: str, *, evidence: str = "", hint: str = "", key: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.evidence = evidence
        self.hint = hint
        self.key = key

    def __str__(self) -> str:
        """Render the message as it stands on a terminal or in a log."""
        lines = [self.what]
        lines += [f"  {line}" for line in self.evidence.splitlines()]
        if self.hint:
            lines.append(f"  -> {self.hint}")
        return "\n".join(lines)


class UsageError(ArgosyError):
    """The request cannot be meant: an unknown word, a contradiction, a file that does not parse."""

    code = 2


class SiteError(ArgosyError):
    """A site profile is wrong or does not allow the request."""

    code = 3


class ToolMissing(ArgosyError):
    """A program that is needed is not installed here."""

    code = 4


class ToolFailed(ArgosyError):
    """A program ran and failed."""

    code = 5


class ImageError(ArgosyError):
    """A file is not an image, is damaged, or is an image for something else."""

    code = 6


class CheckFailed(ArgosyError):
    """A check found that what was asked cannot work here."""

    code = 7


class NoVersions(CheckFailed):
    """No versions of packages go together with what is there."""


class Stopped(ArgosyError):
    """The user or the machine asked us to stop; everything half-made has been removed, or is told."""

    def __init__(
        self, signal_number: int, what: str = "stopped; nothing half-made was left behind", hint: str = ""
    ) -> None:
        super().__init__(what, hint=hint)
        self.code = 128 + signal_number


class Interrupted(BaseException):
    """A signal arrived: raised by the handler, wherever the program is, and said as `Stopped` at the end.

    No `Exception`, as KeyboardInterrupt is none: libraries catch those to carry on (click does, around every line it
    prints), and the request to stop would be lost in one.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
