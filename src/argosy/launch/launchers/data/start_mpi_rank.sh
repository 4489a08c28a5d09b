# shellcheck shell=sh disable=SC1090
# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# Set the variables that PyTorch reads, from those of the MPI launcher (PMIx, PMI-2, Open MPI, Slurm).
start_mpi_rank() {
    RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
    WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
    LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
    LOCAL_WORLD_SIZE=$1 NODE_RANK=$((RANK / $1))
    export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
    # Ranks in separate user namespaces may not read the memory or the /proc of other ranks.
    export UCX_POSIX_USE_PROC_LINK="${UCX_POSIX_USE_PROC_LINK:-n}"
    OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
    export OMPI_MCA_btl_vader_single_copy_mechanism
    argosy_note_file=$2
    shift 2
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}
