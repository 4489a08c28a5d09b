"""Render a launch as a Slurm batch script: POSIX sh that a help desk can read and that runs where no Argosy is; pure.

The script takes node and GPU counts from Slurm when it runs: ``sbatch --nodes=8 job.sh`` scales it, and ``sh job.sh``
inside an allocation carries it out as steps of what is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.model import ImageKind
from argosy.core.records import replace
from argosy.core.shell import (
    ShellFunction,
    Word,
    escape_colons,
    extract_functions,
    join_words,
    quote,
    render_command,
    render_functions,
)
from argosy.launch.cores import render_share, spare_cores
from argosy.launch.script.container_step import (
    has_document,
    inside_words,
    render_document,
    step_lines,
    step_of,
    step_prefix,
)
from argosy.launch.script.local import VENDOR_NODES, ScriptFacts, render_environment, render_head
from argosy.launch.script.record_files import render_end_call, render_well
from argosy.launch.script.rendezvous import render_rendezvous
from argosy.launch.script.resume import Resume, render_chain, render_requeue, render_warning, resume_directives
from argosy.runtimes.runtime import FILES
from argosy.sites.binding import render_mask_option
from argosy.sites.profile import Site
from argosy.sites.resolve import SiteDemands
from argosy.slurm.text import JobOptions, render_directive

NODE = ShellFunction(
    "node",
    """\
# On each node: words IMAGE RUNTIME GPU_NODE FOLDERS PATHS, then the command.  Another user may have made a folder.
stop() { printf "argosy: %s on %s\\n" "$1" "$SLURMD_NODENAME" >&2; exit "$2"; }
[ -r "$1" ] || stop "the image $1 cannot be read" 6
command -v "$2" >/dev/null || stop "$2 is not installed" 4
[ -z "$3" ] || [ -e "$3" ] || stop "GPUs were asked for, and there is no $3" 7
own() { mkdir -m 700 "$1" 2>/dev/null || [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }
for folder in $4; do (umask 077; mkdir -p "${folder%/*}/"); own "$folder" || stop "$folder is not ours" 7; done
# The container sees the folder of PMIx, and what this node has of PATHS and TMPDIR.
binds=${PMIX_SERVER_TMPDIR:-}; for path in $5 ${TMPDIR:-}; do [ ! -e "$path" ] || binds=$binds${binds:+,}$path; done
[ -z "$binds" ] || export APPTAINER_BIND="$binds" SINGULARITY_BIND="$binds"
shift 5; exec "$@"
""",
)


INTERACTIVE = 0xFFFFFFFA
"""Number of the step of salloc's shell (LaunchParameters=use_interactive_step), whose variables are the job's own."""


class SlurmFacts(msgspec.Struct, frozen=True):
    """What a Slurm script says beyond a local one.

    Attributes
    ----------
    extra
        Words for sbatch that have no option here.
    masks
        CPU mask of each local rank of a full node; empty where ranks are not bound.
    mpi
        The wire-up that srun is asked for (``pmix``, ``pmi2``); empty for none.
    record
        Folder in which the script notes its end; empty for a script that is kept.
    resume
        How the job goes back into the queue; None where it does not.
    label
        Whether srun begins each line with the rank that wrote it.
    gpu_type
        Slurm's name for a kind of GPU; empty for any.
    least_nodes
        The fewest nodes that the job may go on with; 0 where it needs all of them.
    stage_to
        Folder on each node's own disk that the image is copied to.
    smoke
        Whether the job is a short test, which a timer ends.
    apart
        Whether a rank that fails, or a node that is lost, ends none of the others.
    at_site
        What the site's profile adds: words for sbatch and srun, folders and paths on each node.
    """

    script: ScriptFacts
    site: Site
    options: JobOptions
    extra: tuple[str, ...] = ()
    masks: tuple[int, ...] = ()
    mpi: str = ""
    record: str = ""
    resume: Resume | None = None
    label: bool = False
    gpu_type: str = ""
    least_nodes: int = 0
    stage_to: str = ""
    smoke: bool = False
    apart: bool = False
    site_overrides: SiteDemands = msgspec.field(default_factory=SiteDemands)


def render_slurm_script(facts: SlurmFacts) -> str:
    """Render the whole script."""
    command = node_command(facts, facts.script.started.command)
    programs, _ = extract_functions((*command, *_before_command(facts)))
    lines = [
        "#!/bin/sh",
        *map(render_directive, directives(facts)),
        *render_head(facts.script),
        *_allocation(facts),
        *(render_chain(facts.resume) if facts.resume else ()),
        *_signals(facts),
        *render_rendezvous(facts.site),
        *render_environment(facts.script),
        *render_modules(facts.site),
        *_stage(facts),
        *render_functions(programs),
        *render_document(facts.script.container),
        *_before(facts),
        *_start(facts, extract_functions(command)[1]),
        *_wait(facts),
    ]
    return "\n".join(lines) + "\n"


def node_command(facts: SlurmFacts, command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Give what srun starts for a command: the checks of a node, the runtime, the command in the container."""
    container = facts.script.container
    words = (*_around(facts), *container.argv(command))
    if facts.stage_to:
        from argosy.launch.script.staging import staged_words  # noqa: PLC0415 - where it is asked for

        words = staged_words(words, container.entry.image.path)
    return escape_colons(words)


def _before_command(facts: SlurmFacts) -> tuple[Word, ...]:
    if not facts.script.before:
        return ()
    from argosy.launch.script.before import before_command  # noqa: PLC0415 - where it is asked for

    return node_command(facts, before_command(facts.script.before))


def _before(facts: SlurmFacts) -> Iterator[str]:
    if not facts.script.before:
        return
    from argosy.launch.script.before import render_before  # noqa: PLC0415 - where it is asked for

    container, (_, words) = facts.script.container, extract_functions(_before_command(facts))
    own = "".join(f" {word}" for word in (*map(quote, facts.site_overrides.srun_always), *step_lines(container)))
    srun = f'{step_prefix(container)}srun --nodes=1 --ntasks=1 --nodelist="$first" --mpi=none{own}'
    yield from render_before(words, srun=srun)


def _stage(facts: SlurmFacts) -> Iterator[str]:
    if facts.stage_to:
        from argosy.launch.script.staging import render_staging  # noqa: PLC0415 - where it is asked for

        image = facts.script.container.entry.image
        yield from render_staging(facts.stage_to, image.path, image.digest)


def _unstage(facts: SlurmFacts) -> str:
    """Give what the end of the script does about a staged image."""
    return '[ -z "$image" ] || $each rm -rf "${image%/*}" || :' if facts.stage_to else ""


def _timer(facts: SlurmFacts) -> Iterator[str]:
    if facts.smoke:
        from argosy.launch.smoke import render_timer  # noqa: PLC0415 - where it is asked for

        yield from render_timer()


def directives(facts: SlurmFacts) -> Iterator[str]:
    """Give the options of sbatch, the shape first."""
    shape, slurm, options = facts.script.shape, facts.site.slurm, facts.options
    tasks = shape.ranks_per_node if facts.script.started.per_rank else 1
    yield f"--job-name={facts.script.name}"
    yield f"--nodes={f'{facts.least_nodes}-' if facts.least_nodes else ''}{shape.nodes}"
    if facts.least_nodes or facts.apart:
        yield "--no-kill"  # else Slurm ends a job that loses a node
    if slurm.cpus_option:
        # Where the profile does not know the cores, a task for each rank asks for one core each at least.
        yield f"--ntasks-per-node={tasks if shape.cpus_per_rank else shape.ranks_per_node}"
    if slurm.cpus_option and shape.cpus_per_rank:
        yield f"--cpus-per-task={shape.cpus_per_rank if facts.script.started.per_rank else _cores_per_node(facts)}"
    if shape.gpus_per_node and slurm.gpu_option != "none":
        kind = "gres=gpu:" if slurm.gpu_option == "gres" else "gpus-per-node="
        yield f"--{kind}{f'{facts.gpu_type}:' if facts.gpu_type else ''}{shape.gpus_per_node}"
    if facts.resume:
        yield from resume_directives(facts.resume)
        options = replace(options, signal="", requeue=False)
    elif options.requeue:
        yield "--open-mode=append"  # else the second run would erase what the first one wrote
    yield from options.lines()
    yield from facts.site_overrides.sbatch
    yield from facts.extra


def _cores_per_node(facts: SlurmFacts) -> int:
    """Count the cores of a node's ranks and those that their masks leave over: a smaller step might get other cores."""
    shape = facts.script.shape
    return shape.cpus_per_rank * shape.ranks_per_node + (spare_cores(shape, facts.site) if facts.masks else 0)


def _around(facts: SlurmFacts) -> tuple[Word, ...]:
    """Give the words that check a node before the container starts; inside it, where srun itself starts containers."""
    container, folders = facts.script.container, join_words(facts.site_overrides.folders)
    device = _gpu_device(facts)
    if step_of(container):
        return inside_words(device, folders)
    image = container.entry.image
    path = image.path if image.kind in {*FILES, ImageKind.HOST} else "/"
    late_binds = " ".join(facts.site_overrides.late_binds)
    return ("sh", "-c", NODE, "argosy-node", path or "/", container.runtime.program, device, folders, late_binds)


def _gpu_device(facts: SlurmFacts) -> str:
    """Name the device node that each node of a job with GPUs must have; empty for a job without GPUs."""
    node = facts.site.node
    device = node.gpu_device or facts.script.gpu_node or VENDOR_NODES.get(node.gpu_vendor, "")
    return device if facts.script.shape.gpus_per_node else ""


def _allocation(facts: SlurmFacts) -> Iterator[str]:
    shape = facts.script.shape
    yield 'stop() { printf "argosy: %s\\n" "$1" >&2; exit "$2"; }'
    yield '[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2'
    of_step = "SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE"
    own = f'"${{SLURM_STEP_ID:-{INTERACTIVE}}}" = {INTERACTIVE}'
    yield f"[ {own} ] || {{ unset {of_step}; export SLURM_OVERLAP=1; }}  # in a step of srun"
    yield "# Slurm's numbers: sbatch --nodes=8 scales this script."
    nodes = "nodes=$SLURM_JOB_NUM_NODES"
    cores = "" if shape.cpus_per_rank else " cores=${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}"
    yield f"{nodes} {_ranks_per_node(facts)}{cores}"
    yield from _enough_cores(facts)
    yield ""


def _ranks_per_node(facts: SlurmFacts) -> str:
    """Count the ranks of a node by the GPUs that its step gets.

    A job that has its nodes alone has all of their GPUs (``SLURM_GPUS_ON_NODE``); its steps get those it asked for.
    """
    shape, node, slurm = facts.script.shape, facts.site.node, facts.site.slurm
    asked, devices = shape.gpus_per_node, node.devices_per_gpu
    alone = (slurm.whole_nodes or facts.options.exclusive) and slurm.gpu_option != "gpus-per-node"
    if not asked or asked * devices != shape.ranks_per_node or (alone and asked != node.gpus):
        return f"ranks_per_node={shape.ranks_per_node}"
    given, before = f"${{SLURM_GPUS_ON_NODE:-{asked}}}", ""
    if slurm.gpu_option == "gpus-per-node":  # with its kind, as a100:4, where one was asked for
        given, before = "${gpus##*:}", f"gpus=${{SLURM_GPUS_PER_NODE:-{given}}} "
    return before + "ranks_per_node=" + (given if devices == 1 else f"$(({given} * {devices}))")


def _enough_cores(facts: SlurmFacts) -> Iterator[str]:
    """Stop if an allocation made by hand has fewer cores than the step asks for; warn if Slurm gave one per rank."""
    started, shape = facts.script.started, facts.script.shape
    if not shape.cpus_per_rank and not facts.site.slurm.cpus_option:
        return
    if not shape.cpus_per_rank:
        told = "argosy: $cores core(s) of a node for $ranks_per_node rank(s): use --cpus-per-rank"
        yield f'[ "$cores" -gt "$ranks_per_node" ] || echo "{told}" >&2'
        return
    if started.per_rank and facts.masks and spare_cores(shape, facts.site):
        need = f"need={_cores_per_node(facts)}"
    elif started.per_rank:
        need = f"need=$((ranks_per_node * ${{SLURM_CPUS_PER_TASK:-{shape.cpus_per_rank}}}))"
    else:  # one task for all ranks of a node, where an allocation made by hand may count one for each
        cpus = _cores_per_node(facts)
        need = f"n=${{SLURM_NTASKS_PER_NODE:-1}}; need=$((${{SLURM_CPUS_PER_TASK:-{cpus} / n}} * n))"
    yield f"has=${{SLURM_JOB_CPUS_PER_NODE:-999}} {need}"
    yield """[ "${has%%[!0-9]*}" -ge "$need" ] || stop "$has cores on a node, $need are needed" 2"""


def _signals(facts: SlurmFacts) -> Iterator[str]:
    yield "# This shell stays, and passes signals on to the ranks."
    document = has_document(facts.script.container)
    # What the end removes is ours alone, whatever the caller's environment has by that name.
    own = ("step", *(["environment"] if document else []), *(["image"] if facts.stage_to else []))
    unset = " ".join(f"{name}=''" for name in own)
    yield unset + """; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }"""
    passed = [name for name in ("USR1", "USR2") if not facts.resume or facts.resume.signal != name]
    yield "; ".join(f"trap 'pass {name}' {name}" for name in passed)
    yield f"trap '[ -n \"$step\" ] || exit 143; {'stopped=yes; ' if facts.resume else ''}pass TERM' TERM INT HUP"
    if facts.resume:
        yield from render_warning(facts.resume)
    ending = "; ".join(filter(None, ('rm -f "$environment"' if document else "", _unstage(facts))))
    if ending:
        yield f"trap '{ending}' EXIT"
    yield from _timer(facts)
    yield ""


def render_modules(site: Site) -> Iterator[str]:
    """Load the site's modules: they bring the runtime or the host's MPI."""
    modules = site.modules
    if not modules.load:
        return
    yield "# Modules of the site; a batch job's plain sh may not know the command yet."
    yield "set +eu"
    yield "# shellcheck disable=SC1091"
    yield "command -v module >/dev/null || . /etc/profile"
    if modules.purge:
        yield "module purge"
    for folder in modules.use:
        yield f"module use {quote(folder)}"
    yield f"module load {' '.join(map(quote, modules.load))}"
    yield "set -eu"
    yield ""


def _start_by_mpiexec(words: tuple[Word, ...], *, label: bool) -> Iterator[str]:
    """Start ranks by the host's own mpiexec (Intel MPI's and MPICH's hydra), which starts its helpers by srun."""
    yield "# hydra starts its helpers by srun, which must take this environment, and no memory limit of an outer job."
    yield "unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE"
    yield "# Each node has its own of these; mpiexec would send the first node's."
    yield "unset SLURMD_NODENAME SLURM_NODEID"
    yield "export SLURM_EXPORT_ENV=ALL"
    yield 'command -v mpiexec >/dev/null || stop "the modules bring no mpiexec" 4'
    yield 'list=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -s -d , -)'
    yield f'mpiexec {"-l " if label else ""}-n "$((nodes * ranks_per_node))" -ppn "$ranks_per_node" --hosts "$list" \\'
    yield render_command(words, indent="    ") + " & step=$!"


def _start(facts: SlurmFacts, words: tuple[Word, ...]) -> Iterator[str]:
    """Start the ranks, or on each node the program that starts its ranks, and leave the process in ``$step``."""
    if facts.mpi and facts.site.launcher.mpiexec:
        yield from _start_by_mpiexec(words, label=facts.label)
        return
    per_rank = facts.script.started.per_rank
    masked = bool(facts.masks) and per_rank
    spare = spare_cores(facts.script.shape, facts.site) if masked else 0
    # Beside masks that leave cores over, a step asked for a number of cores may be given others than the masks name.
    counted = not masked or (facts.site.slurm.cpus_beside_mask and not spare)
    if masked:
        # sbatch's own two as well, where the masks need more cores than the tasks ask for: 24.11 takes them from there
        yield "unset SRUN_CPUS_PER_TASK" + (" SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK" if spare else "")
    if counted:
        yield "# srun takes no --cpus-per-task from the job."
    own = (*facts.site_overrides.srun_always, *(facts.site_overrides.srun if per_rank else ()))
    lines = (
        step_prefix(facts.script.container) + _srun(facts),
        f"--cpu-bind={render_mask_option(facts.masks)}" if masked else "",
        f'--cpus-per-task="{_cores_per_task(facts)}"' if counted else "",
        " ".join(map(quote, own)),
        *step_lines(facts.script.container),
    )
    yield " \\\n    ".join(filter(None, lines)) + " \\"
    yield render_command(words, indent="    ") + " & step=$!"


def _srun(facts: SlurmFacts) -> str:
    """Give srun with what says how many tasks it starts, and what becomes of them when one fails."""
    per_rank = facts.script.started.per_rank
    total, tasks = ('"$((nodes * ranks_per_node))"', '"$ranks_per_node"') if per_rank else ('"$nodes"', "1")
    words = (
        f'srun --nodes="$nodes" --ntasks={total} --ntasks-per-node={tasks} --distribution=block --export=ALL',
        "--no-kill --kill-on-bad-exit=0" if facts.least_nodes or facts.apart else "--kill-on-bad-exit=1",
        f"--mpi={quote(facts.mpi)}" if facts.mpi else "",
        "--label" if facts.label and per_rank else "",
    )
    return " ".join(filter(None, words))


def _cores_per_task(facts: SlurmFacts) -> str:
    """Give the cores of a task in sh: a rank's, or those of all ranks of a node where one task starts them."""
    cpus_per_rank, per_rank = facts.script.shape.cpus_per_rank, facts.script.started.per_rank
    if cpus_per_rank and not per_rank:
        return "$need"
    if not per_rank and facts.site.slurm.cpus_option:
        return "$cores"  # all that Slurm gave: SLURM_CPUS_PER_TASK would be that of one rank
    share = cpus_per_rank or (render_share("cores").expression if per_rank else "$cores")
    return f"${{SLURM_CPUS_PER_TASK:-{share}}}"


def _wait(facts: SlurmFacts) -> Iterator[str]:
    yield 'while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun'
    if facts.smoke:
        from argosy.launch.smoke import render_enough  # noqa: PLC0415 - where it is asked for

        yield from render_enough()
    if facts.record and facts.least_nodes:
        yield from render_well(facts.record, facts.least_nodes)
    if facts.record:
        yield render_end_call(facts.record)
    if facts.resume:
        yield from render_requeue(facts.resume)
    yield '[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2'
    yield 'exit "$code"'
