"""Translate options of sbatch and srun into keys of ``argosy.toml``, and Slurm's variables of their numbers; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from argosy.core.errors import UsageError
from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.core.suggest import suggest_word
from argosy.launch.import_script.model import Fate, ImportedJob, Note, Translation
from argosy.launch.import_script.shape import SlurmShape, implied_nodes, is_even, with_tasks_of_gpus
from argosy.sites.profile import Site
from argosy.slurm.option_checks import FLAGS, SAME_NAME, refuse_invalid_options
from argosy.slurm.sbatch import SBATCH_OPTIONS, JobOptions, Option, complete_option
from argosy.slurm.script_words import Word, WordPart

TEXTS = {name: name.replace("-", "_") for name in SAME_NAME - FLAGS} | {"job-name": "name"}
"""Options whose value is copied: name -> key."""

NUMBERS = {
    "tasks-per-node": "ntasks_per_node",
    **{
        name: name.replace("-", "_")
        for name in (
            "nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu", "gpus-per-task",
        )
    },
}  # fmt: skip
"""Options that are numbers of the job's shape: name -> field of `SlurmShape`."""

GPUS = frozenset({"gres", "gpus", "gpus-per-node"})
"""Options for the number of GPUs."""

ADDED = frozenset({"mail-type"})
"""Options of `TEXTS` whose values Slurm adds up."""

SLURM_NUMBER = re.compile(r"\$\{?(SLURM_\w+?)(?::[-=](\w*))?\}?")
"""A number that Slurm computes from the options of the job, for example ``$SLURM_NTASKS``."""

RANKS = {"ntasks": "ranks", "ntasks_per_node": "ranks_per_node"}
"""Fields of `SlurmShape` for the number of ranks -> key."""

KEYS = {
    **RANKS, "nodes": "nodes", "cpus_per_task": "cpus_per_rank", "cpus_per_gpu": "cpus_per_rank",
    "gpus_per_task": "gpus_per_node", "ntasks_per_gpu": "ranks",
}  # fmt: skip
"""Fields of `SlurmShape` -> key."""

BINDING = "--gpu-bind"

NOTES = {
    **{field: f"see {key} in the table" for field, key in KEYS.items()},
    "gpus_per_task": f"see gpus_per_node in the table, and {BINDING} in sbatch_arg",
    "ntasks_per_gpu": f"see the ranks in the table, and {BINDING} in sbatch_arg",
}
"""Field of `SlurmShape` -> the note about it."""

VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""The name of a variable of the environment."""

DONE = {
    **dict.fromkeys(("cpu-bind", "cpu_bind"), "Argosy binds ranks to cores by the site profile"),
    "mem-bind": "Argosy binds ranks by the site profile",
    "distribution": "Argosy distributes ranks by node",
    **dict.fromkeys(("kill-on-bad-exit", "wait"), "Argosy ends all ranks if one fails"),
    "unbuffered": "Argosy prints lines as they come",
    **dict.fromkeys(("overlap", "exact"), "Argosy's step has all of the job"),
    "jobid": "Argosy starts in its own job",
    "container-mount-home": "the home folder is mounted",
}
"""Options that Argosy makes superfluous, with the reason."""


OF_STEP = {
    **{name: f"set {name}, the file of the job" for name in ("output", "error")},
    "chdir": "the folder of this step: set chdir to its path from the folder of the launch",
}
"""Options of srun that mean something else for the whole job -> what to do."""


class Options:
    """Options of ``#SBATCH`` lines, or of srun (`of_step`), with the keys and the shape that they give.

    Attributes
    ----------
    shape
        Shape of the job; options of srun change that of the script.
    found
        The translation of each option.
    """

    def __init__(self, options: Iterable[Option], shape: SlurmShape, *, of_step: bool = False) -> None:
        self.shape, self.of_step = shape, of_step
        self.keys: dict[str, Any] = {}
        self.found: list[Translation] = []
        options = list(options)
        if of_step:
            self.shape = _shape_of_step(shape, options)
        last = {key: number for number, option in enumerate(options) if (key := _single_key(option))}
        for number, option in enumerate(options):
            is_last = last.get(_single_key(option), number) == number
            fate, note = self._translate(option) if is_last else (Fate.LEFT_OUT, "a later option replaces it")
            self.found.append(Translation(option.line, str(option), fate, note))
        self.shape = with_tasks_of_gpus(self.shape)
        if (nodes := implied_nodes(self.shape)) and not self.shape.nodes:
            self.shape = replace(self.shape, nodes=nodes)
            self.found = [_with_nodes(each, self.shape) for each in self.found]

    def _translate(self, option: Option) -> tuple[Fate, str]:
        name = option.name if option.name in DONE else complete_option(option.name)
        value = option.value
        if "$" in value and not self.of_step:
            return Fate.UNTRANSLATED, "sbatch expands no variables in this line"
        for names, translate in (
            (NUMBERS, self._number),
            ({"gpu-bind", "gpu_bind"}, self._binding),
            (GPUS, self._gpus),
            ({"export"}, self._export),
        ):
            if name in names:
                return translate(name, value)
        if name in DONE:
            return Fate.REPLACED, DONE[name]
        return (self._step_option if self.of_step else self._job_option)(name, option)

    def _step_option(self, name: str, option: Option) -> tuple[Fate, str]:
        """Translate an srun option that does not change the shape."""
        if name == "label":
            self.keys["label"] = True
            return Fate.KEPT, "label = true"
        if name in TEXTS and "$" in option.value:
            return Fate.UNTRANSLATED, "the shell computes the value"
        if name in TEXTS and name not in {*OF_STEP, "job-name"}:
            return self._text(name, option.value)
        return Fate.UNTRANSLATED, OF_STEP.get(name, "an srun option that Argosy does not use")

    def _job_option(self, name: str, option: Option) -> tuple[Fate, str]:
        """Translate an sbatch option that does not change the shape."""
        if name in FLAGS and not option.value:  # --exclusive=user shares nodes among the jobs of the user
            key = name.replace("-", "_")
            self.keys[key] = True
            self.shape = replace(self.shape, is_exclusive=self.shape.is_exclusive or name == "exclusive")
            return Fate.KEPT, f"{key} = true"
        if name in TEXTS:
            return self._text(name, option.value)
        if name == "dependency" and re.fullmatch(r"afterok:[\d:]+", option.value):
            self.keys["after"] = option.value.removeprefix("afterok:")
            return Fate.KEPT, f'after = "{self.keys["after"]}"'
        return self._other(name, option)

    def _binding(self, _: str, value: str) -> tuple[Fate, str]:
        self.shape = replace(self.shape, gpu_bind=value)
        return Fate.KEPT, f'sbatch_arg = ["--gpu-bind={value}"]'

    def _export(self, _: str, value: str) -> tuple[Fate, str]:
        """Translate ``--export=ALL,NAME=VALUE``; a comma separates two variables only before a name."""
        pairs = (each.partition("=") for each in re.split(r",(?=[A-Za-z_]\w*(?:[=,]|$))", value))
        variables = {name: text for name, given, text in pairs if given}
        wrong = [name for name in variables if not VARIABLE.fullmatch(name)]
        if wrong:
            return Fate.UNTRANSLATED, f"{wrong[0]!r} is not the name of a variable"
        if not variables and "ALL" not in value.upper().split(","):
            return Fate.UNTRANSLATED, "Argosy passes your whole environment on: launch the job from a clean shell"
        if not variables:
            return Fate.REPLACED, "Argosy passes your environment on, and variables of --env"
        self.keys.setdefault("env", {}).update(variables)
        return Fate.KEPT, ", ".join(f'env.{name} = "{text}"' for name, text in variables.items())

    def _number(self, name: str, value: str) -> tuple[Fate, str]:
        field = NUMBERS[name]
        if "$" in value:
            return self._computed_number(field, value)
        number = parse_int(value.rpartition(":")[2] if name == "gpus-per-task" else value, -1)
        if number < 0:
            hint = "; --elastic MIN:MAX is for torchrun jobs that change their size" if "-" in value else ""
            return Fate.UNTRANSLATED, f"not one number{hint}"
        changed: dict[str, Any] = {field: number}
        self.shape = replace(self.shape, **changed)
        return Fate.KEPT, NOTES[field]

    def _computed_number(self, field: str, value: str) -> tuple[Fate, str]:
        """Translate an option of srun whose number is ``$SLURM_NTASKS``, or another one that a shell computes."""
        shape = self.shape
        tasks = shape.ntasks or shape.ntasks_per_node * max(1, shape.nodes)
        own = {
            **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks),
            **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), shape.nodes or 1),
            "SLURM_NTASKS_PER_NODE": shape.ntasks_per_node,
            "SLURM_CPUS_PER_TASK": shape.cpus_per_task,
        }
        found = SLURM_NUMBER.fullmatch(value)
        number = (own.get(found[1], 0) or parse_int(found[2] or "")) if found else 0
        if number and number == {"nodes": shape.nodes or 1, "ntasks": tasks}.get(field, getattr(shape, field)):
            return Fate.REPLACED, "the job's own number"
        if number:
            changed: dict[str, Any] = {field: number, **({"ntasks_per_node": 0} if field == "ntasks" else {})}
            self.shape = replace(shape, **changed)
            return Fate.KEPT, NOTES[field]
        computes = "the script computes the number"
        if field in RANKS and not tasks:
            self.shape = replace(shape, computed_ranks=True)
            note = f"{computes}, and Argosy starts a rank for each GPU; to change it, set {RANKS[field]}"
            return Fate.UNTRANSLATED, note
        return Fate.UNTRANSLATED, f"{computes}: write it into the table as {KEYS[field]}"

    def _gpus(self, name: str, value: str) -> tuple[Fate, str]:
        """Translate ``--gres=gpu:a100:4,nvme:1``, ``--gpus=4`` and ``--gpus-per-node=a100:4``."""
        shape = self.shape
        if "$" in value and (shape.gpus or shape.gpus_per_node) and "SLURM_" in value:
            return Fate.REPLACED, "the job's own number"
        if "$" in value:
            return Fate.UNTRANSLATED, "the script computes the number: write it into the table as gpus_per_node"
        parts = re.sub(r"\(.*?\)", "", value).split(",")  # without the sockets
        gpus = [part for part in parts if name != "gres" or re.match(r"(gres[:/])?gpu\b", part)]
        others = [part for part in parts if part not in gpus]
        if others:
            self.keys.setdefault("sbatch_arg", []).append(f"--gres={','.join(others)}")
        if not gpus:
            return Fate.KEPT, f'sbatch_arg = ["--gres={value}"]'
        if len(gpus) > 1:
            return Fate.UNTRANSLATED, "a job has GPUs of one type: write gpus_per_node and gpu_type into the table"
        words = re.sub(r"^(gres[:/])?gpu:?", "", gpus[0]).split(":") if name == "gres" else gpus[0].split(":")
        words = [word for word in words if word]
        count = parse_int(words.pop(), default=1) if words and words[-1].isdecimal() else 1
        kind = words[0] if words else ""
        field = "gpus" if name == "gpus" else "gpus_per_node"
        changed: dict[str, Any] = {field: count, "gpu_type": kind or shape.gpu_type}
        self.shape = replace(shape, **changed)
        return Fate.KEPT, f"{field} = {count}" + (f', gpu_type = "{kind}"' if kind else "")

    def _text(self, name: str, value: str) -> tuple[Fate, str]:
        key = TEXTS[name]
        try:
            if key in JobOptions.__struct_fields__:
                given: dict[str, Any] = {key: value}
                refuse_invalid_options(JobOptions(**given))
        except UsageError as error:
            return Fate.UNTRANSLATED, error.what
        if not value:
            return Fate.UNTRANSLATED, "it has no value"
        if name in ADDED:
            words = [*self.keys.get(key, "").split(","), *value.split(",")]
            value = ",".join(dict.fromkeys(word for word in words if word and word != "NONE")) or value
        self.keys[key] = value
        return Fate.KEPT, f'{key} = "{value}"'

    def _other(self, name: str, option: Option) -> tuple[Fate, str]:
        """Pass an option on to sbatch unless sbatch does not have it."""
        if len(name) > 1 and name not in SBATCH_OPTIONS:
            near = suggest_word(name, SBATCH_OPTIONS)
            return Fate.UNTRANSLATED, f"sbatch has no option --{name}" + (f"; did you mean --{near}?" if near else "")
        text = f"-{name}{option.value}" if len(name) == 1 else str(Option(option.line, name, option.value))
        try:
            refuse_invalid_options(JobOptions(), (text,))
        except UsageError as error:
            return Fate.UNTRANSLATED, error.what
        self.keys.setdefault("sbatch_arg", []).append(text)
        return Fate.KEPT, f'sbatch_arg = ["{text}"]'


def _single_key(option: Option) -> str:
    """Return the key of an option of which Slurm uses the last one; empty for any other option."""
    name = complete_option(option.name)
    return name if name in GPUS else NUMBERS.get(name, TEXTS.get(name, "") if name not in ADDED else "")


def _shape_of_step(shape: SlurmShape, options: Iterable[Option]) -> SlurmShape:
    """Return the shape of the job without the numbers of tasks that options of srun override."""
    given = {complete_option(option.name): parse_int(option.value) for option in options}
    if given.get("ntasks"):
        return replace(shape, ntasks_per_node=0)
    is_per_node = "ntasks" not in given and (given.get("ntasks-per-node") or given.get("tasks-per-node"))
    return replace(shape, ntasks=0) if shape.nodes and is_per_node else shape


def _with_nodes(option: Translation, shape: SlurmShape) -> Translation:
    """Name the key for the nodes in the translation of an option from which their number follows."""
    if option.fate is Fate.KEPT and option.text.startswith("--ntasks=") and shape.ntasks_per_node:
        return replace(option, note=f"see nodes {'' if is_even(shape) else 'and ranks '}in the table")
    is_gpus = option.text.startswith("--gpus=") and shape.gpus_per_node
    return replace(option, note="see nodes in the table") if option.fate is Fate.KEPT and is_gpus else option


SEVERAL = re.compile(r"--(nodes|ntasks(-per-node)?)=(?!1$)")
"""Options for several nodes or tasks."""


def correct_for_jobs(option: Translation, jobs: Sequence[ImportedJob]) -> Translation:
    """Correct the translation of an option that means something else in the jobs of the script."""
    if option.fate is not Fate.KEPT or not jobs:
        return option
    if SEVERAL.match(option.text) and all(job.keys["launcher"] == "none" for job in jobs):
        if option.text.startswith("--ntasks"):
            return replace(option, note="see cpus_per_rank in the table: the program has the cores of all tasks")
        return replace(option, fate=Fate.LEFT_OUT, note="the script starts its program once, on the first node")
    if option.text.startswith("--cpus-per-gpu=") and any("cpus_per_rank" not in job.keys for job in jobs):
        note = "the script requests no number of GPUs: set cpus_per_rank"
        return replace(option, fate=Fate.UNTRANSLATED, note=note)
    return replace(option, note=_note_for_jobs(option, jobs))


def _note_for_jobs(option: Translation, jobs: Sequence[ImportedJob]) -> str:
    """Return the note about an option, with the key that the jobs have because of it."""
    number = re.match(r"gpus = (\d+)", option.note)
    if number and option.text.startswith("--gpus=") and any(str(job.keys.get("gpus")) != number[1] for job in jobs):
        key = "gpus" if any("gpus" in job.keys for job in jobs) else "gpus_per_node"
        return f"see {key} in the table"
    if option.note == NOTES["ntasks_per_node"] and all({"nodes", "ranks"} <= {*job.keys} for job in jobs):
        return "see nodes in the table"
    if not any(BINDING in argument for job in jobs for argument in job.keys.get("sbatch_arg", ())):
        return option.note.removesuffix(f", and {BINDING} in sbatch_arg")
    return option.note


NAME = re.compile(r"\bSLURM_\w+")
"""A variable of Slurm in arithmetic."""


OF_OPTIONS = {
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
}
"""Options that become other options in the job -> the variable that sbatch sets from each."""


def option_numbers(options: Iterable[Option], site: Site) -> Mapping[str, str]:
    """Return the variables of options that the job does not have; some sites request GPUs by ``--gres`` only."""
    given = {complete_option(option.name): option.value for option in options}
    kept = {"gpus-per-node"} if site.name and site.slurm.gpu_option == "gpus-per-node" else set()
    return {variable: given[name] for name, variable in OF_OPTIONS.items() if given.get(name) and name not in kept}


def number_notes(texts: Iterable[str], numbers: Mapping[str, str]) -> Iterator[Note]:
    """Report the variables in texts that get the script's number."""
    used = {found[0] for text in texts for found in NAME.finditer(text)}
    for name in sorted(used & {*numbers}):
        yield f"${name}", Fate.REPLACED, f"the script's value {numbers[name]} is put where it is used"


def changed_numbers(shape: SlurmShape, nodes: int, launcher: str) -> Mapping[str, str]:
    """Return the variables that have another value in a job with this number of nodes than in the script.

    The job has one task without a launcher, and one task on each node with torchrun.
    """
    tasks = shape.ntasks or shape.ntasks_per_node * max(1, shape.nodes)
    numbers = dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), shape.nodes if nodes < shape.nodes else 0)
    if launcher in {"", "torchrun"} and tasks > (shape.nodes if launcher else 1):
        numbers |= {
            "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks,
            "SLURM_NTASKS_PER_NODE": shape.ntasks_per_node,
            "SLURM_TASKS_PER_NODE": 0 if shape.nodes > 1 else tasks,
            "SLURM_CPUS_PER_TASK": shape.cpus_per_task,
        }
    return {name: str(number) for name, number in numbers.items() if number}


def numbered_words(words: Iterable[Word], numbers: Mapping[str, str], *, has_script: bool) -> tuple[Word, ...]:
    """Return words with the numbers in place of their variables, also in the text of ``bash -c``."""

    def numbered(part: WordPart) -> WordPart:
        if part.kind == "variable" and part.text in numbers:
            return WordPart("text", numbers[part.text], quoted=part.quoted)
        if part.kind == "shell" or has_script:
            return replace(part, text=numbered_text(part.text, numbers))
        return part

    return tuple(tuple(map(numbered, word)) for word in words)


def numbered_text(text: str, numbers: Mapping[str, str]) -> str:
    """Return text of a shell with the numbers in place of their variables, also in ``$((…))``."""
    for name, number in numbers.items():
        text = re.sub(rf"\$\{{{name}(?::?[-=][^{{}}]*)?\}}|\${name}\b", number, text)
    pieces = re.split(r"(\$\(\(.*?\)\))", text)
    return "".join(
        NAME.sub(lambda found: numbers.get(found[0], found[0]), each) if at % 2 else each
        for at, each in enumerate(pieces)
    )
