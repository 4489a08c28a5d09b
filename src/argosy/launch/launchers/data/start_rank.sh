# shellcheck shell=sh disable=SC1090
# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# Set the variables that PyTorch, Lightning, Accelerate, DeepSpeed and JAX read, from those of this Slurm task.
start_rank() {
    export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
    export LOCAL_WORLD_SIZE="$1" NODE_RANK="$SLURM_NODEID" GROUP_RANK="$SLURM_NODEID"
    # By default, JAX computes an ephemeral port from the job number, which may be in use.
    export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS:-$MASTER_ADDR:$MASTER_PORT}"
    argosy_note_file=$2
    shift 2
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
