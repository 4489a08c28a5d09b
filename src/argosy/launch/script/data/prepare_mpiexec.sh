# shellcheck shell=sh disable=SC2034
# mpiexec (hydra) starts its helpers by srun, which must pass this environment on.
prepare_mpiexec() {
    command -v mpiexec > /dev/null || stop "the modules do not provide mpiexec" 4
    # The memory limit of an outer job, and names of this node, must not reach the other nodes.
    unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURMD_NODENAME SLURM_NODEID
    export SLURM_EXPORT_ENV=ALL
    argosy_hosts=$(echo "$argosy_hosts" | paste -s -d , -)
}
