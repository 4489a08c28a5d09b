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
#   launcher = torchrun: a Python program, and the image has torch [image]
#   runtime = enroot: asked for [option]
#   layer = flat: the image has no layer of its own [image]
#   gpu = nv: 2 nvidia GPUs; enroot finds the driver [machine]
#   assumed = /project/images/train.sqsh: the image is not here: taken for one with torch, … [assumed]
#   assumed = home, folder: not this machine's: the job's own at nvidia-pyxis [assumed]
#   OMP_NUM_THREADS = cores / ranks: what Slurm gave on the node, shared by its ranks [site]
#   NVIDIA_VISIBLE_DEVICES = all: enroot's hook gives GPUs to a container only where it is set [site]
#   NVIDIA_DRIVER_CAPABILITIES = compute,utility: the hook's default is utility alone, without the … [site]
#   MELLANOX_VISIBLE_DEVICES = {infiniband}: all: enroot's hook gives InfiniBand devices to a … [site]
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

# Not inside: the host's software, its mounts.
unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH

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
call='# Start enroot; the arguments are those of enroot start. Variables of ranks, GPUs and the network are passed by name.
for name in $(env | sed -nE "s/^((PMI_|PMIX_|SLURM_|I_MPI_|FI_|CCL_|NCCL_|UCX_)[A-Za-z0-9_]*)=.*/\1/p
    s/^(CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|SLURMD_NODENAME|HOME|USER|LOGNAME)=.*/\1/p"); do
    set -- --env "$name" "$@"
done
# By default enroot starts a login shell, which reads the profile in the mounted home.
ENROOT_LOGIN_SHELL=no
export ENROOT_LOGIN_SHELL
exec enroot start "$@"'
inside='# In the container. Arguments: FOLDER, VARIABLES, --, then the command. It starts in the environment of the image.
cd -- "$1" || exit 125
shift
while [ "$1" != -- ]; do export "${1?}"; shift; done
shift
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
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
    sh -c "$node" argosy-node /project/images/train.sqsh enroot /dev/nvidiactl '' '' sh -c "$call" argosy-enroot \
        --mount /tmp:/tmp:none:x-create=auto,rbind --mount /var/tmp:/var/tmp:none:x-create=auto,rbind --mount \
        "$HOME:$HOME:none:x-create=auto,rbind" --mount "$PWD:$PWD:none:x-create=auto,rbind" --env \
        NVIDIA_VISIBLE_DEVICES=all --env NVIDIA_DRIVER_CAPABILITIES=compute,utility --env \
        "MELLANOX_VISIBLE_DEVICES=$(ls /sys/class/infiniband_mad /dev/infiniband/rdma_cm >/dev/null 2>&1 && echo all || echo void)" \
        -- /project/images/train.sqsh /bin/sh -c "$inside" argosy-inside "$PWD" "MASTER_ADDR=$MASTER_ADDR" \
        "MASTER_PORT=$MASTER_PORT" "OMP_NUM_THREADS=$((cores > ranks_per_node ? cores / ranks_per_node : 1))" -- \
        /bin/sh -c "$torchrun" argosy-torchrun "$nodes" "$ranks_per_node" train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2
exit "$code"
