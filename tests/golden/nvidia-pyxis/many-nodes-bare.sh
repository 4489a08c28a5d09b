#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --account=project_1
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
# train: 4 rank(s) on 2 node(s), site nvidia-pyxis.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   nodes = 2, GPUs per node = 2: asked for [option]
#   ranks per node = 2: one per GPU [default]
#   cores per rank = cores of the node / ranks: the profile does not say how many cores go with … [default]
#   launcher = torchrun: a Python program on several ranks; the image does not list packages [image]
#   runtime = bare: asked for [option]
#   layer = flat: the image has no layer of its own [image]
#   gpu = nv: 2 nvidia GPUs; bare finds the driver [machine]
#   OMP_NUM_THREADS = cores / ranks: what Slurm gave on the node, shared by its ranks [site]
# shellcheck disable=SC2016,SC2086,SC2317  # text for other shells, traps
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
[ "${SLURM_STEP_ID:-4294967290}" = 4294967290 ] || { unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE; export SLURM_OVERLAP=1; }  # in a step of srun
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=$SLURM_JOB_NUM_NODES gpus=${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-2}} ranks_per_node=${gpus##*:} cores=${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}
[ "$cores" -gt "$ranks_per_node" ] || echo "argosy: $cores core(s) of a node for $ranks_per_node rank(s): use --cpus-per-rank" >&2

# This shell stays, and passes signals on to the ranks.
step=''; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT HUP

# The rendezvous: the first host, node03 of node[03-07,9], and a free port there, below the ephemeral ones.
port='# A free port of the $2 after $1, from $3 on.
port=$3 left=$2
while [ "$left" -gt 0 ]; do
    busy=$(ss -Hltn "sport = :$port") || busy=$(grep -s ":$(printf %04X "$port") " /proc/net/tcp*) || :
    [ -n "$busy" ] || break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"'
list=${SLURM_JOB_NODELIST%%,*}[ n=${list#*\[}; first=${list%%\[*}${n%%[][x-]*}
set -- $((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31)) $(( (${SLURM_TASK_PID:-0} - $$) % 10000 + 10000 ))
MASTER_ADDR=${first}; set -- 20000 10000 $((20000 + ($1 + $2) % 10000))
if [ "${SLURMD_NODENAME:-}" = "$first" ]; then MASTER_PORT=$(eval "$port")
else MASTER_PORT=$(srun --overlap -N1 -n1 -w "$first" sh -c "$port" argosy-port "$@")  # as in salloc
fi || stop "no free port" 7


node='# On each node: words IMAGE RUNTIME GPU_NODE FOLDERS PATHS, then the command.  Another user may have made a folder.
stop() { printf "argosy: %s on %s\n" "$1" "$SLURMD_NODENAME" >&2; exit "$2"; }
[ -r "$1" ] || stop "the image $1 cannot be read" 6
command -v "$2" >/dev/null || stop "$2 is not installed" 4
[ -z "$3" ] || [ -e "$3" ] || stop "GPUs were asked for, and there is no $3" 7
own() { mkdir -m 700 "$1" 2>/dev/null || [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }
for folder in $4; do (umask 077; mkdir -p "${folder%/*}/"); own "$folder" || stop "$folder is not ours" 7; done
# The container sees the folder of PMIx, and what this node has of PATHS and TMPDIR.
binds=${PMIX_SERVER_TMPDIR:-}; for path in $5 ${TMPDIR:-}; do [ ! -e "$path" ] || binds=$binds${binds:+,}$path; done
[ -z "$binds" ] || export APPTAINER_BIND="$binds" SINGULARITY_BIND="$binds"
shift 5; exec "$@"'
step_in='# No container. Arguments: FOLDER PREFIX, then the command. Programs of PREFIX come first on PATH.
[ -z "$1" ] || cd -- "$1" || exit 125
if [ -n "$2" ]; then
    [ -x "$2/bin/python" ] || { printf "argosy: there is no %s/bin/python\n" "$2" >&2; exit 6; }
    unset PYTHONHOME
    PATH=$2/bin:$PATH
    if [ -e "$2/pyvenv.cfg" ]; then export PATH VIRTUAL_ENV="$2"; else export PATH CONDA_PREFIX="$2"; fi
fi
shift 2
exec "$@"'
torchrun='# One per node: words NODES RANKS_PER_NODE, then those of torchrun.  Rank r runs on node r / n of the list.
_nodes=$1 _per_node=$2; shift 2
if [ "$_nodes" -eq 1 ]; then set -- --standalone "$@"; else
    set -- --nnodes="$_nodes" --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
fi
# Else torchrun leaves a folder.
_logs=$(mktemp -d) && set -- --log-dir="$_logs" "$@"
# Not the program torchrun: that of a vendor base sees no packages of the layer.
python -m torch.distributed.run --nproc-per-node="$_per_node" "$@" & agent=$!
# USR1 and USR2 are for the workers, and would end torchrun.
pass() {
    workers=$(cat /proc/$agent/task/*/children); for pid in $workers; do kill -s "$1" "$pid"; done
} 2>/dev/null
trap "pass USR1" USR1; trap "pass USR2" USR2; trap "kill -s TERM \$agent 2>/dev/null" TERM INT
# A trap ends wait, and not torchrun.
while code=0; wait $agent || code=$?; do kill -0 $agent 2>/dev/null || { rm -rf "$_logs"; exit $code; }; done'
# srun takes no --cpus-per-task from the job.
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --distribution=block --export=ALL --kill-on-bad-exit=1 \
    --cpus-per-task="$cores" \
    sh -c "$node" argosy-node /project/venv env /dev/nvidiactl '' '' env "MASTER_ADDR=$MASTER_ADDR" \
        "MASTER_PORT=$MASTER_PORT" "OMP_NUM_THREADS=$((cores > ranks_per_node ? cores / ranks_per_node : 1))" sh \
        -c "$step_in" argosy-bare '' /project/venv /bin/sh -c "$torchrun" argosy-torchrun "$nodes" \
        "$ranks_per_node" train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2
exit "$code"
