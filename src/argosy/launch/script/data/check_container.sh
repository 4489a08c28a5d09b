# shellcheck shell=sh
# In each container that srun starts: GPU_DEVICE COMMAND...
check_container() {
    [ -z "$1" ] || [ -e "$1" ] || stop_node "GPUs were requested, but the container has no $1" 7
    shift
    # shellcheck disable=SC1091
    [ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
    exec "$@"
}
