# shellcheck shell=sh disable=SC2086
# Start several copies on this machine; the first that fails ends the others, which would wait for it.
start_beside() {
    "$@" &
    argosy_pids="$argosy_pids $!" argosy_rank=$((argosy_rank + 1))
}
wait_for_copies() {
    argosy_code=0
    trap 'kill $argosy_pids 2>/dev/null || :' TERM INT HUP
    for argosy_pid in $argosy_pids; do
        wait "$argosy_pid" || {
            argosy_ended=$?
            [ "$argosy_code" -ne 0 ] || {
                argosy_code=$argosy_ended
                kill $argosy_pids 2> /dev/null || :
            }
        }
    done
    exit "$argosy_code"
}
