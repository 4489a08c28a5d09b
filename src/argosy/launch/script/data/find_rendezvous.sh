# shellcheck shell=sh disable=SC2034,SC2154
# Choose where all ranks connect: the first node, with the suffix $1, and a free port there.
# The next start gets another port, so that ranks of a lost run do not join it.
find_rendezvous() {
    argosy_hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    argosy_first=${argosy_hosts%%[[:space:]]*}
    MASTER_ADDR=$argosy_first${1:-}
    argosy_start=$((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31 + $$))
    set -- sh -c "$argosy_helpers" free_port "$((20000 + argosy_start % 10000))"
    [ "${SLURMD_NODENAME:-}" = "$argosy_first" ] ||
        set -- srun --overlap --nodes=1 --ntasks=1 --nodelist="$argosy_first" "$@"
    MASTER_PORT=$("$@")
}
