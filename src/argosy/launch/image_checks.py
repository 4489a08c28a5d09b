"""Refuse an image that lacks a framework of the program, or whose torch is for other GPUs, before the job waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from argosy.core.cache import remember_text
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, GpuMode, Image, ImageKind, Mark
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import digest_of_file
from argosy.images.libraries import (
    ASK_TORCH,
    BACKENDS,
    JAX_FOR,
    describe_cpu_jax,
    describe_old_driver,
    describe_wrong_build,
    parse_torch,
    torch_of_packages,
    torch_of_version,
)
from argosy.images.part_digest import describe_part
from argosy.launch.model import LaunchRequest, ProgramImports, Purpose
from argosy.recipes.option_row import PROJECT_FILE
from argosy.runtimes.command_check import find_interpreter, is_bound_from_elsewhere, is_of_image
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import open_container, start_command
from argosy.runtimes.runtime import FILES, SYSTEM_FOLDERS
from argosy.sites.profile import Site

if TYPE_CHECKING:
    import ast

FRAMEWORKS = frozenset(
    {"accelerate", "deepspeed", "flax", "horovod", "jax", "lightning", "mpi4py", "pytorch_lightning", "ray", "torch"}
)
"""Modules of distributed programs; each has the name of its package."""

TORCH_RANKS = "torch.distributed"
"""The module by which PyTorch connects ranks."""

CHANGES_IMPORTS = re.compile(r"\b(sys\.path|addsitedir|_?exit|quit|execv\w*)\b")
"""Text that may add folders to Python's search path, or end the program before its imports."""

LONGEST = 1 << 20
"""Size of the longest program that is read, in bytes."""

ASK_PYTHON = """\
for python in python python3
do ! command -v "$python" >/dev/null || exec "$python" -I -c "$1"
done
echo '{}'
"""


VENDOR_NAMES: Mapping[str, frozenset[str]] = {
    "nvidia": frozenset(("nvcr", "nvidia", "cuda")),
    "amd": frozenset(("rocm", "amdih")),
    "intel": frozenset(("intel", "oneapi", "xpu")),
}
"""GPU vendor -> words in the names of images that were made for its GPUs, for example ``nvcr.io/nvidia/pytorch``."""

BRANDS: Mapping[str, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}

CHECK_HINT = "check the image with: argosy check IMAGE --site SITE"


def refuse_missing_import(request: LaunchRequest, container: ContainerPlan, cwd: str) -> None:
    """Refuse a program that imports a framework that the image certainly lacks."""
    missing, image = _find_missing_import(request, container, cwd), container.entry.image
    if missing:
        count = len(image.packages)
        every = f"{image.shown} lists all its {count} Python packages, and {missing.module} is not among them"
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
    what = f"{program.name} imports {module}, but {PurePath(image.shown).name} does not contain it"
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


def note_changed_files(container: ContainerPlan, cwd: str) -> ContainerPlan:
    """Add a choice to the container if the files of the project in this folder are not those its image was built from.

    Returns the container. A project file that cannot be used here changes nothing.
    """
    image, file = container.entry.image, Path(cwd, PROJECT_FILE)
    if not image.sources or not file.is_file():
        return container
    from argosy.recipes.project_file import read_project_here  # noqa: PLC0415 - most folders have no project file
    from argosy.recipes.read import split_extras  # noqa: PLC0415

    try:
        project = read_project_here(file)
        if Path(image.path).resolve() != project.output.resolve():
            return container
        files = (project.folder / split_extras(name)[0] for name in project.table.image.files)
        found = [(each.name, digest_of_file(each)) for each in files if each.is_file()]
    except (UsageError, OSError):
        return container
    changed = [name for name, digest in found if (name, digest) not in image.sources]
    if not changed:
        return container
    why = f"{' and '.join(changed)} changed since it was built; 'argosy build' builds it again"
    row = Choice("image", image.shown, why, "argosy.toml", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def adds_packages(request: ContainerRequest) -> bool:
    """Return whether Python may find packages in the container that are not in the image."""
    return bool(request.binds) or any(variable.name in {"PATH", "PYTHONPATH"} for variable in request.variables)


def _find_program(request: LaunchRequest, cwd: str) -> Path | None:
    """Return the file of a Python program on this machine; None for other commands."""
    at = find_interpreter(request.command)
    interpreter, *words = (*request.command[at or 0 :], "")
    words = words[1:] if words[:1] == ["-u"] else words
    if at is None or not is_of_image(interpreter) or not words[:1] or not words[0].endswith(".py"):
        return None
    return Path(cwd, request.options.chdir, request.container.workdir, words[0])


def _read_text(program: Path) -> bytes:
    """Return the text of a program; empty if it cannot be read, or is too long."""
    try:
        return program.read_bytes() if program.is_file() and program.stat().st_size <= LONGEST else b""
    except OSError:
        return b""


def _parse_program(text: bytes | str) -> ast.Module | None:
    """Parse the text of a program; None if it is not valid for the Python of this machine."""
    import ast  # noqa: PLC0415 - most launches parse no program

    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_program(request: LaunchRequest, cwd: str) -> ProgramImports:
    """Return the modules that the request's Python program names; empty for other commands."""
    at = find_interpreter(request.command)
    is_python = at is not None
    _, *words = (*request.command[at or 0 :], "", "", "")
    words = words[1:] if words[0] == "-u" else words
    if is_python and words[0] == "-m" and words[1].partition(".")[0] == "mpi4py":
        return ProgramImports("the command", frozenset({words[1]}))
    program = _find_program(request, cwd)
    text = words[1] if is_python and words[0] == "-c" else _read_text(program) if program else ""
    tree = _parse_program(text) if text else None
    if not tree:
        return NOT_READ
    modules = frozenset(_named_modules(tree))
    try:
        address, spawns = _read_own_start(tree, modules)
    except RecursionError:  # a call of a call of a call, a few hundred times
        address, spawns = "", False
    return ProgramImports(program.name if program else "the command", modules, address, spawns)


NOT_READ = ProgramImports()

ADDRESS = re.compile(r"(os\.)?environ\['MASTER_ADDR'\]")
SPAWN = re.compile(r"(torch\.|\b)(mp|multiprocessing)\.spawn")
OF_LAUNCHER = re.compile(r"environ|getenv|MASTER_ADDR|\bRANK\b|WORLD_SIZE")
"""Part of a condition that may find out whether a launcher started the program."""


def _read_own_start(tree: ast.Module, modules: frozenset[str]) -> tuple[str, bool]:
    """Return the fixed address that a program gives its ranks, as text, and whether it starts ranks itself.

    Statements below a condition on the variables of a launcher are skipped.
    """
    import ast  # noqa: PLC0415 - most launches parse no program

    address, spawns, rest = "", False, list[ast.AST]([tree])
    while rest:
        node = rest.pop()
        if isinstance(node, ast.If) and OF_LAUNCHER.search(ast.unparse(node.test)):
            continue
        rest += ast.iter_child_nodes(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            if any(ADDRESS.fullmatch(ast.unparse(target)) for target in node.targets):
                address = f"{node.value.value!r} (line {node.lineno})"
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            spawns |= bool(SPAWN.fullmatch(name)) or (name == "spawn" and "torch.multiprocessing.spawn" in modules)
    return address, spawns


def _named_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a program imports, and ``torch.distributed`` if the program starts its process group."""
    import ast  # noqa: PLC0415 - most launches parse no program

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "init_process_group":
            yield TORCH_RANKS


def _read_imports(program: Path) -> Iterator[str]:
    """Yield the modules that a program always imports: those at its top level, outside of ``try`` and ``if``.

    The search ends at a statement that may change where Python finds modules, or end the program.
    """
    import ast  # noqa: PLC0415 - only for programs of images without a framework

    tree = _parse_program(_read_text(program))
    for statement in tree.body if tree else ():
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


def check_torch_build(
    request: LaunchRequest,
    container: ContainerPlan,
    site: Site,
    vendor: str,
    session: Session,
    purpose: Purpose,
) -> ContainerPlan:
    """Refuse an image whose torch does not support the GPUs of the job; return the container.

    An image that cannot be started on this machine is not refused; a note says that it was not checked.  A plan that is
    only shown gets a choice that tells why a launch would be refused.

    Parameters
    ----------
    vendor
        Vendor of the job's GPUs; empty for a job without GPUs.
    purpose
        Unless the job starts, only the image's lock is read, and nothing is refused.

    Raises
    ------
    CheckFailed
        If torch was built for other GPUs.
    """
    image, named = container.entry.image, {variable.name for variable in request.container.variables}
    if request.no_check or vendor not in BACKENDS or image.kind is ImageKind.HOST or named & {"PATH", "PYTHONPATH"}:
        return container
    if image.complete and "torch" not in image.packages:
        return _doubt_jax(container, site, vendor)
    listed = torch_of_version(image.torch)
    torch = listed or (_find_torch(image, session) if purpose is Purpose.START else torch_of_packages(image))
    wrong = describe_wrong_build(torch, vendor)
    if wrong and purpose is not Purpose.START:
        why = f"{wrong}, and {site.name} has GPUs of {vendor}, so a launch would be refused"
        row = Choice(ChoiceKey.TORCH, image.torch, why, "image", mark=Mark.DOUBTFUL)
        return replace(container, choices=(*container.choices, row))
    if wrong:
        raise CheckFailed(
            f"the torch in this image cannot use the GPUs of {site.name}",
            evidence=f"{image.shown}: {wrong}\n{site.name} has GPUs of {vendor}, which need {BACKENDS[vendor]}",
            hint=f"use an image that 'argosy build --site {site.name}' made; for a job without GPUs: --gpu none; "
            "--no-check launches this one anyway",
        )
    old = describe_old_driver(torch, site.node.cuda)
    if old:
        session.reporter.note(f"{old} on {site.name}: it may find no GPU, unless the image contains cuda-compat")
    return container if torch else _doubt_by_name(request.image, container, site, vendor)


def _doubt_jax(container: ContainerPlan, site: Site, vendor: str) -> ContainerPlan:
    """Add a doubt to the plan if the image has a JAX for the CPU; return the container."""
    jax = describe_cpu_jax(container.entry.image, vendor)
    if not jax:
        return container
    why = f"{jax}, and {site.name} has {BRANDS[vendor]} GPUs, which JAX would not use; {JAX_FOR[vendor]}"
    row = Choice("jax", container.entry.image.cpu_jax, why, "image", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def _doubt_by_name(reference: str, container: ContainerPlan, site: Site, vendor: str) -> ContainerPlan:
    """Add a doubt to the plan if the name of the image says that it was made for the GPUs of another vendor."""
    made_for = _vendor_of_name(reference)
    if made_for in {"", vendor}:
        return container
    why = (
        f"its name says that it was made for {BRANDS[made_for]} GPUs, and {site.name} has {BRANDS[vendor]} GPUs, which "
        f"the program would not find; 'argosy images ls --site {site.name}' lists images for this site"
    )
    row = Choice("image", reference, why, "image", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def _vendor_of_name(reference: str) -> str:
    """Return the GPU vendor in the name of an image; empty if it has none, or several.

    The folders of a file say nothing about the image.
    """
    name = reference if "://" in reference else PurePosixPath(reference).name
    words = set(re.findall(r"[a-z]+", name.lower()))
    found = [vendor for vendor, known in VENDOR_NAMES.items() if known & words]
    return found[0] if len(found) == 1 else ""


def _find_torch(image: Image, session: Session) -> Mapping[str, str]:
    """Return the build of the image's torch, which is cached per file; empty, with a note, if unknown."""
    file = parse_path(image.path)
    if image.kind not in FILES or not file.exists():
        session.reporter.note(f"torch in {image.shown} was not checked: the image is not a file on this machine")
        return {}
    memo = None
    if image.kind is not ImageKind.TREE:  # the time of a folder does not show changes below it
        memo = session.paths.cache / "torch" / f"{describe_part(image.path, 0, 0).identity}{image.enter}"
    try:
        return parse_torch(remember_text(memo, lambda: _ask_torch(image, session)))
    except ArgosyError as error:
        session.reporter.note(f"torch in {image.shown} was not checked, the image cannot be started here: {error.what}")
        return {}


def _ask_torch(image: Image, session: Session) -> str:
    request = ContainerRequest(gpu=GpuMode.NONE, workdir="/", enter=image.enter or "exec")
    plan = open_container(request, image.path, session, dry=True)
    if plan.runtime.traits.unpacks and image.kind is not ImageKind.TREE:
        raise CheckFailed(f"{plan.runtime.name} would have to unpack the image first", hint=CHECK_HINT)
    plan = open_container(request, image.path, session)
    reply = session.runner.run(start_command(plan, ("/bin/sh", "-c", ASK_PYTHON, "sh", ASK_TORCH), session))
    if reply.code:
        message = (reply.stderr.strip() or f"code {reply.code}").splitlines()[-1]
        raise CheckFailed(f"{plan.runtime.program}: {message}", hint=CHECK_HINT)
    return reply.stdout
