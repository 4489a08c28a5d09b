# shellcheck shell=sh disable=SC2154
# Record the end of the run, and print the rank that failed first.
note_end() {
    [ ! -r "$1" ] || sh "$1" "$argosy_code" "$((argosy_nodes * argosy_ranks_per_node))" || :
}
