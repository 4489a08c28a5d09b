# shellcheck shell=sh disable=SC2086,SC2154
# Start several copies on this machine; the first that fails ends the others, which would wait for it.
start_beside() {
    trap 'argosy_stopped=yes; kill $argosy_pids 2> /dev/null || :' TERM INT HUP
    [ -n "$argosy_stopped" ] || {
        run_copy "$@" &
        argosy_pids="$argosy_pids $!"
    }
    argosy_rank=$((argosy_rank + 1))
}
# Run a copy and pass the signal to end on to it.  One that fails notes its code, and stops the shell that waits for all:
# 'wait' would see only the copy that it waits for.
run_copy() {
    argosy_copy=''
    trap '[ -n "$argosy_copy" ] || exit 143; kill "$argosy_copy" 2> /dev/null || :' TERM
    "$@" &
    argosy_copy=$!
    wait_to_end "$argosy_copy"
    [ "$argosy_code" -eq 0 ] || {
        echo "$argosy_code" >> "$argosy_codes"
        kill "$$"
    }
    exit "$argosy_code"
}
# A signal ends 'wait' but not the process, so wait until the process has ended.
wait_to_end() {
    while
        argosy_code=0
        wait "$1" || argosy_code=$?
        kill -0 "$1" 2> /dev/null
    do :; done
}
wait_for_copies() {
    # A copy that began while the signal was handled has not received it.
    [ -z "$argosy_stopped" ] || kill $argosy_pids 2> /dev/null || :
    for argosy_pid in $argosy_pids; do
        wait_to_end "$argosy_pid"
        [ "$argosy_code" -eq 0 ] || [ -s "$argosy_codes" ] || echo "$argosy_code" >> "$argosy_codes"
    done
    argosy_code=$(head -n 1 "$argosy_codes")
    rm -f "$argosy_codes"
    exit "${argosy_code:-0}"
}
