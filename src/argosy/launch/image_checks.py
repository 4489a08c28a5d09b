"""Refuse an image without the framework that a program imports, before the job waits for its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import msgspec

from argosy.core.errors import CheckFailed
from argosy.core.model import Choice, ContainerRequest, Mark
from argosy.core.records import replace
from argosy.launch.launchers.launcher import ANY_PYTHON
from argosy.launch.model import LaunchRequest
from argosy.runtimes.command_check import is_bound_from_elsewhere
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import SYSTEM_FOLDERS

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


def refuse_missing_import(request: LaunchRequest, container: ContainerPlan, cwd: str) -> None:
    """Refuse a program that imports a framework that the image certainly lacks.

    Raises
    ------
    CheckFailed
        If the image does not contain a framework that the program imports.
    """
    missing, image = _find_missing_import(request, container, cwd), container.entry.image
    if missing:
        count = len(image.packages)
        every = f"{image.path} lists all its {count} Python packages, and {missing.module} is not among them"
        raise CheckFailed(missing.what, evidence=every, hint=missing.hint)


def note_missing_import(request: LaunchRequest, container: ContainerPlan, cwd: str) -> ContainerPlan:
    """Add a choice to the container if a launch would refuse an import of the program; return the container."""
    missing = _find_missing_import(request, container, cwd)
    if not missing:
        return container
    why = f"{missing.what}, so a launch would be refused; {missing.hint}"
    row = Choice("import", missing.module, why, "image", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


class MissingImport(msgspec.Struct, frozen=True):
    """A module that a program imports, and that its image does not contain."""

    module: str
    what: str
    hint: str


def _find_missing_import(request: LaunchRequest, container: ContainerPlan, cwd: str) -> MissingImport | None:
    """Find the first framework that the program imports and the image certainly lacks."""
    image = container.entry.image
    if request.no_check or not image.complete or container.entry.dev or adds_packages(request.container):
        return None
    program = _find_program(request, cwd)
    lacking = FRAMEWORKS - {name.replace("-", "_") for name in image.packages}
    module = next((name for name in _read_imports(program) if name in lacking), "") if program else ""
    if not module or not program or _is_beside(program, module):
        return None
    what = f"{program.name} imports {module}, but {PurePath(image.path).name} does not contain it"
    hint = f"add {module.replace('_', '-')} to the image's environment and build again; or use --no-check"
    return MissingImport(module, what, hint)


def note_missing_program(request: LaunchRequest, container: ContainerPlan, cwd: str) -> ContainerPlan:
    """Add a choice to the container if the Python program does not exist; return the container."""
    program = _find_program(request, cwd)
    wanted = request.container
    if not program or wanted.workdir or is_bound_from_elsewhere(program, wanted.binds):
        return container
    is_absolute = str(program) in request.command
    if (is_absolute and program.parts[1] in SYSTEM_FOLDERS) or not program.parent.is_dir() or program.exists():
        return container
    why = f"no such file in {program.parent}{' of this machine; the image may contain it' if is_absolute else ''}"
    row = Choice("program", program.name, why, "option", mark=Mark.DOUBTFUL)
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
