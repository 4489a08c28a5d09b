"""Recognise the script by which each rank selects its GPU, for example ``select_gpu`` in LUMI's documentation; pure.

The job script writes it, makes it executable, and starts the program with it. It sets one variable and executes its
arguments: https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/lumig-job/
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from argosy.core.records import replace
from argosy.launch.import_script.program import Program
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import source_text

NO_WRAPPER = "the shell of each rank selects its GPU, as this script does"

DOCUMENT = re.compile(r"cat\b[^\n]*<<-?\s*\\?['\"]?(\w+)['\"]?[^\n]*\n(?P<body>.*)\n\s*\1\s*", re.DOTALL)
TARGET = re.compile(r"(?<!<)>\s*(?P<name>[^\s<>]+)")
BODY = re.compile(
    r"(?:\s*#[^\n]*\n|\s*\n)*"
    r"\s*(?:export\s+)?(?P<variable>(?:ROCR|HIP|CUDA)_VISIBLE_DEVICES)=\\?\$(?:SLURM_LOCALID|\{SLURM_LOCALID\})\s*\n"
    r"(?:\s*#[^\n]*\n|\s*\n)*"
    r"\s*exec\s+\"?\\?\$[*@]\"?\s*"
)


class GpuWrapper(msgspec.Struct, frozen=True):
    """A script that sets the variable of visible GPUs to the number of the rank on its node."""

    name: str
    """Its path as the job script writes it, without ``./``."""
    variable: str


def read_gpu_wrapper(text: str) -> GpuWrapper | None:
    """Read ``cat << EOF > FILE`` if it writes such a script."""
    document = DOCUMENT.fullmatch(text.strip())
    target = TARGET.search(text.split("\n", 1)[0])
    body = BODY.fullmatch(document["body"]) if document else None
    return GpuWrapper(_plain(target["name"]), body["variable"]) if body and target else None


def without_wrapper(statement: Statement, wrappers: Mapping[str, GpuWrapper]) -> tuple[Statement, GpuWrapper | None]:
    """Return a command without the script that selects the GPU, and that script; None if it does not start one."""
    for at, word in enumerate(statement.words):
        if _plain(source_text(word)) in wrappers and statement.words[at + 1 :] and "srun" in _names(statement, at):
            words = (*statement.words[:at], *statement.words[at + 1 :])
            return replace(statement, words=words), wrappers[_plain(source_text(word))]
    return statement, None


def set_visible_gpu(program: Program, wrapper: GpuWrapper) -> None:
    """Let the shell of each rank set the variable."""
    line = f"export {wrapper.variable}=$SLURM_LOCALID"
    program.prelude.append(line)
    program.replaced.append(f"./{wrapper.name}: the shell of each rank runs '{line}'")


def is_about_wrapper(program: Program, wrappers: Mapping[str, GpuWrapper]) -> bool:
    """Return whether a command only makes these scripts executable, or removes them."""
    files = [
        _plain(each)
        for each in program.texts[1:]
        if each[:1] not in {"-", "+"} and not re.match(r"[ugoa]*[+=]|\d+$", each)
    ]
    return program.name in {"chmod", "rm"} and bool(files) and all(each in wrappers for each in files)


def _names(statement: Statement, end: int) -> set[str]:
    return {source_text(word) for word in statement.words[:end]}


def _plain(path: str) -> str:
    """Return a path in one form: ``$DIR/select_gpu`` for ``"${DIR}"/select_gpu``."""
    return re.sub(r"\$\{(\w+)\}", r"$\1", re.sub("[\"']", "", path)).removeprefix("./")
