#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --output=/home/alice/train-%j.out
# train: 4 rank(s) on 2 node(s), site lab.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   nodes = 2: asked for [option]
#   GPUs per node = 0: no GPU was asked for [default]
#   ranks per node = 2, cores per rank = 2, launcher = srun: asked for [option]
#   runtime = apptainer: found on PATH [machine]
#   layer = overlay: the image's overlay partition is mounted over its base [machine]
#   gpu = none: the job has no GPUs [default]
#   stage-to = /local: asked for; the profile does not tell what disk that is; the image is … [option]
# shellcheck disable=SC2016,SC2086,SC2317  # text for other shells, traps
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
[ "${SLURM_STEP_ID:-4294967290}" = 4294967290 ] || { unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE; export SLURM_OVERLAP=1; }  # in a step of srun
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=$SLURM_JOB_NUM_NODES ranks_per_node=2
has=${SLURM_JOB_CPUS_PER_NODE:-999} need=$((ranks_per_node * ${SLURM_CPUS_PER_TASK:-2}))
[ "${has%%[!0-9]*}" -ge "$need" ] || stop "$has cores on a node, $need are needed" 2

# This shell stays, and passes signals on to the ranks.
step='' image=''; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT HUP
trap '[ -z "$image" ] || $each rm -rf "${image%/*}" || :' EXIT
# A smoke run: what still runs after 120 s works, and is ended.
enough=''; trap 'enough=yes; pass TERM' ALRM
(sleep 120; kill -s ALRM $$) >/dev/null 2>&1 & timer=$!

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

# Forced by name: an image's own value beats a plain export.
export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" APPTAINERENV_MASTER_PORT="$MASTER_PORT"
# the cores of a rank, planned: 2 [default]
export APPTAINERENV_OMP_NUM_THREADS="$((need > ranks_per_node ? need / ranks_per_node : 1))"

# The image on the own disk of each node, for this job; what a killed job left there goes first.
each="srun --overlap --nodes=$nodes --ntasks=$nodes --ntasks-per-node=1 --mpi=none"
$each sh -c 'find "$1" -maxdepth 1 -type d -user "$(id -u)" -name "argosy-stage-*" -mtime +3 -exec rm -rf {} +' argosy-sweep /local || :
# A name that nobody can guess, and a folder that must be new: others may write to that disk, too.
image=/local/argosy-stage-$SLURM_JOB_ID-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')/0.sif
$each mkdir -m 700 "${image%/*}" || stop "the new folder ${image%/*} cannot be made on every node" 7
sbcast /shared/train.sif "$image" || stop "the image cannot be copied to $image on every node" 7

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
rank='# The environment of the image.
[ -r /opt/argosy/env.sh ] || { printf "%s\n" "argosy: the runtime did not attach the layer of /shared/train.sif, so nothing was started
  -> unset APPTAINER_UNDERLAY and APPTAINER_UNSQUASH, ask for enable overlay = yes in apptainer.conf, or build the image with --flatten" >&2; exit 6; }
. /opt/argosy/env.sh
# One per rank: what PyTorch, Lightning, Accelerate, DeepSpeed and JAX look for, from what Slurm told this task.
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" NODE_RANK="$SLURM_NODEID"
export LOCAL_WORLD_SIZE="$1" GROUP_RANK="$SLURM_NODEID"
# JAX would take an ephemeral port by the number of the job, which somebody may hold already.
export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:$MASTER_PORT}"
shift
exec "$@"'
enter='[ -x /opt/argosy/enter ] || { printf "%s\n" "$1" >&2; exit 6; }; shift; . /opt/argosy/enter'
# Once per start of the job, on its first node and in the image, before the ranks start.
srun --nodes=1 --ntasks=1 --nodelist="$first" --mpi=none \
    sh -c "$node" argosy-node "$image" apptainer '' '' '' apptainer --quiet exec --no-eval -B /home/alice --pwd \
        /home/alice "$image" /bin/sh -c "$enter" argosy \
        'argosy: the runtime did not attach the layer of /shared/train.sif, so nothing was started
  -> unset APPTAINER_UNDERLAY and APPTAINER_UNSQUASH, ask for enable overlay = yes in apptainer.conf, or build the image with --flatten' \
        /bin/sh -e -c 'python fetch.py '"'"'a b'"'"'
echo "$HOME"' argosy-before & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done
step=''; [ "$code" -eq 0 ] || stop "what runs before the ranks failed (code $code)" "$code"

# srun takes no --cpus-per-task from the job.
srun --nodes="$nodes" --ntasks="$((nodes * ranks_per_node))" --ntasks-per-node="$ranks_per_node" --distribution=block --export=ALL --kill-on-bad-exit=1 --label \
    --cpus-per-task="${SLURM_CPUS_PER_TASK:-2}" \
    sh -c "$node" argosy-node "$image" apptainer '' '' '' apptainer --quiet exec --no-eval -B /home/alice --pwd \
        /home/alice "$image" /bin/sh -c "$rank" argosy-rank "$ranks_per_node" python train.py --epochs 20 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
kill "$timer" 2>/dev/null || :
if [ -n "$enough" ]; then
    code=0; printf "argosy: the smoke run went well for 120 s, and was ended\n"
fi
[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2
exit "$code"
