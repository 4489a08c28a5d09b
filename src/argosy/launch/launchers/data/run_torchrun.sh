# shellcheck shell=sh disable=SC2046
# Run the module: a vendor's program torchrun does not see the packages of the layer.
run_torchrun() {
    argosy_logs=$(mktemp -d) # otherwise torchrun leaves a folder in /tmp
    python -m torch.distributed.run --log-dir="$argosy_logs" "$@" &
    argosy_agent=$!
    trap 'signal_workers USR1' USR1
    trap 'signal_workers USR2' USR2
    trap 'kill -s TERM "$argosy_agent"' TERM INT
    # A trap ends wait but not torchrun.
    while
        argosy_code=0
        wait "$argosy_agent" || argosy_code=$?
        kill -0 "$argosy_agent" 2> /dev/null
    do :; done
    rm -rf "$argosy_logs"
    exit "$argosy_code"
}
# USR1 and USR2 are for the workers, and would end torchrun.
signal_workers() { kill -s "$1" $(cat /proc/"$argosy_agent"/task/*/children); } 2> /dev/null
