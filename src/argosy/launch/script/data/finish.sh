# shellcheck shell=sh disable=SC2154
# The job ends with the code of the ranks, so that Slurm and jobs that depend on it know.
finish() {
    [ "$argosy_code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $argosy_code" >&2
    exit "$argosy_code"
}
