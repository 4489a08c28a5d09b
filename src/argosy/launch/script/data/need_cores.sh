# shellcheck shell=sh disable=SC2034,SC2154
# An allocation that was made by hand may have too few cores, which ranks would share without a warning.
need_cores() {
    argosy_need=$1
    argosy_given=${SLURM_JOB_CPUS_PER_NODE:-999}
    [ "${argosy_given%%[!0-9]*}" -ge "$argosy_need" ] ||
        stop "$argosy_given cores on a node, $argosy_need are needed" 2
    argosy_cores_per_rank=$((argosy_need / argosy_ranks_per_node))
    [ "$argosy_cores_per_rank" -gt 0 ] || argosy_cores_per_rank=1
}
