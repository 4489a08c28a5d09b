# shellcheck shell=sh disable=SC2034,SC2086,SC2154
# Functions of job scripts, separated by blank lines: a script has those that its main part needs, in this order.

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

# The ranks of a node share the cores that Slurm gave; otherwise each would start threads for all cores.
# The tasks of an allocation may be fewer than its ranks, and have more cores than fit.
share_cores() {
    argosy_node_cores=$(fewest_cores "$SLURM_JOB_CPUS_PER_NODE")
    argosy_cores_per_rank=$((argosy_node_cores / argosy_ranks_per_node))
    [ "${SLURM_CPUS_PER_TASK:-999}" -ge "$argosy_cores_per_rank" ] || argosy_cores_per_rank=$SLURM_CPUS_PER_TASK
    [ "$argosy_cores_per_rank" -gt 0 ] || argosy_cores_per_rank=1
}

# With one core for each rank, data loaders starve the GPUs.
warn_few_cores() {
    [ "$argosy_node_cores" -gt "$argosy_ranks_per_node" ] ||
        echo "argosy: the ranks of a node have at most one core each: use --cpus-per-rank" >&2
}

# Bind these paths into the container if the node has them: the runtime fails for a missing path.
bind_on_nodes() { argosy_node_paths=$*; }

# Requeue the job, but only after a run that wrote a new checkpoint: one without progress would restart forever.
# The mark is a file as old as the run.
resume_from() {
    argosy_checkpoint=$1 argosy_restarts=$2 argosy_restart=${SLURM_RESTART_COUNT:-0}
    argosy_warned='' argosy_stopped=''
    argosy_mark=$argosy_checkpoint.argosy-$SLURM_JOB_ID
    # SLURM_JOB_ID of the last task of an array is the whole array.
    argosy_job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
    [ "$argosy_restart" -eq 0 ] || has_saved ||
        give_up "the last run wrote no new checkpoint $argosy_checkpoint, so another would make no progress" 1
    [ "$argosy_restart" -le "$argosy_restarts" ] || give_up "this job was restarted $argosy_restarts times already" 1
    { mkdir -p "${argosy_checkpoint%/*}/" && touch "$argosy_mark"; } || stop "$argosy_checkpoint cannot be written" 7
}
has_saved() { [ -n "$(find "$argosy_checkpoint" -newer "$argosy_mark" 2> /dev/null)" ]; }
give_up() {
    rm -f "$argosy_mark"
    stop "$@"
}
# Pass the warning $1 on once, and end the ranks after $2 seconds.
warn_ranks_by() {
    argosy_warning=$1 argosy_patience=$2
    trap warn_ranks "$1"
    trap 'pass_signal TERM' ALRM
    trap 'argosy_stopped=yes; end_step' TERM INT HUP
}
warn_ranks() {
    [ -z "$argosy_warned" ] || return 0
    argosy_warned=yes
    pass_signal "$argosy_warning"
    echo "argosy: $(date +%FT%T%z): the time limit is near: $argosy_warning is sent now, TERM in $argosy_patience s"
    (sleep "$argosy_patience" && kill -s ALRM $$) &
}
# After the warning, requeue the job.  The controller may not answer for a while: try for $1 seconds.
requeue() {
    if [ -z "$argosy_warned" ]; then
        : # it ended by itself
    elif [ -n "$argosy_stopped" ] && ! job_shows 'Reason=TimeLimit'; then
        echo "argosy: the job was stopped, so its script does not requeue it"
    elif ! has_saved; then
        echo "argosy: this run wrote no new checkpoint $argosy_checkpoint, so the job is not requeued"
    elif [ "$argosy_restart" -ge "$argosy_restarts" ]; then
        set -- "the time limit ended restart $argosy_restart of $argosy_restarts"
        give_up "$1: launch the job again with the same --checkpoint, unless the program has finished" 7
    else
        requeue_within "$1"
    fi
    # Slurm itself starts a job again that lost a node or was preempted: the next run needs the mark.
    job_shows 'PreemptTime=[^N]' || { [ -n "$argosy_stopped" ] && ! job_shows " Restarts=$argosy_restart "; } ||
        rm -f "$argosy_mark"
}
job_shows() { scontrol show job "$argosy_job" 2> /dev/null | grep -q "$1"; }
requeue_within() {
    set -- "$1" "$((argosy_restart + 1)) of $argosy_restarts"
    echo "argosy: the run wrote a new checkpoint, so the job is requeued: restart $2"
    until scontrol requeue "$argosy_job"; do
        set -- "$(($1 - 5))"
        [ "$1" -gt 0 ] || stop "Slurm did not requeue the job; to requeue it: scontrol requeue $argosy_job" 7
        sleep 5
    done
    exit 0
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

# A smoke run that still runs after $1 seconds has succeeded: end it before Slurm does.
end_smoke_run_after() {
    argosy_enough='' argosy_seconds=$1
    trap 'argosy_enough=yes; pass_signal TERM' ALRM
    (
        sleep "$1"
        kill -s ALRM $$
    ) > /dev/null 2>&1 &
    argosy_timer=$!
}
judge_smoke_run() {
    kill "$argosy_timer" 2> /dev/null || :
    [ -n "$argosy_enough" ] || return 0
    argosy_code=0
    echo "argosy: the smoke run succeeded: it ran for $argosy_seconds s, and was ended"
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

# The sh of a batch job may not define the command module, and modules fail under 'set -eu'.
enable_modules() {
    set +eu
    # shellcheck disable=SC1091
    command -v module > /dev/null || . /etc/profile
}

# Copy the image to the disk of each node: thousands of ranks that read one file overload its servers.
# Other users may also write to that disk, so the folder is new and private, and has a random name.
stage_image() {
    argosy_folder=$1 argosy_name=$3
    argosy_each="srun ${argosy_step_options:-} --overlap --nodes=$argosy_nodes --ntasks=$argosy_nodes"
    argosy_each="$argosy_each --ntasks-per-node=1 --mpi=none"
    argosy_random=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
    argosy_staged=${argosy_folder%/}/argosy-stage-$SLURM_JOB_ID-$argosy_random
    trap 'unstage_image' EXIT
    $argosy_each sh -c "$argosy_helpers" create_stage "$argosy_folder" "$argosy_staged" ||
        stop "the new folder $argosy_staged cannot be created on every node" 7
    echo "argosy: copying the image to $argosy_staged on each node" >&2
    argosy_begun=$(date +%s)
    sbcast "$2" "$argosy_staged/$argosy_name" ||
        stop "the image cannot be copied to $argosy_staged on every node" 7
    argosy_image=$argosy_staged/$argosy_name
    echo "argosy: copied the image in $(($(date +%s) - argosy_begun)) s" >&2
}
unstage_image() { $argosy_each rm -rf "$argosy_staged" || :; }

# Write the environment definition file to the folder where srun looks for it; it may contain secrets.
write_edf() {
    argosy_edf=$HOME/.edf/argosy-$SLURM_JOB_ID-$$.toml
    trap 'rm -f "$argosy_edf"' EXIT
    mkdir -p "$HOME/.edf"
    (umask 077 && printf '%s\n' "$@" > "$argosy_edf")
}

# The command of --before must succeed, because the ranks need what it prepares.
run_before() {
    run_step "$@"
    argosy_step=''
    [ "$argosy_code" -eq 0 ] || stop "the command of --before failed (code $argosy_code)" "$argosy_code"
}

# mpiexec (hydra) starts its helpers by srun, which must pass this environment on.
prepare_mpiexec() {
    command -v mpiexec > /dev/null || stop "the modules do not provide mpiexec" 4
    # The memory limit of an outer job, and names of this node, must not reach the other nodes.
    unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURMD_NODENAME SLURM_NODEID
    export SLURM_EXPORT_ENV=ALL
    argosy_hosts=$(echo "$argosy_hosts" | paste -s -d , -)
}

# Record in the background when the ranks write their first line.
note_output() {
    [ -r "$1" ] || return 0
    argosy_written=$(stat -Lc %s "/proc/$$/fd/1") || return 0
    sh "$1" $$ "$argosy_written" &
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

# srun reports a failure if a node was lost, even if torchrun continued and succeeded on $2 nodes.
judge_elastic_run() {
    argosy_least=$2
    set -- "$1-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-"*
    if [ -e "$1" ] && [ "$#" -ge "$argosy_least" ]; then argosy_code=0; fi
}

# Record the end of the run, and print the rank that failed first.  The job ends with its code: srun reports the
# highest one, often the 143 of a rank that it ended.
note_end() {
    [ -r "$1" ] || return 0
    sh "$1" "$argosy_code" "$((argosy_nodes * argosy_ranks_per_node))" || :
    [ "$argosy_code" -ne 0 ] || return 0
    set -- "${1%/*}/first" "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}"
    argosy_own=$(sed -n "s/^$2 .* \([-0-9]*\)\$/\1/p" "$1" 2> /dev/null | tail -n 1)
    [ -z "$argosy_own" ] || argosy_code=$((argosy_own < 0 ? 128 - argosy_own : argosy_own))
}

# Start several copies on this machine; the first that fails ends the others, which would wait for it.
# The copies report through a pipe, because `wait` sees their ends only in the order of their starts.
start_beside() {
    [ -n "$argosy_pids" ] || open_pipe
    run_copy "$@" &
    argosy_pids="$argosy_pids $!" argosy_rank=$((argosy_rank + 1))
}

open_pipe() {
    argosy_folder=$(mktemp -d "${TMPDIR:-/tmp}/argosy.XXXXXX")
    mkfifo "$argosy_folder/pipe"
    exec 9<> "$argosy_folder/pipe"
    rm -r "$argosy_folder"
    argosy_setsid=$(command -v setsid) || argosy_setsid=''
    trap 'argosy_code=129' HUP
    trap 'argosy_code=130' INT
    trap 'argosy_code=143' TERM
}

run_copy() {
    argosy_code=0 argosy_copy='' argosy_stopped=''
    trap 'argosy_stopped=1; kill $argosy_copy 2> /dev/null || :' TERM
    (
        trap - TERM
        echo started >&9
        # A process group of its own: see below.
        exec $argosy_setsid "$@" 9>&-
    ) &
    argosy_copy=$!
    [ -z "$argosy_stopped" ] || kill "$argosy_copy" 2> /dev/null || :
    # Without the shell's own message, which names the signal but no rank.
    wait "$argosy_copy" 2> /dev/null || argosy_code=$?
    # The signal ends the first wait, not the copy.
    [ -z "$argosy_stopped" ] || wait "$argosy_copy" 2> /dev/null || :
    # Processes that it started would live on.
    [ -z "$argosy_stopped" ] || kill -s TERM -- "-$argosy_copy" 2> /dev/null || :
    echo "$argosy_code $argosy_rank" >&9
}

stop_copies() {
    trap '' HUP INT TERM
    kill $argosy_pids 2> /dev/null || :
    wait 2> /dev/null
    [ -z "$argosy_first" ] || name_first
    exit "$1"
}

name_first() {
    argosy_how="code $argosy_code"
    [ "$argosy_code" -le 128 ] || [ "$argosy_code" -gt 192 ] || argosy_how="signal $((argosy_code - 128))"
    echo "argosy: rank $argosy_first failed first ($argosy_how); the others were ended" >&2
}

wait_for_copies() {
    argosy_starting=$argosy_rank argosy_running=$argosy_rank argosy_first=''
    while [ "$argosy_running" -gt 0 ]; do
        read -r argosy_report argosy_reporter <&9
        case $argosy_report in
            started) argosy_starting=$((argosy_starting - 1)) ;;
            0) argosy_running=$((argosy_running - 1)) ;;
            *) [ -n "$argosy_code" ] || argosy_code=$argosy_report argosy_first=$argosy_reporter ;;
        esac
        # A signal to a copy whose shell only starts would be lost.
        if [ "$argosy_starting" -eq 0 ]; then
            trap 'stop_copies 129' HUP
            trap 'stop_copies 130' INT
            trap 'stop_copies 143' TERM
            [ -z "$argosy_code" ] || stop_copies "$argosy_code"
        fi
    done
    exit 0
}

# End with a message and an exit code that 'argosy why' explains.
stop() {
    printf 'argosy: %s\n' "$1" >&2
    exit "$2"
}
