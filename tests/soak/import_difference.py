"""Compare a job script with the jobs that ``argosy import`` makes of it, by what their programs get.

Both run in a `World` of stand-ins. Each program must get the same arguments, folder, variables and input, unless
``argosy import`` reported a part of the script that it did not translate, and that can be the cause.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from argosy import api
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.records import replace
from argosy.launch.import_script.files import render_jobs
from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import ImportedJob, ImportedScript, Translation
from argosy.slurm.sbatch import complete_option
from argosy.slurm.script_reader import parse_job_script
from tests.soak.script_grammar import FILES, write_script
from tests.soak.stub_world import NO_END, PROJECT, Call, World, collect_tools

SITE = """\
name = "plain"
title = "a cluster without GPUs"
scheduler = "slurm"
checked = "2026-11-20"
open_questions = ["all"]

[node]
cores = 4096

[runtime]
name = "apptainer"
"""

OF_THE_JOB = re.compile(
    r"_|SHLVL|PWD|OLDPWD|STUB_\w+|argosy_\w+|SLURM\w*|SRUN_CPUS_PER_TASK|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|NODE_)?RANK"
    r"|(LOCAL_)?WORLD_SIZE|OMP_NUM_THREADS|\w+_VISIBLE_DEVICES|JAX_COORDINATOR_ADDRESS|BASH_FUNC.*|LINENO"
    r"|(APPTAINER|SINGULARITY)(ENV_\w+|_BIND)|ACCELERATE_(MIXED_PRECISION|USE_CPU)|(OMPI_MCA|UCX|PMIX|HYDRA|TORCHELASTIC)_\w+"
)
"""Variables that Slurm, Argosy or a launcher sets for each rank, or that belong to the shell."""

OF_THE_HOST = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"}
)
"""Variables of the host, which a container does not get."""

SHELL = re.compile(r"#!\s*\S*(/bin/|/env\s+)(ba)?sh\b")
NAME = re.compile(r"[A-Za-z_]\w*")
SETS = re.compile(
    r"(?:^|[\s;(&|])(?:export\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=|\$\{(\w+):?=|(?:mapfile|readarray|read)\s+(?:-\w+\s+)*(\w+)",
    re.MULTILINE,
)
GPU_KEYS = frozenset({"gpus", "gpus_per_node", "gpu_type"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A program that the jobs start in another way than the script, or not at all.

    Attributes
    ----------
    line
        Line of the script; 0 for the whole script.
    names
        The variables or commands of the script that can be its cause.
    """

    line: int
    what: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison found.

    Attributes
    ----------
    refused
        Why there was nothing to compare.
    calls
        How many calls of the script were compared with those of jobs.
    silent, reported
        The differences, without and with a part that ``argosy import`` did not translate.
    """

    refused: str = ""
    calls: int = 0
    silent: tuple[Difference, ...] = ()
    reported: tuple[Difference, ...] = ()


def compare(text: str, files: Mapping[str, str], world: World) -> Outcome:
    """Run a script and its jobs, and compare them."""
    if not SHELL.match(text):
        return Outcome(refused="it is not a script of bash")
    try:
        imported = import_script("job.sh", text)
    except ArgosyError as error:
        return Outcome(refused=error.what)
    try:
        original = _run_original(text, files, world)
        jobs, failed = _run_jobs(imported, files, world)
    except ArgosyError as error:
        return Outcome(refused=f"{error.what}: {error.evidence}")
    stopped = {each.line for each, messages in failed if STOPS.search(messages)}
    found = [
        *(each for each in _differences(text, original, jobs) if each.line not in stopped),
        *(
            Difference(job.line, f"its job starts no program: {messages[-300:]}")
            for job, messages in failed
            if any(job.line in call.lines for call in original)
        ),
    ]
    found = [each for each in found if files or "files" not in each.names]  # a script of a folder writes any file
    reports = _Reports(text, files, imported)
    silent = tuple(each for each in found if each.line not in stopped and not reports.covers(each))
    return Outcome(calls=len(original), silent=silent, reported=tuple(each for each in found if each not in silent))


STOPS = re.compile("--before failed|can't cd to|OLDPWD not set|cannot open .*: No such file")
"""A job stops with one of these messages if a command on files or ``cd`` fails; a script goes on without ``set -e``."""

USELESS = re.compile(rf"unbound variable|syntax error|{NO_END}")
"""Messages of scripts that end too early or never."""

TRIES = 12


def _run_original(text: str, files: Mapping[str, str], world: World) -> list[Call]:
    """Run the script until it misses nothing that the world can supply."""
    calls: list[Call] = []
    messages = ""
    for _ in range(TRIES):
        world.create(files)
        calls, messages = world.run(text, _environment(text), program="bash", folder=_folder(text))
        if found := USELESS.search(messages):
            raise UsageError(found[0])
        if not world.supply(messages):
            break
    if re.search(r"(cd|pushd): .*No such file", messages):
        raise UsageError("the script changes to a folder that does not exist")
    return calls


def _run_jobs(
    imported: ImportedScript, files: Mapping[str, str], world: World
) -> tuple[list[tuple[ImportedJob, Call]], list[tuple[ImportedJob, str]]]:
    """Run the job scripts that Argosy makes of the jobs, in sequence."""
    found: list[tuple[ImportedJob, Call]] = []
    failed: list[tuple[ImportedJob, str]] = []
    world.create(files)
    project = world.root / PROJECT[1:]
    project.mkdir(parents=True, exist_ok=True)
    (project / "argosy.toml").write_text(render_jobs([_without_gpus(each) for each in imported.jobs]))
    scripts = [_render(job, project) for job in imported.jobs]
    for job, script in zip(imported.jobs, scripts, strict=True):
        pulled = re.search(r"argosy_image=(\S+)", script)
        folder = _folder(script)
        _make_image(world, str(Path(folder) / pulled[1].strip("'")) if pulled else str(job.keys["image"]))
        calls, messages = world.run(script, _environment(script), program="sh", folder=folder)
        found += [(job, call) for call in calls]
        if not calls:
            failed.append((job, messages))
    return found, failed


def _render(job: ImportedJob, project: Path) -> str:
    """Return the job script that ``argosy launch`` makes."""
    site = project.parents[2] / "plain.toml"
    site.write_text(SITE)
    with contextlib.chdir(project):
        plan = api.plan_launch(job.name, site=str(site), session=api.open_session(work=str(project)))
    return plan.script.replace(str(project), PROJECT)


def _without_gpus(job: ImportedJob) -> ImportedJob:
    args = [each for each in job.keys.get("sbatch_arg", ()) if "gpu" not in each]
    keys = {key: value for key, value in job.keys.items() if key not in GPU_KEYS | {"sbatch_arg", "after"}}
    return replace(job, keys={**keys, **({"sbatch_arg": args} if args else {})})


def _make_image(world: World, image: str) -> None:
    """Make the file of an image, or the Python of an environment."""
    folder = image.removeprefix("bare:")
    if folder != image and not folder:
        return
    path = folder + "/bin/python" if folder != image else image
    made = Path(os.path.normpath(f"{world.root}/{path if path.startswith('/') else f'{PROJECT}/{path}'}"))
    if "://" in image or os.path.lexists(made) or not made.is_relative_to(world.root):
        return
    made.parent.mkdir(parents=True, exist_ok=True)
    if folder != image:
        made.symlink_to("/stubs/.stub")
    else:
        made.write_text("an image")


def _options(text: str) -> dict[str, str]:
    return {complete_option(each.name): each.value for each in parse_job_script(text).options}


def _folder(text: str) -> str:
    return str(Path(PROJECT) / _options(text).get("chdir", ""))


def _environment(text: str) -> dict[str, str]:
    """Return the variables that sbatch sets for the options of a script."""
    options = _options(text)
    nodes = options.get("nodes", "1").split("-")[0]
    if not nodes.isdigit():
        nodes = "1"
    each, tasks = options.get("ntasks-per-node", options.get("tasks-per-node", "")), options.get("ntasks", "")
    if each.isdigit() and not tasks:
        tasks = str(int(nodes) * int(each))
    found = {
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NODELIST": "node[1-8]",
        "SLURM_NODELIST": "node[1-8]",
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": each,
        "SLURM_CPUS_PER_TASK": options.get("cpus-per-task", ""),
        "SLURM_GPUS_PER_NODE": options.get("gpus-per-node", ""),
        "SLURM_JOB_NAME": options.get("job-name", "job.sh"),
        "SLURM_ARRAY_TASK_ID": "1" if "array" in options else "",
        "SLURM_ARRAY_JOB_ID": "4711" if "array" in options else "",
    }
    for pair in options.get("export", "").split(","):
        name, given, value = pair.partition("=")
        if given and NAME.fullmatch(name):
            found[name] = value
    return {name: value for name, value in found.items() if value}


def _differences(text: str, original: list[Call], jobs: list[tuple[ImportedJob, Call]]) -> Iterator[Difference]:
    """Compare the calls of each line of the script."""
    ends = _ends(text)
    starts: dict[int, int] = {}
    for start, end in sorted(ends.items()):
        starts = {**dict.fromkeys(range(start, end + 1), start), **starts}
    waiting = list(jobs)
    for call in original:
        lines = call.lines or [0]
        if call.arguments == ("--version",):
            continue  # it only prints
        if lines[0] <= 1:  # the handler of a trap
            yield Difference(0, f"no job starts {_shown(call)} of a trap", frozenset({"trap", "lost"}))
            continue
        line = starts.get(lines[0], lines[0])
        at = next((n for n, (job, _) in enumerate(waiting) if job.line == line), None)
        if at is None:
            names = {found[found.lastindex or 0] for found in SETS.finditer(text.split("\n")[line - 1])}
            if names and all(map(OF_THE_JOB.fullmatch, names)):
                continue  # Argosy computes the value
            yield Difference(line, f"no job starts {_shown(call)} {lines}", frozenset({*map(str, lines), *names}))
            continue
        job, own = waiting.pop(at)
        yield from _compare_calls(job, call, own)
    for job, own in waiting:
        yield Difference(job.line, f"the script does not start {_shown(own)}", frozenset({"cd", "pushd", "exit"}))


def _ends(text: str) -> dict[int, int]:
    script = parse_job_script(text)
    found: dict[int, int] = {}
    for each in script.statements:
        found[each.line] = max(found.get(each.line, 0), each.end)
    return found


def _shown(call: Call) -> str:
    return f"{call.program} {list(call.arguments)}"[:300]


def _compare_calls(of_job: ImportedJob, script: Call, job: Call) -> Iterator[Difference]:
    """Compare the same call of the script and of a job."""
    line, image = of_job.line, script.environment.get("STUB_IMAGE", "")
    programs = [os.path.normpath(each.program) for each in (script, job)]
    if image or str(of_job.keys["image"]).startswith("bare:/"):
        programs = [Path(each).name for each in programs]
    if programs[0] != programs[1] or script.arguments != job.arguments:
        yield Difference(line, f"{_shown(script)} became {_shown(job)}", frozenset({"*"}))
    if os.path.normpath(script.folder) != os.path.normpath(job.folder):
        yield Difference(
            line, f"the folder {script.folder} became {job.folder}", frozenset({"cd", "pushd", "popd", "chdir"})
        )
    if os.path.normpath(image) != os.path.normpath(job.environment.get("STUB_IMAGE", "")):
        yield Difference(line, f"the image {image} became {job.environment.get('STUB_IMAGE')}", frozenset({"*"}))
    if script.input.strip() != job.input.strip():
        yield Difference(line, f"the input {script.input!r} became {job.input!r}", frozenset({"files"}))
    tasks = [each.environment.get("STUB_TASKS", "1") for each in (script, job)]
    if tasks[0] != tasks[1] and not GPU_KEYS & {*of_job.keys}:  # GPUs can decide the number of ranks
        yield Difference(line, f"{tasks[0]} ranks became {tasks[1]}", frozenset({"nodes", "ntasks"}))
    lost = {name for name in script.files - job.files if not name.endswith(".toml")}
    if lost:
        yield Difference(line, f"the job does not have the files {sorted(lost)}", frozenset({"files"}))
    yield from _compare_variables(
        line, script.environment, job.environment, in_container=bool(image) or of_job.keys["image"] != "bare:"
    )


def _compare_variables(
    line: int, script: Mapping[str, str], job: Mapping[str, str], *, in_container: bool
) -> Iterator[Difference]:
    for name in sorted({*script, *job}):
        if OF_THE_JOB.fullmatch(name) or (in_container and name in OF_THE_HOST):
            continue
        values = _plain_paths(script.get(name)), _plain_paths(job.get(name))
        if values[0] != values[1] and (values[0] or values[1]):
            yield Difference(line, f"{name}={values[0]!r} became {values[1]!r}", frozenset({name}))


def _plain_paths(value: str | None) -> str | None:
    """Return a value whose paths have one form; a job has ``/project/../src`` for ``/src``."""
    return (
        None
        if value is None
        else ":".join(os.path.normpath(each) if "/../" in each else each for each in value.split(":"))
    )


class _Reports:
    """The parts of a script that an import did not translate."""

    def __init__(self, text: str, files: Mapping[str, str], imported: ImportedScript) -> None:
        self.lines = text.split("\n")
        self.parts = imported.untranslated
        self.ends = _ends(text)
        self.files = files
        self.are_lost = bool(imported.lost)

    def covers(self, difference: Difference) -> bool:
        """Return whether a part that was not translated can be the cause of a difference."""
        line = difference.line
        own = range(line, self.ends.get(line, line) + 1)
        numbers = {line, *(int(each) for each in difference.names if each.isdigit())}
        if any(self._is_at(part, number) for part in self.parts for number in numbers):
            return True
        names = set(difference.names)
        if "lost" in names and self.are_lost:
            return True
        if "*" in names:
            names |= {name for number in own for name in NAME.findall(self._text(number))}
        names = self._causes(names)
        if "files" in names:
            names |= {
                "sed",
                "mkdir",
                "cp",
                "ln",
                "touch",
                "rm",
                "mv",
                "cat",
                "echo",
                "printf",
                "tee",
                "tar",
                "rsync",
                "cd",
                "pushd",
                "popd",
            }
        if "exit" in names and re.search(r"^set -\w*e|errexit", "\n".join(self.lines), re.MULTILINE):
            return True  # a command that fails can end the script
        if "exit" in names and any("can end here" in part.note for part in self.parts):
            return True
        return any(
            names & self._names(part) or set(difference.names) & self._causes(self._names(part)) for part in self.parts
        )

    def _is_at(self, part: Translation, line: int) -> bool:
        return part.line <= line <= max(part.end, self.ends.get(part.line, part.line))

    def _causes(self, names: set[str]) -> set[str]:
        """Return names and, of each variable among them, the variables of its value."""
        while True:
            more = {
                name
                for line in self.lines
                if any(found[found.lastindex or 0] in names for found in SETS.finditer(line))
                for name in NAME.findall(line)
            }
            if more <= names:
                return names
            names = names | more

    def _names(self, part: Translation) -> set[str]:
        """Return the names in the lines of a part."""
        end = max(part.end, self.ends.get(part.line, part.line))
        text = "\n".join(map(self._text, range(part.line, end + 1)))
        sourced = (content for name, content in self.files.items() if name in text)
        return {name for each in (text, *sourced) for name in NAME.findall(each)}

    def _text(self, number: int) -> str:
        return self.lines[number - 1] if number <= len(self.lines) else ""


def main() -> int:
    """Compare scripts, print each silent difference, and return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.import_difference")
    parser.add_argument("--seed", default="20", help="draws the scripts")
    parser.add_argument("--first", type=int, default=0, help="number of the first script")
    parser.add_argument("--count", type=int, default=100, help="number of scripts")
    parser.add_argument("--folder", type=Path, help="use the job scripts in this folder")
    given = parser.parse_args()
    if given.folder:
        paths = sorted(each for each in given.folder.rglob("*") if each.is_file())
        paths = paths[given.first :][: given.count]
        scripts = ((str(each), each.read_text(errors="replace"), NO_FILES) for each in paths)
    else:
        numbers = range(given.first, given.first + given.count)
        scripts = ((f"script {each}", _draw(given.seed, each), FILES) for each in numbers)
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        tools = collect_tools(Path(folder) / "tools")
        for name, text, files in scripts:
            outcome = compare(text, files, World(Path(folder) / "root", tools))
            totals.update(scripts=1, refused=bool(outcome.refused), calls=outcome.calls)
            totals.update(silent=len(outcome.silent), reported=len(outcome.reported))
            if outcome.silent:
                _print(name, text, outcome)
    sys.stdout.write(", ".join(f"{count} {name}" for name, count in totals.items()) + "\n")
    return int(totals["silent"] > 0)


NO_FILES: Mapping[str, str] = {}
MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it have names of their own
"""A file system in memory: most of the time goes into making and removing worlds."""


def _draw(seed: str, number: int) -> str:
    return write_script(Random(f"{seed}/{number}"))  # noqa: S311 - repeatable


def _print(name: str, text: str, outcome: Outcome) -> None:
    numbered = (f"{number:4}  {line}" for number, line in enumerate(text.split("\n"), 1))
    found = (f"line {each.line}: {each.what}" for each in outcome.silent)
    sys.stdout.write("\n".join((f"=== {name}", *numbered, *found, "")))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
