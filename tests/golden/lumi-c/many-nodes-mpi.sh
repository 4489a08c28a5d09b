#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=128
#SBATCH --cpus-per-task=1
#SBATCH --account=project_1
#SBATCH --partition=small
#SBATCH --time=00:15:00
#SBATCH --mem=224G
#SBATCH --output=train-%j.out
# train: 256 rank(s) on 2 node(s), site lumi-c.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.
#
#   partition = small: the job uses parts of nodes; none was asked for [site lumi-c]
#   nodes = 2: asked for [option]
#   GPUs per node = 0: no GPU was asked for [default]
#   ranks per node = 128: asked for [option]
#   cores per rank = 1: asked for [option]
#   launcher = mpi: asked for [option]
#   runtime = singularity: the site's runtime; the site documents 4.1.3 [site lumi-c]
#   layer = flat: the image has no layer of its own [image]
#   gpu = none: SingularityCE comes with the system, without a module [site lumi-c]
#   assumed = /project/images/train.sif: the image is not here: taken for one with torch, without a layer [assumed]
#   assumed = home, folder: not this machine's: the job's own at lumi-c [assumed]
#   --mem = 224G: none was asked for; the site's own [site lumi-c]
#   OMP_NUM_THREADS = 1: the cores of a rank [default]
#   bind = /pfs, /scratch, /projappl, /project, /flash, /appl: the file systems; SingularityCE does not follow links
#       of bind sources [site lumi-c]
# shellcheck disable=SC2016,SC2317  # texts in single quotes are for other shells; traps call functions
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
# What Slurm gave, not what was asked for: sbatch --nodes=8 scales this script.
nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES}
ranks_per_node=128

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
export APPTAINERENV_OMP_NUM_THREADS=1 SINGULARITYENV_OMP_NUM_THREADS=1

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
rank='# One per rank: what PyTorch looks for, from what the MPI launcher told this process (PMIx, PMI-2, Open MPI, Slurm).
RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
NODE_RANK=${SLURM_NODEID:-0} LOCAL_WORLD_SIZE=$1
export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
shift
exec "$@"
'
# srun 22.05 and later does not take --cpus-per-task from the job: it is said again.
srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    --export=ALL --kill-on-bad-exit=1 --mpi=pmi2 \
    sh -c "$node" argosy-node /project/images/train.sif singularity '' '' '' singularity --quiet \
        exec --no-eval -B /pfs:/pfs -B /scratch:/scratch -B /projappl:/projappl -B /project:/project \
        -B /flash:/flash -B /appl:/appl /project/images/train.sif /bin/sh -c "$rank" argosy-rank \
        "$ranks_per_node" python train.py 50 10 &
step=$!

# wait also returns when a trap ran; srun is then still there.
while :; do
    code=0; wait "$step" || code=$?
    kill -0 "$step" 2>/dev/null || break
done
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
