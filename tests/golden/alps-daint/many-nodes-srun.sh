#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
#SBATCH --account=project_1
#SBATCH --partition=normal
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
# train: 8 rank(s) on 2 node(s), site alps-daint.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   partition = normal: the job uses whole nodes; none was asked for [site]
#   nodes = 2, GPUs per node = 4: asked for [option]
#   ranks per node = 4: one per GPU [default]
#   cores per rank = 72: those nearest to a GPU, by the site's map [default]
#   cores of each rank = 0-71 72-143 144-215 216-287: those nearest to its GPU, on whole nodes [site]
#   launcher = srun: asked for [option]
#   runtime = edf: the site's runtime; the site documents 26.07.1 [site]
#   layer = flat: the image has no layer of its own [image]
#   gpu = nv: 4 nvidia GPUs; edf finds the driver [machine]
#   OMP_NUM_THREADS = 72: the cores of a rank [default]
#   PMIX_MCA_psec = ^munge: PMIx inside the image has no munge [site]
#   MPICH_GPU_SUPPORT_ENABLED = 0: GPU-aware MPI beside NCCL can deadlock [site]
#   annotation = com.hooks.aws_ofi_nccl.enabled=true: brings the network plug-in of NCCL for … [site]
#   annotation = com.hooks.aws_ofi_nccl.variant=cuda-dl: the plug-in for NVIDIA's own images; where … [site]
# shellcheck disable=SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES} ranks_per_node=${SLURM_GPUS_ON_NODE:-4}
has=${SLURM_JOB_CPUS_PER_NODE:-999} need=$((ranks_per_node * ${SLURM_CPUS_PER_TASK:-72}))  # an allocation made by hand may have too few cores
[ "${has%%[!0-9]*}" -ge "$need" ] || stop "$has cores on a node, $need are needed" 2

# This shell stays, and passes signals on to the ranks.
step=''; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT
trap 'rmdir "/tmp/argosy-port-${MASTER_PORT:-}" 2>/dev/null || :; rm -f "${environment:-}"' EXIT

# The rendezvous: the list's first host, and a free port there, below the ephemeral range.
port='# A free port of the $2 after $1, from $3 on; a folder keeps it from others, until old.
port=$3 left=$2
while taken=/tmp/argosy-port-$port; [ "$left" -gt 0 ]; do
    [ ! -d "$taken" ] || find "$taken" -maxdepth 0 -mmin +10 -exec rmdir {} +
    busy=$(ss -Hltn "sport = :$port") || busy=$(grep -s ":$(printf %04X "$port") " /proc/net/tcp*)
    [ -z "$busy" ] && { mkdir "$taken" || [ ! -d "$taken" ]; } && break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"'
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST"); first=${hosts%%[!A-Za-z0-9_.-]*}
MASTER_ADDR=$first
# A batch job's shell runs on that host; that of salloc may not.
there="srun --overlap --nodes=1 --ntasks=1 --nodelist=$first"
[ "${SLURMD_NODENAME:-}" != "$first" ] || there=
wish=$((20000 + (SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31) % 10000))
MASTER_PORT=$($there sh -c "$port" argosy-port 20000 10000 $wish) || stop "no free port" 7

# These would load the host's software inside, or change the container.
unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH

inside='# In each container: words GPU_NODE FOLDERS, then the command.
stop() { printf "argosy: %s\n" "$1" >&2; exit 7; }
[ -z "$1" ] || [ -e "$1" ] || stop "GPUs were asked for, and the container on $SLURMD_NODENAME has no $1"
for folder in $2; do (umask 077; mkdir -p "$folder") || stop "$folder cannot be made in the container"; done
shift 2
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"'
rank='# One per rank: what PyTorch, Lightning, Accelerate, DeepSpeed and JAX look for, from what Slurm told this task.
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" NODE_RANK="$SLURM_NODEID"
export LOCAL_WORLD_SIZE="$1" GROUP_RANK="$SLURM_NODEID"
# JAX would take an ephemeral port by the number of the job, which somebody may hold already.
export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:$MASTER_PORT}"
shift
exec "$@"'
# The environment definition file of this job, in the folder where srun looks for such files.
environment=$HOME/.edf/argosy-$SLURM_JOB_ID-$$.toml
mkdir -p "$HOME/.edf"
printf "%s\n" \
    'image = "nvcr.io#nvidia/pytorch:24.03-py3"' \
    "mounts = [\"$HOME:$HOME\", \"$PWD:$PWD\"]" \
    "workdir = \"$PWD\"" \
    'entrypoint = false' \
    'writable = false' \
    '[env]' \
    "MASTER_ADDR = \"$MASTER_ADDR\"" \
    "MASTER_PORT = \"$MASTER_PORT\"" \
    'OMP_NUM_THREADS = "72"' \
    'PMIX_MCA_psec = "^munge"' \
    'MPICH_GPU_SUPPORT_ENABLED = "0"' \
    '[annotations]' \
    'com.hooks.aws_ofi_nccl.enabled = "true"' \
    'com.hooks.aws_ofi_nccl.variant = "cuda-dl"' \
    > "$environment"
unset SRUN_CPUS_PER_TASK
srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block --export=ALL --kill-on-bad-exit=1 \
    --cpu-bind=mask_cpu:0xffffffffffffffffff,0xffffffffffffffffff000000000000000000,0xffffffffffffffffff000000000000000000000000000000000000,0xffffffffffffffffff000000000000000000000000000000000000000000000000000000 \
    "--environment=$environment" \
    /bin/sh -c "$inside" argosy-inside /dev/nvidiactl '' /bin/sh -c "$rank" argosy-rank "$ranks_per_node" python \
        train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
