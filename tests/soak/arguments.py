"""Give hostile values to every option and argument: ``python -m tests.soak.arguments [--seed N] [--only N]``.

Each call runs Argosy in a child of its own, with a home, a cache and programs made for it.  A call ends with a
documented exit code, prints no traceback, and never executes a part of a value: many values try to create CANARY.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from argosy.cli.__main__ import run_app
from argosy.cli.app import app
from tests.patience import PATIENCE_S
from tests.real.conftest import BUSYBOX, make_root

CANARY = "canary"

MEMORY = 4 << 30
"""Bytes of address space of a call: reading /dev/full without end fails early."""

VALUES = (
    "$(touch CANARY)", "`touch CANARY`", "'; touch CANARY; '", '"; touch CANARY; "', "a\ntouch CANARY\n", "a\rb\r\n",
    "; touch CANARY #", "| touch CANARY", "&& touch CANARY", "$HOME", "${IFS}", "<(touch CANARY)", "%(touch CANARY)s",
    "{{ 7 * 7 }}", "%s%n", "%N-%j", "-x", "--help-me", "-", "--", "", " ", "a b", "*", "?", "~root", "=", "a=b", ":",
    "a:b:c", ",", "a,b", "@", "#", "!", "\\", "[", "(", "\x1b[31mred", "é\u202e", os.fsdecode(b"caf\xe9\xff"), "²", "٣",
    "0", "-1", "1e999", "NaN", "9" * 40, "9" * 5000, "1-2", "A" * 300, "A" * 130_000, "../" * 30 + "etc/passwd",
    "/dev/null", "/dev/full", "/", ".", "..", "/proc/self/environ", "/nowhere/$(touch CANARY)", "x.sif", "job.sh",
    "docker://", "docker://$(touch CANARY)/x:1", "docker://-oProxyCommand=touch CANARY/x", "oras://h/x@sha256:0",
    "https://ada:secret@host/x", "-oProxyCommand=touch CANARY", "git+ext::sh -c touch% CANARY", "bare:$(touch CANARY)",
)  # fmt: skip
"""CANARY is replaced by the path of the file that must not appear."""

USUAL = {
    "image": "tiny.sqfs", "one": "tiny.sqfs", "other": "tiny.sqfs", "sources": "requirements.txt", "script": "job.sh",
    "job": "7", "jobs": "7", "first": "7", "second": "7", "runs": "log", "logs": "log", "prefix": "prefix", "files":
    "job.sh", "name": "lumi-g", "names": "x", "target": "other", "alias": "x", "key": "site", "value": "lumi-g",
    "folder": "made", "shell": "bash", "result": "log", "program": "cotainr", "arguments": "info", "number": "1",
    "command": "true", "what": "numpy", "tool": "tykky", "site": "lumi-g",
}  # fmt: skip
"""Values of the other parameters of a call."""

CODES = {*range(8), 125, 126, 127, 130, 141, 143}
"""Documented exit codes (argosy.core.errors), and those of programs that do not start."""

SBATCH = """\
#!/bin/sh
for script; do :; done
[ -f "$script" ] && SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_PROCID=0 \\
    timeout 20 bash "$script" > /dev/null 2>&1
echo 7
"""
"""Runs the script at once, so that a value that its quoting lets out would be executed."""

SRUN = """\
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in -*) shift ;; *) break ;; esac
done
[ $# = 0 ] || exec "$@"
"""
REFUSES = '#!/bin/sh\necho "$0: refused" >&2\nexit 1\n'

PROGRAMS = (
    *("sh", "bash", "env", "cat", "ls", "mkdir", "rm", "mv", "cp", "ln", "chmod", "touch", "head", "tail", "wc", "tr"),
    *("cut", "sed", "sort", "grep", "id", "uname", "hostname", "date", "timeout", "mktemp", "rmdir", "readlink"),
    *("dirname", "basename", "sleep", "true", "false", "expr", "test", "printf", "stat", "find", "base64"),
    *("bwrap", "mksquashfs", "unsquashfs"),
)
"""Programs of this machine that the calls may start; the others are refused, so that no call takes minutes."""


class Slot(NamedTuple):
    """An option or argument of a command that takes a value."""

    command: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]

    def words(self, value: str) -> list[str]:
        return [*self.command, *self.before, value, *self.after]


def find_slots(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[Slot]:
    """Walk through all commands, and yield every place for a value."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from find_slots(inner, (*path, name))
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    usual = [_usual(each) for each in arguments]
    for number, argument in enumerate(arguments):
        before = [word for words in usual[:number] for word in words]
        rest = [word for words in usual[number + 1 :] for word in words]
        yield Slot(path, tuple(before), tuple(rest))
        if argument.name == "command":
            yield Slot(path, (*before, "--", "echo"), tuple(rest))
    words = [word for words in usual for word in words]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and not option.count:
            name = max(option.opts, key=len)
            yield Slot(path, (name,), tuple(words))


def _usual(argument: click.Argument) -> list[str]:
    name = argument.name or ""
    value = USUAL.get(name, "x")
    return ["--", value] if name == "command" else [value]


def make_place(folder: Path) -> dict[str, str]:
    """Make the files and programs of a call, and give its environment."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    stubs = {"sbatch": SBATCH, "srun": SRUN} | dict.fromkeys(("scontrol", "squeue", "sacct", "ssh", "git"), REFUSES)
    for name, text in stubs.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    make_root(folder / "root", BUSYBOX)
    words = ("mksquashfs", str(folder / "root"), str(folder / "tiny.sqfs"), "-quiet", "-no-progress", "-all-root")
    subprocess.run(words, check=True, capture_output=True)
    return {"PATH": str(programs), "LANG": "C.UTF-8", "TERM": "dumb", "ARGOSY_CACHE": str(folder / "cache")}


def fill(work: Path, place: Path) -> None:
    """Write the files that usual values name."""
    for name in ("home", "prefix"):
        (work / name).mkdir(parents=True)
    (work / "tiny.sqfs").symlink_to(place / "tiny.sqfs")
    (work / "requirements.txt").write_text("numpy\n")
    (work / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n")
    (work / "log").write_text("n1:1:2 [0] NCCL INFO Using network Socket\n")


def call(words: Sequence[str], place: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run Argosy with these words in a new folder; give its exit code and what it wrote to standard error."""
    work = Path(tempfile.mkdtemp(dir=place, prefix="call-"))
    fill(work, place)
    child = os.fork()
    if child == 0:
        _become(words, work, environment | {"HOME": str(work / "home")})
    deadline = time.monotonic() + PATIENCE_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -1, f"still running after {PATIENCE_S} s"
        time.sleep(0.005)
    errors = (work / "err").read_text(errors="replace")
    shutil.rmtree(work)
    return os.waitstatus_to_exitcode(ended[1]), errors


def _become(words: Sequence[str], work: Path, environment: dict[str, str]) -> None:
    """Turn this process into the call; it never returns."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(work)
    for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o644), number)
    sys.stdin = os.fdopen(0, "r")
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # they stay open
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["argosy", *words]
    code = 70
    try:
        code = run_app(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def judge(words: Sequence[str], code: int, errors: str, canary: Path) -> str:
    """Return the defect of a call, or an empty text."""
    if canary.exists():
        canary.unlink()
        return "a part of the value was executed"
    program = words[0] in {"run", "shell", "launch", "attach", "images", "compat", "bench"}
    if "Traceback" in errors or "this is a bug" in errors:
        return "an unexplained error"
    if code not in CODES and not (program and 0 <= code < 256):  # the user's program may end so
        return f"exit code {code}"
    if code and "\x1b" in errors:
        return "an escape sequence is printed"
    return ""


def main() -> int:
    """Try values at every slot, and print the number of calls and each defect with the call that repeats it."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.arguments")
    options.add_argument("--seed", default="20")
    options.add_argument("--values", type=int, default=4)
    options.add_argument("--only", type=int)
    options.add_argument("--command", default="", help="try only commands that begin with this word")
    given = options.parse_args()
    slots = [slot for slot in find_slots(app) if " ".join(slot.command).startswith(given.command)]
    calls = [(slot, number) for slot in slots for number in range(given.values)]
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        environment, canary = make_place(place), place / CANARY
        for number, (slot, turn) in enumerate(calls):
            if given.only in {None, number}:
                chance = random.Random(f"{given.seed}:{slot}:{turn}")  # noqa: S311 - repeatable
                words = slot.words(chance.choice(VALUES).replace("CANARY", str(canary)))
                code, errors = call(words, place, environment)
                if fault := judge(words, code, errors, canary):
                    shown = [word if len(word) < 200 else f"{word[:40]}… ({len(word)})" for word in words]
                    faults.append(f"{number}: {fault}: {shown!r}\n{errors[-1500:]}")
    tried = len(calls) if given.only is None else 1
    sys.stdout.write("\n".join([*faults, f"{tried} calls, {len(slots)} options and arguments, {len(faults)} defects"]))
    sys.stdout.write(f" (seed {given.seed}; repeat one with --only NUMBER)\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
