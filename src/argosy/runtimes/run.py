"""Run a command or a shell in an image on this machine: `argosy run` and `argosy shell`."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import BARE_PREFIX, ContainerRequest
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import extract_functions, quote, render_assignment, render_command, render_functions
from argosy.core.store import make_folder
from argosy.host.gpus import CDI_FOLDERS, read_cdi
from argosy.images.prefix import current_version
from argosy.recipes.job_options import with_defaults
from argosy.recipes.launch_options import CONTAINER_ROWS, ContainerOptions
from argosy.recipes.option_row import PROJECT_FILE, plain_values
from argosy.recipes.user_config import fill_options
from argosy.runtimes.command_check import (
    refuse_missing_variable_binds,
    refuse_no_program,
    refuse_unknown_program,
    refuse_unusable_binds,
)
from argosy.runtimes.container_plan import ContainerPlan, parse_bind, parse_container, refuse_outside_jobs
from argosy.runtimes.dev import (
    hold_packages,
    list_installed,
    opened_dev,
    plan_dev,
    refuse_existing,
    save_recipe,
    without_changes,
)
from argosy.runtimes.open_container import open_container, start_command
from argosy.runtimes.runtime import CDI_DEVICE

SHELL = ("/bin/sh", "-c", '[ ! -x /bin/bash ] || exec /bin/bash --norc "$@"; exec /bin/sh "$@"', "sh")
"""bash if the image has it. --norc: ~/.bashrc of the mounted home would reset PATH."""


INSTALLERS = frozenset({"apt", "apt-get", "conda", "dnf", "mamba", "pip", "pip3", "uv", "zypper"})
SYSTEM_INSTALLERS = frozenset({"apt", "apt-get", "dnf", "zypper"})
CHANGES = frozenset({"install", "remove", "uninstall", "update", "upgrade"})
WRITES_ELSEWHERE = frozenset({"--target", "-t", "--prefix", "--root", "-p", "--dry-run"})

FROM_PROJECT = ("bind", "env", "workdir", "contain", "signed_by")
"""Keys of ``[launch]`` in a project file that also apply to containers on this machine; the others are for nodes."""

SHOWN_NOTES = "notes"
"""Folder of Argosy's state with one empty file for each note that is shown only once."""


class RunRequest(msgspec.Struct, frozen=True):
    """A request of `argosy run`; without a command, of `argosy shell`."""

    image: str
    command: tuple[str, ...]
    container: ContainerRequest = msgspec.field(default_factory=ContainerRequest)
    dev: bool = False
    """Whether the image is writable: a folder of the project keeps the changes."""
    dev_folder: str = ""
    """That folder; empty means one below ``.argosy/dev`` in the current directory."""
    fakeroot: bool = False
    """Whether an ordinary user is root in the writable image."""
    save_recipe: str = ""
    """Folder for a project with the packages that were installed; empty for none."""
    start_script: bool = False
    """Whether to start the image's start script without arguments, for example its ENTRYPOINT with its CMD."""


def read_container_request(given: Mapping[str, Any], session: Session) -> ContainerRequest:
    """Return the request of these options, completed by the project file, variables and the configuration files.

    Parameters
    ----------
    given
        Options by name, with ``_`` for ``-`` (see `ContainerOptions`).

    Raises
    ------
    UsageError
        If the value of an option, the project file or a configuration file is not valid.
    """
    environment = session.host.environment
    options = plain_values({name: value for name, value in given.items() if value}, ContainerOptions)
    return parse_container(fill_options(_with_project(options, session), CONTAINER_ROWS, environment), environment)


def _with_project(options: dict[str, Any], session: Session) -> dict[str, Any]:
    """Add the container settings of the project file in this folder; options take precedence.

    Bind mounts of the file whose source does not exist here are dropped with a note.
    """
    path = Path(session.host.cwd, PROJECT_FILE)
    if not path.is_file():
        return options
    from argosy.recipes.project_file import read_project_here  # noqa: PLC0415 - most folders have no project file

    project = read_project_here(path)
    joined = with_defaults(project, options)
    kept = []
    for text in joined["bind"]:
        source = parse_bind(text).source
        if text in options.get("bind", ()) or os.path.lexists(source):
            kept.append(text)
        else:
            session.reporter.note(f"{project.where('launch', 'bind')}: {source} does not exist here and is not mounted")
    return options | {key: joined[key] for key in FROM_PROJECT if key in joined} | {"bind": tuple(kept)}


def prepare_run(request: RunRequest, session: Session, *, dry: bool = False) -> tuple[ContainerPlan, Command]:
    """Return the plan of the container, and the command that starts it.

    Raises
    ------
    UsageError
        If the command cannot be run.
    ArgosyError
        See `open_container` and `plan_dev`.
    """
    if request.command[:1] == ("",):
        raise UsageError(
            "the command is empty",
            evidence="its first argument is ''",
            hint="check for an unset variable, or an extra pair of quotes",
        )
    _refuse_without_dev(request)
    refuse_unusable_binds(request.container)
    if not request.container.contain and not request.image.startswith(BARE_PREFIX):
        refuse_missing_variable_binds(session.host.environment)
    refuse_no_program(request.command, request.container, session.host)
    plan = open_container(request.container, request.image, session, command=request.command, dry=dry)
    refuse_outside_jobs(plan)
    if request.start_script and plan.entry.image.enter != "run":
        raise UsageError(
            f"the start script of {request.image} cannot be used: {plan.runtime.name} starts programs without it",
            hint="name the program after the image, or use a SIF file or a folder",
        )
    if not request.command and not request.start_script:
        plan = replace(plan, entry=replace(plan.entry, interactive=True))
    if request.dev:
        plan = plan_dev(plan, session.host, request.dev_folder, fakeroot=request.fakeroot)
    if not dry:
        refuse_unknown_program(request.command, plan.entry)
    command = start_command(plan, request.command if request.start_script else request.command or SHELL, session)
    if not dry and CDI_DEVICE in command.argv:
        _refuse_without_cdi(plan.runtime.name)
    return plan, command


def _refuse_without_cdi(runtime: str) -> None:
    """Refuse GPUs by CDI on a machine without a specification: the message of the runtime has no hint."""
    kind, _, _ = CDI_DEVICE.partition("=")
    if not any(spec.kind == kind for spec in read_cdi()):
        raise CheckFailed(
            f"{runtime} finds GPUs by CDI, and no specification of this machine describes {kind}",
            evidence=f"looked in {' and '.join(CDI_FOLDERS)}",
            hint="write one: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; or use --runtime bwrap",
        )


def _refuse_without_dev(request: RunRequest) -> None:
    for option, given in (("--fakeroot", request.fakeroot), ("--save-recipe", request.save_recipe)):
        if given and not request.dev:
            raise UsageError(f"{option} needs --dev", evidence="without it, the image is read-only", hint="add --dev")
    if request.save_recipe:
        refuse_existing(Path(request.save_recipe))


def render_run(plan: ContainerPlan, command: Command) -> str:
    """Render a run as a shell script: its variables, its helper functions, and the command."""
    programs, argv = extract_functions(command.argv)
    return "\n".join(
        (
            *([f"unset {' '.join(plan.entry.drop)}"] if plan.entry.drop else []),
            *(f"export {render_assignment(variable.name, variable.value)}" for variable in plan.exports()),
            *render_functions(programs),
            "exec " + render_command(argv),
        )
    )


def read_only_note(request: RunRequest) -> str:
    """Return a note on how to change an image, for an installer or a shell; empty for any other command.

    Argosy prints the note before the start: it cannot do so afterwards, because the command replaces this process, and
    the command's own error is only the kernel's "Read-only file system".
    """
    argv = _first_program(request.command)
    name = argv[0].rpartition("/")[2] if argv else ""
    installs = name in INSTALLERS and CHANGES & {*argv[1:]} and not WRITES_ELSEWHERE & {*argv}
    if (request.command or request.start_script) and not installs:
        return ""
    hint = f"to add packages: {_build_command(request)}; to try some first: --dev"
    if "--user" in argv:
        return f"pip install --user writes to ~/.local, which images built by Argosy do not read; {hint}"
    return f"the image is read-only: only this folder, your home and /tmp are writable; {hint}"


def _first_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments from the first program on: after ``python -m``, or inside ``sh -c``."""
    if command[1:] and command[1].startswith("-m"):
        return tuple(filter(None, (command[1][2:], *command[2:])))
    return tuple(command[2].split()) if command[1:2] in {("-c",), ("-lc",)} and command[2:] else command


def dev_note(request: RunRequest, folder: str, cwd: str, *, is_root: bool = True) -> str:
    """Return a note on where ``--dev`` keeps the changes, and how they become an image.

    Parameters
    ----------
    is_root
        Whether the user is root inside, so that apt-get and dnf work.
    """
    shown = folder if cwd == "/" else folder.removeprefix(f"{cwd}/")
    user = "; leave out --user: pip then installs into the image" if "--user" in request.command else ""
    program = (_first_program(request.command) or ("",))[0].rpartition("/")[2]
    if not is_root and program in {"", *SYSTEM_INSTALLERS}:
        user += "\nto install packages of the system (apt-get, dnf), add --fakeroot"
    kept = f"{shown} keeps the changes for the next start with --dev; to build an image: {_build_command(request)}"
    is_shell = not request.command or request.command[0].rpartition("/")[2] in {"bash", "sh"}
    if not is_shell and program not in INSTALLERS:
        return kept + user
    lift = "unset PIP_CONSTRAINT UV_CONSTRAINT" if is_shell else "--env PIP_CONSTRAINT= --env UV_CONSTRAINT="
    return f"{kept}\nthe image's packages keep their versions; to let pip change them: {lift}{user}"


def _build_command(request: RunRequest) -> str:
    if current_version(Path(request.image)) is not None:
        return f"argosy wrap update {quote(request.image)} PACKAGE…"
    return f"argosy build requirements.txt --base {quote(request.image)} -o NEW.sif"


def note_dropped(request: ContainerRequest, session: Session) -> None:
    """Print a note if the caller's PYTHONPATH does not enter the container; only once for each value."""
    value = session.host.environment.get("PYTHONPATH", "")
    passed = request.runtime == "bare" or any(variable.name == "PYTHONPATH" for variable in request.variables)
    if not value or passed:
        return
    marker = session.paths.state / SHOWN_NOTES / hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
    if marker.exists():
        return
    session.reporter.note(f"PYTHONPATH={value} does not enter the container; to pass it: --env PYTHONPATH")
    with suppress(OSError):  # without a writable folder, the note appears again
        make_folder(marker.parent)
        marker.touch()


def run(request: RunRequest, session: Session, *, wait: bool = False) -> int:
    """Run a command in an image and return its exit code.

    Parameters
    ----------
    wait
        Whether this process waits for the end. Otherwise the command replaces it, unless ``--dev`` must hold a folder.

    Raises
    ------
    ArgosyError
        See `prepare_run` and `opened_dev`.
    """
    plan, command = prepare_run(request, session)
    if plan.entry.drop:
        note_dropped(request.container, session)
    if request.dev:
        return _run_dev(request, plan, command, session)
    note = read_only_note(request)
    if note and (request.command or sys.stdin.isatty()):
        session.reporter.note(note)
    return session.runner.run_foreground(command) if wait else session.runner.exec_command(command)


def _run_dev(request: RunRequest, plan: ContainerPlan, command: Command, session: Session) -> int:
    is_root = plan.entry.fakeroot or plan.entry.person.uid == 0
    with opened_dev(plan, session.reporter.note):
        hold_packages(plan, session)
        session.reporter.note(dev_note(request, plan.entry.dev, session.host.cwd, is_root=is_root))
        if not request.save_recipe:
            return session.runner.run_foreground(command)
        before = list_installed(without_changes(plan), session)
        code = session.runner.run_foreground(command)
        save_recipe(before, plan, session, reference=request.image, folder=Path(request.save_recipe))
        return code
