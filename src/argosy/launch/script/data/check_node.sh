# shellcheck shell=sh
# On each node, before the container: IMAGE RUNTIME GPU_DEVICE FOLDERS PATHS COMMAND...
# A node without its GPUs or file system would otherwise fail later with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    for argosy_folder in $4; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        own_folder "$argosy_folder" || stop_node "$argosy_folder belongs to another user, or is not private" 7
    done
    # Bind the folder of PMIx, and those of PATHS and TMPDIR that this node has.
    argosy_binds=${PMIX_SERVER_TMPDIR:-}
    for argosy_path in $5 ${TMPDIR:-}; do
        [ ! -e "$argosy_path" ] || argosy_binds=$argosy_binds${argosy_binds:+,}$argosy_path
    done
    [ -z "$argosy_binds" ] || export APPTAINER_BIND="$argosy_binds" SINGULARITY_BIND="$argosy_binds"
    shift 5
    exec "$@"
}
