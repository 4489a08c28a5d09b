"""Refuse an image without what the command needs, before the job waits for its nodes: the program, or a framework."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import Choice, ContainerRequest, Entry, Mark
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean
from argosy.launch.launchers.launcher import ANY_PYTHON
from argosy.launch.model import LaunchRequest, Purpose
from argosy.runtimes.container_plan import ContainerPlan, lies_below

FRAMEWORKS = frozenset(
    {"accelerate", "deepspeed", "flax", "horovod", "jax", "lightning", "mpi4py", "pytorch_lightning", "ray", "torch"}
)
"""Modules of distributed programs; each has the name of its package."""

OF_IMAGE = ("/usr/", "/opt/argosy/", "/opt/conda/")
"""Folders of the Pythons of an image."""

CHANGES_IMPORTS = re.compile(r"\b(sys\.path|addsitedir|_?exit|quit|execv\w*)\b")
"""Text that may add folders to Python's search path, or end the program before its imports."""

LONGEST = 1 << 20
"""Size of the longest program that is read, in bytes."""

BUILTINS = frozenset({"alias", "cd", "command", "eval", "exec", "export", "set", "source", "ulimit", "umask", "unset"})
"""Commands of the shell that people begin a command line with, although they are not programs."""

PYTHON = frozenset({"python", "python3"})
"""Programs of each environment that contains Python packages."""

OF_DRIVER = re.compile(r"nvidia-|rocm-?smi|amd-smi|xpu-smi")
"""Programs of the GPU driver, which runtimes mount from the host."""

PERSONAL = ("", "bin", ".local/bin")
"""Folders of a mount that may be on PATH."""


def check_imports(request: LaunchRequest, container: ContainerPlan, cwd: str, purpose: Purpose) -> ContainerPlan:
    """Refuse a program that imports a framework that the image certainly lacks; return the container.

    A plan that does not start gets a choice with the same text instead.

    Raises
    ------
    CheckFailed
        If the image does not contain a framework that the program imports.
    """
    image = container.entry.image
    if request.no_check or not image.complete or container.entry.dev or adds_packages(request.container):
        return container
    program = _find_program(request, cwd)
    lacking = FRAMEWORKS - {name.replace("-", "_") for name in image.packages}
    missing = next((name for name in _read_imports(program) if name in lacking), "") if program else ""
    if not missing or not program or _is_beside(program, missing):
        return container
    what = f"{program.name} imports {missing}, but {PurePath(image.path).name} does not contain it"
    hint = f"add {missing.replace('_', '-')} to the image's environment and build again; or use --no-check"
    if purpose is Purpose.START:
        every = f"{image.path} lists all its {len(image.packages)} Python packages, and {missing} is not among them"
        raise CheckFailed(what, evidence=every, hint=hint)
    row = Choice("import", missing, f"{what}, so a launch would be refused; {hint}", "image", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def note_missing_program(request: LaunchRequest, container: ContainerPlan, cwd: str) -> ContainerPlan:
    """Add a choice to the container if the Python program does not exist; return the container."""
    program = _find_program(request, cwd)
    # An absolute path, or one in --workdir, may exist in the image only.
    is_outside = program and str(program) not in request.command and not request.container.workdir
    if not (program and is_outside and program.parent.is_dir()) or program.exists():
        return container
    row = Choice("program", program.name, f"no such file in {program.parent}", "option", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def adds_packages(request: ContainerRequest) -> bool:
    """Return whether Python may find packages in the container that are not in the image."""
    return bool(request.binds) or any(variable.name in {"PATH", "PYTHONPATH"} for variable in request.variables)


def _find_program(request: LaunchRequest, cwd: str) -> Path | None:
    """Return the file of a Python program on this machine; None for other commands."""
    interpreter, *words = (*request.command, "")
    words = words[1:] if words[:1] == ["-u"] else words
    # A Python elsewhere, for example in a venv over the image, has packages of its own.
    is_of_image = "/" not in interpreter or interpreter.startswith(OF_IMAGE)
    if not ANY_PYTHON.match(interpreter) or not is_of_image or not words[:1] or not words[0].endswith(".py"):
        return None
    return Path(cwd, request.options.chdir, request.container.workdir, words[0])


def _read_imports(program: Path) -> Iterator[str]:
    """Yield the modules that a program always imports: those at its top level, outside of ``try`` and ``if``.

    The search ends at a statement that may change where Python finds modules, or end the program.
    """
    import ast  # noqa: PLC0415 - only for programs of images without a framework

    try:
        tree = ast.parse(program.read_bytes() if program.is_file() and program.stat().st_size <= LONGEST else b"")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield (statement.module or "").partition(".")[0]
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        elif CHANGES_IMPORTS.search(ast.unparse(statement)):
            return


def _is_beside(program: Path, module: str) -> bool:
    """Return whether the program imports a module from its own folder."""
    return (program.parent / module).is_dir() or program.with_name(f"{module}.py").exists()


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
