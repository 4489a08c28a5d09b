# shellcheck shell=sh
# On each node of a job: print the node, and what the ranks and GPUs use.  Arguments: AWK_PROGRAM SAMPLES [PID]
# Without PID, the processes of the Slurm job count; with it, those below that process.
read_files() {
    if [ -n "$argosy_root" ]; then
        ls /proc/[0-9]*/environ
    else
        grep -alz "^SLURM_JOB_ID=$SLURM_JOB_ID\$" /proc/[0-9]*/environ
    fi
} 2> /dev/null
read_ranks() {
    read -r argosy_up _ < /proc/uptime
    echo "at $argosy_up"
    argosy_names='RANK|LOCAL_RANK|SLURM_PROCID|SLURM_LOCALID|SLURM_STEP_ID'
    argosy_names="$argosy_names|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|CUDA_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    argosy_files=$(read_files)
    {
        # shellcheck disable=SC2086
        grep -azHE "^($argosy_names)=" $argosy_files /dev/null | tr '\0' '\n'
        for argosy_file in $argosy_files; do
            grep -HE '^(VmRSS|Threads|Cpus_allowed_list):' "${argosy_file%environ}status"
            grep -H '' "${argosy_file%environ}stat"
        done
    } 2> /dev/null | awk -v own="${SLURM_STEP_ID:-}" -v root="$argosy_root" "$argosy_sum"
}
# The tools of a node with a broken GPU can hang.
read_gpus() {
    if command -v nvidia-smi > /dev/null; then
        echo "gpus nvidia"
        timeout 10 nvidia-smi --query-gpu=index,uuid,utilization.gpu,memory.used,memory.total \
            --format=csv,noheader,nounits
        echo "processes nvidia"
        timeout 10 nvidia-smi --query-compute-apps=pid,gpu_uuid --format=csv,noheader
    elif command -v rocm-smi > /dev/null; then
        echo "gpus amd"
        timeout 10 rocm-smi --showuse --showmeminfo vram --json
        echo "processes amd"
        timeout 10 rocm-smi --showpidgpus
    elif command -v xpu-smi > /dev/null; then
        echo "gpus intel"
        timeout 10 xpu-smi dump -d -1 -m 0,5,18 -n 1
    fi
} 2> /dev/null
argosy_sum=$1 argosy_samples=$2 argosy_root=${3:-}
while read -r argosy_key argosy_value _; do
    case $argosy_key in
        MemTotal:) argosy_total=$argosy_value ;;
        MemAvailable:) argosy_free=$argosy_value ;;
    esac
done < /proc/meminfo
argosy_name=${SLURMD_NODENAME:-$(hostname)}
echo "node $argosy_name $(getconf _NPROCESSORS_ONLN) $(getconf CLK_TCK) $argosy_total $argosy_free"
read_ranks
read_gpus
[ "$argosy_samples" -lt 2 ] || {
    sleep 1
    read_ranks
}
echo end
