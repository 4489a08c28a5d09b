"""Read the options of container commands in a job script: Apptainer, docker, podman-hpc, shifter; pure."""

from __future__ import annotations

from argosy.core.sbatch_options import Option, split_options
from argosy.core.script_reader import Part
from argosy.launch.import_script.program import NO_SHORT, Program

_APPTAINER_FLAGS = """
    nv rocm nvccli contain containall cleanenv no-home writable-tmpfs fakeroot ipc pid uts net userns unsquash
    writable compat keep-privs no-privs allow-setuid disable-cache no-init sharens no-umask no- eval no-https c C
    e f i p u w silent quiet debug q s d
"""
APPTAINER_FLAGS = frozenset(_APPTAINER_FLAGS.split())
"""Options of ``apptainer exec``, and of apptainer itself, that take no value (apptainer_exec(1))."""

DOCKER_FLAGS = frozenset("rm interactive tty it ti i t d detach init privileged gpu nccl mpi cuda-mpi".split())  # noqa: SIM905
"""Options of ``docker run`` and ``podman-hpc run`` that take no value."""


def read_container(program: Program) -> None:
    """Read ``apptainer exec [options] IMAGE``; `bsc_singularity` is the wrapper of MareNostrum 5."""
    texts = program.texts
    _, before = split_options(texts[1:], flags=APPTAINER_FLAGS, short=NO_SHORT)
    verb = texts[1 + before] if len(texts) > 1 + before else ""
    if verb not in {"exec", "run"}:
        program.unread.append(f"{program.name} {verb}: Argosy translates exec and run")
        program.words = ()
        return
    program.is_start = True
    start = 2 + before
    options, count = split_options(texts[start:], flags=APPTAINER_FLAGS, short=NO_SHORT, line=program.line)
    for option in options:
        _container_option(program, option)
    program.skip(start + count)
    if program.words:
        program.keys["image"] = program.texts[0]
        program.skip(1)
    if verb == "run":
        program.words = ((Part("text", "/.singularity.d/runscript"),), *program.words)


def _container_option(program: Program, option: Option) -> None:
    """Translate an option of ``apptainer exec``."""
    match option.name:
        case "bind" | "B":
            program.add("bind", *option.value.split(","))
        case "env":
            for pair in option.value.split(","):
                name, _, value = pair.partition("=")
                program.keys.setdefault("env", {})[name] = value
        case "pwd" | "cwd" | "W":
            program.keys["workdir"] = option.value
        case "nv" | "rocm" | "nvccli":
            program.replaced.append(f"--{option.name}: Argosy chooses how the container gets its GPUs")
        case "contain" | "c" | "containall" | "C":
            program.keys["contain"] = True
        case "cleanenv" | "e":
            program.unread.append("--cleanenv: Argosy passes your environment on, and drops what belongs to the host")
        case name:
            program.unread.append(f"{'--' if len(name) > 1 else '-'}{name}: an option of {program.name}")


def read_docker(program: Program) -> None:
    """Read ``docker run``, ``podman run`` and ``podman-hpc run``."""
    texts = program.texts
    if texts[1:2] != ["run"]:
        return program.skip(len(texts))
    program.is_start = True
    options, count = split_options(texts[2:], flags=DOCKER_FLAGS, short=NO_SHORT)
    for option in options:
        match option.name:
            case "v" | "volume":
                program.add("bind", option.value)
            case "e" | "env":
                name, _, value = option.value.partition("=")
                program.keys.setdefault("env", {})[name] = value
            case "w" | "workdir":
                program.keys["workdir"] = option.value
            case "rm" | "it" | "ti" | "i" | "t" | "gpu" | "gpus" | "nccl" | "mpi" | "cuda-mpi" | "network" | "ipc":
                program.replaced.append(f"{option}: Argosy starts the container")
            case name:
                program.unread.append(f"{'--' if len(name) > 1 else '-'}{name}: an option of {program.name}")
    program.skip(2 + count)
    if program.words:
        program.keys["image"] = f"docker://{program.texts[0]}"
        program.skip(1)
    return None


def read_shifter(program: Program) -> None:
    """Read ``shifter --image=…``."""
    program.is_start = True
    options, count = split_options(program.texts[1:], short=NO_SHORT)
    for option in options:
        if option.name == "image":
            program.keys["image"] = f"docker://{option.value.removeprefix('docker:')}"
        elif option.name in {"volume", "V"}:
            program.add("bind", *option.value.split(";"))
        else:
            program.replaced.append(f"{option}: an option of shifter")
    program.skip(1 + count)


def pyxis_image(text: str) -> str:
    """Return a reference in the form of Apptainer: pyxis writes ``host#name``, without ``docker://``."""
    if text.startswith(("/", "./", "$", "~")) or text.endswith((".sqsh", ".sif")):
        return text
    return f"docker://{text.removeprefix('docker://').replace('#', '/')}"
