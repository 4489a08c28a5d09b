"""The story of `argosy run` and `argosy shell`: a command in an image, here and now."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import ContainerRequest
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.shell import (
    extract_functions,
    literal_argv,
    quote,
    render_assignment,
    render_command,
    render_functions,
)
from argosy.runtimes.command_check import refuse_missing_binds, refuse_no_program
from argosy.runtimes.container_plan import ContainerPlan, refuse_outside_jobs
from argosy.runtimes.open_container import open_container, outer_environment, with_shell

SHELL = ("/bin/sh", "-c", '[ ! -x /bin/bash ] || exec /bin/bash --norc "$@"; exec /bin/sh "$@"', "sh")
"""bash where the image has it.  --norc: the host's ~/.bashrc, visible through the home, would reset PATH."""


INSTALLERS = frozenset({"apt", "apt-get", "conda", "dnf", "mamba", "pip", "pip3", "uv", "zypper"})
CHANGES = frozenset({"install", "remove", "uninstall", "update", "upgrade"})
WRITES_ELSEWHERE = frozenset({"--target", "-t", "--prefix", "--root", "--user", "-p", "--dry-run"})


class RunRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy run`; no command is a shell.

    Attributes
    ----------
    dev
        What is written into the image stays in a folder of the project, for the next start like this.
    dev_folder
        That folder; empty means one below ``.argosy/dev`` here.
    """

    image: str
    command: tuple[str, ...]
    container: ContainerRequest = msgspec.field(default_factory=ContainerRequest)
    dev: bool = False
    dev_folder: str = ""


def plan_run(request: RunRequest, session: Session, *, dry: bool = False) -> tuple[ContainerPlan, Command]:
    """Plan a run: the container, and the very command that will be started."""
    if request.command[:1] == ("",):
        raise UsageError(
            "the command is empty", evidence="its first word is ''", hint="is a variable unset, or a quote too many?"
        )
    refuse_missing_binds(request.container)
    refuse_no_program(request.command, request.container, session.host)
    plan = open_container(request.container, request.image, session, command=request.command, dry=dry)
    refuse_outside_jobs(plan)
    if not request.command:
        plan = with_shell(plan)
    if request.dev:
        from argosy.runtimes.dev_overlay import plan_dev  # noqa: PLC0415 - rarely asked for

        plan = plan_dev(plan, session.host, request.dev_folder)
    words = literal_argv(plan.argv(request.command or SHELL))
    return plan, Command(words, env=outer_environment(plan, session.host.environment))


def render_run(plan: ContainerPlan, command: Command) -> str:
    """Render a run as the script that does the same: its variables, its small programs by name, the command."""
    programs, words = extract_functions(command.argv)
    return "\n".join(
        (
            *([f"unset {' '.join(plan.entry.drop)}"] if plan.entry.drop else []),
            *(f"export {render_assignment(variable.name, variable.value)}" for variable in plan.exports()),
            *render_functions(programs),
            "exec " + render_command(words),
        )
    )


def read_only_note(request: RunRequest) -> str:
    """Say how to write into an image, for an installer or a shell; empty for any other command.

    This is said before the start: the command takes this process's place, and its own error would be the kernel's
    "Read-only file system" alone.
    """
    words = _first_program(request.command)
    name = words[0].rpartition("/")[2] if words else ""
    if request.command and not (name in INSTALLERS and CHANGES & {*words[1:]} and not WRITES_ELSEWHERE & {*words}):
        return ""
    way = f"packages are added by: {_lasting(request)}; to try some first: --dev"
    return f"the image is read-only: files go to this folder, your home or /tmp; {way}"


def _first_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """Give the words that tell what is started first: those behind ``python -m``, or within ``sh -c``."""
    if command[1:] and command[1].startswith("-m"):
        return tuple(filter(None, (command[1][2:], *command[2:])))
    return tuple(command[2].split()) if command[1:2] in {("-c",), ("-lc",)} and command[2:] else command


def dev_note(request: RunRequest, folder: str, cwd: str) -> str:
    """Say where what is written stays, and how it becomes an image."""
    place = folder.removeprefix(cwd.rstrip("/") + "/")
    kept = f"what is written into the image stays in {place}, for --dev; an image of it: {_lasting(request)}"
    return f"{kept}\nits packages keep their versions: unset PIP_CONSTRAINT UV_CONSTRAINT lets pip change them"


def _lasting(request: RunRequest) -> str:
    from argosy.images.prefix import current_version  # noqa: PLC0415 - only where it is said

    if current_version(Path(request.image)) is not None:
        return f"argosy wrap update {quote(request.image)} PACKAGE…"
    return f"argosy build requirements.txt --base {quote(request.image)} -o NEW.sif"


def run(request: RunRequest, session: Session) -> int:
    """Run a command in an image; it takes this process's place, unless a folder is held for it (``--dev``).

    Raises
    ------
    ArgosyError
        As `plan_run` and `opened_dev` do.
    """
    plan, command = plan_run(request, session)
    if request.dev:
        from argosy.runtimes.dev_overlay import hold_packages, opened_dev  # noqa: PLC0415 - rarely asked for

        with opened_dev(plan, session.reporter.note):
            hold_packages(plan, session)
            session.reporter.note(dev_note(request, plan.entry.dev, session.host.cwd))
            return session.runner.run_foreground(command)
    note = read_only_note(request)
    if note and (request.command or sys.stdin.isatty()):
        session.reporter.note(note)
    return session.runner.exec_command(command)
