"""Each line names its cause and no other one, and lines of jobs that went well name none."""

from __future__ import annotations

import pytest

from argosy.diagnostics.why.rules import find_errors, read_signatures

SIGNATURES = read_signatures()
NCCL = "n1:41:42 [0] transport/x.cc:7 NCCL WARN "

CAUSES = [
    ("gpu-memory", f"{NCCL}Cuda failure 2 'out of memory'"),
    ("gpu-memory", f"{NCCL}Failed to CUDA calloc 6291456 bytes"),
    ("gpu-memory", "E cuda_driver.cc:55] failed to alloc 8589934592 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("gpu-library-start", "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate resources. code: 0x1008"),
    ("shared-memory", f"{NCCL}Call to posix_fallocate failed : No space left on device"),
    ("shared-memory", f"{NCCL}Error while creating shared memory segment /dev/shm/nccl-aB3 (size 9637888)"),
    ("gpudirect-registration", f"{NCCL}Call to ibv_reg_mr_iova2 failed with error Bad address"),
    ("locked-memory", f"{NCCL}Call to ibv_create_qp failed"),
    ("locked-memory", f"{NCCL}Call to ibv_create_cq failed with error Cannot allocate memory"),
    ("locked-memory", f"{NCCL}Call to ibv_reg_mr failed with error Cannot allocate memory"),
    ("no-user-namespace-space", "FATAL:   Failed to create user namespace: user namespace disabled"),
    ("no-user-namespace-space", "enroot-nsenter: failed to create user namespace: Operation not permitted"),
    ("hdf5-lock", "BlockingIOError: Unable to open file (unable to lock file, errno = 11, error message = 'busy')"),
    ("session-folder", "FATAL:   failed to resolve session directory /opt/mnt/session: lstat /opt/mnt: no such file"),
    ("loop-devices", "FATAL:   while mounting image: failed to find loop device: no loop devices available"),
    ("container-cgroups", "FATAL:   container creation failed: while applying cgroups config: permission denied"),
    ("fakeroot-mapping", "FATAL:   newuidmap was not found in PATH (/usr/bin), required with fakeroot"),
    ("build-folder", "FATAL:   While pulling: mkdir /scratch/ada/.apptainer: permission denied"),
    ("enroot-folders", "slurmstepd: error: pyxis: couldn't mkdir /run/pyxis/2001: No such file or directory"),
    (
        "enroot-hook-other",
        "slurmstepd: error: pyxis:   [ERROR] /etc/enroot/hooks.d/87-slurm.sh exited with return code 1",
    ),
    ("pyxis-missing", 'srun: error: Warning: SPANK plugin "pyxis" option "container-image" not found'),
    ("kernel-too-old", "FATAL: kernel too old"),
    ("driver-too-old", "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update"),
    ("scontrol-missing", "/work/train.sh: line 7: scontrol: command not found"),
    ("slurm-in-container", "srun: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host"),
    ("no-code-for-gpu", f"{NCCL}Cuda failure 500 'named symbol not found'"),
    ("peer-access", f"{NCCL}hipIpcGetMemHandle failed : invalid argument"),
    ("peer-access", "n1:41:42 [0] /build/hipify/src/transport/p2p.cc:9 NCCL WARN HIP failure 'invalid argument'"),
    ("cuda-libraries-mixed", "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
    ("memory-fault", ":0:rocdevice.cpp:2652: HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in an exception"),
    ("memory-fault", "HSA_STATUS_ERROR_MEMORY_FAULT: Agent attempted to access an inaccessible address"),
    ("xid-of-the-program", "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=python, Graphics Exception: ESR 0x504648=0x0"),
    ("xid-of-the-program", "NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=python, Ch 00000010"),
    ("gpu-fell-off", "NVRM: Xid (PCI:0000:3b:00): 74, pid=7, NVLink: fatal error detected on link 6"),
    ("gpu-fell-off", "NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name=python, Contained ECC error"),
    ("gpu-fell-off", "               NVRM: fallen off the bus and is not responding to commands."),
    ("miopen-build", "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:286: Code object build failed. Source: a.cl"),
    ("collectives-differ", f"{NCCL}Message truncated : received 1024 bytes instead of 512"),
    ("wrong-interface", f"{NCCL}socketStartConnect: Connect to 10.0.0.2<4> failed : Software caused connection abort"),
    ("gloo-mesh", "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error"),
    (
        "gloo-mesh",
        "RuntimeError: [/p/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.2]:7: Connection refused",
    ),
    ("fabric-failed", "n1:41:42 [0] f:9 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 110. Error: timeout"),
    ("libfabric-no-provider", "oneCCL: atl_ofi_helper.cpp:1132 EXCEPTION: can't find suitable provider"),
    (
        "libfabric-no-provider",
        "create_vni_context(7).....: OFI endpoint open failed (ofi_init.c:7:create_vni_context:Invalid)",
    ),
    (
        "cxi-resources",
        "MPIDI_OFI_handle_cq_error(1062): OFI poll failed (ofi_events.c:1064:Input/output error - UNDELIVERABLE)",
    ),
    ("processes", "oneCCL: exec_worker.cpp:90 EXCEPTION: pthread_create returns 22"),
    ("mpi-transport", "[n1:77] [[64574,1],8] selected pml cm, but peer [[64574,1],0] on n1 selected pml ucx"),
    ("one-rank-each", "[unset]:   This singleton init program attempted to access some feature"),
    (
        "rank-numbers",
        "n1:41:42 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
    ),
    ("compiler-missing", "a.h:6:10: fatal error: cuda_profiler_api.h: No such file or directory"),
    ("backend-missing", "RuntimeError: No backend type associated with device type xpu"),
    ("slurm-gres", "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification"),
    ("slurm-two-variables", "srun: fatal: SLURM_CPUS_PER_TASK=8 != SLURM_TRES_PER_TASK=cpu:4"),
    ("slurm-options-conflict", "sbatch: error: --gpus-per-task and --ntasks-per-gpu are mutually exclusive"),
    ("slurm-credential", "srun: error: Application launch failed: Invalid job credential"),
    ("slurm-script-lost", "slurmstepd: error: execve(): /tmp/slurmd/job00089/slurm_script: No such file or directory"),
    ("slurm-export-none", "slurmstepd: error: _fork_all_tasks: train.sh: Can not execute"),
    ("slurm-cpus", "srun: error: Application launch failed: Unable to layout tasks on given cpus"),
    ("slurm-step-waits", "srun: error: Unable to create step for job 7: Requested nodes are busy"),
    ("ended-with-others", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T12:54:54 ***"),
    ("xid-cleanup", "NVRM: Xid (PCI:0000:44:00): 45, pid=7, name=python3, Ch 00000008"),
    ("nccl-gave-up", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"),
    ("gpu-memory", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
    ("gpu-memory", "tensorflow.errors.ResourceExhaustedError: OOM when allocating tensor with shape[256,1024]"),
    ("gpu-memory", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ("node-memory", "[77.1] Out of memory: Killed process 4242 (python) total-vm:64000000kB"),
    ("shared-memory", "RuntimeError: It is possible that dataloader's workers are out of shared memory."),
    ("processes", "libgomp: Thread creation failed: Resource temporarily unavailable"),
    ("device-full", "OSError: [Errno 28] No space left on device"),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/tmp/x'"),
    ("sqlite-lock", "sqlite3.OperationalError: disk I/O error"),
    ("no-file-locks", "OSError: [Errno 38] Function not implemented"),
    ("file-system-lost", "TimeoutError: [Errno 110] Connection timed out: '/scratch/a'"),
    ("broken-file", "FATAL:   could not open image /p/a.sif: image format not recognized"),
    ("home-elsewhere", "PermissionError: [Errno 13] Permission denied: '/home/appuser/.cache/huggingface'"),
    ("permission-denied", "PermissionError: [Errno 13] Permission denied: '/data/out.pt'"),
    ("temporary-folder", "OSError: AF_UNIX path too long"),
    ("starter-setuid", "FATAL:   starter-suid doesn't have setuid bit set"),
    ("wrong-architecture", "no matching manifest for linux/arm64/v8 in the manifest list entries"),
    ("ranks-apart", f"{NCCL}Error while attaching to shared memory segment /dev/shm/nccl-aB3 (size 512)"),
    ("slurm-in-container", "x: error: s_p_parse_file: unable to status file /etc/slurm/slurm.conf: No such file"),
    ("command-missing", "/scratch/run.sh: line 5: samtools: command not found"),
    ("no-gpu-seen", "RuntimeError: Found no NVIDIA driver on your system."),
    ("no-gpu-seen", "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices found"),
    ("device-ordinal", "Failed call to cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal"),
    ("gpu-after-fork", "RuntimeError: CUDA error: initialization error"),
    ("gpu-library-start", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    ("memory-fault", "RuntimeError: CUDA error: unspecified launch failure"),
    ("gpu-fell-off", "Unable to determine the device handle for GPU 0000:C1:00.0: Unknown Error"),
    ("gpu-hang", "HW Exception by GPU node-4 (Agent handle: 0x1) reason :GPU Hang"),
    ("no-code-for-gpu", "ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'"),
    ("nvls", "n1:41:42 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'"),
    ("wrong-interface", f"{NCCL}Call to connect returned No route to host, retrying"),
    ("rendezvous-unreachable", "RuntimeError: connect() timed out. Original timeout was 900000 ms."),
    ("cxi-resources", "cxil_map: write error"),
    (
        "pmi-missing",
        "MPI startup(): PMI server not found. Please set I_MPI_PMI_LIBRARY variable if it is not a singleton",
    ),
    ("ssh-between-nodes", "n2: Host key verification failed."),
    (
        "lightning-tasks",
        "RuntimeError: You set `--ntasks=2` in your SLURM bash script, but this variable is not supported.",
    ),
    ("no-network", "dial tcp: lookup registry-1.docker.io: no such host"),
    ("hub-limit", "HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api"),
    ("certificates", "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    ("package-versions", "ImportError: cannot import name 'x' from 'y' (/opt/env/y.py)"),
    ("file-missing", "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.json'"),
    ("nan-loss", "Exception: Current loss scale already at minimum - cannot decrease scale anymore."),
    ("modules", "environment: line 17: /usr/share/lmod/lmod/libexec/lmod: No such file or directory"),
    ("slurm-refused", "srun: error: Unable to create step for job 7: Job/step already completing or completed"),
    ("collective-timeout", "[rank1]:[E307] Received a dump signal due to a collective timeout from this local rank"),
    ("segfault", "  traceback : Signal 7 (SIGBUS) received by PID 7"),
]

HARMLESS = [
    "WARNING: Using the latest cached version of the module from /hf/modules (OfflineModeIsEnabled)",
    "[W1120 12:00:00 socket.cpp:601] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 97)",
    "The node 'n1_7_0' has failed to shutdown the rendezvous 'x' due to an error of type RendezvousConnectionError.",
    "[n1:7] PMIX ERROR: ERROR in file gds_shmem2.c at line 1005",
    "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx942.kdb Performance may degrade.",
    "INFO:    User not listed in /etc/subuid, trying root-mapped namespace",
    "INFO:    Setting --writable-tmpfs (required by nvidia-container-cli)",
    "INFO:absl:Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA",
    "W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: no such file",
    "wandb: Network error (ConnectionError), entering retry loop.",
    "I tensorflow/cuda_driver.cc:763] failed to allocate 3.00G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    f'{NCCL}Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
]


@pytest.mark.parametrize(("name", "line"), CAUSES)
def test_a_line_names_its_cause_and_no_other(name: str, line: str) -> None:
    assert [each.name for each in find_errors(f"epoch 1\n{line}\nepoch 2\n", SIGNATURES)] == [name]


@pytest.mark.parametrize("line", HARMLESS)
def test_a_harmless_line_names_no_cause(line: str) -> None:
    assert find_errors(f"epoch 1\n{line}\nepoch 2\n", SIGNATURES) == ()
