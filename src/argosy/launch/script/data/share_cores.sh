# shellcheck shell=sh disable=SC2034,SC2154
# The ranks of a node share the cores that Slurm gave; otherwise each would start threads for all cores.
share_cores() {
    argosy_node_cores=${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}
    argosy_cores_per_rank=$((argosy_node_cores / argosy_ranks_per_node))
    [ "$argosy_cores_per_rank" -gt 0 ] || argosy_cores_per_rank=1
}
