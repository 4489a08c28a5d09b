# shellcheck shell=sh disable=SC2034
# Start a step.  A signal ends 'wait' but not the step, so wait until the step has ended.
run_step() {
    "$@" &
    argosy_step=$!
    while
        argosy_code=0
        wait "$argosy_step" || argosy_code=$?
        kill -0 "$argosy_step" 2> /dev/null
    do :; done
}
