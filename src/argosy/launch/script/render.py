"""Render a batch script of Slurm, or the script of a launch on this machine: both run without Argosy; pure.

A batch script takes node and GPU counts from Slurm when it runs: ``sbatch --nodes=8 job.sh`` scales it, and ``bash
job.sh`` in an allocation runs it as steps of that allocation.
"""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.model import ImageKind
from argosy.core.records import replace
from argosy.core.shell import Helpers, ShellExpr, Word, collect_helpers, merge_helpers, quote
from argosy.launch.launchers.launcher import MPIEXEC
from argosy.launch.script.facts import ScriptFacts, SlurmFacts
from argosy.launch.script.head import render_environment, render_head
from argosy.launch.script.helpers import CREATE_STAGE, FREE_PORT, continued, heading, render_call, render_program
from argosy.launch.script.node_command import node_command, render_document, render_lists, step_options, step_prefix
from argosy.launch.script.parts import (
    END_CALL,
    OUTPUT_CALL,
    render_elastic_verdict,
    render_modules,
    render_rendezvous,
    render_requeue,
    render_resume_check,
    render_staging,
    script_shell,
)
from argosy.launch.shape import CORES_PER_RANK, spare_cores
from argosy.runtimes.runtime import FILES
from argosy.sites.binding import render_core_list, render_mask_option
from argosy.slurm.sbatch import join_dependencies, join_gres, render_directive


def render_slurm_script(facts: SlurmFacts) -> str:
    """Render the whole script."""
    helpers, words = collect_helpers(node_command(facts, facts.script.started.command))
    asked = facts.script.before
    before, before_words = collect_helpers(node_command(facts, _before_command(asked)) if asked else ())
    own = Helpers((*FREE_PORT.definitions, *(CREATE_STAGE.definitions if facts.request.stage_to else ())))
    main = [
        *_program(facts, (*words, *before_words)),
        "",
        *_environment_part(facts),
        "",
        heading(f"Start: {_start_heading(facts)}"),
        *_before(facts, before_words),
        *((OUTPUT_CALL,) if facts.record else ()),
        *_start(facts, words),
        *_end(facts),
    ]
    lines = [
        f"#!{script_shell(facts.site.modules)}",
        *map(render_directive, directives(facts)),
        *render_head(facts.script, least_nodes=facts.least_nodes),
        *render_program(main, merge_helpers(own, helpers, before)),
    ]
    return "\n".join(lines) + "\n"


SMOKE_SECONDS = 120
"""Seconds after which a smoke run that still runs is ended, before Slurm's time limit; torchrun needs 30 more."""


def _start_heading(facts: SlurmFacts) -> str:
    """Return the text of the heading: how the ranks start."""
    unit = "task" if facts.script.container.entry.image.kind is ImageKind.HOST else "container"
    return f"one {unit} per rank" if facts.script.started.per_rank else f"one {unit} per node, which starts its ranks"


def _program(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    """Render the first part: the image, and the numbers of ranks and cores."""
    yield heading("The program")
    if facts.record:
        yield f"argosy_record={quote(facts.record)}"
    if ShellExpr("$argosy_image") in words and not facts.request.stage_to:
        yield f"argosy_image={quote(facts.script.container.entry.image.path)}"
    yield "# The numbers come from Slurm, so 'sbatch --nodes=8' scales this script."
    yield "check_allocation"
    yield "argosy_nodes=$SLURM_JOB_NUM_NODES"
    yield from _ranks_per_node(facts)
    yield from _count_cores(facts)
    if ShellExpr("$argosy_cores") in words:
        cores = ";".join(map(render_core_list, facts.masks))
        yield "# The cores of each rank of a node, which are nearest to its GPU."
        yield f"argosy_cores={quote(cores)}"
    yield from render_lists(facts, words)
    if facts.resume:
        yield from render_resume_check(facts.resume)


def _environment_part(facts: SlurmFacts) -> Iterator[str]:
    """Render the second part: signals, rendezvous, variables, modules, staged image."""
    yield heading("The environment of the ranks")
    yield "pass_signals"
    if facts.resume:
        yield f"warn_ranks_by {facts.resume.signal} {facts.resume.patience}  # seconds until TERM"
    if facts.request.smoke:
        yield f"end_smoke_run_after {SMOKE_SECONDS}"
    if facts.site_settings.srun_always:
        yield f"argosy_step_options={quote(' '.join(facts.site_settings.srun_always))}  # of every srun at this site"
    yield render_rendezvous(facts.site)
    yield from render_environment(facts.script)
    yield from render_modules(facts.site.modules)
    yield from _stage(facts)
    yield from render_document(facts.script.container)


def _before_command(lines: tuple[str, ...]) -> tuple[Word, ...]:
    """Return the command that runs the lines of ``--before`` in sequence, and ends at the first that fails."""
    return ("/bin/sh", "-e", "-c", "\n".join(lines), "argosy-before")


def _before(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    if not facts.script.before:
        return
    container = facts.script.container
    pieces = (
        *("run_before", *step_prefix(container), "srun", "--nodes=1", "--ntasks=1"),
        *('--nodelist="$argosy_first"', "--mpi=none"),
        *(*map(quote, facts.site_settings.srun_always), *step_options(container)),
    )
    yield "# Run once per start of the job, in the image on its first node, before the ranks start."
    yield f"{continued(pieces)} \\\n{render_call(words)}"


def _stage(facts: SlurmFacts) -> Iterator[str]:
    if facts.request.stage_to:
        image = facts.script.container.entry.image
        yield from render_staging(facts.request.stage_to, image.path, image.digest)


def _ranks_per_node(facts: SlurmFacts) -> Iterator[str]:
    """Render the number of ranks per node, computed from the GPUs that its step gets.

    A job on whole nodes has all of their GPUs (``SLURM_GPUS_ON_NODE``), but its steps get only the requested ones.
    """
    shape, node, slurm = facts.script.shape, facts.site.node, facts.site.slurm
    asked, devices = shape.gpus_per_node, node.devices_per_gpu
    alone = (slurm.whole_nodes or facts.options.exclusive) and slurm.gpu_option != "gpus-per-node"
    if not asked or asked * devices != shape.ranks_per_node or (alone and asked != node.gpus):
        yield f"argosy_ranks_per_node={shape.ranks_per_node}"
        return
    given = f"${{SLURM_GPUS_ON_NODE:-{asked}}}"
    if slurm.gpu_option == "gpus-per-node":
        yield f"argosy_gpus=${{SLURM_GPUS_PER_NODE:-{given}}}"
        given = "${argosy_gpus##*:}"  # with its kind, for example a100:4, if the job requested one
    yield "argosy_ranks_per_node=" + (given if devices == 1 else f"$(({given} * {devices}))")


def _count_cores(facts: SlurmFacts) -> Iterator[str]:
    """Render the check that an allocation has enough cores, and the warning about one core per rank."""
    started, shape = facts.script.started, facts.script.shape
    if not shape.cpus_per_rank:
        yield "share_cores  # sets argosy_node_cores, argosy_cores_per_rank"
        if facts.site.slurm.cpus_option and shape.gpus_per_node:
            yield "warn_few_cores"
    elif started.per_rank and facts.masks and spare_cores(shape, facts.site):
        yield f"need_cores {facts.cores_per_node}  # of a node"
    elif started.per_rank:
        yield f'need_cores "$((argosy_ranks_per_node * ${{SLURM_CPUS_PER_TASK:-{shape.cpus_per_rank}}}))"  # of a node'
    else:
        yield f"need_cores_of_node {facts.cores_per_node}  # sets argosy_need, argosy_cores_per_rank"


def _start_by_mpiexec(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    """Render the start of ranks by the host's mpiexec (hydra of Intel MPI and MPICH), which uses srun."""
    yield "prepare_mpiexec"
    pieces = (
        "run_step mpiexec",
        "-l" if facts.request.label else "",
        '-n "$((argosy_nodes * argosy_ranks_per_node))"',
        '-ppn "$argosy_ranks_per_node"',
        '--hosts "$argosy_hosts"',
    )
    yield continued(filter(None, pieces)) + " \\\n" + render_call(words, facts.script.container.runtime.program)


def _start(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    """Render the start of the ranks, or of the program on each node that starts its ranks."""
    if facts.mpi == MPIEXEC:
        yield from _start_by_mpiexec(facts, words)
        return
    per_rank = facts.script.started.per_rank
    masked = bool(facts.masks) and per_rank
    spare = spare_cores(facts.script.shape, facts.site) if masked else 0
    # With masks that do not cover all cores, a step with a number of cores may get cores outside of the masks.
    counted = not masked or (facts.site.slurm.cpus_with_mask and not spare)
    if masked:
        # If the masks need more cores than the tasks request, also unset sbatch's variables, which Slurm 24.11 reads.
        yield "unset SRUN_CPUS_PER_TASK" + (" SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK" if spare else "")
    own = (*facts.site_settings.srun_always, *(facts.site_settings.srun if per_rank else ()))
    pieces = (
        *("run_step", *step_prefix(facts.script.container)),
        *_srun(facts),
        f"--cpu-bind={render_mask_option(facts.masks)}" if masked else "",
        f'--cpus-per-task="{_cores_per_task(facts)}"' if counted else "",
        *map(quote, own),
        *step_options(facts.script.container),
    )
    call = render_call(words, facts.script.container.runtime.program)
    yield f"{continued(filter(None, pieces))} \\\n{call}"


def _srun(facts: SlurmFacts) -> tuple[str, ...]:
    """Return srun with the options for the number of tasks, and for a failed task."""
    per_rank = facts.script.started.per_rank
    ranks = '"$((argosy_nodes * argosy_ranks_per_node))"', '"$argosy_ranks_per_node"'
    total, tasks = ranks if per_rank else ('"$argosy_nodes"', "1")
    return (
        'srun --nodes="$argosy_nodes"',
        f"--ntasks={total}",
        f"--ntasks-per-node={tasks}",
        "--distribution=block",
        "--export=ALL",
        "--no-kill --kill-on-bad-exit=0"
        if facts.least_nodes or facts.request.independent_ranks
        else "--kill-on-bad-exit=1",
        f"--mpi={quote(facts.mpi)}" if facts.mpi else "",
        "--label" if facts.request.label and per_rank else "",
    )


def _cores_per_task(facts: SlurmFacts) -> str:
    """Return the cores of a task as a shell expression: those of a rank, or of all ranks of a node."""
    cpus_per_rank, per_rank = facts.script.shape.cpus_per_rank, facts.script.started.per_rank
    if cpus_per_rank and not per_rank:
        return "$argosy_need"
    if not per_rank and facts.site.slurm.cpus_option:
        return "$argosy_node_cores"  # all that Slurm gave: SLURM_CPUS_PER_TASK is for one rank
    if not cpus_per_rank and per_rank:
        return CORES_PER_RANK.expression
    return f"${{SLURM_CPUS_PER_TASK:-{cpus_per_rank or '$argosy_node_cores'}}}"


def _end(facts: SlurmFacts) -> Iterator[str]:
    """Render the end of the script: the record, the requeue, the exit code."""
    if facts.request.smoke:
        yield "judge_smoke_run"
    if facts.record and facts.least_nodes:
        yield render_elastic_verdict(facts.least_nodes)
    if facts.record:
        yield END_CALL
    if facts.resume:
        yield render_requeue(facts.resume)
    # Other jobs may depend on the exit code of the ranks.
    job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if facts.options.array else "$SLURM_JOB_ID"
    yield f'[ "$argosy_code" -eq 0 ] || stop "job {job} ended with code $argosy_code" "$argosy_code"'


def directives(facts: SlurmFacts) -> Iterator[str]:
    """Yield the sbatch options, with the shape first."""
    return join_dependencies(join_gres(_directives(facts)))


def _directives(facts: SlurmFacts) -> Iterator[str]:
    shape, slurm, options = facts.script.shape, facts.site.slurm, facts.options
    tasks = shape.ranks_per_node if facts.script.started.per_rank else 1
    yield f"--job-name={facts.script.name}"
    yield f"--nodes={f'{facts.least_nodes}-' if facts.least_nodes else ''}{shape.nodes}"
    if facts.least_nodes or facts.request.independent_ranks:
        yield "--no-kill"  # otherwise Slurm ends a job that loses a node
    if slurm.cpus_option:
        # If the profile does not contain the cores, a task per rank requests at least one core each.
        yield f"--ntasks-per-node={tasks if shape.cpus_per_rank else shape.ranks_per_node}"
    if slurm.cpus_option and shape.cpus_per_rank:
        yield f"--cpus-per-task={shape.cpus_per_rank if facts.script.started.per_rank else facts.cores_per_node}"
    yield from slurm.request_gpus(shape.gpus_per_node, facts.request.gpu_type)
    if facts.resume:
        yield "--requeue"
        yield "--open-mode=append"
        yield f"--signal=B:{facts.resume.signal}@{facts.resume.grace}"
        options = replace(options, signal="", requeue=False)
    elif options.requeue:
        yield "--open-mode=append"  # otherwise the second run would erase the output of the first
    asked = tuple(options.lines())
    yield from asked
    names = {option.partition("=")[0] for option in asked}
    yield from (option for option in facts.site_settings.sbatch if option.partition("=")[0] not in names)
    yield from facts.request.extra


def render_local_script(facts: ScriptFacts) -> str:
    """Render the script of a launch on this machine."""
    helpers, words = collect_helpers(facts.container.argv(facts.started.command))
    main = [heading("The program"), *_local_checks(facts)]
    environment = list(render_environment(facts))
    if environment:
        main += ["", heading("The environment of the ranks"), *environment]
    main += ["", heading("Start")]
    if facts.before:
        before, before_words = collect_helpers(facts.container.argv(_before_command(facts.before)))
        helpers = merge_helpers(helpers, before)
        main += ["# Run once in the image before the ranks start.", f"run_before \\\n{render_call(before_words)}"]
    main += _start_here(facts, words)
    return "\n".join(["#!/bin/sh", *render_head(facts), *render_program(main, helpers)]) + "\n"


def _local_checks(facts: ScriptFacts) -> Iterator[str]:
    """Render the checks that stop the script with a message if something is missing."""
    entry = facts.container.entry
    test = "-d" if entry.image.kind is ImageKind.TREE else "-r"
    if entry.image.kind in FILES:
        yield f"argosy_image={quote(entry.image.path)}"
        yield f'[ {test} "$argosy_image" ] || stop "the image $argosy_image cannot be read here" 6'
    program = facts.container.runtime.program
    yield f'command -v {quote(program)} >/dev/null || stop "{program} is not installed here" 4'
    if facts.gpu_node:
        yield f'[ -e {facts.gpu_node} ] || stop "GPUs were requested, but there is no {facts.gpu_node} here" 7'


def _start_here(facts: ScriptFacts, words: tuple[Word, ...]) -> Iterator[str]:
    copies = facts.shape.ranks_per_node if facts.started.per_rank else 1
    call = render_call(words, facts.container.runtime.program)
    if copies == 1:
        yield "# The runtime replaces this shell, so that signals and the exit code pass unchanged."
        yield f"exec {call.lstrip()}"
        return
    yield f"# {copies} copies; the first that fails ends the others, and sets the exit code."
    yield "argosy_rank=0 argosy_pids='' argosy_code=''"
    yield f'while [ "$argosy_rank" -lt {copies} ]; do'
    yield f"    start_beside \\\n    {call}"
    yield "done"
    yield "wait_for_copies"
