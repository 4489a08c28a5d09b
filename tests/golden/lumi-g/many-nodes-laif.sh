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
#
# train on lumi-g: 2 nodes with 8 GPUs and 8 ranks on each.
# Written by Argosy 0.1.0; it runs without Argosy. The reason for each value: argosy explain
#   NCCL_NET_GDR_LEVEL = not set: only for nodes > 1 and rocm < 6.2, and rocm is unknown
#   mode = laif: images in /appl/local/laifs contain libfabric, and need only Slurm's spool folder
#   partition = standard-g: the job uses whole nodes; no partition was given
#   launcher = torchrun: a Python program, and the image is assumed to have torch
#   runtime = singularity: the site's runtime; the site documents 4.1.3
#   gpu = by /dev: the GPUs need only their device files
#   assumed: the image is not on this machine, and is assumed to contain PyTorch
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329

main() {
    # --- The program ---
    argosy_image=/project/images/train.sif
    # The numbers come from Slurm, so 'sbatch --nodes=8' scales this script.
    check_allocation
    argosy_nodes=$SLURM_JOB_NUM_NODES
    argosy_gpus=${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}
    argosy_ranks_per_node=${argosy_gpus##*:}
    need_cores_of_node 56  # sets argosy_need, argosy_cores_per_rank
    # The cores of each rank of a node, which are nearest to its GPU.
    argosy_cores='49-55;57-63;17-23;25-31;1-7;9-15;33-39;41-47'
    argosy_binds=/pfs,/scratch,/projappl,/project,/flash,/appl,/var/spool/slurmd

    # --- The environment of the ranks ---
    pass_signals
    find_rendezvous  # sets MASTER_ADDR, MASTER_PORT, argosy_first, argosy_hosts
    # Not in the container: the host's software and mounts.
    unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV
    unset CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
    # Set for the container by name: the image would override a plain export.
    export SINGULARITYENV_MASTER_ADDR="$MASTER_ADDR" SINGULARITYENV_MASTER_PORT="$MASTER_PORT"
    export SINGULARITYENV_OMP_NUM_THREADS=7  # one thread per core
    # without it RCCL may choose an interface other than Slingshot
    export SINGULARITYENV_NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
    # forked data loader workers would corrupt CXI's pinned memory
    export SINGULARITYENV_CXI_FORK_SAFE=1
    export SINGULARITYENV_CXI_FORK_SAFE_HP=1  # the same for huge pages
    # completion queues in huge pages do not survive a fork
    export SINGULARITYENV_FI_CXI_DISABLE_CQ_HUGETLB=1
    # MIOpen writes an SQLite file, whose locks fail on Lustre if several nodes share it
    export SINGULARITYENV_MIOPEN_USER_DB_PATH="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"
    export SINGULARITYENV_MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"

    # --- Start: one container per node, which starts its ranks ---
    run_step srun --nodes="$argosy_nodes" --ntasks="$argosy_nodes" --ntasks-per-node=1 \
        --distribution=block --export=ALL --kill-on-bad-exit=1 --cpus-per-task="$argosy_need" \
        sh -c "$argosy_helpers" own_folders "/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" \
        sh -c "$argosy_helpers" check_node "$argosy_image" singularity /dev/kfd '' \
        singularity --quiet exec --no-eval -B "$argosy_binds" "$argosy_image" \
        /bin/sh -c "$argosy_helpers" start_torchrun "--nnodes=$argosy_nodes" \
            "--nproc-per-node=$argosy_ranks_per_node" --no-python \
        /bin/sh -c "$argosy_helpers" bind_cores "$argosy_cores" python -u train.py 50 10
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

# One task starts all ranks of a node: it needs the cores of all tasks that Slurm counted there.
need_cores_of_node() {
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || set -- "$((SLURM_CPUS_PER_TASK * ${SLURM_NTASKS_PER_NODE:-1}))"
    need_cores "$1"
}

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

# Run the module: a vendor's program torchrun does not see the packages of the layer.
run_torchrun() {
    argosy_logs=$(mktemp -d) # otherwise torchrun leaves a folder in /tmp
    python -m torch.distributed.run --log-dir="$argosy_logs" "$@" &
    argosy_agent=$!
    trap 'signal_workers USR1' USR1
    trap 'signal_workers USR2' USR2
    trap 'kill "$argosy_agent" 2> /dev/null || :' TERM INT
    wait_for "$argosy_agent"
    rm -rf "$argosy_logs"
    exit "$argosy_code"
}
# USR1 and USR2 are for the workers, and would end torchrun.
signal_workers() {
    for argosy_worker in $(cat /proc/"$argosy_agent"/task/*/children); do
        signal_if_handled "$1" "$argosy_worker"
    done
} 2> /dev/null

# SIGNAL PID: send USR1 or USR2 only to a program that has a handler: it ends any other program.
signal_if_handled() {
    case $1 in
        USR1) argosy_bit=0x200 ;;
        USR2) argosy_bit=0x800 ;;
        *) kill -s "$1" "$2" && return ;;
    esac
    while read -r argosy_key argosy_handled; do
        [ "$argosy_key" = SigCgt: ] || continue
        [ $((0x$argosy_handled & argosy_bit)) -eq 0 ] || kill -s "$1" "$2"
    done < "/proc/$2/status"
} 2> /dev/null

# Wait until process $1 has ended, and set argosy_code to its exit code.
wait_for() {
    # A trap ends 'wait' but not the process.
    while
        argosy_code=0
        wait "$1" || argosy_code=$?
        kill -0 "$1" 2> /dev/null
    do :; done
    # If the signal came just when the process ended, another 'wait' has its code in dash; bash lost it.
    argosy_again=0
    wait "$1" || argosy_again=$?
    [ "$argosy_again" -ge 127 ] || argosy_code=$argosy_again
}

# In one container per node: --nnodes=NODES OPTIONS... PROGRAM...
start_torchrun() {
    [ "$1" != --nnodes=1 ] || run_torchrun --standalone "$@" # exits
    run_torchrun --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
}

# LISTS PROGRAM...: bind a worker to the cores of its local rank, which are nearest to its GPU.
bind_cores() {
    argosy_lists="$1;" argosy_left=$LOCAL_RANK
    shift
    while [ "$argosy_left" -gt 0 ]; do
        argosy_lists=${argosy_lists#*;} argosy_left=$((argosy_left - 1))
    done
    argosy_list=${argosy_lists%%;*}
    [ -z "$argosy_list" ] || ! command -v taskset > /dev/null || exec taskset -c "$argosy_list" "$@"
    exec "$@"
}

"$0" "$@"
HELPERS
)

set -eu
main
