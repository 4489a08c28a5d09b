# shellcheck shell=sh
# Print the first port from $1 on that no socket of this node uses.
free_port() {
    argosy_port=$1
    while grep -qs ":$(printf %04X "$argosy_port") " /proc/net/tcp*; do
        argosy_port=$((argosy_port + 1))
    done
    echo "$argosy_port"
}
