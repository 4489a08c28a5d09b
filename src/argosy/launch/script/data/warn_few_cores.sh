# shellcheck shell=sh disable=SC2154
# With one core for each rank, data loaders starve the GPUs.
warn_few_cores() {
    [ "$argosy_node_cores" -gt "$argosy_ranks_per_node" ] ||
        echo "argosy: $argosy_node_cores core(s) of a node" \
            "for $argosy_ranks_per_node rank(s): use --cpus-per-rank" >&2
}
