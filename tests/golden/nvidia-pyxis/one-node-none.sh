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
#   gpu = none: the job has no GPUs [default]
#   assumed = /project/images/train.sqsh: the image is not here: taken for one with torch, … [assumed]
#   assumed = home, folder: not this machine's: the job's own at nvidia-pyxis [assumed]
#   OMP_NUM_THREADS = 1: the cores of a rank, planned: 1 [default]
# shellcheck disable=SC2016,SC2086,SC2317  # text for other shells, traps
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
[ "${SLURM_STEP_ID:-4294967290}" = 4294967290 ] || { unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE; export SLURM_OVERLAP=1; }  # in a step of srun
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=$SLURM_JOB_NUM_NODES ranks_per_node=2
has=${SLURM_JOB_CPUS_PER_NODE:-999} need=$((ranks_per_node * ${SLURM_CPUS_PER_TASK:-1}))
[ "${has%%[!0-9]*}" -ge "$need" ] || stop "$has cores on a node, $need are needed" 2

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

inside='# In each container: words GPU_NODE FOLDERS, then the command.
stop() { printf "argosy: %s\n" "$1" >&2; exit 7; }
[ -z "$1" ] || [ -e "$1" ] || stop "GPUs were asked for, and the container on $SLURMD_NODENAME has no $1"
# Another user may have made a folder of that name: only one of our own is good.
own() { mkdir -m 700 "$1" 2>/dev/null || [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }
for _folder in $2; do
    (umask 077; mkdir -p "${_folder%/*}/")
    own "$_folder" || stop "$_folder cannot be made in the container, or is not our own folder"
done
shift 2
[ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
exec "$@"'
# srun takes no --cpus-per-task from the job.
env "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT" \
    "OMP_NUM_THREADS=$((need > ranks_per_node ? need / ranks_per_node : 1))" ENROOT_LOGIN_SHELL=no \
    srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block --export=ALL --kill-on-bad-exit=1 \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    --container-image=/project/images/train.sqsh "--container-mounts=/tmp:/tmp,/var/tmp:/var/tmp,$PWD:$PWD" \
    "--container-workdir=$PWD" --container-mount-home --no-container-remap-root --no-container-entrypoint \
    --container-readonly --container-env=MASTER_ADDR,MASTER_PORT,OMP_NUM_THREADS \
    /bin/sh -c "$inside" argosy-inside '' '' python train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2
exit "$code"
