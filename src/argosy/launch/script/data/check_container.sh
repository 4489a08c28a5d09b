# shellcheck shell=sh
# In each container that srun starts: GPU_DEVICE FOLDERS COMMAND...
check_container() {
    [ -z "$1" ] || [ -e "$1" ] || stop_node "GPUs were requested, but the container has no $1" 7
    for argosy_folder in $2; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        own_folder "$argosy_folder" ||
            stop_node "$argosy_folder cannot be created in the container, or belongs to another user" 7
    done
    shift 2
    # shellcheck disable=SC1091
    [ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
    exec "$@"
}
