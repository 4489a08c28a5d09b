# shellcheck shell=sh disable=SC2013,SC2046,SC2086
# The program torchrun of a vendor's image does not see the packages of the layer, so run the module.
run_torchrun() {
    argosy_per_node=$1
    shift
    # Without --log-dir, torchrun leaves a folder in /tmp.
    argosy_logs=$(mktemp -d) && set -- --log-dir="$argosy_logs" "$@"
    python -m torch.distributed.run --nproc-per-node="$argosy_per_node" "$@" &
    argosy_agent=$!
    trap 'signal_workers USR1' USR1
    trap 'signal_workers USR2' USR2
    trap 'kill -s TERM "$argosy_agent" 2>/dev/null' TERM INT
    # A trap ends wait but not torchrun.
    while
        argosy_code=0
        wait "$argosy_agent" || argosy_code=$?
    do
        kill -0 "$argosy_agent" 2> /dev/null || break
    done
    rm -rf "$argosy_logs"
    exit "$argosy_code"
}
# USR1 and USR2 are for the workers, and would end torchrun.
signal_workers() {
    for argosy_worker in $(cat /proc/$argosy_agent/task/*/children); do
        kill -s "$1" "$argosy_worker"
    done
} 2> /dev/null
