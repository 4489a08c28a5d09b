# shellcheck shell=sh
# One task starts all ranks of a node: it needs the cores of all tasks that Slurm counted there.
need_cores_of_node() {
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || set -- "$((SLURM_CPUS_PER_TASK * ${SLURM_NTASKS_PER_NODE:-1}))"
    need_cores "$1"
}
