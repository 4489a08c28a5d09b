#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=1-2
#SBATCH --no-kill
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --output=/home/alice/train-%j.out
# train: 4 rank(s) on 2 node(s), site lab.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   nodes = 2: asked for [option]
#   GPUs per node = 0: no GPU was asked for [default]
#   ranks per node = 2: asked for [option]
#   cores per rank = 1: Slurm's own default; ask for more with --cpus-per-rank [default]
#   launcher = torchrun: a Python program, and the image has torch [image]
#   runtime = apptainer: found on PATH [machine]
#   layer = overlay: the image's overlay partition is mounted over its base [machine]
#   gpu = none: no GPU is seen here [machine]
#   elastic = 1:2 nodes: asked for; its price: rank 0 may be on any node, a lost node starts all … [option]
# shellcheck disable=SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES} ranks_per_node=2
has=${SLURM_JOB_CPUS_PER_NODE:-999} n=${SLURM_NTASKS_PER_NODE:-1}; need=$((${SLURM_CPUS_PER_TASK:-2 / n} * n))  # an allocation made by hand may have too few cores
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

# Forced in by name, since an image's own value beats a plain export.
export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" APPTAINERENV_MASTER_PORT="$MASTER_PORT"
export APPTAINERENV_OMP_NUM_THREADS=1  # the cores of a rank [default]
export APPTAINERENV_TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='${rank}: '

node='# On each node, outside the container: words IMAGE RUNTIME GPU_NODE FOLDERS PATHS, then the command.
stop() { printf "argosy: %s on %s\n" "$1" "$SLURMD_NODENAME" >&2; exit "$2"; }
[ -r "$1" ] || stop "the image $1 cannot be read" 6
command -v "$2" >/dev/null || stop "$2 is not installed" 4
[ -z "$3" ] || [ -e "$3" ] || stop "GPUs were asked for, and there is no $3" 7
for folder in $4; do (umask 077; mkdir -p "$folder") || stop "$folder cannot be made" 7; done
# The container sees the folder of slurmd for PMIx, and what this node has of PATHS and TMPDIR.
binds=${PMIX_SERVER_TMPDIR:-}; for path in $5 ${TMPDIR:-}; do [ ! -e "$path" ] || binds=$binds${binds:+,}$path; done
[ -z "$binds" ] || export APPTAINER_BIND="$binds" SINGULARITY_BIND="$binds"
shift 5; exec "$@"'
enter='[ -x /opt/argosy/enter ] && . /opt/argosy/enter; printf "%s\n" "$0" >&2; exit 6'
torchrun='# One per node: words MIN:MAX RANKS_PER_NODE WELL, then what torchrun is to start.  Nodes may be lost and come back,
# down to MIN of them; ranks are then numbered anew, so rank 0 may be on any node.  Who ends well leaves a file WELL-….
nodes=$1 per_node=$2 well=${3:+$3-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$SLURM_NODEID}; shift 3
note() { code=$?; [ "$code" -ne 0 ] || [ -z "$well" ] || : > "$well"; exit "$code"; }
trap note EXIT
set -- --nnodes="$nodes" --max-restarts=3 --rdzv-id="$SLURM_JOB_ID.$SLURM_STEP_ID.${SLURM_RESTART_COUNT:-0}" "$@"
set -- --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --local-addr="$SLURMD_NODENAME" "$@"
set -- --rdzv-conf="is_host=$((SLURM_NODEID == 0))" "$@"
# torchrun leaves its folder for logs; this one goes.
logs=$(mktemp -d) && set -- --log-dir="$logs" "$@"
# Not the program torchrun: that of a vendor base sees no packages of the layer.
python -m torch.distributed.run --nproc-per-node="$per_node" "$@" & agent=$!
# USR1 and USR2 are for the workers, and would end torchrun.
pass() {
    workers=$(cat /proc/$agent/task/*/children); for pid in $workers; do kill -s "$1" "$pid"; done
} 2>/dev/null
trap "pass USR1" USR1; trap "pass USR2" USR2; trap "kill -s TERM \$agent 2>/dev/null" TERM INT
# A trap ends wait, and not torchrun.
while code=0; wait $agent || code=$?; do kill -0 $agent 2>/dev/null || { rm -rf "$logs"; exit $code; }; done'
# Since 22.05 srun does not take --cpus-per-task from the job.
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --distribution=block --export=ALL --no-kill --kill-on-bad-exit=0 \
    --cpus-per-task="$need" \
    sh -c "$node" argosy-node /shared/train.sif apptainer '' '' '' apptainer --quiet exec --no-eval \
        -B /home/alice --pwd /home/alice /shared/train.sif /bin/sh -c "$enter" \
        'argosy: the runtime did not attach the layer of /shared/train.sif, so nothing was started
  -> unset APPTAINER_UNDERLAY and APPTAINER_UNSQUASH, ask for enable overlay = yes in apptainer.conf, or build the image with --flatten' \
        /bin/sh -c "$torchrun" argosy-torchrun "1:$nodes" "$ranks_per_node" '' --tee 3 train.py --epochs 20 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || printf "argosy: job %s ended with code %s\n" "$SLURM_JOB_ID" "$code" >&2
exit "$code"
