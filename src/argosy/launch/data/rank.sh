# Read by the shell of each rank before its program starts: notes what the rank was given, in a file of its node.
argosy_note() (  # a subshell: nothing of it stays in the program's environment
    host=${SLURMD_NODENAME:-$(hostname)} seen=''
    # No program is started: each start takes milliseconds in a container.
    while read -r name cores && [ "$name" != Cpus_allowed_list: ]; do :; done < /proc/self/status
    for name in ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES ZE_AFFINITY_MASK SLURM_STEP_GPUS; do
        value=; eval "value=\${$name:-}"
        case $value in ''|*[!A-Za-z0-9,.:_/-]*) ;; *) seen="$seen $name=$value" ;; esac
    done
    set -- /dev/nvidia[0-9]*; [ -e "$1" ] || set -- /dev/dri/renderD*
    [ -e "$1" ] && devices=$# || devices=0
    line="rank=${RANK:-${SLURM_PROCID:-0}} local=${LOCAL_RANK:-${SLURM_LOCALID:-0}} host=$host"
    line="$line job=${SLURM_JOB_ID:-0} restart=${SLURM_RESTART_COUNT:-0} cores=$cores devices=$devices$seen"
    printf '%s\n' "$line" >> "${0%/*}/ranks-$host"
    [ "$devices" -gt 0 ]
)
# NCCL and RCCL say in a file which network they use, unless they were told otherwise; of many ranks one per node does.
if argosy_note && [ -z "${NCCL_DEBUG:-}" ] &&
    { [ "${WORLD_SIZE:-1}" -le 64 ] || [ "${LOCAL_RANK:-0}" = 0 ]; }; then
    NCCL_DEBUG_FILE=${0%/*}/nccl-${SLURM_RESTART_COUNT:-0}-%h-%p.log
    export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE
fi 2>/dev/null
