#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --gpus-per-node=8
#SBATCH --account=project_1
#SBATCH --partition=standard-g
#SBATCH --time=00:15:00
#SBATCH --mem-per-gpu=60G
#SBATCH --output=train-%j.out
# train: 16 rank(s) on 2 node(s), site lumi-g.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.
#
#   mode = cray: images without a libfabric of their own take the host's: what the module singularity-CPEbits binds
#       [site lumi-g]
#   partition = standard-g: the job uses whole nodes; none was asked for [site lumi-g]
#   nodes = 2: asked for [option]
#   GPUs per node = 8: asked for [option]
#   ranks per node = 8: one per GPU [default]
#   cores per rank = 7: those nearest to a GPU, by the site's map [default]
#   cores of each rank = 49-55 57-63 17-23 25-31 1-7 9-15 33-39 41-47: those nearest to its GPU, on whole nodes
#       [site lumi-g]
#   launcher = torchrun: a Python program, and the image has torch [image]
#   runtime = singularity: the site's runtime; the site documents 4.1.3 [site lumi-g]
#   layer = flat: the image has no layer of its own [image]
#   gpu = none: SingularityCE comes with the system, without a module; --rocm does not fully work and no official
#       example uses it: the devices come in with /dev [site lumi-g]
#   assumed = /project/images/train.sif: the image is not here: taken for one with torch, without a layer [assumed]
#   assumed = home, folder: not this machine's: the job's own at lumi-g [assumed]
#   --mem-per-gpu = 60G: none was asked for; the site's own [site lumi-g]
#   OMP_NUM_THREADS = 7: the cores of a rank [default]
#   NCCL_SOCKET_IFNAME = hsn0,hsn1,hsn2,hsn3: without it RCCL may choose an interface that is not Slingshot's [site
#       lumi-g]
#   CXI_FORK_SAFE = 1: data loader workers that are forked would break CXI's pinned memory [site lumi-g]
#   CXI_FORK_SAFE_HP = 1: the same for huge pages [site lumi-g]
#   FI_CXI_DISABLE_CQ_HUGETLB = 1: completion queues out of huge pages do not survive a fork [site lumi-g]
#   MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR = /tmp/{user}-miopen-{job}: MIOpen keeps an SQLite file, whose
#       locks fail on Lustre when several nodes share it; each node has its own folder [site lumi-g]
#   bind = /pfs, /scratch, /projappl, /project, /flash, /appl: the file systems; /scratch and the others are links
#       into /pfs, and SingularityCE does not follow links of bind sources [site lumi-g]
#   bind = /var/spool/slurmd: libfabric and MPI find the job's Slingshot credentials there [site lumi-g]
#   bind = /opt/cray, /usr/lib64/libcxi.so.1: HPE's libfabric and CXI library, which images may not contain [site
#       lumi-g]
#   NCCL_NET_GDR_LEVEL = not set: only for nodes > 1 and rocm < 6.2, and rocm is not known here [site lumi-g]
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
export APPTAINERENV_CXI_FORK_SAFE=1 SINGULARITYENV_CXI_FORK_SAFE=1
export APPTAINERENV_CXI_FORK_SAFE_HP=1 SINGULARITYENV_CXI_FORK_SAFE_HP=1
export APPTAINERENV_FI_CXI_DISABLE_CQ_HUGETLB=1 SINGULARITYENV_FI_CXI_DISABLE_CQ_HUGETLB=1
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
torchrun='# One per node: words NODES RANKS_PER_NODE, then what torchrun is to start.
# Slurm says which node this is, so rank r runs on node r / n of the node list, whatever the host names are.
nodes=$1 per_node=$2; shift 2
if [ "$nodes" -gt 1 ]; then
    set -- --nnodes="$nodes" --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
else
    set -- --standalone "$@"
fi
# Not the program torchrun: a vendor base has its own, which does not see the packages of the layer.
python -m torch.distributed.run --nproc-per-node="$per_node" "$@" &
agent=$!
# torchrun ends at a signal that its workers wait for: pass USR1 and USR2 to the workers, and the rest to torchrun.
to_workers() {
    workers=$(cat /proc/$agent/task/*/children 2>/dev/null)
    for pid in $workers; do kill -s "$1" "$pid" 2>/dev/null || :; done
}
to_agent() { kill -s TERM "$agent" 2>/dev/null || :; }
trap "to_workers USR1" USR1; trap "to_workers USR2" USR2; trap to_agent TERM INT
# wait also returns when a trap ran; torchrun is then still there.
while :; do
    code=0; wait $agent || code=$?
    kill -0 $agent 2>/dev/null || exit $code
done
'
bind='# One per worker: bind it to the cores nearest to its GPU.  The first word holds a list of cores for each local rank.
lists=$1 number=0
shift
IFS=";"
for cores in $lists; do
    if [ "$number" -eq "$LOCAL_RANK" ] && command -v taskset >/dev/null; then
        unset IFS
        exec taskset -c "$cores" "$@"
    fi
    number=$((number + 1))
done
unset IFS
exec "$@"
'
# srun 22.05 and later does not take --cpus-per-task from the job: it is said again.
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --distribution=block \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-56}" \
    --export=ALL --kill-on-bad-exit=1 \
    sh -c "$node" argosy-node /project/images/train.sif singularity /dev/kfd \
        "/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" '' singularity --quiet exec --no-eval \
        -B /pfs:/pfs -B /scratch:/scratch -B /projappl:/projappl -B /project:/project -B \
        /flash:/flash -B /appl:/appl -B /var/spool/slurmd:/var/spool/slurmd -B /opt/cray:/opt/cray \
        -B /usr/lib64/libcxi.so.1:/usr/lib64/libcxi.so.1 /project/images/train.sif /bin/sh -c \
        "$torchrun" argosy-torchrun "$nodes" "$ranks_per_node" --no-python /bin/sh -c "$bind" \
        argosy-bind '49-55;57-63;17-23;25-31;1-7;9-15;33-39;41-47' python -u train.py 50 10 &
step=$!

# wait also returns when a trap ran; srun is then still there.
while :; do
    code=0; wait "$step" || code=$?
    kill -0 "$step" 2>/dev/null || break
done
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
