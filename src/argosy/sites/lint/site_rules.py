"""Define the lint rules that compare a job script with the profile of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.findings import FileFinding, State
from argosy.sites.binding import parse_ranges, usable_cores
from argosy.sites.conditions import evaluate_condition
from argosy.sites.job_settings import full_address
from argosy.sites.lint.rule import Fault, Job, Rule, Script
from argosy.sites.partitions import PartitionNeeds, partition_refusal
from argosy.slurm.sbatch import Option

PROFILE = "the site's profile: argosy sites show"


def _wrong_gpu_option(job: Job) -> Iterator[Fault]:
    wrong = {"amd": "--nv", "nvidia": "--rocm", "intel": "--nv"}.get(job.site.node.gpu_vendor, "")
    for call in job.script.calls:
        if wrong and re.search(rf"(singularity|apptainer)\s.*\s{wrong}(\s|$)", call.text, re.DOTALL):
            yield Fault(call.line, f"{wrong} is for GPUs that {job.site.name} does not have", "remove it")


def _required_options(job: Job) -> Iterator[Fault]:
    for name in job.site.slurm.required:
        if not job.script.option(name):
            yield Fault(0, f"{job.site.name} refuses jobs without --{name}", f"add #SBATCH --{name}=…")


def _limits(job: Job) -> Iterator[Fault]:
    name = job.script.option("partition")
    partition = job.site.partition(name) if name else None
    needs = PartitionNeeds(job.script.nodes, job.script.gpus, job.script.option("time"))
    refusal = partition_refusal(partition, needs) if partition else ""
    if refusal:
        yield Fault(
            0, f"the partition {name} does not allow this job: {refusal}", "request less, or use another partition"
        )


def _billed_whole(job: Job) -> Iterator[Fault]:
    partition = job.site.partition(job.script.option("partition"))
    gpus = job.site.node.gpus
    if partition is not None and partition.whole_nodes and 0 < job.script.gpus < gpus:
        yield Fault(
            0,
            f"{partition.name} bills {gpus} GPUs, {job.script.gpus} are used",
            "use a partition that allocates parts of nodes",
        )


def _too_many_cores(job: Job) -> Iterator[Fault]:
    node = job.site.node
    usable = len(usable_cores(node))
    tasks = job.script.number("ntasks-per-node", "tasks-per-node") or 1
    cores = job.script.number("cpus-per-task") * tasks
    if usable < cores <= node.cores:
        yield Fault(0, f"{cores} cores per node requested, jobs can use {usable}", f"request at most {usable}")


def _mask_off_the_map(job: Job) -> Iterator[Fault]:
    reserved = parse_ranges(job.site.node.reserved)
    for start in job.script.starts:
        for mask in re.findall(r"mask_cpu:([0-9a-fx,]+)", start.value("cpu-bind")):
            cores = {core for each in mask.split(",") for core in range(512) if int(each, 16) >> core & 1}
            if cores & reserved:
                yield Fault(start.line, f"a mask contains cores that jobs cannot use: {sorted(cores & reserved)}")


def _mask_on_part(job: Job) -> Iterator[Fault]:
    script, site = job.script, job.site
    partition = site.partition(script.option("partition"))
    whole = script.has("exclusive") or (partition and partition.whole_nodes)
    if not site.slurm.mask_needs_whole_nodes or whole:
        return
    for start in script.starts:
        if re.search(r"(mask|map)_cpu:", start.value("cpu-bind")):
            yield Fault(start.line, "CPU masks work on whole nodes only", "add #SBATCH --exclusive")


def _missing_setting(job: Job) -> Iterator[Fault]:
    """Find variables that the profile sets for such a job and the script does not."""
    if not job.script.gpus:
        return
    given = {name for _, name, _ in job.variables()}
    for setting in job.site.settings:
        wanted = setting.name.startswith(("NCCL_", "CCL_")) and setting.name not in given
        if wanted and evaluate_condition(setting.condition, job.facts):
            yield Fault(0, f"{setting.name} is not set: {setting.why}", f"export {setting.name}={setting.value}")


def _build_with_bind_modules(job: Job) -> Iterator[Fault]:
    calls = job.script.calls
    if not any(re.search(r"(singularity|apptainer)\s+build\b", call.text) for call in calls):
        return
    for call in calls:
        for module in job.site.build.unload:
            if re.search(rf"module\s+load\s.*\b{re.escape(module)}\b", call.text):
                yield Fault(call.line, f"the module {module} breaks builds", f"module unload {module}")


def find_avoided(job: Job) -> Iterator[FileFinding]:
    """Find arguments and variables that the site advises against."""
    for avoid in job.site.avoid:
        if evaluate_condition(avoid.condition, job.facts) is False:
            continue
        for line in sorted(set(_lines_with(job.script, avoid.word))):
            source = full_address(job.site, avoid.source)
            evidence = f"{job.site.name} advises against {avoid.word}"
            yield FileFinding(
                "site-advice", State.FAIL, evidence, avoid.instead,
                path=job.script.path, line=line, why=avoid.why, source=source,
            )  # fmt: skip


def _lines_with(script: Script, word: str) -> Iterator[int]:
    name, _, value = word.partition("=")
    if not word.startswith("--"):
        yield from (each.line for each in script.variables if each.name == name and each.value == value)
        return
    for options in (script.options, script.written_late, *(start.options for start in script.starts)):
        if name == "--gpus-per-task" and _keeps_all_gpus(script, options):
            continue
        yield from (each.line for each in options if f"--{each.name}" == name and value in {"", each.value})
    starts = {start.line for start in script.starts} if name == "--gpus-per-task" else set()
    pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    yield from (call.line for call in script.calls if call.line not in starts and pattern.search(call.text))


def _keeps_all_gpus(script: Script, options: tuple[Option, ...]) -> bool:
    """Return whether ``--gpu-bind=none`` keeps all GPUs visible to each task."""
    given = {each.value for each in (*script.options, *options) if each.name == "gpu-bind"}
    return "none" in given


SITE_RULES: tuple[Rule[Job], ...] = (
    Rule("wrong-gpu-option", "it has no effect there", PROFILE, _wrong_gpu_option),
    Rule("required-option", "Slurm rejects the job", PROFILE, _required_options),
    Rule("limit", "Slurm rejects the job, or the job never starts", PROFILE, _limits),
    Rule("billed-whole", "the project is billed for idle GPUs", PROFILE, _billed_whole),
    Rule("too-many-cores", "the job never starts: no node has that many cores for jobs", PROFILE, _too_many_cores),
    Rule("mask-off-the-map", "the ranks do not start", PROFILE, _mask_off_the_map),
    Rule("mask-on-part", "the cores may belong to other jobs", PROFILE, _mask_on_part),
    Rule("missing-setting", "the site's own scripts set it", PROFILE, _missing_setting),
    Rule("build-with-binds", "the build fails with a missing bind destination", PROFILE, _build_with_bind_modules),
)  # fmt: skip
