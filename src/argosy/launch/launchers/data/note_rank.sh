# shellcheck shell=sh disable=SC1090
# RECORD PROGRAM...: note what this rank was given, if the record of the job still exists.
note_rank() {
    argosy_note_file=$1
    shift
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
