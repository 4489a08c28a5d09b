# shellcheck shell=sh
# In one container per node: NODES RANKS_PER_NODE OPTIONS... PROGRAM...
start_torchrun() {
    argosy_nodes=$1 argosy_per_node=$2
    shift 2
    if [ "$argosy_nodes" -eq 1 ]; then
        set -- --standalone "$@"
    else
        set -- --nnodes="$argosy_nodes" --node-rank="$SLURM_NODEID" \
            --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
    fi
    run_torchrun --nproc-per-node="$argosy_per_node" "$@"
}
