# shellcheck shell=sh
stop_node() {
    printf 'argosy: %s on %s\n' "$1" "${SLURMD_NODENAME:-$(hostname)}" >&2
    exit "$2"
}
