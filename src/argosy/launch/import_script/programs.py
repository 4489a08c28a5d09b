"""Take a command of a job script apart: srun, container, launcher, program; pure.

``srun -n 8 singularity exec -B /data x.sif torchrun train.py`` has four layers.  `read_program` removes one after the
other and notes what each says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from argosy.core.shell import quote
from argosy.slurm.script_reader import (
    Option,
    Part,
    Statement,
    Values,
    Word,
    expand,
    plain_text,
    read_statements,
    source_text,
    split_options,
)

NO_SHORT: Mapping[str, str] = MappingProxyType({})

SRUN_FLAGS = frozenset(
    "label unbuffered overlap exact exclusive no-kill quiet verbose oversubscribe overcommit pty contiguous multi-prog "
    "kill-on-bad-exit disable-status preserve-env container-mount-home no-container-mount-home container-writable "
    "container-remap-root no-container-remap-root l u Q v s O E K k".split()
)
"""Options of srun that work without a value (srun(1), and pyxis)."""

APPTAINER_FLAGS = frozenset(
    "nv rocm nvccli contain containall cleanenv no-home writable-tmpfs fakeroot ipc pid uts net userns unsquash "
    "writable compat keep-privs no-privs allow-setuid disable-cache no-init sharens no-umask no-eval no-https "
    "c C e f i p u w silent quiet debug q s d".split()
)
"""Options of ``apptainer exec``, and of apptainer itself, that take no value (apptainer_exec(1))."""

DOCKER_FLAGS = frozenset("rm interactive tty it ti i t d detach init privileged gpu nccl mpi cuda-mpi".split())  # noqa: SIM905
"""Options of ``docker run`` and ``podman-hpc run`` that take no value."""

TORCHRUN_FLAGS = frozenset({"standalone", "no-python", "no_python", "run-path", "run_path", "use_env", "use-env"})

RENDEZVOUS = re.compile(r"(nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](addr|port)|standalone|use[-_]env|local[-_]addr)\Z")
"""Options of torchrun that Argosy chooses itself."""

ACCELERATE_DONE = re.compile(
    r"(multi[-_]gpu|num[-_]machines|num[-_]processes|machine[-_]rank|main[-_]process[-_](ip|port)|rdzv[-_]\w+|same[-_]network)\Z"
)
"""Options of ``accelerate launch`` that Argosy chooses itself."""

ACTIVATION = re.compile(
    r"(conda|mamba|micromamba) (de)?activate|eval .*(conda|mamba)|deactivate"
    r"|(source|\.) \S*(activate|conda\.sh|profile|bashrc|modules?\.sh|lmod\w*\.sh|init/bash)"
)
"""Commands that activate an environment or the modules of the host."""

PRINTS = frozenset(
    "echo printf date hostname pwd env printenv nvidia-smi rocm-smi amd-smi xpu-smi which type ls squeue scontrol sacct "
    "nproc lscpu numactl free cat uname ulimit df du id whoami module-info sstat seff top ibstat true : set shopt "
    "exit trap wait sleep time clear alias unset return break continue local read tput shift let hash command "
    "head tail grep wc test [ lsb_release mpstat vmstat module_list getconf".split()
)
"""Commands that print something or belong to the script itself."""


@dataclass(slots=True)
class Program:
    """A command of the script, taken apart.

    Attributes
    ----------
    words
        Arguments of the program itself.
    prelude
        Shell commands that the program's shell runs first, for example ``export X="$Y"``.
    step_options
        Options of srun.
    keys
        Keys of ``argosy.toml``: image, bind, env, workdir, gpu, contain, torchrun_arg, mpi.
    launcher
        Launcher by its name in Argosy; empty for a program without one.
    processes
        Processes for each node (torchrun), or of the whole job (mpirun); 0 if the script leaves them to the launcher.
    replaced, unread
        Notes about parts that Argosy does itself, and parts that the user has to translate.
    is_start
        Whether something in the command starts a program of the job.
    is_done
        Whether nothing is left to take apart.
    """

    words: tuple[Word, ...]
    line: int
    values: Values
    prelude: list[str] = field(default_factory=list)
    step_options: tuple[Option, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)
    launcher: str = ""
    processes: int = 0
    is_start: bool = False
    is_done: bool = False
    replaced: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The arguments as text; variables without a value stay as they are written."""
        return [source_text(word) for word in self.words]

    @property
    def name(self) -> str:
        """The first argument without its folder."""
        return source_text(self.words[0]).rsplit("/", 1)[-1] if self.words else ""

    def skip(self, count: int) -> None:
        """Remove arguments from the beginning."""
        self.words = self.words[count:]

    def add(self, key: str, *values: str) -> None:
        """Add values to a list of the keys."""
        self.keys.setdefault(key, []).extend(value for value in values if value)


def read_program(statement: Statement, values: Values) -> Program:
    """Take a command apart; `Program.is_start` says whether something in it starts a program of the job."""
    words = tuple(expanded for word in statement.words for expanded in expand(word, values))
    program = Program(words, statement.line, values)
    for name, value in statement.assigned:
        program.keys.setdefault("env", {})[name] = source_text(value[0]) if value else ""
    while program.words and not program.is_done and (layer := _layer(program)):
        layer(program)
    return program


def _layer(program: Program) -> Callable[[Program], None] | None:
    texts = program.texts
    if len(texts) > 1 and program.name.startswith("python") and texts[1] == "-m" and len(texts) > 2:  # noqa: PLR2004
        return _python_module(texts[2])
    if program.name in {"bash", "sh"}:
        return _shell if len(texts) > 2 and texts[1] in {"-c", "-lc", "-ec"} else None  # noqa: PLR2004
    return LAYERS.get(program.name)


def _python_module(name: str) -> Callable[[Program], None] | None:
    """Return the reader of ``python -m NAME`` if the module is a launcher."""
    layers = {
        "torch.distributed.run": _torchrun,
        "torch.distributed.launch": _torchrun,
        "accelerate.commands.launch": _accelerate,
    }
    if name not in layers:
        return None

    def read(program: Program) -> None:
        program.skip(2)
        if name.startswith("accelerate"):
            program.words = (program.words[0], (Part("text", "launch"),), *program.words[1:])
        layers[name](program)

    return read


def _prefix(program: Program) -> None:
    """Remove ``exec``, ``time``, ``nohup``, and ``env NAME=VALUE``."""
    is_env = program.name == "env"
    program.skip(1)
    while is_env and program.words and "=" in program.texts[0]:
        name, _, value = program.texts[0].partition("=")
        program.keys.setdefault("env", {})[name] = value
        program.skip(1)


def _binding(program: Program) -> None:
    """Remove ``numactl --cpunodebind=…`` and ``taskset -c …``, if a program follows."""
    options, count = split_options(program.texts[1:], short=NO_SHORT, flags=frozenset({"localalloc", "l", "c"}))
    has_value = program.name == "taskset"
    program.replaced.append(f"{program.name}: Argosy binds ranks to cores by the site profile")
    program.skip(1 + count + (1 if has_value and options else 0))


def _srun(program: Program) -> None:
    options, count = split_options(program.texts[1:], flags=SRUN_FLAGS, line=program.line)
    program.is_start = True
    program.launcher = program.launcher or "srun"
    program.skip(1 + count)
    kept: list[Option] = []
    for option in options:
        match option.name:
            case "container-image":
                program.keys["image"] = _pyxis_image(option.value)
            case "container-mounts":
                program.add("bind", *(mount for mount in option.value.split(",")))
            case "container-workdir":
                program.keys["workdir"] = option.value
            case "mpi":
                program.keys["mpi"] = option.value
                program.launcher = "mpi" if option.value.startswith(("pmi", "cray")) else program.launcher
            case "pty":
                program.unread.append("--pty: an interactive step; use argosy launch --interactive")
            case _:
                kept.append(option)
    program.step_options = tuple(kept)


def _pyxis_image(text: str) -> str:
    """Return a reference in the form of Apptainer: pyxis writes ``host#name``, without ``docker://``."""
    if text.startswith(("/", "./", "$", "~")) or text.endswith((".sqsh", ".sif")):
        return text
    return f"docker://{text.removeprefix('docker://').replace('#', '/')}"


def _mpirun(program: Program) -> None:
    texts = program.texts
    program.is_start, program.launcher = True, "mpi"
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        name = texts[at].lstrip("-")
        takes = {"x": 1, "mca": 2, "gmca": 2, "genv": 2, "env": 2}.get(name, 0 if "=" in name or name in MPI_FLAGS else 1)
        values = texts[at + 1 : at + 1 + takes]
        if name in {"n", "np", "c"} and values:
            program.processes = int(values[0]) if values[0].isdigit() else 0
        elif name == "x" and values and "=" in values[0]:
            key, _, value = values[0].partition("=")
            program.keys.setdefault("env", {})[key] = value
        else:
            program.replaced.append(f"{' '.join((texts[at], *values))}: Argosy starts MPI ranks by srun")
        at += 1 + takes
    program.skip(at)


MPI_FLAGS = frozenset(
    "bind-to-core bynode byslot display-map report-bindings oversubscribe allow-run-as-root tag-output v q".split()
)
"""Options of mpirun that take no value."""


def _container(program: Program) -> None:
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


def _docker(program: Program) -> None:
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


def _shifter(program: Program) -> None:
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


def _shell(program: Program) -> None:
    """Read ``bash -c TEXT``: the program in it if the rest only prepares it, else the text as it is."""
    text = program.texts[2]
    statements = [each for each in read_statements(text) if not _is_preparation(each)]
    exports = [each for each in statements if each.kind == "assignment"]
    commands = [each for each in statements if each.kind == "command"]
    if len(commands) != 1 or len(exports) + len(commands) != len(statements) or len(program.words) > 3:  # noqa: PLR2004
        program.is_start = program.is_start or bool(STARTS.search(text))
        program.words = tuple((Part("text", each),) for each in ("bash", "-c", text))
        program.is_done = True
        return
    program.prelude += [each.text for each in exports]
    inner = commands[0]
    program.words = tuple(expanded for word in inner.words for expanded in expand(word, program.values))
    for name, value in inner.assigned:
        program.keys.setdefault("env", {})[name] = source_text(value[0]) if value else ""


def _is_preparation(statement: Statement) -> bool:
    if statement.kind != "command":
        return False
    name = source_text(statement.words[0]) if statement.words else ""
    return bool(ACTIVATION.match(statement.text)) or name in {"module", "ml", *PRINTS}


STARTS = re.compile(r"\b(torchrun|torch\.distributed|accelerate launch|deepspeed|python[\d.]*\s|mpirun|srun)\b")


def _torchrun(program: Program) -> None:
    texts = program.texts
    options, count = split_options(texts[1:], flags=TORCHRUN_FLAGS, short={"m": "module"})
    program.is_start, program.launcher = True, "torchrun"
    module, plain = "", False
    for option in options:
        name = option.name.replace("_", "-")
        if name == "nproc-per-node":
            program.processes = int(option.value) if option.value.isdigit() else 0
        elif name == "module":
            module = option.value
        elif name == "no-python":
            plain = True
        elif RENDEZVOUS.match(option.name):
            program.replaced.append(f"{option}: Argosy chooses the rendezvous")
        else:
            program.add("torchrun_arg", str(option))
    program.skip(1 + count)
    if module:
        program.words = tuple((Part("text", each),) for each in ("python", "-m", module)) + program.words
    elif not plain:
        program.words = ((Part("text", "python"),), *program.words)


def _accelerate(program: Program) -> None:
    if program.texts[1:2] != ["launch"]:
        return program.skip(len(program.words))
    options, count = split_options(
        program.texts[2:], flags=frozenset({"multi_gpu", "multi-gpu", "use_deepspeed", "use_fsdp"}), short={"m": "module"}
    )
    program.is_start, program.launcher = True, "torchrun"
    module = ""
    for option in options:
        if option.name == "module":
            module = option.value
        elif option.name in {"mixed_precision", "mixed-precision"}:
            program.keys.setdefault("env", {})["ACCELERATE_MIXED_PRECISION"] = option.value
        elif ACCELERATE_DONE.match(option.name):
            program.replaced.append(f"{option}: Argosy starts the ranks")
        else:
            program.unread.append(f"{option}: an option of accelerate launch; set it in your program or by ACCELERATE_…")
    program.skip(2 + count)
    before = ("python", "-m", module) if module else ("python",)
    program.words = tuple((Part("text", each),) for each in before) + program.words
    return None


def _deepspeed(program: Program) -> None:
    options, count = split_options(program.texts[1:], short=NO_SHORT)
    program.is_start, program.launcher = True, "torchrun"
    for option in options:
        if option.name == "num_gpus":
            program.processes = int(option.value) if option.value.isdigit() else 0
        else:
            program.replaced.append(f"{option}: Argosy starts the ranks")
    program.skip(1 + count)
    program.words = ((Part("text", "python"),), *program.words)


LAYERS: Mapping[str, Callable[[Program], None]] = MappingProxyType(
    {
        **dict.fromkeys(("exec", "time", "nohup", "env", "command"), _prefix),
        **dict.fromkeys(("numactl", "taskset"), _binding),
        **dict.fromkeys(("mpirun", "mpiexec", "orterun"), _mpirun),
        **dict.fromkeys(("apptainer", "singularity", "bsc_singularity"), _container),
        **dict.fromkeys(("docker", "podman", "podman-hpc"), _docker),
        "srun": _srun,
        "shifter": _shifter,
        "torchrun": _torchrun,
        "accelerate": _accelerate,
        "deepspeed": _deepspeed,
    }
)
"""Program -> the function that reads its options and leaves the arguments that follow."""


def command_of(program: Program) -> tuple[list[str], bool]:
    """Return the command of a job, and whether a shell in each rank expands variables in it.

    Words without variables become arguments as they are.  A command with variables that only the job knows runs as
    ``sh -c 'exec …'``.
    """
    texts = [plain_text(word) for word in program.words]
    if all(text is not None for text in texts) and not program.prelude:
        return [text for text in texts if text is not None], False
    return ["sh", "-c", "; ".join((*program.prelude, f"exec {shell_line(program.words)}"))], True


def shell_line(words: tuple[Word, ...]) -> str:
    """Render words as a line of sh, with the variables and expressions that they contain."""
    return " ".join(_shell_word(word) for word in words)


def _shell_word(word: Word) -> str:
    """Render a word for sh: text in quotes where it needs them, variables in double quotes."""
    text = plain_text(word)
    if text is not None:
        return quote(text)
    return "".join(_shell_part(part) for part in word)


def _shell_part(part: Part) -> str:
    if part.kind == "text":
        return re.sub(r"([^\w@%+=:,./-])", r"\\\1", part.text)
    if part.kind == "shell":
        return f'"{part.text}"' if part.quoted else part.text
    default = f":-{part.default}" if part.default is not None else ""
    variable = f"${{{part.text}{default}}}"
    return f'"{variable}"' if part.quoted or not default else variable
