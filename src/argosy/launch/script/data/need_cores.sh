# shellcheck shell=sh disable=SC2034,SC2154
# An allocation made by hand may have too few cores, which ranks would share without a warning.
need_cores() {
    argosy_need=$1 argosy_given=${SLURM_JOB_CPUS_PER_NODE:-999}
    [ "${argosy_given%%[!0-9]*}" -ge "$1" ] || stop "$argosy_given cores on a node, $1 are needed" 2
    argosy_cores_per_rank=$(($1 > argosy_ranks_per_node ? $1 / argosy_ranks_per_node : 1))
}
