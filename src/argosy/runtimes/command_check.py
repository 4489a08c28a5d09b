"""Check a command before its container starts, and mount the folders of the files among its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.model import Bind, ContainerRequest, Entry, Host
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean, suggest_word
from argosy.runtimes.apptainer import parse_bind_variables
from argosy.runtimes.container_plan import SYSTEM, lies_below
from argosy.runtimes.runtime import SYSTEM_FOLDERS, TEMPORARY, load_runtime

BUILTINS = frozenset({"alias", "cd", "command", "eval", "exec", "export", "set", "source", "ulimit", "umask", "unset"})
"""Commands of the shell that people begin a command line with, although they are not programs."""

PYTHON = frozenset({"python", "python3"})
"""Programs of each environment that contains Python packages."""

ANY_PYTHON = re.compile(r"(.*/)?python(3(\.\d+)?)?\Z")
"""A Python interpreter, also with a version or a folder."""

OF_IMAGE = ("/usr/", "/opt/argosy/", "/opt/conda/")
"""Folders of the Pythons of an image."""

WRAPPERS: Mapping[str, re.Pattern[str]] = {
    "env": re.compile(r"\w+=.*", re.DOTALL),
    "nice": re.compile(r"-n|(-n|--adjustment=)?-?\d+"),
    "numactl": re.compile(r"-.*"),
    "stdbuf": re.compile(r"-[ioe]."),
}
"""Program that only starts the rest of its command line -> the arguments of its own that `skip_wrappers` knows."""

RUNNERS = frozenset({"hatch", "pdm", "pipenv", "pixi", "poetry", "rye", "uv"})
"""Programs whose ``run`` starts a program in a project's environment, which an image has already."""

MPI_STARTERS = frozenset({"mpiexec", "mpirun", "orterun"})
STARTERS = frozenset({"accelerate", "deepspeed", "torchrun"})
"""Programs that start ranks themselves."""

BINDERS = frozenset({"numactl", "taskset"})
"""Programs that bind a program to cores."""

LIKENESS = 0.75
"""Similarity from which a program is suggested in place of another one: `difflib` gives mpirun and pygrun 0.67."""

OF_DRIVER = re.compile(r"nvidia-|rocm-?smi|amd-smi|xpu-smi")
"""Programs of the GPU driver, which runtimes mount from the host."""

PERSONAL = ("", "bin", ".local/bin")
"""Folders of a mount that may be on PATH."""


def skip_wrappers(command: Sequence[object]) -> int:
    """Return the position of the program in a command: behind ``env A=1``, ``nice -n 5`` and the like."""
    at = 0
    while at < len(command) and (own := WRAPPERS.get(str(command[at]))):
        at += 1
        while at < len(command) and own.fullmatch(str(command[at])):
            at += 1
    return at


def find_interpreter(command: Sequence[object]) -> int | None:
    """Return the position of the Python interpreter that a command starts; None for other commands."""
    at = skip_wrappers(command)
    return at if at < len(command) and ANY_PYTHON.match(str(command[at])) else None


def is_of_image(interpreter: str) -> bool:
    """Return whether a Python is the image's: one elsewhere, as in a venv over the image, has packages of its own."""
    return "/" not in interpreter or interpreter.startswith(OF_IMAGE)


def refuse_unusable_binds(request: ContainerRequest) -> None:
    """Reject a bind mount whose source does not exist on this machine, or of a file on a folder of every image.

    Raises
    ------
    UsageError
        If there is one.
    """
    for bind in request.binds:
        if not os.path.lexists(bind.source):
            raise UsageError(
                f"cannot bind {bind.source}: it does not exist",
                evidence=f"--bind {bind.source}:{bind.target}",
                hint="check the path",
            )
        target = os.path.normpath(bind.target)
        if target in SYSTEM and os.path.isfile(bind.source):  # noqa: PTH113 - no Path at each start
            raise UsageError(
                f"cannot bind {bind.source} to {target}: it is a file, and {target} is a folder of the image",
                evidence=f"--bind {bind.source}:{bind.target}",
                hint=f"name the file in the folder: --bind {bind.source}:{target}/{Path(bind.source).name}",
            )


def refuse_missing_variable_binds(environment: Mapping[str, str]) -> None:
    """Reject a bind mount of ``APPTAINER_BIND`` and its like whose source does not exist, as Apptainer does.

    Raises
    ------
    UsageError
        If a source does not exist.
    """
    for bind, name in parse_bind_variables(environment).items():
        if not os.path.lexists(bind.source):
            raise UsageError(
                f"cannot bind {bind.source}: it does not exist",
                evidence=f"{name}={environment[name]}",
                hint=f"correct the variable, or remove it: unset {name}; a module of this site may set it",
            )


def _sees_cwd(runtime: str) -> bool:
    """Return whether containers of a runtime show the current directory; those chosen without ``--runtime`` do."""
    return not runtime or load_runtime(runtime).traits.sees_cwd


def refuse_missing_program(
    command: tuple[str, ...], request: ContainerRequest, host: Host, *, at_nodes: bool = False
) -> None:
    """Reject a Python file, or a program with a folder, that does not exist, before ranks are started for it.

    The check covers the current directory, the home and the folders for temporary files, which the container shares
    with the host. A file in another folder may be part of the image.

    Parameters
    ----------
    at_nodes
        Whether the program starts on compute nodes, which have their own folders for temporary files.

    Raises
    ------
    UsageError
        If the file does not exist.
    """
    program = _program_file(command)
    path = Path(os.path.normpath(Path(host.cwd, program)))
    if not program or request.contain or request.workdir or is_bound_from_elsewhere(path, request.binds):
        return
    if at_nodes and (not _sees_cwd(request.runtime) or any(map(path.is_relative_to, TEMPORARY))):
        return
    shared = [folder for folder in (host.cwd, host.person.home, *TEMPORARY) if folder not in {"", "/"}]
    if any(map(path.is_relative_to, shared)) and not os.path.lexists(path):
        raise UsageError(
            f"cannot run {program}: it does not exist",
            evidence=f"no file {path}; the container has the same current directory",
            hint=did_you_mean(
                path.name,
                [each.name for each in path.parent.glob(f"*{path.suffix}")],
                "check the path and the current directory",
            ),
        )


def is_bound_from_elsewhere(path: Path, binds: Iterable[Bind]) -> bool:
    """Return whether a bind mount puts another file or folder of the host at this path of the container."""
    return any(bind.source != bind.target and path.is_relative_to(bind.target) for bind in binds)


def _program_file(command: tuple[str, ...]) -> str:
    """Return the file that a command runs: the script of a Python command, or a program with a folder, else nothing."""
    at = find_interpreter(command)
    if at is None or "/" in command[at]:
        return command[0] if command and "/" in command[0] else ""
    options = tuple(takewhile(lambda argument: argument.startswith("-"), command[at + 1 :]))
    program = "".join(command[at + 1 + len(options) :][:1])
    return program if program.endswith(".py") and not {"-c", "-m"}.intersection(options) else ""


def refuse_quoted_line(command: tuple[str, ...], host: Host) -> None:
    """Reject a command that is one quoted shell line: a job would wait for its nodes and then find no such program.

    Raises
    ------
    UsageError
        If no file has that name, and the image cannot contain one.
    """
    line = command[0] if len(command) == 1 else ""
    if len(line.split()) > 1 and not line.startswith("/") and not os.path.lexists(os.path.join(host.cwd, line)):  # noqa: PTH118 - likewise
        raise UsageError(
            "the command is one argument with blanks, and no program has that name",
            evidence=f"-- {line!r}",
            hint=f"remove the quotes: -- {line.splitlines()[0]}; or for the shell: -- sh -c {line!r}",
        )


HOST_PROGRAMS = {
    **dict.fromkeys(("srun", "sbatch", "salloc"), "Argosy starts the ranks itself"),
    **dict.fromkeys(("apptainer", "singularity", "bsc_singularity"), "Argosy starts the container itself"),
}
"""Program that containers do not have -> the reason why the command must not begin with it."""


def refuse_host_program(command: tuple[str, ...]) -> None:
    """Reject a command that begins with srun or apptainer: the program would not be found on the nodes.

    Raises
    ------
    UsageError
        If the command begins with such a program.
    """
    name = os.path.basename(command[0]) if command else ""  # noqa: PTH119 - the argument may not be a path
    if name in HOST_PROGRAMS:
        raise UsageError(
            f"the command begins with {name}, but {HOST_PROGRAMS[name]}",
            evidence=f"-- {' '.join(command)}",
            hint="pass only the program: -- python train.py; translate a whole job script with: argosy import job.sh",
        )


def refuse_no_image(image: str, command: tuple[str, ...]) -> None:
    """Reject a command line without an image: ``argosy launch -- python train.py``, where python is taken for one.

    Raises
    ------
    UsageError
        If the image is the name of an interpreter, and the command begins with an option or a script.
    """
    if image in INTERPRETERS and command and command[0].startswith("-") | command[0].endswith((".py", ".sh")):
        line = " ".join((image, *command))
        raise UsageError(
            "no image is given", evidence=f"the first argument is the program {image}", hint=f"write: IMAGE -- {line}"
        )


INTERPRETERS = frozenset({"bash", "mpirun", "python", "python3", "sh", "srun", "torchrun"})
"""Programs that people start scripts with."""


def refuse_no_program(command: tuple[str, ...], request: ContainerRequest, host: Host) -> None:
    """Reject a quoted shell line, and a script of this folder that the system cannot execute.

    Raises
    ------
    UsageError
        If the command cannot start; the hint is the command that works.
    """
    refuse_quoted_line(command, host)
    script = command[0] if command else ""
    path = os.path.join(host.cwd, script)  # noqa: PTH118 - isfile answers for any text; Path's may raise
    if request.contain or request.workdir or not script.endswith((".py", ".sh")) or not os.path.isfile(path):  # noqa: PTH113 - likewise
        return
    program = "python" if script.endswith(".py") else "sh"
    hint, path = f"write: IMAGE -- {program} {script}", os.path.normpath(path)
    if "/" not in script:
        raise UsageError(
            f"no program on PATH has the name {script}",
            evidence=f"{path} is a file in the current directory",
            hint=f"{hint}; for a program of the image, write its full path",
        )
    if not os.access(path, os.X_OK):
        raise UsageError(f"cannot run {script}: it is not executable", evidence=path, hint=hint)


def plan_command_binds(command: tuple[str, ...], request: ContainerRequest, host: Host) -> tuple[Bind, ...]:
    """Return bind mounts for the folders of the files among a command's arguments.

    With them, ``argosy run image.sif -- python /project/code/train.py`` works in every folder.
    """
    if request.contain:
        return ()
    folders: dict[str, Bind] = {}
    for argument in command:
        path = os.path.join(host.cwd, argument)  # noqa: PTH118 - isfile answers for any text; Path's may raise
        if "/" not in argument or not os.path.isfile(path):  # noqa: PTH113 - likewise
            continue
        folder = os.path.normpath(os.path.dirname(path))  # noqa: PTH120 - likewise
        if folder != "/" and folder.split("/")[1] not in SYSTEM_FOLDERS:
            folders.setdefault(folder, Bind(folder, folder))
    return tuple(folders.values())


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
        The hint is the most similar program of the image, unless the command is a path.
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
        evidence=f"{entry.image.shown} has no executable file {program}"
        if program != name
        else f"no folder of {entry.image.shown} has an executable file {name}",
        hint=_hint(name, command, search.others),
    )


def refuse_without_shell(entry: Entry) -> None:
    """Refuse an image without /bin/sh for a job, whose launchers need it; errors as `refuse_unknown_program`."""
    if _lacks(("sh",), entry):
        raise UsageError(
            "cannot launch this image in a job: it has no /bin/sh",
            evidence=f"no folder of {entry.image.shown} has an executable file sh",
            hint="use an image with a shell; 'argosy run' also starts images without one",
        )


def refuse_without_python(launcher: str, entry: Entry) -> None:
    """Refuse an image without Python for a launcher that is a Python program; errors as `refuse_unknown_program`."""
    if _lacks(("python", "python3"), entry):
        raise UsageError(
            f"--launcher {launcher} needs Python, which this image does not contain",
            evidence=f"no folder of {entry.image.shown} has an executable file python or python3",
            hint="use --launcher srun, mpi or none for a program that is not written in Python, or another image",
        )


def _lacks(names: Iterable[str], entry: Entry) -> bool:
    """Return whether an image has no program with one of these names, if that is certain."""
    from argosy.images.programs import search_program  # noqa: PLC0415 - it reads squashfs tables

    return not entry.image.packages and all(
        not _may_come_from_elsewhere(name, entry) and search_program(name, entry.image).is_missing for name in names
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
    if name != command[0]:
        return "check the path; for a file of this machine, mount its folder with --bind"
    near = suggest_word(name, names, likeness=LIKENESS)
    add = f"did you mean {near}?" if near else "add the program to the image, or write the full path of a file"
    return _hint_at_needless(name, command) or add


def _hint_at_needless(name: str, command: tuple[str, ...]) -> str:
    """Return what to do about a program that a command does not need in an image of Argosy; empty for others."""
    if name in RUNNERS and command[1:2] == ("run",) and command[2:] and not command[2].startswith("-"):
        python = ("python",) if command[2].endswith(".py") else ()
        return f"omit {name} run: the image has the packages: -- {' '.join(map(quote, (*python, *command[2:])))}"
    if name in MPI_STARTERS | STARTERS:
        more = "with --launcher mpi" if name in MPI_STARTERS else "for example -- python train.py"
        return f"Argosy starts the ranks itself: pass only the program to argosy launch, {more}"
    if name in BINDERS:
        return f"omit {name}, since Argosy binds the ranks to their cores, or add the program to the image"
    return ""
