# shellcheck shell=sh disable=SC2154
# The shell of each rank reads this file before its program starts: it records the cores and GPUs of the rank in a file
# of its node.  It starts no program, because each takes milliseconds in a container.  All names begin with argosy_, so
# that variables of the program keep their values.
argosy_see() {
    case $2 in
        '' | *[!A-Za-z0-9,.:_/-]*) ;;
        *) argosy_seen="$argosy_seen $1=$2" ;;
    esac
}
argosy_note() {
    argosy_host=${SLURMD_NODENAME:-$(hostname)} argosy_seen=''
    while read -r argosy_name argosy_cores && [ "$argosy_name" != Cpus_allowed_list: ]; do :; done < /proc/self/status
    argosy_see ROCR_VISIBLE_DEVICES "${ROCR_VISIBLE_DEVICES:-}"
    argosy_see HIP_VISIBLE_DEVICES "${HIP_VISIBLE_DEVICES:-}"
    argosy_see CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES:-}"
    argosy_see ZE_AFFINITY_MASK "${ZE_AFFINITY_MASK:-}"
    argosy_see SLURM_STEP_GPUS "${SLURM_STEP_GPUS:-}"
    set -- /dev/nvidia[0-9]*
    [ -e "$1" ] || set -- /dev/dri/renderD*
    [ -e "$1" ] || shift
    argosy_line="rank=${RANK:-${SLURM_PROCID:-0}} local=${LOCAL_RANK:-${SLURM_LOCALID:-0}} host=$argosy_host"
    argosy_line="$argosy_line job=${SLURM_JOB_ID:-0} restart=${SLURM_RESTART_COUNT:-0}"
    printf '%s\n' "$argosy_line cores=$argosy_cores devices=$#$argosy_seen" >> "${argosy_note_file%/*}/ranks-$argosy_host"
    [ "$#" -gt 0 ]
}
# NCCL and RCCL log the network that they use, unless NCCL_DEBUG is set; with many ranks, one rank per node logs.
if argosy_note && [ -z "${NCCL_DEBUG:-}" ] &&
    { [ "${WORLD_SIZE:-1}" -le 64 ] || [ "${LOCAL_RANK:-0}" = 0 ]; }; then
    NCCL_DEBUG_FILE=${argosy_note_file%/*}/nccl-${SLURM_RESTART_COUNT:-0}-%h-%p.log
    export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV NCCL_DEBUG_FILE
fi 2> /dev/null
# The shell's own message about a missing program would contain the name of this file.
argosy_refuse() {
    printf 'argosy: %s: %s\n' "$1" "$2" >&2
    exit "$3"
}
argosy_at=@PLACE@ argosy_name=${1:-}
case $argosy_name in
    */*)
        [ -e "$argosy_name" ] || argosy_refuse "$argosy_name" "not found $argosy_at" 127
        [ ! -d "$argosy_name" ] || argosy_refuse "$argosy_name" "is a folder, not a program" 126
        [ -x "$argosy_name" ] || argosy_refuse "$argosy_name" "permission denied: not executable $argosy_at" 126
        argosy_first='' && { read -r argosy_first < "$argosy_name" || :; } 2> /dev/null
        case $argosy_first in
            '#!'*"$(printf '\r')")
                argosy_first=${argosy_first#??} && argosy_first=${argosy_first%?}
                argosy_refuse "$argosy_name" "bad interpreter: $argosy_first^M" 126
                ;;
            '#!'*)
                argosy_first=${argosy_first#??} && argosy_first=${argosy_first#"${argosy_first%%[! ]*}"}
                argosy_first=${argosy_first%%[[:space:]]*}
                [ -e "$argosy_first" ] ||
                    argosy_refuse "$argosy_name" "its interpreter $argosy_first is not found $argosy_at" 127
                ;;
        esac
        ;;
    ?*) command -v "$argosy_name" > /dev/null || argosy_refuse "$argosy_name" "not found $argosy_at" 127 ;;
esac
