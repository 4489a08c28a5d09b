#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
#SBATCH --account=project_1
#SBATCH --partition=pvc9
#SBATCH --time=00:15:00
#SBATCH --output=train-%j.out
# train: 8 rank(s) on 2 node(s), site dawn.
# Made by Argosy 0.1.0; it needs no Argosy where it runs.  'argosy explain' says the reasons in full.
#   mode = COMPOSITE: each card is a root device: 4 ranks on a node [site]
#   partition = pvc9: the job uses whole nodes; none was asked for [site]
#   nodes = 2, GPUs per node = 4: asked for [option]
#   ranks per node = 4: one per GPU [default]
#   cores per rank = cores of the node / ranks: counted when the job starts: the site's jobs ask … [site]
#   launcher = mpi: the host's mpiexec starts a container per rank, and the host's MPI is bound … [site]
#   runtime = apptainer: the site's runtime [site]
#   layer = flat: the image has no layer of its own [image]
#   gpu = by /dev: Intel's GPUs are device nodes, which come in with /dev; the user-space driver … [site]
#   assumed = /project/images/train.sif: the image is not here: taken for one with torch, … [assumed]
#   assumed = home, folder: not this machine's: the job's own at dawn [assumed]
#   bind = /etc/libibverbs.d, /usr/bin/ibv_devices, …: the host's MPI and its network libraries … [site]
# shellcheck disable=SC2016,SC2086,SC2317  # text for other shells, traps
set -eu

stop() { printf "argosy: %s\n" "$1" >&2; exit "$2"; }
[ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
[ "${SLURM_STEP_ID:-4294967290}" = 4294967290 ] || { unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE; export SLURM_OVERLAP=1; }  # in a step of srun
# Slurm's numbers: sbatch --nodes=8 scales this script.
nodes=$SLURM_JOB_NUM_NODES ranks_per_node=${SLURM_GPUS_ON_NODE:-4} cores=${SLURM_JOB_CPUS_PER_NODE%%[!0-9]*}

# This shell stays, and passes signals on to the ranks.
step=''; pass() { [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || :; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2
trap '[ -n "$step" ] || exit 143; pass TERM' TERM INT HUP

# The rendezvous: the first host, node03 of node[03-07,9], and a free port there, below the ephemeral ones.
port='# A free port of the $2 after $1, from $3 on.
port=$3 left=$2
while [ "$left" -gt 0 ]; do
    busy=$(ss -Hltn "sport = :$port") || busy=$(grep -s ":$(printf %04X "$port") " /proc/net/tcp*) || :
    [ -n "$busy" ] || break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"'
list=${SLURM_JOB_NODELIST%%,*}[ n=${list#*\[}; first=${list%%\[*}${n%%[][x-]*}
set -- $((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31)) $(( (${SLURM_TASK_PID:-0} - $$) % 10000 + 10000 ))
MASTER_ADDR=${first}; set -- 20000 10000 $((20000 + ($1 + $2) % 10000))
if [ "${SLURMD_NODENAME:-}" = "$first" ]; then MASTER_PORT=$(eval "$port")
else MASTER_PORT=$(srun --overlap -N1 -n1 -w "$first" sh -c "$port" argosy-port "$@")  # as in salloc
fi || stop "no free port" 7

# Not inside: the host's software, its mounts.
unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
# Forced by name: an image's own value beats a plain export.
export APPTAINERENV_MASTER_ADDR="$MASTER_ADDR" APPTAINERENV_MASTER_PORT="$MASTER_PORT"
# what Slurm gave on the node, shared by its ranks [site]
export APPTAINERENV_OMP_NUM_THREADS="$((cores > ranks_per_node ? cores / ranks_per_node : 1))"
export APPTAINERENV_ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE  # each card is a root device [site]
export APPTAINERENV_ZE_AFFINITY_MASK=0,1,2,3  # every rank sees all root devices that the job has … [site]
export APPTAINERENV_CCL_PROCESS_LAUNCHER=hydra  # oneCCL learns its ranks from Intel MPI's launcher [site]
export APPTAINERENV_CCL_ATL_TRANSPORT=ofi  # the transport mpi is slower [site]
# as the author's scripts set it [site]
export APPTAINERENV_CCL_ATL_SHM=0 APPTAINERENV_CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK=0
export APPTAINERENV_CCL_MNIC=global  # the value local works with the provider psm3 only [site]
export APPTAINERENV_CCL_MNIC_COUNT=1  # one interface tends to beat several [site]
export APPTAINERENV_CCL_LOG_LEVEL=warn  # errors are seen, and nothing else [site]
# the bound libraries of the host are found [site]
export APPTAINERENV_LD_LIBRARY_PATH=/usr/lib64/libibverbs:/usr/lib64:/.singularity.d/libs
export APPTAINERENV_CCL_ZE_IPC_EXCHANGE=sockets  # the only mechanism that these bind mounts enable [site]
export APPTAINERENV_FI_PROVIDER=tcp  # the fastest of the three that the author measured: tcp, … [site]
export APPTAINERENV_I_MPI_OFI_PROVIDER=tcp  # Intel MPI is to use the same provider [site]

# Modules of the site; a batch job's plain sh may not know the command yet.
set +eu
# shellcheck disable=SC1091
command -v module >/dev/null || . /etc/profile
module purge
module load rhel9/default-dawn intel-oneapi-ccl/2021.15.0
set -eu

node='# On each node: words IMAGE RUNTIME GPU_NODE FOLDERS PATHS, then the command.  Another user may have made a folder.
stop() { printf "argosy: %s on %s\n" "$1" "$SLURMD_NODENAME" >&2; exit "$2"; }
[ -r "$1" ] || stop "the image $1 cannot be read" 6
command -v "$2" >/dev/null || stop "$2 is not installed" 4
[ -z "$3" ] || [ -e "$3" ] || stop "GPUs were asked for, and there is no $3" 7
own() { mkdir -m 700 "$1" 2>/dev/null || [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }
for folder in $4; do (umask 077; mkdir -p "${folder%/*}/"); own "$folder" || stop "$folder is not ours" 7; done
# The container sees the folder of PMIx, and what this node has of PATHS and TMPDIR.
binds=${PMIX_SERVER_TMPDIR:-}; for path in $5 ${TMPDIR:-}; do [ ! -e "$path" ] || binds=$binds${binds:+,}$path; done
[ -z "$binds" ] || export APPTAINER_BIND="$binds" SINGULARITY_BIND="$binds"
shift 5; exec "$@"'
rank='# One per rank: what PyTorch looks for, from what the MPI launcher told this process (PMIx, PMI-2, Open MPI, Slurm).
RANK=${PMIX_RANK:-${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}}}
WORLD_SIZE=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}}}
LOCAL_RANK=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
LOCAL_WORLD_SIZE=$1 NODE_RANK=$((RANK / $1))
export RANK WORLD_SIZE LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE
# Ranks in user namespaces of their own may open no files of others in /proc, nor read their memory.
export UCX_POSIX_USE_PROC_LINK="${UCX_POSIX_USE_PROC_LINK:-n}"
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
shift
exec "$@"'
# hydra starts its helpers by srun, which must take this environment, and no memory limit of an outer job.
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE
# Each node has its own of these; mpiexec would send the first node's.
unset SLURMD_NODENAME SLURM_NODEID
export SLURM_EXPORT_ENV=ALL
command -v mpiexec >/dev/null || stop "the modules bring no mpiexec" 4
list=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -s -d , -)
mpiexec -n "$((nodes * ranks_per_node))" -ppn "$ranks_per_node" --hosts "$list" \
    sh -c "$node" argosy-node /project/images/train.sif apptainer /dev/dri '' \
        '/etc/libibverbs.d /usr/bin/ibv_devices /usr/lib64/libefa.so.1 /usr/lib64/libibverbs /usr/lib64/libibverbs.so.1 /usr/lib64/libmlx5.so.1 /usr/lib64/libmlx5.so.1.* /usr/lib64/libnl-route-3.so.200 /usr/lib64/libnl-3.so.200 /usr/lib64/libnuma.so.1 /usr/lib64/libpsm2.so.2 /usr/lib64/librdmacm.so.1 /usr/lib64/libucm.so.0 /usr/lib64/libucp.so.0 /usr/lib64/libucs.so.0 /usr/lib64/libuct.so.0 /usr/local/dawn/software/spack-rocky9/opt-dawn-2025-03-23/linux-rocky9-sapphirerapids/oneapi-2025.1.0' \
        apptainer --quiet exec --no-eval /project/images/train.sif /bin/sh -c "$rank" argosy-rank \
        "$ranks_per_node" python train.py 50 10 & step=$!
while code=0; wait "$step" || code=$?; kill -0 "$step" 2>/dev/null; do :; done  # a trap ends wait, not srun
[ "$code" -eq 0 ] || echo "argosy: job $SLURM_JOB_ID ended with code $code" >&2
exit "$code"
