# shellcheck shell=sh disable=SC2034,SC2154
# Choose the address where all ranks connect: the first node, with the suffix $1, and a free port there.
# Each job, restart and start gets another port, so that ranks of a lost run do not join the next one.
find_rendezvous() {
    argosy_first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    [ -n "$argosy_first" ] || stop "no host name in SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST" 7
    argosy_job=$((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31))
    argosy_start=$(((${SLURM_TASK_PID:-0} - $$) % 10000 + 10000))
    argosy_port=$((20000 + (argosy_job + argosy_start) % 10000))
    MASTER_ADDR=$argosy_first${1:-}
    set -- sh -c "$argosy_helpers" free_port 20000 10000 "$argosy_port"
    [ "${SLURMD_NODENAME:-}" = "$argosy_first" ] ||
        set -- srun --overlap --nodes=1 --ntasks=1 --nodelist="$argosy_first" "$@"
    MASTER_PORT=$("$@") || stop "no free port on $argosy_first" 7
}
