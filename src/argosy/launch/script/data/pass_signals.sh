# shellcheck shell=sh disable=SC2034
# Pass signals on to the ranks: sh does not forward those of scancel and Slurm's warnings.
pass_signals() {
    argosy_step=''
    trap 'pass_signal USR1' USR1
    trap 'pass_signal USR2' USR2
    trap end_step TERM INT HUP
}
pass_signal() { [ -z "$argosy_step" ] || kill -s "$1" "$argosy_step" 2> /dev/null || :; }
end_step() {
    [ -n "$argosy_step" ] || exit 143
    pass_signal TERM
}
