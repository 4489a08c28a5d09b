# shellcheck shell=sh disable=SC1090,SC2013
# Functions that start ranks in containers, separated by blank lines.

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

# Any node may become the first one of an elastic run.  Print where the others then find this node: its name, or the
# address that it uses towards the first host if the name has no address, as in a cloud.
own_address() {
    python -c '
import os, socket
name = os.environ["SLURMD_NODENAME"]
try:
    socket.getaddrinfo(name, None)
except OSError:
    family, kind, _, _, first = socket.getaddrinfo(os.environ["MASTER_ADDR"], 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(first)  # sends nothing
        name = probe.getsockname()[0]
print(name)' || echo "$SLURMD_NODENAME"
} 2> /dev/null

# In one container per node: END_FILES --nnodes=MIN:MAX OPTIONS... PROGRAM...
# The run continues with at least MIN nodes. Ranks then get new numbers, so rank 0 may run on any node.
start_elastic() {
    argosy_end_file=${1:+$1-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$SLURM_NODEID}
    shift
    trap note_good_end EXIT
    set -- --rdzv-id="$SLURM_JOB_ID.$SLURM_STEP_ID.${SLURM_RESTART_COUNT:-0}" "$@"
    set -- --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" "$@"
    set -- --rdzv-conf="is_host=$((SLURM_NODEID == 0))" --local-addr="$(own_address)" "$@"
    run_torchrun --max-restarts=3 "$@"
}
# srun reports a failure if a node was lost: a file per node shows where the run succeeded.
note_good_end() {
    argosy_code=$?
    [ "$argosy_code" -ne 0 ] || [ ! -d "${argosy_end_file%/*}" ] || : > "$argosy_end_file"
    exit "$argosy_code"
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

# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# A single program gets no rank variables: ranks that it starts itself would inherit them.
start_task() {
    [ "${SLURM_NTASKS:-1}" -eq 1 ] || start_rank "$@"
    shift 2
    exec "$@"
}

# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# Set the variables that PyTorch reads, from those of the MPI launcher (PMIx, PMI-2, Open MPI, Slurm).
start_mpi_rank() {
    RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
    WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
    LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
    LOCAL_WORLD_SIZE=$1 NODE_RANK=$((RANK / $1))
    export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
    # mpiexec (hydra) has one Slurm task per node, whose numbers Lightning and JAX would take for those of the rank.
    if [ -n "${MPI_LOCALRANKID:-}" ]; then
        export SLURM_PROCID="$RANK" SLURM_LOCALID="$LOCAL_RANK" SLURM_NODEID="$NODE_RANK" SLURM_NTASKS_PER_NODE="$1"
        export SLURM_NTASKS="$WORLD_SIZE" SLURM_NPROCS="$WORLD_SIZE" SLURM_STEP_NUM_TASKS="$WORLD_SIZE"
        SLURM_TASKS_PER_NODE=$1
        [ "$WORLD_SIZE" -eq "$1" ] || SLURM_TASKS_PER_NODE="$1(x$((WORLD_SIZE / $1)))"
        export SLURM_TASKS_PER_NODE SLURM_STEP_TASKS_PER_NODE="$SLURM_TASKS_PER_NODE"
        unset SLURM_GTIDS
    fi
    # Ranks in separate user namespaces may not read the memory or the /proc of other ranks.
    export UCX_POSIX_USE_PROC_LINK="${UCX_POSIX_USE_PROC_LINK:-n}"
    OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
    export OMPI_MCA_btl_vader_single_copy_mechanism
    argosy_note_file=$2
    shift 2
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}

# RANK RANKS PROGRAM...: set the rank variables of one of several copies on this machine.
start_copy() {
    export RANK="$1" LOCAL_RANK="$1" WORLD_SIZE="$2" LOCAL_WORLD_SIZE="$2"
    shift 2
    case $1 in
        */*) ;;
        *) command -v "$1" > /dev/null || {
            echo "argosy: $1: not found in the container" >&2
            exit 127
        } ;;
    esac
    exec "$@"
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

# FOLDER PROGRAM...: redirect the output of a rank to its own file in a folder.
# A requeued job, a restarted worker and a second launch in one job append to the file of the run before.
log_rank() {
    argosy_log=$1/rank-${RANK:-${SLURM_PROCID:-0}}.log
    shift
    mkdir -p "${argosy_log%/*}" || exit 1
    [ ! -s "$argosy_log" ] || echo "argosy: a new run of this rank begins here" >> "$argosy_log"
    exec "$@" >> "$argosy_log" 2>&1
}

# SIGNAL PROGRAM...: run a program that SIGNAL does not end, although it may have no handler.
guard_rank() {
    argosy_warning=$1 argosy_program=''
    shift
    trap 'signal_if_handled "$argosy_warning" "$argosy_program"' "$argosy_warning"
    # dash gives a background program the input /dev/null before it reads <&0.
    { "$@" <&3 3<&- & } 3<&0
    argosy_program=$!
    trap 'kill "$argosy_program" 2> /dev/null || :' TERM INT
    wait_for "$argosy_program"
    exit "$argosy_code"
}

# FILE PROGRAM...: record the cores and GPUs of this rank, if the record still exists.
note_rank() {
    argosy_note_file=$1
    shift
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
