#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --account=project_1
#SBATCH --partition=batch
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
#
# train on frontier: 1 node with 8 GPUs and 8 ranks.
# Written by Argosy 0.1.0; it runs without Argosy. The reason for each value: argosy explain
#   partition = batch: the job uses whole nodes; no partition was given
#   launcher = srun: torchrun does not map tasks to NUMA nodes, and starts slowly there
#   runtime = apptainer: the site's runtime; the site documents 1.3.6
#   gpu = rocm: the site's way to pass GPUs to containers
#   assumed: the image is not on this machine, and is assumed to contain PyTorch
#   cores of each rank: nearest to the rank's GPU, on whole nodes
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329

main() {
    # --- The program ---
    argosy_image=/project/images/train.sif
    # The numbers come from Slurm, so 'sbatch --nodes=8' scales this script.
    check_allocation
    argosy_nodes=$SLURM_JOB_NUM_NODES
    argosy_ranks_per_node=${SLURM_GPUS_ON_NODE:-8}
    need_cores "$((argosy_ranks_per_node * ${SLURM_CPUS_PER_TASK:-7}))"  # of a node
    argosy_binds=/usr/share/libdrm,/var/spool/slurmd,/opt/cray,/usr/lib64/libcxi.so.1

    # --- The environment of the ranks ---
    pass_signals
    find_rendezvous  # sets MASTER_ADDR, MASTER_PORT, argosy_first, argosy_hosts
    # Not in the container: the host's software and mounts.
    unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV
    unset CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
    # Set for the container by name: the image would override a plain export.
    export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" APPTAINERENV_MASTER_PORT="$MASTER_PORT"
    export APPTAINERENV_OMP_NUM_THREADS=7  # one thread per core
    # keeps MIOpen's database off the shared file system; each node has its own folder
    export APPTAINERENV_MIOPEN_USER_DB_PATH="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"
    export APPTAINERENV_MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"

    # --- Start: one container per rank ---
    unset SRUN_CPUS_PER_TASK
    run_step srun --nodes="$argosy_nodes" \
        --ntasks="$((argosy_nodes * argosy_ranks_per_node))" \
        --ntasks-per-node="$argosy_ranks_per_node" --distribution=block --export=ALL \
        --kill-on-bad-exit=1 \
        --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 \
        --gpus-per-task=1 --gpu-bind=closest \
        sh -c "$argosy_helpers" own_folders "/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" \
        sh -c "$argosy_helpers" check_node "$argosy_image" apptainer /dev/kfd '' \
        apptainer --quiet exec --no-eval --rocm -B "$argosy_binds" "$argosy_image" \
        /bin/sh -c "$argosy_helpers" start_rank "$argosy_ranks_per_node" '' python train.py 50 10
    [ "$argosy_code" -eq 0 ] || stop "job $SLURM_JOB_ID ended with code $argosy_code" "$argosy_code"
}

# --- Helpers: the same text in every script ---

# Without an allocation, each srun below would request its own.
check_allocation() {
    [ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
    # In a step of srun, the ranks would inherit its cores.  Steps of sbatch and salloc: -5, -6, 4294967290.
    [ "${SLURM_STEP_ID:--5}" -lt 0 ] || [ "$SLURM_STEP_ID" = 4294967290 ] || {
        unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE
        export SLURM_OVERLAP=1
    }
}

# An allocation made by hand may have too few cores, which ranks would share without a warning.
need_cores() {
    argosy_need=$1 argosy_given=${SLURM_JOB_CPUS_PER_NODE:-999}
    [ "$(fewest_cores "$argosy_given")" -ge "$1" ] ||
        stop "the allocation has $argosy_given cores on a node, but $1 are needed" 2
    argosy_cores_per_rank=$(($1 > argosy_ranks_per_node ? $1 / argosy_ranks_per_node : 1))
}

# The nodes of a job may differ: print the 36 of 72(x2),36.
fewest_cores() { echo "$1" | tr , '\n' | sed 's/(.*//' | sort -n | head -n 1; }

# Pass signals on to the ranks: sh does not forward those of scancel and Slurm's warnings.
pass_signals() {
    argosy_step=''
    trap 'pass_signal USR1' USR1
    trap 'pass_signal USR2' USR2
    trap end_step TERM INT HUP
}
pass_signal() { kill -s "$1" "$argosy_step" 2> /dev/null || :; }
end_step() {
    [ -n "$argosy_step" ] || exit 143
    pass_signal TERM
}

# Choose where all ranks connect: the first node, with the suffix $1, and a free port there.
# Each job, restart and later start has another one: ranks of a lost run must not join.
find_rendezvous() {
    argosy_hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    argosy_first=${argosy_hosts%%[[:space:]]*}
    MASTER_ADDR=$argosy_first${1:-}
    # In a cloud, the name of a node may have no address: Slurm knows it.
    getent hosts "$MASTER_ADDR" > /dev/null || {
        set -- "$(scontrol show node "$argosy_first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')"
        MASTER_ADDR=${1:-$MASTER_ADDR}
    }
    argosy_start=$((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31 + (${SLURM_TASK_PID:-0} ^ $$)))
    set -- sh -c "$argosy_helpers" free_port "$((20000 + argosy_start % 10000))"
    [ "${SLURMD_NODENAME:-}" = "$argosy_first" ] ||
        set -- srun ${argosy_step_options:-} --overlap --nodes=1 --ntasks=1 --nodelist="$argosy_first" "$@"
    MASTER_PORT=$("$@")
    MASTER_PORT=${MASTER_PORT##*[!0-9]} # without text of a TaskProlog
}

# Start a step.  A signal ends 'wait' but not the step, so wait until the step has ended.
run_step() {
    "$@" &
    argosy_step=$!
    while
        argosy_code=0
        wait "$argosy_step" || argosy_code=$?
        kill -0 "$argosy_step" 2> /dev/null
    do :; done
    # If a signal came just when the step ended, another 'wait' has its code in dash; bash lost it.
    argosy_again=0
    wait "$argosy_step" || argosy_again=$?
    [ "$argosy_again" -ge 127 ] || argosy_code=$argosy_again
}

# End with a message and an exit code that 'argosy why' explains.
stop() {
    printf 'argosy: %s\n' "$1" >&2
    exit "$2"
}

# Slurm copies this file to the first node only, so functions for all nodes are passed as text:
# sh -c "$argosy_helpers" NAME ARGUMENTS... calls the function NAME.
argosy_helpers=$(cat <<'HELPERS'
# Print the first free port from $1 on.
free_port() {
    while grep -qs ":$(printf %04X "$1") " /proc/net/tcp*; do
        set -- "$(($1 + 1))"
    done
    echo "$1"
}

stop_node() {
    printf 'argosy: %s on %s\n' "$1" "${SLURMD_NODENAME:-$(hostname)}" >&2
    exit "$2"
}

# FOLDERS COMMAND...: create private folders on this node.  Folders of other users are not used, nor folders in those
# in which everybody can rename them; in a container, root may be nobody (65534).
own_folders() {
    command -v find > /dev/null || stop_node "find is missing, which checks who may change $1" 7
    for argosy_folder in $1; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        argosy_above=$argosy_folder
        while argosy_above=${argosy_above%/*} && [ "${argosy_above#/}" != "$argosy_above" ]; do
            argosy_unsafe=$(find "$argosy_above" "$argosy_above/." -prune \( ! -type l -perm -0002 ! -perm -1000 \
                -o ! -user "$(id -u)" ! -user 0 ! -user 65534 \)) || argosy_unsafe=$argosy_above
            [ -z "$argosy_unsafe" ] ||
                stop_node "another user can replace what is in $argosy_above, so $argosy_folder is not used" 7
        done
        mkdir -m 700 "$argosy_folder" 2> /dev/null ||
            [ -n "$(find "$argosy_folder" -prune -type d -user "$(id -u)" 2> /dev/null)" ] ||
            stop_node "$argosy_folder cannot be created, or belongs to another user" 7
    done
    shift
    exec "$@"
}

# IMAGE RUNTIME GPU_DEVICE PATHS COMMAND...: refuse a broken node, which would fail with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    # Bind the folder of PMIx, PATHS, TMPDIR and the site's certificates, if this node has them.
    argosy_mounts=${APPTAINER_BIND:-${SINGULARITY_BIND:-}} # of a module that the job loaded
    for argosy_path in "${PMIX_SERVER_TMPDIR:-}" $4 "${TMPDIR:-}" \
        "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "${PIP_CERT:-}"; do
        [ ! -e "$argosy_path" ] || argosy_mounts=$argosy_mounts${argosy_mounts:+,}$argosy_path
    done
    [ -z "$argosy_mounts" ] || export APPTAINER_BIND="$argosy_mounts" SINGULARITY_BIND="$argosy_mounts"
    shift 4
    exec "$@"
}

# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# Set the variables that PyTorch, Lightning, Accelerate, DeepSpeed and JAX read, from those of this Slurm task.
start_rank() {
    export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
    export LOCAL_WORLD_SIZE="$1" NODE_RANK="$SLURM_NODEID" GROUP_RANK="$SLURM_NODEID"
    # By default, JAX computes an ephemeral port from the job number, which may be in use.
    export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:$MASTER_PORT}"
    argosy_note_file=$2
    shift 2
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}

"$0" "$@"
HELPERS
)

set -eu
main
