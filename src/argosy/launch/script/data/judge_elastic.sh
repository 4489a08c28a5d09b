# shellcheck shell=sh disable=SC2034
# To srun a lost node is a failure, also if torchrun went on without it and ended well on $2 nodes.
judge_elastic_run() {
    argosy_least=$2
    set -- "$1-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-"*
    if [ -e "$1" ] && [ "$#" -ge "$argosy_least" ]; then argosy_code=0; fi
}
