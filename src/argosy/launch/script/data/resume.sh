# shellcheck shell=sh disable=SC2034,SC2154
# Requeue the job, but only after a run that wrote a new checkpoint:
# a job without progress would otherwise restart forever.
resume_from() {
    argosy_checkpoint=$1 argosy_restarts=$2 argosy_restart=${SLURM_RESTART_COUNT:-0}
    argosy_warned='' argosy_stopped=''
    argosy_mark=$argosy_checkpoint.argosy-$SLURM_JOB_ID
    if [ "$argosy_restart" -gt 0 ] && ! has_saved; then
        rm -f "$argosy_mark"
        stop "the last run left no new $argosy_checkpoint: another one would not make progress" 1
    elif [ "$argosy_restart" -gt "$argosy_restarts" ]; then
        rm -f "$argosy_mark"
        stop "this job was restarted $argosy_restarts times already" 1
    fi
    { mkdir -p "${argosy_checkpoint%/*}/" && touch "$argosy_mark"; } ||
        stop "$argosy_checkpoint cannot be written" 7
}
has_saved() { [ -n "$(find "$argosy_checkpoint" -newer "$argosy_mark" 2> /dev/null)" ]; }
# Pass the warning $1 on once, and end the ranks after $2 seconds.
warn_ranks_by() {
    argosy_warning=$1 argosy_patience=$2
    trap warn_ranks "$1"
    trap 'pass_signal TERM' ALRM
    trap 'argosy_stopped=yes; end_step' TERM INT HUP
}
warn_ranks() {
    [ -z "$argosy_warned" ] || return 0
    argosy_warned=yes
    pass_signal "$argosy_warning"
    echo "argosy: the time limit is near: $argosy_warning to the ranks, TERM in $argosy_patience s"
    (
        sleep "$argosy_patience"
        kill -s ALRM $$
    ) &
}
# The controller may not answer for a while: try $1 times.  The next run needs the mark.
requeue() {
    if [ -n "$argosy_warned" ] && [ "$argosy_restart" -lt "$argosy_restarts" ] && has_saved; then
        argosy_restart=$((argosy_restart + 1)) argosy_left=$1
        echo "argosy: a new checkpoint: back into the queue, restart $argosy_restart of $argosy_restarts"
        until scontrol requeue "$SLURM_JOB_ID"; do
            argosy_left=$((argosy_left - 1))
            [ "$argosy_left" -gt 0 ] ||
                stop "Slurm does not requeue the job: scontrol requeue $SLURM_JOB_ID" 7
            sleep 5
        done
        exit 0
    fi
    # A lost node or an operator that ended this run may also start it again.
    [ -n "$argosy_stopped" ] || rm -f "$argosy_mark"
}
