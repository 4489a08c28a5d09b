# shellcheck shell=sh
# In one container per node: MIN:MAX RANKS_PER_NODE END_FILES OPTIONS... PROGRAM...
# The run continues with at least MIN nodes. Ranks then get new numbers, so rank 0 may run on any node.
start_elastic() {
    argosy_nodes=$1 argosy_per_node=$2 argosy_run=$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
    argosy_end_file=${3:+$3-$argosy_run-$SLURM_NODEID}
    shift 3
    trap note_good_end EXIT
    set -- --rdzv-id="$SLURM_JOB_ID.$SLURM_STEP_ID.${SLURM_RESTART_COUNT:-0}" "$@"
    set -- --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" "$@"
    set -- --rdzv-conf="is_host=$((SLURM_NODEID == 0))" --local-addr="$SLURMD_NODENAME" "$@"
    run_torchrun --nproc-per-node="$argosy_per_node" --nnodes="$argosy_nodes" --max-restarts=3 "$@"
}
# srun reports a failure if a node was lost: a file per node shows where the run succeeded.
note_good_end() {
    argosy_code=$?
    [ "$argosy_code" -ne 0 ] || [ ! -d "${argosy_end_file%/*}" ] || : > "$argosy_end_file"
    exit "$argosy_code"
}
