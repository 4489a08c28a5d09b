"""What the job scripts say that people use today, line by line, and where ours says it or why not.

Each row: what their script says, in our words; then either a pattern that ours must match, or the reason why it
deliberately differs.  The scripts: LUMI on 2 nodes (a wrapper's tutorial; the masks of the site's own guide),
MareNostrum 5 on 2 nodes, Dawn on several nodes under mpiexec, AAC6 by the same scripts, and a tutorial for any cluster
with NVIDIA's GPUs and Apptainer: torchrun, PyTorch Lightning and the NCCL test on 2 nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of theirs.

    Attributes
    ----------
    ours
        Regular expression that our script matches.
    never
        Regular expression that it must not match, where we differ; `why` is then the reason.
    """

    theirs: str
    ours: str = ""
    never: str = ""
    why: str = ""


LUMI = (
    Row("an account", r"#SBATCH --account=project_1"),
    Row("the partition for whole nodes", r"#SBATCH --partition=standard-g"),
    Row("two nodes", r"#SBATCH --nodes=2"),
    Row("GPUs by --gpus-per-node", r"#SBATCH --gpus-per-node=8"),
    Row(
        "two GPUs of each node",
        r"--gpus-per-node=8",
        r"--gpus-per-node=2",
        "standard-g bills whole nodes: all are used",
    ),
    Row("a time limit", r"#SBATCH --time=00:15:00"),
    Row("one task per node", r"#SBATCH --ntasks-per-node=1"),
    Row(
        "7 cores for torchrun and all its ranks", r"--cpus-per-task=56", r"--cpus-per-task=7\b", "7 cores for each rank"
    ),
    Row("60 GB for the node", r"#SBATCH --mem-per-gpu=60G", r"--mem=60G", "8 ranks shared what is meant for one"),
    Row("RCCL on Slingshot's four interfaces", r"NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3"),
    Row(
        "GPUDirect level PHB",
        "",
        r"export .*NCCL_NET_GDR_LEVEL",
        "level 3 is the default from ROCm 6.2, and PHB hangs with ROCm 7: LUMI-AI-Guide pull request 97",
    ),
    Row("the first host as the meeting point", r"scontrol show hostnames \S+\)\n +argosy_first="),
    Row("port 29500", r"MASTER_PORT=\$\(", r"MASTER_PORT=29500", "two jobs on one node would meet"),
    Row("torchrun by srun", r"python -m torch\.distributed\.run"),
    Row("the number of nodes from Slurm", r"--nnodes=\$argosy_nodes"),
    Row("workers per node from Slurm", r"--nproc-per-node=\$argosy_ranks_per_node"),
    Row("the c10d rendezvous", r"--node-rank=", r"--rdzv_?-?backend", "c10d may put rank 0 off the first host"),
    Row("the program's arguments", r"train\.py 50 10"),
    Row("the container", r"singularity --quiet exec"),
    Row("no GPU option of the runtime", "", r"exec [^\n]*--rocm", "it does not fully work there"),
    Row("file systems by singularity-userfilesystems", r"argosy_binds=/pfs,/scratch,"),
    Row("Slurm's spool folder by singularity-CPEbits", r"argosy_binds=\S+,/var/spool/slurmd,"),
    Row("HPE's libraries by singularity-CPEbits", r"argosy_binds=\S+,/opt/cray"),
    Row("the CXI library by singularity-CPEbits", r"argosy_binds=\S+,/usr/lib64/libcxi\.so\.1$"),
    Row("libjansson by singularity-CPEbits", "", r"libjansson", "for older images only, as the site's easyconfig says"),
    Row("module purge and the two bind modules", "", r"module load", "what they bind stands in the script itself"),
    Row("MIOpen's database in /tmp", r"MIOPEN_USER_DB_PATH=\"/tmp/"),
    Row("MIOpen's cache in /tmp", r"MIOPEN_CUSTOM_CACHE_DIR=\"/tmp/"),
    Row(
        "that folder is made by local rank 0",
        r"umask 077 && mkdir -p",
        r"sleep",
        "made before ranks start: nobody waits",
    ),
    Row("fork-safe CXI", r"CXI_FORK_SAFE=1"),
    Row("cores nearest to each GPU", r"49-55;57-63;17-23;25-31;1-7;9-15;33-39;41-47"),
)

LUMI_SRUN = (
    Row("eight tasks per node", r"#SBATCH --ntasks-per-node=8"),
    Row("7 cores per task of the job", r"#SBATCH --cpus-per-task=7"),
    Row(
        "the guide's eight masks",
        r"--cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000",
    ),
    Row("no -c beside the mask", r"unset SRUN_CPUS_PER_TASK", r"srun [^&]*--cpus-per-task"),
    Row("no --gpus-per-task", "", r"gpus-per-task", "it breaks peer access between GCDs there"),
    Row("rank variables from Slurm", r'RANK="\$SLURM_PROCID" WORLD_SIZE="\$SLURM_NTASKS" LOCAL_RANK="\$SLURM_LOCALID"'),
    Row(
        "ROCR_VISIBLE_DEVICES per rank",
        "",
        r"ROCR_VISIBLE_DEVICES",
        "the program takes cuda:LOCAL_RANK: all GPUs stay visible, so peers reach each other",
    ),
)

MN5 = (
    Row("a job name", r"#SBATCH --job-name=train"),
    Row("two nodes", r"#SBATCH --nodes=2"),
    Row("one task per node, which is torchrun", r"#SBATCH --ntasks-per-node=1"),
    Row("GPUs by --gres", r"#SBATCH --gres=gpu:4"),
    Row("20 cores per GPU", r"#SBATCH --cpus-per-task=80"),
    Row("a time limit", r"#SBATCH --time=00:15:00"),
    Row("an account", r"#SBATCH --account=project_1"),
    Row("a QOS", r"#SBATCH --qos=acc_debug"),
    Row("no threads", r"#SBATCH --hint=nomultithread"),
    Row("no partition", "", r"#SBATCH --partition", "none of their scripts gives one"),
    Row(
        "output and error in two files",
        r"#SBATCH --output=train-%j\.out",
        r"--error",
        "one file, unless --error is given",
    ),
    Row("module purge", r"^ +module purge$"),
    Row("module load singularity", r"^ +module load singularity \|\|$"),
    Row("the cores again on srun", r'--cpus-per-task="\$(argosy_need|\{SLURM_CPUS_PER_TASK:-80\})"'),
    Row("the job id on srun", "", r"--jobid", "srun in a job's script is in that job already"),
    Row("srun --wait 60", r"--wait=60"),
    Row("singularity exec --nv", r"exec\s+(\\\s+)?--no-eval --nv"),
    Row("their folder bound", "", r"/home/upc", "home and current directory come in by themselves"),
    Row("the node's rank by the task", r'--node-rank="\$SLURM_NODEID"'),
    Row("workers per node", r"--nproc-per-node="),
    Row("port 6000", r"MASTER_PORT=\$\(", r"=6000\b", "two jobs on one node would meet"),
    Row("the first host as the meeting point", r"--master-addr="),
    Row("no restarts", "", r"max.restarts", "torchrun's own default is 0"),
    Row("--tee 3", "", r"--tee", "workers write to the job's output by default; with --torchrun-arg it can be given"),
)

DAWN = (
    Row("the partition", r"#SBATCH --partition=pvc9"),
    Row("an account", r"#SBATCH --account=project_1"),
    Row("GPUs by --gres", r"#SBATCH --gres=gpu:4"),
    Row("neither tasks nor cores", "", r"#SBATCH --(ntasks|cpus)", "mpiexec starts the ranks"),
    Row("two ranks per card in FLAT", r"ranks_per_node=\$\(\(\$\{SLURM_GPUS_ON_NODE:-4\} \* 2\)\)"),
    Row("the hierarchy", r"ZE_FLAT_DEVICE_HIERARCHY=FLAT"),
    Row("every device for every rank", r"ZE_AFFINITY_MASK=0,1,2,3,4,5,6,7"),
    Row("threads: the node's cores shared out", r'OMP_NUM_THREADS="\$argosy_cores_per_rank"'),
    Row("the node list by scontrol", r"scontrol show hostnames"),
    Row("port 50000 + job id", r"MASTER_PORT=\$\(", r"50000", "Linux gives such ports to others: its ephemeral range"),
    Row("no memory limit of an outer job", r"unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE"),
    Row("srun takes the environment", r"export SLURM_EXPORT_ENV=ALL"),
    Row("module purge", r"^ +module purge$"),
    Row("the site's modules", r"^ +module load rhel9/default-dawn intel-oneapi-ccl/2021\.15\.0 \|\|$"),
    Row(
        "the host's mpiexec",
        r'mpiexec -n "\$\(\(argosy_nodes \* argosy_ranks_per_node\)\)" \\\n +-ppn "\$argosy_ranks_per_node" --hosts',
    ),
    Row("NCCL_DEBUG=VERSION", "", r"NCCL_DEBUG", "oneCCL does not read it"),
    Row("quiet oneCCL", r"CCL_LOG_LEVEL=warn"),
    Row("oneCCL under hydra", r"CCL_PROCESS_LAUNCHER=hydra"),
    Row("oneCCL over libfabric", r"CCL_ATL_TRANSPORT=ofi"),
    Row("IPC handles by sockets", r"CCL_ZE_IPC_EXCHANGE=sockets"),
    Row("no shared memory in oneCCL", r"CCL_ATL_SHM=0"),
    Row("no check of the fabric", r"CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK=0"),
    Row("one interface", r"CCL_MNIC_COUNT=1"),
    Row("interfaces chosen globally", r"CCL_MNIC=global"),
    Row("the provider tcp", r"FI_PROVIDER=tcp"),
    Row("the same for Intel MPI", r"I_MPI_OFI_PROVIDER=tcp"),
    Row("I_MPI_DEBUG=0", "", r"I_MPI_DEBUG", "it is Intel MPI's default"),
    Row(
        "the path of libraries inside", r"APPTAINERENV_LD_LIBRARY_PATH=/usr/lib64/libibverbs:/usr/lib64:/\.singularity"
    ),
    Row("the host's verbs configuration", r"/etc/libibverbs\.d "),
    Row("the host's Intel MPI", r"/oneapi-2025\.1\.0$"),
    Row(
        "libmlx5 by its full version",
        r"/usr/lib64/libmlx5\.so\.1\.\*",
        r"25\.58\.0",
        "it changes with each OFED: looked for",
    ),
    Row("apptainer without a GPU option", r'apptainer --quiet exec --no-eval "\$argosy_image"'),
    Row("rank from PMI", r"\$\{PMI_RANK:-"),
    Row("data is fetched before the ranks start", "", r"download", "a step of the user's program, not of the site"),
)

AAC6 = (
    Row("the partition", r"#SBATCH --partition=1CN192C4G1H_MI300A_Ubuntu22"),
    Row("48 cores per GPU", r"#SBATCH --cpus-per-task=192", r"--cpus-per-gpu", "the same, for the task with all ranks"),
    Row(
        "a rank per GPU",
        r"gpus=\$\{SLURM_GPUS_PER_NODE:-\$\{SLURM_GPUS_ON_NODE:-4\}\}\n +argosy_ranks_per_node=\$\{argosy_gpus##\*:\}",
    ),
    Row("threads: the node's cores shared out", r'OMP_NUM_THREADS="\$argosy_cores_per_rank"'),
    Row("the node list by scontrol", r"scontrol show hostnames"),
    Row("port 50000 + job id", r"MASTER_PORT=\$\(", r"50000", "Linux gives such ports to others: its ephemeral range"),
    Row("the interface", r"NCCL_SOCKET_IFNAME=enp129s0"),
    Row("srun takes the environment", r"srun [^&]*--export=ALL"),
    Row("no memory limit of an outer job", "", r"SLURM_MEM", "srun in a job's script keeps to that job's memory"),
    Row("the modules of ROCm and Open MPI", "", r"module load", "the image has its ROCm; torchrun starts the ranks"),
    Row("the host's mpiexec", r"python -m torch\.distributed\.run", r"mpiexec", "one node: torchrun needs no MPI"),
    Row(
        "hipBLASLt of the host's ROCm bound", "", r"hipblaslt", "it goes with ROCm 7.2.3; the image has that of its own"
    ),
    Row("libdrm's table of GPU names bound", "", r"amdgpu\.ids", "without it a name is missing, and nothing else"),
    Row("no path of libraries", "", r"APPTAINERENV_LD_LIBRARY_PATH", "as theirs: nothing of the host is loaded"),
    Row(
        "oneCCL's and Intel MPI's variables", "", r"\b(CCL_|I_MPI|FI_PROVIDER)", "no Intel GPU, and no Intel MPI there"
    ),
    Row("NCCL_DEBUG=VERSION", "", r"NCCL_DEBUG", "--debug net asks for more, where it is wanted"),
    Row("apptainer exec", r'apptainer --quiet exec\s+(\\\s+)?--no-eval --rocm "\$argosy_image"'),
)

NVIDIA = (
    Row("two nodes", r"#SBATCH --nodes=2"),
    Row("two GPUs of each node", r"#SBATCH --gpus-per-node=2"),
    Row("one task per node", r"#SBATCH --ntasks-per-node=1"),
    Row("8 cores for torchrun and its ranks", r"#SBATCH --cpus-per-task=8"),
    Row("32 GB", "", r"#SBATCH --mem", "no two clusters have the same memory: --mem says it"),
    Row("the partition gpu", "", r"#SBATCH --partition", "no two clusters have the same names: --partition says it"),
    Row("a time limit", r"#SBATCH --time=00:15:00"),
    Row("the first host as the meeting point", r"scontrol show hostnames \S+\)\n +argosy_first="),
    Row("port 10000 + job id", r"MASTER_PORT=\$\(", r"\(10000 \+", "a port that is taken is passed over"),
    Row("WORLD_SIZE", r"--nnodes=\$argosy_nodes", r"WORLD_SIZE=", "torchrun tells its workers"),
    Row("srun --mpi=pmi2", "", r"--mpi=", "torchrun uses no MPI"),
    Row("apptainer exec --nv", r'apptainer --quiet exec\s+(\\\s+)?--no-eval --nv "\$argosy_image"'),
    Row("torchrun", r"python -m torch\.distributed\.run"),
    Row("workers per node", r"--nproc-per-node=\$argosy_ranks_per_node"),
    Row("a rendezvous by c10d", r'--node-rank="\$SLURM_NODEID"', r"--rdzv", "c10d may put rank 0 off the first host"),
    Row("its address", r'--master-addr="\$MASTER_ADDR" --master-port="\$MASTER_PORT"'),
    Row("LOGLEVEL and NCCL_DEBUG, commented out", "", r"LOGLEVEL|NCCL_DEBUG", "--debug torch,net asks for them"),
)

NVIDIA_MPI = (
    Row("a task per GPU", r"#SBATCH --ntasks-per-node=2"),
    Row("srun --mpi=pmi2", r"srun [^&]*--mpi=pmi2"),
    Row(
        "NODE_RANK from SLURM_PROCID",
        r"NODE_RANK=\$\(\(RANK / ",
        r"NODE_RANK=\S*PROCID",
        "that counts tasks, not nodes",
    ),
    Row("the node's rank by the task", r'-c "\$argosy_helpers" start_mpi_rank'),
    Row(
        "all_reduce_perf_mpi under srun",
        r"srun [^&]*apptainer --quiet exec",
        "",
        "argosy bench collectives measures by torch",
    ),
)

TABLES = (
    ("lumi-g/many-nodes", LUMI),
    ("lumi-g/many-nodes-srun-per-rank", LUMI_SRUN),
    ("mn5-acc/many-nodes", MN5),
    ("dawn/many-nodes", DAWN),
    ("aac6/one-node", AAC6),
    ("nvidia-apptainer/many-nodes", NVIDIA),
    ("nvidia-apptainer/many-nodes-mpi", NVIDIA_MPI),
)
ROWS = [pytest.param(name, row, id=f"{name}: {row.theirs}") for name, rows in TABLES for row in rows]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_each_line_of_a_seed_script_is_in_the_golden_script_or_differs_for_a_reason(name: str, row: Row) -> None:
    script = "\n".join(line for line in (GOLDEN / f"{name}.sh").read_text().splitlines() if not line.startswith("#  "))
    assert re.search(row.ours, script, re.MULTILINE), row.theirs
    assert not row.never or not re.search(row.never, script, re.MULTILINE), row.theirs
    assert row.ours or row.why, row.theirs
