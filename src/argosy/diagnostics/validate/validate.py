"""Validate a site: plan the job, submit and follow it, read its result, and merge the result into a profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from argosy.core.errors import SiteError, ToolFailed, UsageError
from argosy.core.model import ContainerRequest, GpuMode, ImageKind
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import (
    Helpers,
    ShellExpr,
    collect_helpers,
    merge_helpers,
    quote,
    render_assignment,
    render_helpers,
)
from argosy.core.store import write_text
from argosy.diagnostics.validate.merge import Merged, ValidationResult, merge_result, read_result
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.logs import follow_job
from argosy.jobs.record import new_record_folder
from argosy.launch.choices import choose_job_facts
from argosy.launch.complete import as_smoke
from argosy.launch.context import LaunchContext
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.plan import plan_job, plan_slurm_facts
from argosy.launch.resolve import resolve_launch
from argosy.launch.script.facts import SlurmFacts
from argosy.launch.script.helpers import FREE_PORT, continued, render_call, render_script_functions
from argosy.launch.script.node_command import (
    has_document,
    node_command,
    render_document,
    render_lists,
    step_options,
    step_prefix,
)
from argosy.launch.script.parts import render_modules, script_shell
from argosy.launch.shape import choose_masks, planned_threads
from argosy.launch.site_settings import with_variables
from argosy.launch.submit import submit, write_record, write_script
from argosy.runtimes.runtime import FILES, load_runtime
from argosy.sites.binding import render_core_list, render_mask_option
from argosy.sites.load import load_profile, sites_here
from argosy.sites.profile import Site
from argosy.sites.read import SYSTEM, find_profile, profile_folders, read_site, user_profiles
from argosy.slurm.sbatch import JobOptions, render_directive
from argosy.slurm.times import slurm_time
from argosy.version import VERSION

BODY = Path(__file__).with_name("data") / "validate.sh"
NAME = "argosy-validate"
NODES = 2
TIME = "00:05:00"
SECONDS = 90
"""Time limit of one step in a container: an image of many gigabytes starts slowly the first time."""

SHELL_CHECKS = "SC1091,SC2016,SC2034,SC2086,SC2154,SC2317,SC2329"
"""Checks to skip, for texts for other shells, options of several arguments, and functions that traps call."""


def validation_request(site: Site, image: str, options: JobOptions, gpus: int | None, name: str) -> LaunchRequest:
    """Return the launch with the options of the job: all GPUs of a node, the site's queue for short tests.

    Parameters
    ----------
    image
        Empty: containers are not tested.
    gpus
        GPUs of each node; None for the number in the profile.
    name
        Name or path of the profile.
    """
    each = site.node.gpus if gpus is None else gpus
    alone = bool(site.partitions) and all(partition.max_nodes == 1 for partition in site.partitions)
    known = site.node.gpu_cpus or site.slurm.cpus_per_gpu
    request = LaunchRequest(
        image=image or "bare:",
        command=("true",),
        site=name,
        # The number of cores is one of the tested facts, so the job does not request a share of the documented number.
        resources=ResourceRequest(nodes=1 if alone else NODES, gpus_per_node=each, cpus_per_rank=0 if known else 1),
        launcher="srun",
        container_per="" if (image or "bare:").startswith("bare:") else "rank",
        name=NAME,
        container=ContainerRequest(gpu=GpuMode.AUTO if each else GpuMode.NONE),
        no_check=True,  # an image for other GPUs also tests the site
    )
    asked = replace(options, time=slurm_time(options.time) if options.time else TIME)
    if options.partition or options.qos:
        return replace(request, options=asked)
    queue = as_smoke(request, site).options
    return replace(request, options=replace(asked, partition=queue.partition, qos=queue.qos))


def _plan_validation(context: LaunchContext) -> LaunchPlan:
    """Plan the job: a launch with another script."""
    launch, facts = plan_job(context), _facts(context)
    lines = [
        f"#!{script_shell(facts.site.modules)}",
        *map(render_directive, launch.directives),
        f"# Validates the profile of the site {facts.site.name}. Written by Argosy {VERSION}, which nodes do not need.",
        "# Writes argosy-validate-JOB.json to the folder of sbatch; 'argosy sites merge' adds it to the profile.",
        f"# shellcheck disable={SHELL_CHECKS}  # quoted texts are for other shells; options are several arguments",
        "set -eu",
        *render_script_functions("stop enable_modules" + " write_edf" * has_document(context.container)),
        '[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2',
        *_values(context, facts),
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST"); first=${hosts%%[!A-Za-z0-9_.-]*}',
        "# Options of the job for its tasks must not apply to these steps.",
        "unset SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION",
        "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK",
        *render_modules(facts.site.modules),
        *_inside(facts),
    ]
    return replace(launch, script="\n".join(lines) + "\n" + BODY.read_text(encoding="utf-8"), attach="")


def _facts(context: LaunchContext) -> SlurmFacts:
    """Return the facts of the launch's script. This script does not count cores: the plan sets the threads."""
    facts = plan_slurm_facts(choose_job_facts(context))
    shape, container = facts.script.shape, facts.script.container
    container = with_variables(container, planned_threads(container.entry.variables, shape))
    return replace(facts, script=replace(facts.script, container=container))


def _values(context: LaunchContext, facts: SlurmFacts) -> Iterator[str]:
    """Return the variables that the body reads."""
    image, masks = context.container.entry.image, choose_masks(facts.script.shape, facts.site)
    is_file = image.kind is not ImageKind.HOST
    runtime = context.container.runtime.name if is_file else facts.site.runtime.name
    program = load_runtime(runtime).program if runtime else ""
    values = {
        "site": facts.site.name,
        "image": image.path if is_file else "",
        "runtime": runtime,
        "program": "" if program == "srun" else program,
        "part": str(image.layer_part or ""),
        "masks": render_mask_option(masks) if masks else "",
        "planned": " ".join(map(render_core_list, masks)),
        "ranks_per_node": str(facts.script.shape.ranks_per_node),
        "suffix": facts.site.slurm.master_suffix,
        "step_options": " ".join(facts.site_settings.srun_always),
    }
    return (f"{name}={quote(value)}" for name, value in values.items())


def _inside(facts: SlurmFacts) -> Iterator[str]:
    """Return the function that starts a command in the container; its arguments are OPTIONS-OF-SRUN and the command."""
    container = facts.script.container
    port = Helpers(FREE_PORT.definitions)
    if container.entry.image.kind is ImageKind.HOST:
        yield from render_helpers(port)
        return
    helpers, words = collect_helpers(node_command(facts, (ShellExpr("$@"),)))
    yield from render_helpers(merge_helpers(port, helpers))
    if container.entry.image.kind in FILES:
        yield f"argosy_image={quote(container.entry.image.path)}"
    yield from render_lists(facts, words)
    yield from render_document(container)
    yield from (f"unset {' '.join(container.entry.drop)}",) if container.entry.drop else ()
    yield "inside() {  # OPTIONS-OF-SRUN COMMAND...: run a command in the container, as a launch does"
    yield "    options=$1; shift"
    for variable in container.exports():
        yield f"    export {render_assignment(variable.name, variable.value)}"
    own = (*facts.site_settings.srun_always, *facts.site_settings.srun)
    step = ("timeout", str(SECONDS), *step_prefix(container), "srun --overlap $options", *map(quote, own))
    yield f"    {continued((*step, *step_options(container)))} \\\n{render_call(words, container.runtime.program)}"
    yield "}"


class Validation(msgspec.Struct, frozen=True):
    """The result of a validation job, and its file."""

    file: str
    result: ValidationResult


def site_here(session: Session, asked: str) -> str:
    """Return the name of the site: the requested one, else that of this machine.

    Raises
    ------
    SiteError
        When several profiles match this machine, or none.
    """
    if asked:
        return asked
    found = sites_here(session.host)
    if len(found) == 1:
        return found[0].name
    raise SiteError(
        "cannot tell which site this machine belongs to",
        evidence=f"matching profiles: {', '.join(each.name for each in found) or 'none'}",
        hint="name the site, for example: argosy sites validate my-site.toml; 'argosy sites ls' lists the shipped ones",
    )


def _prepare_job(
    session: Session,
    site: str,
    *,
    image: str,
    options: JobOptions,
    gpus: int | None,
    kept: bool = False,
    record: str = "",
) -> LaunchPlan:
    """Plan the job that validates a site, and an image if one is given; without a number of GPUs, it has all of a node.

    A script that is only written (`kept`), to be submitted later, needs neither the image nor Slurm on this machine.
    """
    profile = load_profile(site, session.host)
    if not profile.site.has_slurm:
        hint = "check this machine with 'argosy doctor'"
        raise UsageError(f"cannot validate {profile.site.name}: it has no Slurm", hint=hint)
    request = validation_request(profile.site, image, options, gpus, site)
    purpose = Purpose.SUBMIT_ELSEWHERE if kept else Purpose.START
    return _plan_validation(resolve_launch(request, session, profile=profile, purpose=purpose, record=record))


def validate_site(
    session: Session, site: str, *, image: str, options: JobOptions, gpus: int | None, stream: BinaryIO | None
) -> Validation:
    """Submit the job, follow it to its end, and read its result.

    Parameters
    ----------
    image, gpus
        As of `_prepare_job`.
    stream
        Stream for the output of the job; default: standard output.

    Raises
    ------
    ToolFailed
        When the job ended without a result.
    """
    folder = new_record_folder(session)
    launch = _prepare_job(session, site, image=image, options=options, gpus=gpus, record=str(folder))
    script = write_record(launch, folder, session)
    launched = submit(launch, folder, session, profile=site)
    session.reporter.note(f"job {launched.job} is submitted; its script: {script}")
    facts = follow_job(session, launched.job, pause=launch.polling_seconds, stream=stream)
    file = Path(session.host.cwd, f"argosy-validate-{launched.job}.json")
    if not file.is_file():
        raise ToolFailed(
            f"job {launched.job} wrote no result",
            evidence=f"it {facts.meaning}\n{facts.output}",
            hint="see its output; without --image, containers are not tested",
        )
    return Validation(str(file), read_result(file))


def write_validation(
    session: Session, site: str, path: Path, *, image: str, options: JobOptions, gpus: int | None
) -> None:
    """Write the job script to a file, to be submitted elsewhere; parameters as of `_prepare_job`."""
    plan = _prepare_job(session, site, image=image, options=options, gpus=gpus, kept=True)
    write_script(path, plan.script, private=False)


def merge_into_profile(session: Session, file: str, *, into: str, accept: bool) -> tuple[Path, Merged]:
    """Merge a result into a profile: the one of a path, else the user's own profile, which is copied first if needed.

    Raises
    ------
    SiteError
        When there is no such profile.
    """
    result = read_result(Path(file))
    host = session.host
    folders = profile_folders(host)
    source = find_profile(into or result.site, folders)
    user = user_profiles(host.environment) or SYSTEM
    place = source if into.endswith(".toml") or source.parent in {folders[0], user} else user / source.name
    site = read_site(str(source), (source.parent, *folders))
    if site.name != result.site:
        raise SiteError(
            f"{file} is a result from another site",
            evidence=f"the job ran at {result.site}, and {source} is the profile of {site.name}",
            hint="choose the profile with --into",
        )
    merged = merge_result(source.read_text(encoding="utf-8"), site, result, accept=accept)
    with translate_os_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place.resolve(), merged.text)  # a link to a file of a repository stays a link
    return place, merged
