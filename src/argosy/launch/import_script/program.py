"""The roles of commands in job scripts, and the record of a command that is taken apart, with its rendering; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from argosy.core.shell import quote
from argosy.slurm.bash_words import BRACES
from argosy.slurm.sbatch import Option
from argosy.slurm.script_words import Values, Word, WordPart, plain_text, source_text


class Role(StrEnum):
    """The purpose of a command in a job script."""

    PROGRAM = "start a program of the job"
    LOST = "start programs in a way that is not translated"
    PRINT = "print"
    CONTROL = "control the shell of the script"
    TEST = "test a condition"
    FILES = "prepare files"
    TOOL = "change files, compile, download"
    INSTALL = "install packages, fetch images"
    SOURCE = "read a shell file"
    MODULE = "load modules of the host"
    SHELL = "change the folder, a limit or a variable of the shell"


_NAMES: Mapping[Role, str] = {
    Role.PRINT: """
        echo printf date hostname pwd env printenv nvidia-smi rocm-smi amd-smi xpu-smi ls squeue sacct nproc lscpu
        numactl free cat uname df du id whoami module-info sstat sinfo seff top ibstat ibv_devinfo tput head tail wc
        lsb_release mpstat vmstat iostat module_list getconf seq basename dirname realpath readlink tee sort uniq cut
        tr uptime lspci lstopo hwloc-ls file stat ldd figlet locale tty
    """,
    Role.CONTROL: """
        true : false set shopt exit trap wait sleep clear alias return break continue local read mapfile
        readarray shift let hash export declare typeset readonly disown kill pkill killall sync jobs getopts
    """,
    Role.TEST: "test [ [[ grep egrep fgrep which type cmp diff pgrep command",
    Role.FILES: "mkdir cp rsync ln touch tar unzip",
    Role.TOOL: """
        rm rmdir mv sed awk gawk chmod chown chgrp find xargs gzip gunzip bzip2 xz zstd zip split mktemp dd truncate
        sbcast setfacl lfs scp sftp curl wget git svn aria2c gsutil aws rclone make cmake ninja gcc g++ gfortran nvcc
        hipcc icc icx ifort ifx mpicc mpicxx mpif90 cc CC ftn scontrol scancel sacctmgr sattach mail sendmail bc jq
        expr tac paste join comm nl nvidia-modprobe md5sum sha256sum patch crontab logger mkfifo accelerate
    """,
    Role.INSTALL: """
        pip pip3 conda mamba micromamba apt apt-get docker podman podman-hpc apptainer singularity
        bsc_singularity shifterimg
    """,
    Role.SOURCE: "source .",
    Role.MODULE: "module ml spack",
    Role.SHELL: "cd pushd popd ulimit umask unset",
    Role.LOST: """
        parallel ssh pdsh clush screen tmux watch eval coproc sbatch aprun jsrun flux prun prterun poe
        runApplication runParallel foamJob
    """,
}  # fmt: skip
ROLES: Mapping[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}
"""Name of a command -> its role; any other command is a program of the job."""

SUBCOMMANDS: Mapping[tuple[str, ...], Role] = {
    ("scontrol", "show"): Role.PRINT,
    ("ray", "start"): Role.LOST,
    ("ray", "stop"): Role.CONTROL,
    **dict.fromkeys((("uv", "pip"), ("uv", "sync"), ("uv", "venv"), ("poetry", "install")), Role.INSTALL),
    **{(name, "run"): Role.LOST for name in ("conda", "mamba", "micromamba")},
}
"""Name and first argument of a command -> its role."""

COMPUTING = frozenset({"read", "mapfile", "readarray", "let", "getopts"})
"""Commands that set the variables in their arguments."""

HARMLESS = frozenset({Role.PRINT, Role.CONTROL, Role.TEST})
"""Roles of the commands that a job does not need."""


NO_SHORT: Mapping[str, str] = {}


class ScriptProgram(msgspec.Struct):
    """A command of the script, taken apart."""

    words: tuple[Word, ...]
    """Arguments of the program itself."""
    line: int
    values: Values
    prelude: list[str] = msgspec.field(default_factory=list)
    """Shell commands that the program's shell runs first, for example ``export X="$Y"``."""
    step_options: tuple[Option, ...] = ()
    """Options of srun."""
    inputs: tuple[Word, ...] = ()
    """Files that srun passes to the program as its standard input."""
    keys: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keys of ``argosy.toml``: image, bind, env, workdir, gpu, contain, torchrun_arg, mpi."""
    launcher: str = ""
    """Launcher by its name in Argosy; empty for a program without one."""
    processes: int = 0
    """Processes for each node (torchrun), or of the whole job (mpirun); 0 if the script leaves them to the launcher."""
    obstacle: str = ""
    """Reason why the command cannot be translated although it starts programs; empty if it can."""
    is_start: bool = False
    """Whether a launcher or a container command starts the program."""
    is_done: bool = False
    """Whether nothing is left to take apart."""
    is_step: bool = False
    """Whether srun starts the program."""
    nodes_option: Option | None = None
    """The option of torchrun or deepspeed for the number of nodes; None without one."""
    is_everywhere: bool = False
    """Whether the launcher itself starts the program on the other nodes, as deepspeed does."""
    written: tuple[Word, ...] = ()
    """The words of the command before variables are expanded."""
    script: Word = ()
    """The text of ``bash -c``, with the parts that the script's own shell expands."""
    hidden: set[str] = msgspec.field(default_factory=set)
    """Variables of the script that ``bash -c`` does not see, because they are not exported."""
    replaced: list[str] = msgspec.field(default_factory=list)
    untranslated: list[str] = msgspec.field(default_factory=list)
    """Notes about parts that Argosy does itself, and parts that the user has to translate."""
    comments: list[str] = msgspec.field(default_factory=list)
    """Those notes that the table of the job repeats."""

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

    def set_variable(self, name: str, value: str) -> None:
        """Set a variable of the program."""
        self.keys.setdefault("env", {})[name] = value

    def note_unknown_values(self, options: Iterable[Option], known: re.Pattern[str]) -> None:
        """Record an obstacle if an option took the next argument as its value, and it may be the program.

        `known` matches the names of the options that have a value.
        """
        texts = self.texts
        for option in options:
            names = [text for text in texts if text.lstrip("-") == option.name and text.startswith("-")]
            if names and option.value and not known.fullmatch(option.name):
                self.obstacle = f"Argosy does not know whether {names[0]} has a value: write {names[0]}=VALUE"


def command_of(program: ScriptProgram, inputs: Sequence[Word]) -> tuple[list[str], bool]:
    """Return the command of a job, and whether a shell in each rank expands variables in it.

    Words without variables become arguments as they are.  A command with variables that only the job knows, or that
    reads a file as its standard input, runs as ``sh -c 'exec …'``, or by bash if it has syntax that sh does not.
    """
    texts = [plain_text(word) for word in program.words]
    if all(text is not None for text in texts) and not program.prelude and not inputs:
        return [text for text in texts if text is not None], False
    line = " ".join((shell_line(program.words), *(f"< {shell_line((each,))}" for each in inputs)))
    text = "; ".join((*program.prelude, f"exec {line}"))
    return ["bash" if needs_bash(program.words, text) else "sh", "-c", text], True


def needs_bash(words: Iterable[Word], line: str) -> bool:
    """Return whether a line has syntax of bash that sh does not have; `words` are those of its command."""
    braces = any(part.kind == "shell" and BRACES.search(part.text) for word in words for part in word)
    return braces or bool(OF_BASH.search(line))


OF_BASH = re.compile(
    r"(?<!\$)\(\(|\[\[|[<>]\(|<<<|\w=\(|\$\{[#!]?\w+(\[|/|\^|,|:[^-+=?])"
    r"|\$\[|\$\{!|\(\((?:(?!\)\)).)*(\d#|\*\*|\+\+|--|,)"
    r"|\b(S?RANDOM|SECONDS|EPOCHSECONDS|EPOCHREALTIME|BASHPID)\b|\$\{?(E?UID|HOSTNAME)\b"
)
"""Syntax of bash that sh does not have: ``((``, ``[[``, ``<(``, ``<<<``, arrays, changed variables, its own ones."""


HOME = re.compile(r"^~(?=/|$)")
"""The home folder at the beginning of a word."""


def shell_line(words: tuple[Word, ...]) -> str:
    """Render words as a line of sh, with the variables and expressions that they contain."""
    return " ".join(_shell_word(word) for word in words)


def _shell_word(word: Word) -> str:
    """Render a word for sh: text in quotes if it needs them, variables in double quotes if the script has them."""
    text = plain_text(word)
    if text is not None:
        return quote(text)
    return "".join(_shell_part(part) for part in word)


def _shell_part(part: WordPart) -> str:
    if part.kind == "text":
        return quote(part.text) if part.text else ""
    if part.kind == "shell":
        # Behind other text, or between quotes, the shell does not replace ~ by the home folder.
        if part.quoted:
            return f'"{HOME.sub("${HOME}", part.text)}"'
        return HOME.sub('"${HOME}"', part.text)
    return f'"{part.reference}"' if part.quoted else part.reference
