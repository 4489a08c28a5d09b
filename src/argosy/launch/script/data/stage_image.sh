# shellcheck shell=sh disable=SC2034,SC2086,SC2154
# Copy the image to the disk of each node: thousands of ranks that read one file overload its servers.
# Other users may also write to that disk, so the folder is new and private, and has a random name.
stage_image() {
    argosy_folder=$1 argosy_name=$3
    argosy_each="srun --overlap --nodes=$argosy_nodes --ntasks=$argosy_nodes"
    argosy_each="$argosy_each --ntasks-per-node=1 --mpi=none"
    argosy_random=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
    argosy_staged=${argosy_folder%/}/argosy-stage-$SLURM_JOB_ID-$argosy_random
    trap 'unstage_image' EXIT
    $argosy_each sh -c "$argosy_helpers" create_stage "$argosy_folder" "$argosy_staged" ||
        stop "the new folder $argosy_staged cannot be created on every node" 7
    echo "argosy: copying the image to $argosy_staged on $argosy_nodes node(s)" >&2
    argosy_begun=$(date +%s)
    sbcast "$2" "$argosy_staged/$argosy_name" ||
        stop "the image cannot be copied to $argosy_staged on every node" 7
    argosy_image=$argosy_staged/$argosy_name
    echo "argosy: copied the image in $(($(date +%s) - argosy_begun)) s" >&2
}
unstage_image() { $argosy_each rm -rf "$argosy_staged" || :; }
