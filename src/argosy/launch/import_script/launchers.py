"""Read the options of launchers in a job script: srun, mpirun, torchrun, accelerate, deepspeed; pure."""

from __future__ import annotations

import re

from argosy.core.parse import parse_int
from argosy.launch.import_script.containers import pyxis_image
from argosy.launch.import_script.program import Program
from argosy.slurm.sbatch_options import SBATCH_OPTIONS, SRUN_FLAGS, SRUN_SHORT, Option, split_options
from argosy.slurm.script_words import Part

TORCHRUN_FLAGS = frozenset(
    {"module", "standalone", "no-python", "no_python", "run-path", "run_path", "use_env", "use-env"}
)

RENDEZVOUS = re.compile(
    r"(nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](addr|port)|standalone|use[-_]env|local[-_]addr)\Z"
)
"""Options of torchrun that Argosy chooses itself."""

GPUS_OF_NODE = re.compile(r"^(gpu|auto|cpu)?$|SLURM_|nvidia-smi|rocm-smi")
"""Numbers of processes that mean a process for each GPU."""

ACCELERATE_DONE = re.compile(
    r"(multi[-_]gpu|num[-_](machines|processes)|machine[-_]rank|main[-_]process[-_](ip|port)|rdzv[-_]\w+"
    r"|same[-_]network|debug|quiet)\Z"
)
"""Options of ``accelerate launch`` that Argosy chooses itself."""

_ACCELERATE_FLAGS = """
    module multi_gpu use_deepspeed use_fsdp cpu debug quiet use_megatron_lm use_xpu use_mps_device tpu tpu_use_cluster
    tpu_use_sudo no_python same_network no_tpu_cluster use_cpu use_parallelism_config enable_cpu_affinity
    dynamo_use_fullgraph dynamo_use_dynamic dynamo_use_regional_compilation standalone
"""
ACCELERATE_FLAGS = frozenset(
    form for name in _ACCELERATE_FLAGS.split() for form in (name, name.replace("_", "-"))
) | {"m", "h", "q"}  # fmt: skip
"""Options of ``accelerate launch`` that take no value (accelerate/commands/launch.py)."""

ACCELERATE_VALUES = re.compile(
    r"(deepspeed|fsdp|megatron[-_]lm|zero\d|offload|gradient|fp8|mpirun|parallelism[-_]config|dynamo|rdzv|tpu|num|main|aws)"
    r"[-_]\w[\w-]*|config[-_]file|machine[-_]rank|mixed[-_]precision|gpu[-_]ids|max[-_]restarts|monitor[-_]interval"
    r"|log[-_]dir|tee|role|env|downcast[-_]bf16|vm"
)
"""Options of ``accelerate launch`` that take a value."""

_DEEPSPEED_FLAGS = """
    bind_cores_to_rank no_ssh no_ssh_check module no_python no_local_rank force_multi save_pid elastic_training
    use_pbs_nodefile m h
"""
DEEPSPEED_FLAGS = frozenset(_DEEPSPEED_FLAGS.split())
"""Options of deepspeed that take no value (deepspeed/launcher/runner.py)."""

DEEPSPEED_VALUES = re.compile(
    r"H|hostfile|i|include|e|exclude|num_(nodes|gpus|accelerators)|(min|max)_elastic_nodes|master_(port|addr)|node_rank"
    r"|launcher(_args)?|autotuning|bind_core_list|ssh_port|venv_script|enable_each_rank_log"
)
"""Options of deepspeed that take a value."""

_MPI_FLAGS = """
    bind-to-core bynode byslot bycore bysocket display-map display-allocation display-devel-map report-bindings
    oversubscribe nooversubscribe allow-run-as-root tag-output timestamp-output merge-stderr-to-stdout
    nolocal novm debug debug-daemons do-not-launch enable-recovery disable-recovery use-hwthread-cpus
    use-hw-threads-as-cpus v verbose q quiet h help V version l prepend-rank genvall genvnone envall envnone
    no-transfer line-buffer silence-abort info pernode show-progress tv trace
    check_mpi ordered-output no-envall no-vni no-abort-on-failure exclusive noprefix get-stack-traces
"""
MPI_FLAGS = frozenset(_MPI_FLAGS.split())
"""Options of mpirun that take no value (Open MPI 4 and 5, MPICH, Intel MPI, PALS)."""

_MPI_VALUES = """
    n np c ppn perhost npernode npersocket N host hosts H hostfile machinefile default-hostfile f bind-to map-by rank-by
    bind_to map_by cpu-bind cpu-set cpu-list mem-bind gpu-bind depth d rankfile rf wdir wd path prefix x genvlist
    envlist env genvexcl iface bootstrap launcher rmk rr grr configfile pmi-aggregate output-filename output
    report-uri stdin timeout ompi-server pmixmca prtemca am tune personality preload-files tmpdir outfile-pattern
    outfile errfile-pattern hostlist line-label app file arch soft initial-errhandler runtime-options display topolib
    localhost binding umask host-list node-list cc network pmi jobname
"""
MPI_VALUES = re.compile("|".join(map(re.escape, _MPI_VALUES.split())))
"""Options of mpirun that take a value."""

TORCHRUN_VALUES = re.compile(
    r"(nproc|rdzv|max|monitor|start|log|local|master|node|logs|signals)[-_]\w[\w-]*|nnodes|nproc|role|r|redirects|t|tee"
    r"|virtual[-_]local[-_]rank|event[-_]log[-_]handler|duplicate[-_]\w[\w-]*"
)
"""Options of torchrun that take a value."""

SRUN_VALUES = re.compile(
    "|".join(sorted(SBATCH_OPTIONS)) + r"|accel-bind|bcast|bcast-exclude|compress|cpu[-_]bind|epilog|het-group|mpi"
    r"|msg-timeout|pack-group|prolog|relative|slurmd-debug|task-epilog|task-prolog|threads|treewidth|immediate"
    r"|environment|[a-zA-Z]"
)
"""Options of srun that take a value (srun(1))."""

OTHER_PROGRAMS = "a colon separates several programs: write a job for each"

MPI_RANKS = {
    **dict.fromkeys(("n", "np", "c"), "ntasks"),
    **dict.fromkeys(("ppn", "perhost", "npernode", "N"), "ntasks-per-node"),
}
"""Options of mpirun for the number of ranks, in all and on each node -> srun's name."""

RANKS_ON_NODE = re.compile(r"ppr:(\d+):node\b")
"""Value of ``--map-by`` with the number of ranks on each node (Open MPI)."""

MPI_COUNTS = {"mca": 2, "gmca": 2, "genv": 2, "env": 2, "pmixmca": 2, "prtemca": 2}
"""Number of values of the options that take more than one."""


def read_srun(program: Program) -> None:
    """Read srun; its options of the shape are translated later."""
    options, count = split_options(program.texts[1:], flags=SRUN_FLAGS, short=SRUN_SHORT, line=program.line)
    program.is_start = program.is_step = True
    program.launcher = program.launcher or "srun"
    program.note_unknown_values(options, SRUN_VALUES)
    program.skip(1 + count)
    kept: list[Option] = []
    for option in options:
        match option.name:
            case "container-image":
                program.keys["image"] = pyxis_image(option.value)
            case "container-mounts":
                program.add("bind", *(mount for mount in option.value.split(",")))
            case "container-workdir":
                program.keys["workdir"] = option.value
            case "mpi":
                program.keys["mpi"] = option.value
                program.launcher = "mpi" if option.value.startswith(("pmi", "cray")) else program.launcher
            case "input" if not re.fullmatch(r"all|none|\d+|.*[%$].*", option.value):
                program.inputs = ((Part("text", option.value),),)
            case "multi-prog":
                program.obstacle = "the programs are in the file: write a job for each of its lines"
            case "pty":
                program.untranslated.append("--pty: an interactive step; use argosy launch --interactive")
            case _:
                kept.append(option)
    program.step_options = tuple(kept)


def read_mpirun(program: Program) -> None:
    """Read ``mpirun -np N``."""
    texts = program.texts
    program.is_start, program.launcher = True, "mpi"
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        name, given, value = texts[at].lstrip("-").partition("=")
        takes = 0 if given or name in MPI_FLAGS else MPI_COUNTS.get(name, 1)
        values = [value] if given else texts[at + 1 : at + 1 + takes]
        name, values = _mpi_synonym(name, values)
        if takes == 1:
            program.note_unknown_values([Option(program.line, name, " ".join(values))], MPI_VALUES)
        if name in MPI_RANKS and values:
            _read_ranks(program, name, values[0])
        elif remedy := _mpi_remedy(name, values):
            program.untranslated.append(f"{' '.join(texts[at : at + 1 + takes])}: {remedy}")
        elif name in {"x", "env"} and values and "=" in values[0]:
            key, _, value = values[0].partition("=")
            program.set_variable(key, value)
            takes = 1
        elif name in {"genv", "env"} and len(values) > 1:
            program.set_variable(*values)
        else:
            program.replaced.append(
                f"{' '.join(texts[at : at + 1 + takes])}: Argosy starts the MPI ranks on the nodes of the job"
            )
        at += 1 + takes
    program.skip(at)
    if ":" in program.texts:
        program.obstacle = OTHER_PROGRAMS


def _mpi_synonym(name: str, values: list[str]) -> tuple[str, list[str]]:
    """Return an option for the number of ranks on a node as ``npernode``; any other option as it is."""
    if name == "pernode":
        return "npernode", ["1"]
    if name in {"map-by", "map_by"} and (found := RANKS_ON_NODE.match(" ".join(values))):
        return "npernode", [found[1]]
    return name, values


def _mpi_remedy(name: str, values: list[str]) -> str:
    """Return what to do about an option that a job does not have; empty if Argosy does what it says."""
    if name in {"wdir", "wd"}:
        return "the folder of the program: set chdir"
    return "set ranks_per_node" if name == "npersocket" or " ".join(values).startswith("ppr:") else ""


def _read_ranks(program: Program, option: str, value: str) -> None:
    """Read a number of ranks; one that is not a plain number is translated like that of srun."""
    name = MPI_RANKS[option]
    count = parse_int(value)
    if count and name == "ntasks":
        program.processes = count
    else:
        program.step_options = (*program.step_options, Option(program.line, name, value))


def _read_options(program: Program, flags: frozenset[str], known: re.Pattern[str], *, words: int = 1) -> list[Option]:
    """Read a launcher that starts Python, for which torchrun is used instead; return the options that tell more.

    Parameters
    ----------
    known
        Names of the options that take a value.
    words
        Number of words before the options.
    """
    options, count = split_options(program.texts[words:], flags=flags, short={"m": "module"})
    program.is_start, program.launcher = True, "torchrun"
    program.note_unknown_values(options, known)
    program.skip(words + count)
    if not program.words:
        program.obstacle = program.obstacle or "no program follows its options"
    names = {option.name.replace("-", "_") for option in options}
    if "no_python" not in names:
        python = ("python", "-m") if "module" in names else ("python",)
        program.words = (*((Part("text", each),) for each in python), *program.words)
    return [option for option in options if option.name.replace("-", "_") not in {"module", "no_python"}]


def read_torchrun(program: Program) -> None:
    """Read torchrun; Argosy chooses the rendezvous."""
    for option in _read_options(program, TORCHRUN_FLAGS, TORCHRUN_VALUES):
        name = option.name.replace("_", "-")
        if name == "nproc-per-node":
            program.processes = parse_int(option.value)
            if not program.processes and not GPUS_OF_NODE.search(option.value):
                program.untranslated.append(
                    f"{option}: Argosy starts a rank for each GPU; to change it, set ranks_per_node"
                )
        elif RENDEZVOUS.match(option.name):
            program.replaced.append(f"{option}: Argosy chooses the rendezvous")
            program.nodes_option = option if name == "nnodes" else program.nodes_option
        elif "$" in option.value or "`" in option.value:
            program.untranslated.append(f"{option}: the job computes the value: write it into torchrun_arg")
        else:
            program.add("torchrun_arg", str(option))


def read_accelerate(program: Program) -> None:
    """Read ``accelerate launch``: the program runs under torchrun."""
    if program.texts[1:2] != ["launch"]:
        program.is_done = True
        return
    for option in _read_options(program, ACCELERATE_FLAGS, ACCELERATE_VALUES, words=2):
        if option.name in {"mixed_precision", "mixed-precision"}:
            program.set_variable("ACCELERATE_MIXED_PRECISION", option.value)
        elif option.name in {"cpu", "use_cpu", "use-cpu"}:
            program.set_variable("ACCELERATE_USE_CPU", "true")
        elif ACCELERATE_DONE.match(option.name):
            program.replaced.append(f"{option}: Argosy starts the ranks")
        else:
            program.untranslated.append(f"{option}: an option of accelerate launch; set it in your program")


def read_deepspeed(program: Program) -> None:
    """Read ``deepspeed``: the program runs under torchrun."""
    options = _read_options(program, DEEPSPEED_FLAGS, DEEPSPEED_VALUES)
    program.is_everywhere = any(option.name in {"num_nodes", "hostfile", "H"} for option in options)
    for option in options:
        if option.name in {"num_gpus", "num_accelerators"}:
            program.processes = parse_int(option.value)
        else:
            program.nodes_option = option if option.name == "num_nodes" else program.nodes_option
            program.replaced.append(f"{option}: Argosy starts the ranks")
