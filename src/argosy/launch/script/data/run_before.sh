# shellcheck shell=sh disable=SC2034,SC2154
# The command of --before must succeed, because the ranks need what it prepares.
run_before() {
    run_step "$@"
    argosy_step=''
    [ "$argosy_code" -eq 0 ] || stop "what runs before the ranks failed (code $argosy_code)" "$argosy_code"
}
