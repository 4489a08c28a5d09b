# shellcheck shell=sh
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
