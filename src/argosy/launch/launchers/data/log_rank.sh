# shellcheck shell=sh
# FOLDER PROGRAM...: redirect the output of a rank to its own file in the folder of this job.
log_rank() {
    argosy_logs=$1/${SLURM_JOB_ID:-here}
    shift
    mkdir -p "$argosy_logs" &&
        exec "$@" > "$argosy_logs/rank-${RANK:-${SLURM_PROCID:-0}}.log" 2>&1
}
