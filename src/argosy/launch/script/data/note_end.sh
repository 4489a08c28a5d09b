# shellcheck shell=sh disable=SC2154
# Note the end in the record of the job, and name the rank that failed first.
note_end() {
    [ ! -r "$1" ] || sh "$1" "$argosy_code" "$((argosy_nodes * argosy_ranks_per_node))" || :
}
