# shellcheck shell=sh
# Print a free port among the $2 ports after $1, starting at $3.  They are below the ephemeral ports.
free_port() {
    argosy_port=$3 argosy_left=$2
    while [ "$argosy_left" -gt 0 ]; do
        argosy_busy=$(ss -Hltn "sport = :$argosy_port") ||
            argosy_busy=$(grep -s ":$(printf %04X "$argosy_port") " /proc/net/tcp*) || :
        [ -n "$argosy_busy" ] || break
        argosy_port=$(($1 + (argosy_port - $1 + 1) % $2)) argosy_left=$((argosy_left - 1))
    done 2> /dev/null
    [ "$argosy_left" -gt 0 ] && echo "$argosy_port"
}
