#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
#SBATCH --account=project_1
#SBATCH --partition=pvc9
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
#
# train on dawn: 2 nodes with 4 GPUs and 4 ranks on each.
# Written by Argosy 0.1.0; it runs without Argosy. The reason for each value: argosy explain
#   mode = COMPOSITE: each card is a root device: 4 ranks on a node
#   partition = pvc9: the job uses whole nodes; no partition was given
#   launcher = mpi: the host's mpiexec starts a container for each rank
#   runtime = apptainer: the site's runtime
#   gpu = by /dev: the GPUs need only their device files
#   assumed: the image is not on this machine, and is assumed to contain PyTorch
#   cores of each rank = Slurm's choice: the profile has no gpu_cpus
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329

main() {
    # --- The program ---
    argosy_image=/project/images/train.sif
    # The numbers come from Slurm, so 'sbatch --nodes=8' scales this script.
    check_allocation
    argosy_nodes=$SLURM_JOB_NUM_NODES
    argosy_ranks_per_node=${SLURM_GPUS_ON_NODE:-4}
    share_cores  # sets argosy_node_cores, argosy_cores_per_rank
    bind_on_nodes /etc/libibverbs.d /usr/bin/ibv_devices /usr/lib64/libefa.so.1 \
        /usr/lib64/libibverbs /usr/lib64/libibverbs.so.1 /usr/lib64/libmlx5.so.1 \
        '/usr/lib64/libmlx5.so.1.*' /usr/lib64/libnl-route-3.so.200 /usr/lib64/libnl-3.so.200 \
        /usr/lib64/libnuma.so.1 /usr/lib64/libpsm2.so.2 /usr/lib64/librdmacm.so.1 \
        /usr/lib64/libucm.so.0 /usr/lib64/libucp.so.0 /usr/lib64/libucs.so.0 \
        /usr/lib64/libuct.so.0 \
        /usr/local/dawn/software/spack-rocky9/opt-dawn-2025-03-23/linux-rocky9-sapphirerapids/oneapi-2025.1.0

    # --- The environment of the ranks ---
    pass_signals
    find_rendezvous  # sets MASTER_ADDR, MASTER_PORT, argosy_first, argosy_hosts
    # Not in the container: the host's software and mounts.
    unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV
    unset CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
    # Set for the container by name: the image would override a plain export.
    export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" APPTAINERENV_MASTER_PORT="$MASTER_PORT"
    # the cores that Slurm gives on the node, divided by its ranks
    export APPTAINERENV_OMP_NUM_THREADS="$argosy_cores_per_rank"
    export APPTAINERENV_ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE  # each card is a root device
    # every rank sees all root devices of the job on its node
    export APPTAINERENV_ZE_AFFINITY_MASK=0,1,2,3
    # oneCCL gets its ranks from the launcher of Intel MPI
    export APPTAINERENV_CCL_PROCESS_LAUNCHER=hydra
    export APPTAINERENV_CCL_ATL_TRANSPORT=ofi  # the transport mpi is slower
    # the scripts of dawn-containers set it and give no reason
    export APPTAINERENV_CCL_ATL_SHM=0 APPTAINERENV_CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK=0
    export APPTAINERENV_CCL_MNIC=global  # the value local works only with the provider psm3
    export APPTAINERENV_CCL_MNIC_COUNT=1  # one interface is usually faster than several
    export APPTAINERENV_CCL_LOG_LEVEL=warn  # prints errors only
    # lets programs find the host libraries that are mounted
    export APPTAINERENV_LD_LIBRARY_PATH=/usr/lib64/libibverbs:/usr/lib64:/.singularity.d/libs
    # the only transport that these bind mounts support
    export APPTAINERENV_CCL_ZE_IPC_EXCHANGE=sockets
    # the fastest of tcp, psm3 and verbs in the measurements of dawn-containers
    export APPTAINERENV_FI_PROVIDER=tcp
    export APPTAINERENV_I_MPI_OFI_PROVIDER=tcp  # sets the same provider for Intel MPI
    enable_modules
    module purge
    module load rhel9/default-dawn intel-oneapi-ccl/2021.15.0 ||
        stop "the modules cannot be loaded: see 'module avail'" 4
    set -eu

    # --- Start: one container per rank ---
    prepare_mpiexec
    run_step mpiexec -n "$((argosy_nodes * argosy_ranks_per_node))" \
        -ppn "$argosy_ranks_per_node" --hosts "$argosy_hosts" \
        sh -c "$argosy_helpers" check_node "$argosy_image" apptainer /dev/dri \
            "$argosy_node_paths" \
        apptainer --quiet exec --no-eval "$argosy_image" \
        /bin/sh -c "$argosy_helpers" start_mpi_rank "$argosy_ranks_per_node" '' python train.py \
            50 10
    [ "$argosy_code" -eq 0 ] || stop "job $SLURM_JOB_ID ended with code $argosy_code" "$argosy_code"
}

# --- Helpers: the same text in every script ---

# Without an allocation, each srun below would request its own.
check_allocation() {
    [ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
    # In a step of srun, the ranks would inherit its cores.  Steps of sbatch and salloc: -5, -6, 4294967290.
    [ "${SLURM_STEP_ID:--5}" -lt 0 ] || [ "$SLURM_STEP_ID" = 4294967290 ] || {
        unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE
        export SLURM_OVERLAP=1
    }
}

# The nodes of a job may differ: print the 36 of 72(x2),36.
fewest_cores() { echo "$1" | tr , '\n' | sed 's/(.*//' | sort -n | head -n 1; }

# The ranks of a node share the cores that Slurm gave; otherwise each would start threads for all cores.
# The tasks of an allocation may be fewer than its ranks, and have more cores than fit.
share_cores() {
    argosy_node_cores=$(fewest_cores "$SLURM_JOB_CPUS_PER_NODE")
    argosy_cores_per_rank=$((argosy_node_cores / argosy_ranks_per_node))
    [ "${SLURM_CPUS_PER_TASK:-999}" -ge "$argosy_cores_per_rank" ] || argosy_cores_per_rank=$SLURM_CPUS_PER_TASK
    [ "$argosy_cores_per_rank" -gt 0 ] || argosy_cores_per_rank=1
}

# Bind these paths into the container if the node has them: the runtime fails for a missing path.
bind_on_nodes() { argosy_node_paths=$*; }

# Pass signals on to the ranks: sh does not forward those of scancel and Slurm's warnings.
pass_signals() {
    argosy_step=''
    trap 'pass_signal USR1' USR1
    trap 'pass_signal USR2' USR2
    trap end_step TERM INT HUP
}
pass_signal() { kill -s "$1" "$argosy_step" 2> /dev/null || :; }
end_step() {
    [ -n "$argosy_step" ] || exit 143
    pass_signal TERM
}

# Choose where all ranks connect: the first node, with the suffix $1, and a free port there.
# Each job, restart and later start has another one: ranks of a lost run must not join.
find_rendezvous() {
    argosy_hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    argosy_first=${argosy_hosts%%[[:space:]]*}
    MASTER_ADDR=$argosy_first${1:-}
    # In a cloud, the name of a node may have no address: Slurm knows it.
    getent hosts "$MASTER_ADDR" > /dev/null || {
        set -- "$(scontrol show node "$argosy_first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')"
        MASTER_ADDR=${1:-$MASTER_ADDR}
    }
    argosy_start=$((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31 + (${SLURM_TASK_PID:-0} ^ $$)))
    set -- sh -c "$argosy_helpers" free_port "$((20000 + argosy_start % 10000))"
    [ "${SLURMD_NODENAME:-}" = "$argosy_first" ] ||
        set -- srun ${argosy_step_options:-} --overlap --nodes=1 --ntasks=1 --nodelist="$argosy_first" "$@"
    MASTER_PORT=$("$@")
    MASTER_PORT=${MASTER_PORT##*[!0-9]} # without text of a TaskProlog
}

# The sh of a batch job may not define the command module, and modules fail under 'set -eu'.
enable_modules() {
    set +eu
    command -v module > /dev/null || . /etc/profile
}

# mpiexec (hydra) starts its helpers by srun, which must pass this environment on.
prepare_mpiexec() {
    command -v mpiexec > /dev/null || stop "the modules do not provide mpiexec" 4
    # The memory limit of an outer job, and names of this node, must not reach the other nodes.
    unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURMD_NODENAME SLURM_NODEID
    export SLURM_EXPORT_ENV=ALL
    argosy_hosts=$(echo "$argosy_hosts" | paste -s -d , -)
}

# Start a step.  A signal ends 'wait' but not the step, so wait until the step has ended.
run_step() {
    "$@" &
    argosy_step=$!
    while
        argosy_code=0
        wait "$argosy_step" || argosy_code=$?
        kill -0 "$argosy_step" 2> /dev/null
    do :; done
    # If a signal came just when the step ended, another 'wait' has its code in dash; bash lost it.
    argosy_again=0
    wait "$argosy_step" || argosy_again=$?
    [ "$argosy_again" -ge 127 ] || argosy_code=$argosy_again
}

# End with a message and an exit code that 'argosy why' explains.
stop() {
    printf 'argosy: %s\n' "$1" >&2
    exit "$2"
}

# Slurm copies this file to the first node only, so functions for all nodes are passed as text:
# sh -c "$argosy_helpers" NAME ARGUMENTS... calls the function NAME.
argosy_helpers=$(cat <<'HELPERS'
# Print the first free port from $1 on.
free_port() {
    while grep -qs ":$(printf %04X "$1") " /proc/net/tcp*; do
        set -- "$(($1 + 1))"
    done
    echo "$1"
}

stop_node() {
    printf 'argosy: %s on %s\n' "$1" "${SLURMD_NODENAME:-$(hostname)}" >&2
    exit "$2"
}

# IMAGE RUNTIME GPU_DEVICE PATHS COMMAND...: refuse a broken node, which would fail with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    # Bind the folder of PMIx, PATHS, TMPDIR and the site's certificates, if this node has them.
    argosy_mounts=${APPTAINER_BIND:-${SINGULARITY_BIND:-}} # of a module that the job loaded
    for argosy_path in "${PMIX_SERVER_TMPDIR:-}" $4 "${TMPDIR:-}" \
        "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "${PIP_CERT:-}"; do
        [ ! -e "$argosy_path" ] || argosy_mounts=$argosy_mounts${argosy_mounts:+,}$argosy_path
    done
    [ -z "$argosy_mounts" ] || export APPTAINER_BIND="$argosy_mounts" SINGULARITY_BIND="$argosy_mounts"
    shift 4
    exec "$@"
}

# In one container per rank: RANKS_PER_NODE RECORD PROGRAM...
# Set the variables that PyTorch reads, from those of the MPI launcher (PMIx, PMI-2, Open MPI, Slurm).
start_mpi_rank() {
    RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
    WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
    LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
    LOCAL_WORLD_SIZE=$1 NODE_RANK=$((RANK / $1))
    export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
    # mpiexec (hydra) has one Slurm task per node, whose numbers Lightning and JAX would take for those of the rank.
    if [ -n "${MPI_LOCALRANKID:-}" ]; then
        export SLURM_PROCID="$RANK" SLURM_LOCALID="$LOCAL_RANK" SLURM_NODEID="$NODE_RANK" SLURM_NTASKS_PER_NODE="$1"
        export SLURM_NTASKS="$WORLD_SIZE" SLURM_NPROCS="$WORLD_SIZE" SLURM_STEP_NUM_TASKS="$WORLD_SIZE"
        SLURM_TASKS_PER_NODE=$1
        [ "$WORLD_SIZE" -eq "$1" ] || SLURM_TASKS_PER_NODE="$1(x$((WORLD_SIZE / $1)))"
        export SLURM_TASKS_PER_NODE SLURM_STEP_TASKS_PER_NODE="$SLURM_TASKS_PER_NODE"
        unset SLURM_GTIDS
    fi
    # Ranks in separate user namespaces may not read the memory or the /proc of other ranks.
    export UCX_POSIX_USE_PROC_LINK="${UCX_POSIX_USE_PROC_LINK:-n}"
    OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
    export OMPI_MCA_btl_vader_single_copy_mechanism
    argosy_note_file=$2
    shift 2
    [ ! -r "$argosy_note_file" ] || . "$argosy_note_file"
    exec "$@"
}

"$0" "$@"
HELPERS
)

set -eu
main
