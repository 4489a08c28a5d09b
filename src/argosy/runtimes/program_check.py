"""Refuse a program that the image does not have, before its container starts."""

from __future__ import annotations

import os
import re

from argosy.core.errors import UsageError
from argosy.core.model import Entry
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean
from argosy.runtimes.container_plan import lies_below

BUILTINS = frozenset({"alias", "cd", "command", "eval", "exec", "export", "set", "source", "ulimit", "umask", "unset"})
"""Commands of the shell that people begin a command line with, although they are not programs."""

PYTHON = frozenset({"python", "python3"})
"""Programs of each environment that contains Python packages."""

OF_DRIVER = re.compile(r"nvidia-|rocm-?smi|amd-smi|xpu-smi")
"""Programs of the GPU driver, which runtimes mount from the host."""

PERSONAL = ("", "bin", ".local/bin")
"""Folders of a mount that may be on PATH."""


def refuse_unknown_program(command: tuple[str, ...], entry: Entry) -> None:
    """Refuse a program that the image does not have, if that is certain.

    It is not certain if the image cannot be read here, starts its programs by a script of its own, or gets another
    PATH; and for programs that a mount or the GPU driver may provide.

    Parameters
    ----------
    command
        The user's command; its first argument is checked.

    Raises
    ------
    UsageError
        The hint is the most similar program of the image.
    """
    program = command[0] if command else ""
    name = os.path.basename(program)  # noqa: PTH119 - the argument may not be a path
    if not name or _may_come_from_elsewhere(program, entry):
        return
    if name in PYTHON and entry.image.packages:
        return
    from argosy.images.programs import search_program  # noqa: PLC0415 - it reads squashfs tables

    search = search_program(name, entry.image)
    if not search.is_missing:
        return
    raise UsageError(
        f"cannot run {program}: the image has no such program",
        evidence=f"no folder of {entry.image.path} has an executable file {name}",
        hint=_hint(name, command, search.others),
    )


def refuse_without_shell(entry: Entry) -> None:
    """Refuse an image without /bin/sh for a job, whose launchers need it; errors as `refuse_unknown_program`."""
    if entry.image.packages or _may_come_from_elsewhere("sh", entry):
        return
    from argosy.images.programs import search_program  # noqa: PLC0415 - it reads squashfs tables

    if search_program("sh", entry.image).is_missing:
        raise UsageError(
            "cannot launch this image in a job: it has no /bin/sh",
            evidence=f"no folder of {entry.image.path} has an executable file sh",
            hint="use an image with a shell; 'argosy run' also starts images without one",
        )


def _may_come_from_elsewhere(program: str, entry: Entry) -> bool:
    """Return whether something other than the files of the image may provide the program."""
    if entry.dev or entry.image.enter not in {"", "exec"} or OF_DRIVER.match(program):
        return True
    if any(variable.name == "PATH" for variable in entry.variables):
        return True
    if not program.startswith("/"):
        places = [os.path.join(bind.source, folder) for bind in entry.binds for folder in PERSONAL]  # noqa: PTH118 - text alone
        return "/" in program or any(os.path.lexists(os.path.join(place, program)) for place in places)  # noqa: PTH118 - likewise
    path = os.path.normpath(program)
    return os.path.lexists(path) or any(lies_below(path, bind.target) for bind in entry.binds)


def _hint(name: str, command: tuple[str, ...], names: frozenset[str]) -> str:
    if name in BUILTINS:
        return f"{name} is a command of the shell: -- sh -c {quote(' '.join(map(quote, command)))}"
    if name == "python" and "python3" in names:
        return "the image has python3: write python3 instead of python"
    return did_you_mean(name, names, "add the program to the image, or write the full path of a file")
