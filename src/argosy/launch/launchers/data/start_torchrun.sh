# shellcheck shell=sh
# In one container per node: NODES RANKS_PER_NODE OPTIONS... PROGRAM...
# Rank r runs on node r / RANKS_PER_NODE: the first node of the list must have rank 0.
start_torchrun() {
    argosy_nodes=$1 argosy_per_node=$2
    shift 2
    if [ "$argosy_nodes" -eq 1 ]; then
        set -- --standalone "$@"
    else
        set -- --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
        set -- --nnodes="$argosy_nodes" --node-rank="$SLURM_NODEID" "$@"
    fi
    run_torchrun "$argosy_per_node" "$@"
}
