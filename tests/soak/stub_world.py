"""A world in which a job script of anyone can run: no network, no files, and stand-ins in place of all programs.

Only bash, sh and the programs of `TOOLS` are real. Every other program is ``stub.sh``, which notes how it was started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STUB = Path(__file__).with_name("stub.sh")
HOME = "/home/ada"
PROJECT = f"{HOME}/project"
TIMEOUT_S = 10

TOOLS = """
    awk basename bash cat chmod cmp comm cp cut dash date diff dirname echo env expr false find fold grep gzip head
    id join kill ln ls mkdir mktemp mv nice nl nohup od paste printenv printf pwd readlink realpath rm rmdir sed seq
    setsid sh sort split stat stdbuf tac tail tar tee test timeout touch tr true uname uniq unlink wc xargs yes
"""
"""The real programs that each world has."""

PROGRAMS = """
    srun mpirun mpiexec torchrun accelerate deepspeed python python3 apptainer singularity scontrol hostname nproc
    whoami date sleep module ml conda mamba pip pip3 nvidia-smi rocm-smi numactl taskset squeue sinfo which tput free
    lscpu git spack deactivate time prog fails
"""
"""The stand-ins that each world has."""

BASE = {
    "HOME": HOME,
    "USER": "ada",
    "LOGNAME": "ada",
    "PATH": "/stubs:/usr/bin",
    "LANG": "C",
    "TMPDIR": "/tmp",  # noqa: S108 - that of the world
    "FROM_USER": "of the user",
    "SCRATCH": "/scratch",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOBID": "4711",
    "SLURM_SUBMIT_DIR": PROJECT,
    "SLURM_CLUSTER_NAME": "plain",
    "SLURM_CPUS_ON_NODE": "4096",
    "SLURM_JOB_CPUS_PER_NODE": "4096",
    "SLURMD_NODENAME": "node1",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_PARTITION": "main",
}
"""The environment of every job: that of the user, and what Slurm sets whatever the options are."""

NO_END = "the script did not end"

LINE_TRAP = "trap 'STUB_LINE=\"$LINENO ${BASH_LINENO[*]}\"' DEBUG; set -T; export STUB_LINE; unset BASH_ENV\n"
"""Read by bash before a script: the stand-ins learn which line started them."""

MISSING = re.compile(
    r"(?:line )?\d+: (?:(?P<kind>cd|pushd): |exec: )?(?P<path>[^:\n]+): (?P<why>No such file or directory"
    r"|(?:command )?not found)$|failed to run command .(?P<program>[^\n]+).: No such file or directory$",
    re.MULTILINE,
)


READ_ONLY = re.compile(r"line \d+: ([^:\n]+): Read-only file system$", re.MULTILINE)
"""A file that a script writes, and that was made a program because it missed its folder."""


@dataclass(frozen=True, slots=True)
class Call:
    """The start of a program."""

    program: str
    arguments: tuple[str, ...]
    folder: str
    input: str
    environment: Mapping[str, str]
    files: frozenset[str]

    @property
    def lines(self) -> list[int]:
        """The lines of the script that led to the call, the innermost first."""
        return [int(each) for each in re.findall(r"\d+", self.environment.get("STUB_LINE", ""))]


def collect_tools(folder: Path) -> Path:
    """Copy the real programs of scripts into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOOLS.split():
        program = shutil.which(name, path="/usr/bin:/bin")
        if program and not (folder / name).exists():
            shutil.copy(program, folder / name)
    if not (folder / "time").is_symlink():
        (folder / "time").symlink_to("/stubs/time")
    return folder


@dataclass(slots=True)
class World:
    """A folder that is the root of the file system of scripts.

    Attributes
    ----------
    tools
        The folder with the programs of `TOOLS`.
    made
        What scripts missed so far, with whether it is a program, a file or a folder.
    """

    root: Path
    tools: Path
    made: dict[str, str] = field(default_factory=dict)

    def create(self, files: Mapping[str, str]) -> None:
        """Make the world new, with these files in the project."""
        shutil.rmtree(self.root, ignore_errors=True)
        for each in (
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "stubs",
            "calls",
            "tmp",
            "proc",
            "dev",
            "scratch",
            ".singularity.d",
        ):
            (self.root / each).mkdir(parents=True)
        for link in ("bin", "lib", "lib64", "sbin"):
            (self.root / link).symlink_to("usr/bin" if link == "sbin" else f"usr/{link}")
        (self.root / "stubs/.stub").write_text(STUB.read_text())
        (self.root / "stubs/.stub").chmod(0o755)
        for name in PROGRAMS.split():
            (self.root / "stubs" / name).symlink_to(".stub")
        (self.root / ".singularity.d/runscript").symlink_to("/stubs/.stub")
        (self.root / "line_trap").write_text(LINE_TRAP)
        for name, text in files.items():
            path = self.root / PROJECT[1:] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name, kind in self.made.items():
            self._make(name, kind)

    def supply(self, messages: str) -> bool:
        """Note what a script missed, and return whether there is something new; the next world has it."""
        before = dict(self.made)
        for found in MISSING.finditer(messages):
            path, kind = found["path"] or found["program"], "folder" if found["kind"] else "program"
            if found["program"] or "not found" in found["why"]:
                path = path if "/" in path else f"/stubs/{path}"
            self.made.setdefault(path if path.startswith("/") else f"{PROJECT}/{path}", kind)
        for path in READ_ONLY.findall(messages):
            self.made[path if path.startswith("/") else f"{PROJECT}/{path}"] = "file"
        return self.made != before

    def _make(self, name: str, kind: str) -> None:
        path = Path(os.path.normpath(f"{self.root}/{name}"))
        if not path.is_relative_to(self.root) or os.path.lexists(path):
            return
        try:
            (path if kind == "folder" else path.parent).mkdir(parents=True, exist_ok=True)
            if kind == "program":
                path.symlink_to("/stubs/.stub")
            elif kind == "file":
                path.touch()
        except OSError:
            return  # a name that a file system does not allow, or below a file

    def run(
        self, script: str, environment: Mapping[str, str], *, program: str, folder: str = PROJECT
    ) -> tuple[list[Call], str]:
        """Run a script; return the programs that it started, in order, and its messages."""
        calls = self.root / "calls"
        for each in calls.iterdir():
            each.unlink()
        (self.root / "job.sh").write_text(script)
        given = [f"{name}={value}" for name, value in {**BASE, **environment}.items()]
        traced = ["BASH_ENV=/line_trap"] if program == "bash" else []
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        command = ("env", "-i", *given, *traced, f"/usr/bin/{program}", "/job.sh")
        try:
            done = subprocess.run(
                (*self._sandbox(folder), *command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            messages = done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired:
            messages = NO_END
        return list(self._calls()), messages

    def _sandbox(self, folder: str) -> Iterator[str]:
        yield from ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--bind", str(self.root), "/")
        for each in ("/usr/lib", "/usr/lib64"):
            yield from ("--ro-bind-try", each, each)
        yield from ("--ro-bind", str(self.tools), "/usr/bin")
        yield from ("--ro-bind", str(self.root / "stubs"), "/stubs")
        yield from ("--proc", "/proc", "--dev", "/dev", "--chdir", folder)

    def _calls(self) -> Iterator[Call]:
        for listed in sorted((self.root / "calls").glob("*.files")):
            path = listed.with_suffix("")
            program, folder, text, count, *rest = path.read_bytes().decode(errors="replace").split("\0")
            arguments, pairs = rest[: int(count)], rest[int(count) : -1]
            environment = dict(each.split("=", 1) for each in pairs if "=" in each)
            files = frozenset(listed.read_text(errors="replace").splitlines())
            yield Call(program, tuple(arguments), folder, text, environment, files)
