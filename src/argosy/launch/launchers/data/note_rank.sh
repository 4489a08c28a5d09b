# shellcheck shell=sh disable=SC1090
# RECORD PROGRAM...: record the cores and GPUs of this rank, if the record of the job still exists.
note_rank() {
    argosy_note_file=$1
    shift
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
