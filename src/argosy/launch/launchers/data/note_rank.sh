# shellcheck shell=sh disable=SC1090
# FILE PROGRAM...: record the cores and GPUs of this rank, if the record still exists.
note_rank() {
    argosy_note_file=$1
    shift
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
