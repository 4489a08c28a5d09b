# shellcheck shell=sh disable=SC2034
# srun reports a failure if a node was lost, even if torchrun continued and succeeded on $2 nodes.
judge_elastic_run() {
    argosy_least=$2
    set -- "$1-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-"*
    if [ -e "$1" ] && [ "$#" -ge "$argosy_least" ]; then argosy_code=0; fi
}
