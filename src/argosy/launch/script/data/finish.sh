# shellcheck shell=sh disable=SC2154
# End with the exit code of the ranks, for Slurm and for jobs that depend on this one.
finish() {
    [ "$argosy_code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $argosy_code" >&2
    exit "$argosy_code"
}
