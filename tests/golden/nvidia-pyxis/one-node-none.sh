#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --account=project_1
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
# train: 2 rank(s) on 1 node(s), site nvidia-pyxis.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   nodes = 1: nothing else was asked for [default]
#   GPUs per node = 0: no GPU was asked for [default]
#   ranks per node = 2: asked for [option]
#   cores per rank = 1: Slurm's own default; ask for more with --cpus-per-rank [default]
#   launcher = none: asked for [option]
#   runtime = pyxis: the site's runtime [site]
#   layer = flat: the image has no layer of its own [image]
#   gpu = none: no GPU is seen here [machine]
#   assumed = /project/images/train.sqsh: the image is not here: taken for one with torch, … [assumed]
#   assumed = home, folder: not this machine's: the job's own at nvidia-pyxis [assumed]
#   OMP_NUM_THREADS = 1: the cores of a rank [default]
# shellcheck disable=SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES} ranks_per_node=2
has=${SLURM_JOB_CPUS_PER_NODE:-999} need=$((ranks_per_node * ${SLURM_CPUS_PER_TASK:-1}))  # an allocation made by hand may have too few cores
[ "${has%%[!0-9]*}" -ge "$need" ] || stop "$has cores on a node, $need are needed" 2

# This shell stays, and passes signals on to the ranks.
step=''; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT
trap 'rmdir "/tmp/argosy-port-${MASTER_PORT:-}" 2>/dev/null || :' EXIT

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
# Since 22.05 srun does not take --cpus-per-task from the job.
env "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT" OMP_NUM_THREADS=1 \
    srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block --export=ALL --kill-on-bad-exit=1 \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    --container-image=/project/images/train.sqsh "--container-mounts=$PWD:$PWD" "--container-workdir=$PWD" \
    --container-mount-home --no-container-remap-root --no-container-entrypoint --container-readonly \
    --container-env=MASTER_ADDR,MASTER_PORT,OMP_NUM_THREADS \
    /bin/sh -c "$inside" argosy-inside '' '' python train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
