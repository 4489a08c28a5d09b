# shellcheck shell=sh disable=SC2034,SC2154
# A smoke run that still runs after $1 seconds has succeeded: end it before Slurm does.
end_smoke_run_after() {
    argosy_enough='' argosy_seconds=$1
    trap 'argosy_enough=yes; pass_signal TERM' ALRM
    (
        sleep "$1"
        kill -s ALRM $$
    ) > /dev/null 2>&1 &
    argosy_timer=$!
}
judge_smoke_run() {
    kill "$argosy_timer" 2> /dev/null || :
    [ -n "$argosy_enough" ] || return 0
    argosy_code=0
    echo "argosy: the smoke run succeeded: it ran for $argosy_seconds s, and was ended"
}
