# shellcheck shell=sh
# IMAGE RUNTIME GPU_DEVICE PATHS COMMAND...: refuse a broken node, which would fail with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    # Bind the folder of PMIx, PATHS and TMPDIR, if this node has them.
    argosy_binds=${PMIX_SERVER_TMPDIR:-}
    for argosy_path in $4 ${TMPDIR:-}; do
        [ ! -e "$argosy_path" ] || argosy_binds=$argosy_binds${argosy_binds:+,}$argosy_path
    done
    [ -z "$argosy_binds" ] || export APPTAINER_BIND="$argosy_binds" SINGULARITY_BIND="$argosy_binds"
    shift 4
    exec "$@"
}
