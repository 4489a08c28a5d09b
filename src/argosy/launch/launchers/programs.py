"""The small sh programs that start ranks inside a container; text only, written without single quotes."""

from __future__ import annotations

from argosy.core.shell import ShellFunction

_START_TORCHRUN = """\
# Else torchrun leaves a folder.
_logs=$(mktemp -d) && set -- --log-dir="$_logs" "$@"
# Not the program torchrun: that of a vendor base sees no packages of the layer.
python -m torch.distributed.run --nproc-per-node="$_per_node" "$@" & agent=$!
# USR1 and USR2 are for the workers, and would end torchrun.
pass() {
    workers=$(cat /proc/$agent/task/*/children); for pid in $workers; do kill -s "$1" "$pid"; done
} 2>/dev/null
trap "pass USR1" USR1; trap "pass USR2" USR2; trap "kill -s TERM \\$agent 2>/dev/null" TERM INT
# A trap ends wait, and not torchrun.
while code=0; wait $agent || code=$?; do kill -0 $agent 2>/dev/null || { rm -rf "$_logs"; exit $code; }; done
"""

TORCHRUN = ShellFunction(
    "torchrun",
    """\
# One per node: words NODES RANKS_PER_NODE, then those of torchrun.  Rank r runs on node r / n of the list.
_nodes=$1 _per_node=$2; shift 2
if [ "$_nodes" -eq 1 ]; then set -- --standalone "$@"; else
    set -- --nnodes="$_nodes" --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
fi
"""
    + _START_TORCHRUN,
)

ELASTIC = ShellFunction(
    "torchrun",
    """\
# One per node: words MIN:MAX RANKS_PER_NODE WELL, then what torchrun is to start.  Nodes may be lost and come back,
# down to MIN of them; ranks are then numbered anew, so rank 0 may be on any node.  Who ends well leaves a file WELL-….
_nodes=$1 _per_node=$2 _well=${3:+$3-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$SLURM_NODEID}; shift 3
note() { code=$?; [ "$code" -ne 0 ] || [ ! -d "${_well%/*}" ] || : > "$_well"; exit "$code"; }
trap note EXIT
set -- --nnodes="$_nodes" --max-restarts=3 --rdzv-id="$SLURM_JOB_ID.$SLURM_STEP_ID.${SLURM_RESTART_COUNT:-0}" "$@"
set -- --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --local-addr="$SLURMD_NODENAME" "$@"
set -- --rdzv-conf="is_host=$((SLURM_NODEID == 0))" "$@"
"""
    + _START_TORCHRUN,
)

RANK = ShellFunction(
    "rank",
    """\
# One per rank: what PyTorch, Lightning, Accelerate, DeepSpeed and JAX look for, from what Slurm told this task.
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" NODE_RANK="$SLURM_NODEID"
export LOCAL_WORLD_SIZE="$1" GROUP_RANK="$SLURM_NODEID"
# JAX would take an ephemeral port by the number of the job, which somebody may hold already.
export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:$MASTER_PORT}"
shift
""",
)
"""It becomes what follows by `BECOME`, or by `NOTE`."""

COPY = ShellFunction(
    "copy",
    """\
# One per copy on this machine: words RANK RANKS, then the command.
export RANK="$1" LOCAL_RANK="$1" WORLD_SIZE="$2" LOCAL_WORLD_SIZE="$2"
shift 2
case $1 in
    */*) ;;
    *) command -v "$1" >/dev/null || { echo "argosy: $1: not found in the container" >&2; exit 127; } ;;
esac
exec "$@"
""",
)

MPI_RANK = ShellFunction(
    "rank",
    """\
# One per rank: what PyTorch looks for, from what the MPI launcher told this process (PMIx, PMI-2, Open MPI, Slurm).
RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
LOCAL_WORLD_SIZE=$1 NODE_RANK=$((RANK / $1))
export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
# Ranks in user namespaces of their own may open no files of others in /proc, nor read their memory.
export UCX_POSIX_USE_PROC_LINK="${UCX_POSIX_USE_PROC_LINK:-n}"
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
shift
""",
)
"""Likewise."""

BECOME = 'exec "$@"\n'

TELL = '[ ! -r "$0" ] || . "$0"; exec "$@"'
"""A rank notes what it was given, where the record is still there, and becomes its program."""

NOTE = f"# Its first word notes what it was given, where the record is still there.\n{TELL}\n"

BIND = ShellFunction(
    "bind",
    """\
# One per worker: bind it to the cores nearest to its GPU; the first word lists them for each local rank.
_cores="$1;" _n=$LOCAL_RANK; shift
while [ "$_n" -gt 0 ]; do _cores=${_cores#*;} _n=$((_n - 1)); done; _cores=${_cores%%;*}
[ -z "$_cores" ] || ! command -v taskset >/dev/null || exec taskset -c "$_cores" "$@"
exec "$@"
""",
)

LOG = ShellFunction(
    "log",
    """\
# One per rank: what it prints goes to a file of its own, in a folder of this job within the first word.
_logs=$1/${SLURM_JOB_ID:-here}
shift
mkdir -p "$_logs" && exec "$@" > "$_logs/rank-${RANK:-${SLURM_PROCID:-0}}.log" 2>&1
""",
)
