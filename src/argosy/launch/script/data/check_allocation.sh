# shellcheck shell=sh
# Without an allocation, each srun below would request its own.
check_allocation() {
    [ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
    # In a step of srun, the ranks would inherit its cores.  Step 4294967290 is the shell of salloc.
    [ "${SLURM_STEP_ID:-4294967290}" = 4294967290 ] || {
        unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE
        export SLURM_OVERLAP=1
    }
}
