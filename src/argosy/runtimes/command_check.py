"""What is known of a command before its container starts: the files that it names, and that it surely cannot run."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.model import Bind, ContainerRequest, Host
from argosy.core.suggest import suggest_word

SYSTEM_FOLDERS = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "opt",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
)
"""Below these a path means the image's file, not the host's."""


def refuse_missing_binds(request: ContainerRequest) -> None:
    """Refuse bind mounts of what is not on this machine.

    Raises
    ------
    UsageError
        Naming the source.
    """
    for bind in request.binds:
        if not os.path.lexists(bind.source):
            raise UsageError(
                f"there is no {bind.source} to bind",
                evidence=f"--bind {bind.source}:{bind.target}",
                hint="check the path",
            )


MOUNT_FOLDER = frozenset({"", "apptainer", "singularity", "bwrap", "bare"})
"""Runtimes in whose containers the current directory is the host's; where none is named it is one of them."""


def refuse_missing_program(
    command: tuple[str, ...], request: ContainerRequest, host: Host, *, at_nodes: bool = False
) -> None:
    """Refuse a Python file that does not exist, before ranks are started for it.

    Only where that is certain: below the current directory, the home and the folders for temporary files, which are
    the host's in the container too.  Elsewhere the file may be the image's.

    Parameters
    ----------
    at_nodes
        The program starts on compute nodes: those have folders for temporary files of their own.

    Raises
    ------
    UsageError
        Naming the file.
    """
    program = _python_file(command)
    if not program or request.contain or request.workdir or request.binds:
        return
    path = Path(os.path.normpath(Path(host.cwd, program)))
    own = ("/tmp", "/var/tmp")  # noqa: S108 - mounts of every container
    if at_nodes and (request.runtime not in MOUNT_FOLDER or any(map(path.is_relative_to, own))):
        return
    shared = [folder for folder in (host.cwd, host.person.home, *own) if folder not in {"", "/"}]
    if any(map(path.is_relative_to, shared)) and not os.path.lexists(path):
        near = suggest_word(path.name, [each.name for each in path.parent.glob("*.py")])
        raise UsageError(
            f"there is no {program} to run",
            evidence=f"looked for {path}; the current directory is the same inside",
            hint=f"did you mean {near}?" if near else "check the path, or the folder that you are in",
        )


def _python_file(command: tuple[str, ...]) -> str:
    """Give the file that a Python command runs; empty for any other command, and for ``-c`` and ``-m``."""
    if command[:1] not in {("python",), ("python3",)}:
        return ""
    options = tuple(takewhile(lambda word: word.startswith("-"), command[1:]))
    program = "".join(command[1 + len(options) :][:1])
    return program if program.endswith(".py") and not {"-c", "-m"}.intersection(options) else ""


def refuse_quoted_line(command: tuple[str, ...], host: Host) -> None:
    """Refuse a quoted line of shell as the command: a job would wait for its nodes, and then find no such program.

    Raises
    ------
    UsageError
        Unless there is a file of that name, or it may be one of the image's.
    """
    line = command[0] if len(command) == 1 else ""
    if len(line.split()) > 1 and not line.startswith("/") and not os.path.lexists(os.path.join(host.cwd, line)):  # noqa: PTH118 - likewise
        raise UsageError(
            "the command is one word with blanks, and no program has that name",
            evidence=f"-- {line!r}",
            hint=f"leave the quotes out: -- {line.splitlines()[0]}; or for the shell: -- sh -c {line!r}",
        )


def refuse_no_program(command: tuple[str, ...], request: ContainerRequest, host: Host) -> None:
    """Refuse what surely is no program: a quoted line of shell, and a script of this folder that cannot be started so.

    Raises
    ------
    UsageError
        Naming the command that would do.
    """
    refuse_quoted_line(command, host)
    script = command[0] if command else ""
    path = os.path.join(host.cwd, script)  # noqa: PTH118 - isfile answers for any text; Path's may raise
    if request.contain or request.workdir or not script.endswith((".py", ".sh")) or not os.path.isfile(path):  # noqa: PTH113 - likewise
        return
    way, path = f"write: -- {'python' if script.endswith('.py') else 'sh'} {script}", os.path.normpath(path)
    if "/" not in script:
        raise UsageError(
            f"no program has the name {script}",
            evidence=f"{path} is a file in this folder",
            hint=f"{way}; a program of the image by its whole path",
        )
    if not os.access(path, os.X_OK):
        raise UsageError(f"{script} is a file and no program", evidence=f"{path} may not be executed", hint=way)


def plan_command_binds(command: tuple[str, ...], request: ContainerRequest, host: Host) -> tuple[Bind, ...]:
    """Mount the folders of the files that a command names, so that they are seen inside.

    ``argosy run image.sif -- python /project/code/train.py`` then works from whatever folder it is typed in.
    """
    if request.contain:
        return ()
    folders: dict[str, Bind] = {}
    for word in command:
        path = os.path.join(host.cwd, word)  # noqa: PTH118 - isfile answers for any text; Path's may raise
        if "/" not in word or not os.path.isfile(path):  # noqa: PTH113 - likewise
            continue
        folder = os.path.normpath(os.path.dirname(path))  # noqa: PTH120 - likewise
        if folder != "/" and folder.split("/")[1] not in SYSTEM_FOLDERS:
            folders.setdefault(folder, Bind(folder, folder))
    return tuple(folders.values())
