#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --account=project_1
#SBATCH --partition=batch
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
#SBATCH --network=disable_rdzv_get
# train: 16 rank(s) on 2 node(s), site frontier.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.
#
#   partition = batch: the job uses whole nodes; none was asked for [site frontier]
#   nodes = 2: asked for [option]
#   GPUs per node = 8: asked for [option]
#   ranks per node = 8: one per GPU [default]
#   cores per rank = 7: the site's 7 cores per GPU [default]
#   launcher = srun: torchrun lacks the mapping of tasks to NUMA nodes, and starts slowly there [site frontier]
#   runtime = apptainer: the site's runtime; the site documents 1.3.6 [site frontier]
#   layer = flat: the image has no layer of its own [image]
#   gpu = rocm: --rocm is required for AMD GPUs there [site frontier]
#   assumed = /project/images/train.sif: the image is not here: taken for one with torch, without a layer [assumed]
#   assumed = home, folder: not this machine's: the job's own at frontier [assumed]
#   OMP_NUM_THREADS = 7: the cores of a rank [default]
#   NCCL_SOCKET_IFNAME = hsn0,hsn1,hsn2,hsn3: Slingshot's interfaces; where a job hangs, hsn0 alone [site frontier]
#   NCCL_CROSS_NIC = 1: the site's recommended value [site frontier]
#   HSA_FORCE_FINE_GRAIN_PCIE = 1: the site's recommended value [site frontier]
#   FI_MR_CACHE_MONITOR = kdreg2: memhooks can deadlock with the plugin [site frontier]
#   FI_CXI_DISABLE_HOST_REGISTER = 1: the site's recommended value [site frontier]
#   FI_CXI_DEFAULT_CQ_SIZE = 131072: the site's recommended value [site frontier]
#   FI_CXI_DEFAULT_TX_SIZE = 2048: the site's recommended value [site frontier]
#   FI_CXI_RDZV_PROTO = alt_read: goes with --network=disable_rdzv_get [site frontier]
#   FI_CXI_RDZV_EAGER_SIZE = 0: the site's recommended value [site frontier]
#   FI_CXI_RDZV_THRESHOLD = 0: the site's recommended value [site frontier]
#   FI_CXI_RDZV_GET_MIN = 0: the site's recommended value [site frontier]
#   FI_CXI_RX_MATCH_MODE = hybrid: the site's recommended value [site frontier]
#   MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR = /tmp/{user}-miopen-{job}: MIOpen's database is kept off the
#       shared file system; each node has its own folder [site frontier]
#   bind = /usr/share/libdrm, /var/spool/slurmd, /opt/cray, /usr/lib64/libcxi.so.1: HPE's libfabric and the job's
#       Slingshot credentials [site frontier]
#   sbatch = --network=disable_rdzv_get: goes with FI_CXI_RDZV_PROTO=alt_read [site frontier]
#   srun = --gpus-per-task=1: the documented form here [site frontier]
#   srun = --gpu-bind=closest: the documented form here [site frontier]
#   NCCL_NET_GDR_LEVEL = not set: only for nodes > 1 and rocm < 7, and rocm is not known here [site frontier]
# shellcheck disable=SC2016,SC2317  # texts in single quotes are for other shells; traps call functions
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
# What Slurm gave, not what was asked for: sbatch --nodes=8 scales this script.
nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES}
ranks_per_node=${SLURM_GPUS_ON_NODE:-8}

# This shell stays, and passes signals on to the ranks.
step=''
pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT
trap 'rmdir "/tmp/argosy-port-${MASTER_PORT:-}" 2>/dev/null || :' EXIT

# The rendezvous: the first host of the node list, and a port below the ephemeral range that is free there.
port='# Print a port from $1 to $1 + $2 - 1, from $3 on, that no process has here and no other launch took lately.
port=$3 left=$2
while [ "$left" -gt 0 ]; do
    # A folder can be made once, also by two launches at the same moment; an old one is of a launch that was killed.
    taken=/tmp/argosy-port-$port
    [ ! -d "$taken" ] || find "$taken" -maxdepth 0 -mmin +10 -exec rmdir {} +
    ! grep -qs ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 &&
        { mkdir "$taken" || [ ! -d "$taken" ]; } && break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"
'
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${hosts%%[!A-Za-z0-9_.-]*}
MASTER_ADDR=$first
# A batch job's shell runs on that host; that of salloc may not.
there="srun --overlap --nodes=1 --ntasks=1 --nodelist=$first"
[ "${SLURMD_NODENAME:-}" != "$first" ] || there=
wish=$((20000 + (SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31) % 10000))
# shellcheck disable=SC2086  # words, meant to be split
MASTER_PORT=$($there sh -c "$port" argosy-port 20000 10000 "$wish") || stop "no free port" 7

# These would load the host's software inside, or change the container behind this script's back.
unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
# Forced into the container by name, since an image's own value beats a plain export.
export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" SINGULARITYENV_MASTER_ADDR="$MASTER_ADDR"
export APPTAINERENV_MASTER_PORT="$MASTER_PORT" SINGULARITYENV_MASTER_PORT="$MASTER_PORT"
export APPTAINERENV_OMP_NUM_THREADS=7 SINGULARITYENV_OMP_NUM_THREADS=7
export APPTAINERENV_NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3 SINGULARITYENV_NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export APPTAINERENV_NCCL_CROSS_NIC=1 SINGULARITYENV_NCCL_CROSS_NIC=1
export APPTAINERENV_HSA_FORCE_FINE_GRAIN_PCIE=1 SINGULARITYENV_HSA_FORCE_FINE_GRAIN_PCIE=1
export APPTAINERENV_FI_MR_CACHE_MONITOR=kdreg2 SINGULARITYENV_FI_MR_CACHE_MONITOR=kdreg2
export APPTAINERENV_FI_CXI_DISABLE_HOST_REGISTER=1 SINGULARITYENV_FI_CXI_DISABLE_HOST_REGISTER=1
export APPTAINERENV_FI_CXI_DEFAULT_CQ_SIZE=131072 SINGULARITYENV_FI_CXI_DEFAULT_CQ_SIZE=131072
export APPTAINERENV_FI_CXI_DEFAULT_TX_SIZE=2048 SINGULARITYENV_FI_CXI_DEFAULT_TX_SIZE=2048
export APPTAINERENV_FI_CXI_RDZV_PROTO=alt_read SINGULARITYENV_FI_CXI_RDZV_PROTO=alt_read
export APPTAINERENV_FI_CXI_RDZV_EAGER_SIZE=0 SINGULARITYENV_FI_CXI_RDZV_EAGER_SIZE=0
export APPTAINERENV_FI_CXI_RDZV_THRESHOLD=0 SINGULARITYENV_FI_CXI_RDZV_THRESHOLD=0
export APPTAINERENV_FI_CXI_RDZV_GET_MIN=0 SINGULARITYENV_FI_CXI_RDZV_GET_MIN=0
export APPTAINERENV_FI_CXI_RX_MATCH_MODE=hybrid SINGULARITYENV_FI_CXI_RX_MATCH_MODE=hybrid
export APPTAINERENV_MIOPEN_USER_DB_PATH="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" SINGULARITYENV_MIOPEN_USER_DB_PATH="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"
export APPTAINERENV_MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" SINGULARITYENV_MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"

node='# On each node, outside the container: words IMAGE RUNTIME GPU_NODE FOLDERS PATHS, then the command.
stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -r "$1" ] || stop "the image $1 cannot be read on $SLURMD_NODENAME" 6
command -v "$2" >/dev/null || stop "$2 is not installed on $SLURMD_NODENAME" 4
[ -z "$3" ] || [ -e "$3" ] || stop "GPUs were asked for, and $SLURMD_NODENAME has no $3" 7
for folder in $4; do (umask 077; mkdir -p "$folder") || stop "$folder cannot be made on $SLURMD_NODENAME" 7; done
# PMIx keeps its files in a folder of slurmd that the container must see; PATHS are bound where this node has them.
binds=${PMIX_SERVER_TMPDIR:-}
for path in $5; do [ ! -e "$path" ] || binds=$binds${binds:+,}$path; done
[ -z "$binds" ] || export APPTAINER_BIND="$binds" SINGULARITY_BIND="$binds"
shift 5; exec "$@"
'
rank='# One per rank: what PyTorch, Lightning, Accelerate and DeepSpeed look for, from what Slurm told this task.
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" NODE_RANK="$SLURM_NODEID"
export LOCAL_WORLD_SIZE="$1" GROUP_RANK="$SLURM_NODEID"
shift
exec "$@"
'
# srun 22.05 and later does not take --cpus-per-task from the job: it is said again.
srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-7}" \
    --gpus-per-task=1 --gpu-bind=closest \
    --export=ALL --kill-on-bad-exit=1 \
    sh -c "$node" argosy-node /project/images/train.sif apptainer /dev/kfd \
        "/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" '' apptainer --quiet exec --no-eval \
        --rocm -B /usr/share/libdrm:/usr/share/libdrm -B /var/spool/slurmd:/var/spool/slurmd -B \
        /opt/cray:/opt/cray -B /usr/lib64/libcxi.so.1:/usr/lib64/libcxi.so.1 \
        /project/images/train.sif /bin/sh -c "$rank" argosy-rank "$ranks_per_node" python train.py \
        50 10 &
step=$!

# wait also returns when a trap ran; srun is then still there.
while :; do
    code=0; wait "$step" || code=$?
    kill -0 "$step" 2>/dev/null || break
done
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
