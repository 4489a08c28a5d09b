# shellcheck shell=sh
# RANK RANKS PROGRAM...: set the rank variables of one of several copies on this machine.
start_copy() {
    export RANK="$1" LOCAL_RANK="$1" WORLD_SIZE="$2" LOCAL_WORLD_SIZE="$2"
    shift 2
    case $1 in
        */*) ;;
        *) command -v "$1" > /dev/null || {
            echo "argosy: $1: not found in the container" >&2
            exit 127
        } ;;
    esac
    exec "$@"
}
