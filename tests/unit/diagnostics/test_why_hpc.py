"""Failures of simulations, MPI programs and R on clusters: which line is named, and which is not."""

from __future__ import annotations

import pytest

from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures

SIGNATURES = read_signatures()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "Error in readRDS(name) :\n  unknown input format\nExecution halted\n",
            "Error in readRDS(name) : unknown input format'",
        ),
        (
            'Error in makeCluster(4, type = "FORK") : \n  could not find function "makeCluster"\nExecution halted\n',
            'could not find function "makeCluster"',
        ),
    ],
)
def test_the_message_of_an_r_error_is_in_the_next_line(log: str, message: str) -> None:
    """R breaks a long error after the call; the cause is the whole message and nothing more."""
    assert message in find_errors(log, SIGNATURES)[0].cause


def test_a_link_that_exists_is_no_cause() -> None:
    """A script continues after 'ln' or 'mkdir' found what it should make."""
    log = (
        "Compiler is set to gcc\n"
        "ln: failed to create symbolic link 'lib/mpi': File exists\n"
        "mkdir: cannot create directory 'lib': File exists\n"
    )
    assert {error.level for error in find_errors(log, SIGNATURES)} == {"warning"}


def test_a_crash_after_cfl_violations_is_not_called_a_small_stack() -> None:
    """The crash of an unstable simulation of WRF follows from the instability."""
    log = (
        "d01 2026-07-03_13:09:00  10  points exceeded cfl=2 in domain d01 at time 2026-07-03_13:09:00 hours\n\n"
        "Program received signal SIGSEGV: Segmentation fault - invalid memory reference.\n"
    )
    assert find_errors(log, SIGNATURES)[0].name == "wrf-cfl"


def test_openmp_without_a_usable_gpu_names_both_reasons() -> None:
    """libomptarget prints the same line if the process sees no GPU and if the program has no code for it."""
    log = (
        "omptarget error: No images found compatible with the installed hardware. Found 0 image(s): ()\n"
        "omptarget fatal error 1: failure of target construct while offloading is mandatory\n"
    )
    error = find_errors(log, SIGNATURES)[0]
    assert error.name == "omp-offload"
    assert any("sees no GPU" in reason for reason in error.often)
    assert any("no code for this GPU" in reason for reason in error.often)


def test_an_error_that_nccl_passes_up_is_no_step_of_a_loop() -> None:
    """NCCL prints a line for each function through which an error goes up; these lines repeat."""
    log = (
        "n1:29:30 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n"
        "n1:29:30 [0] NCCL INFO init.cc:867 -> 5\n"
        "n1:29:30 [0] NCCL INFO init.cc:903 -> 5\n"
        "n1:31:32 [0] NCCL INFO init.cc:867 -> 5\n"
        "n1:31:32 [0] NCCL INFO init.cc:903 -> 5\n"
    )
    error = find_errors(log, SIGNATURES)[0]
    assert (error.name, error.level) == ("nccl-same-gpu", "cause")


def test_ranks_of_open_mpi_that_do_not_reach_each_other_are_no_mixed_installation() -> None:
    log = (
        '  ompi_mpi_init: ompi_mpi_instance_init failed\n  --> Returned "Unreachable" (-12) instead of "Success" (0)\n'
    )
    assert find_errors(log, SIGNATURES)[0].name == "mpi-unreachable"


def test_other_sizes_in_a_checkpoint_are_no_matter_of_names() -> None:
    """All names of a wrapped model begin with 'module.', also if the checkpoint is of another model."""
    log = (
        "RuntimeError: Error(s) in loading state_dict for DataParallel:\n"
        '\tMissing key(s) in state_dict: "module.layer9.weight".\n'
    )
    sizes = "\tsize mismatch for module.conv0.weight: copying a param with shape torch.Size([64]) from checkpoint\n"
    assert find_errors(log, SIGNATURES)[0].name == "data-parallel-keys-missing"
    assert find_errors(log + sizes, SIGNATURES)[0].name == "checkpoint-mismatch"


def test_a_message_of_open_mpi_after_which_the_ranks_go_on_is_no_cause() -> None:
    """Its last lines, such as 'Error:', belong to the same error."""
    edge = "-" * 74
    box = (
        f"{edge}\nA system call failed during shared memory initialization that should\n"
        "not have.  It is likely that your MPI job will now either abort or\nexperience performance degradation.\n\n"
        f"  Local host:  n1\n  System call: mmap(2)\n  Error:       Bad address (errno 14)\n{edge}\n"
    )
    hello = "Hello world! from rank 0 out of 2 processors\nCalling MPI_Finalize()\n"
    assert find_errors(box + hello, SIGNATURES)[0].level == "survived"
    assert find_errors(box + "MPI_ERR_INTERN: internal error\n", SIGNATURES)[0].level == "cause"


def test_lines_of_fortran_begin_with_a_blank_and_are_ordinary() -> None:
    """Fortran's list-directed output has one blank before each line; lines of a traceback have at least two."""
    log = "UCX  ERROR no active messages transport to <no debug data>: self/self - Destination is unreachable\n"
    steps = "".join(f" Time step {number} of 20, residual 1.2E-0{number}\n" for number in range(1, 8))
    assert find_errors(log, SIGNATURES)[0].level == "cause"
    assert find_errors(log + steps, SIGNATURES)[0].level == "survived"


def test_errors_that_tensorflow_leaves_out_of_its_list_are_not_handled() -> None:
    log = "NotFoundError: 1 root error(s) found.\n  (0) Not found: ./bin/ptxas not found\n0 derived errors ignored.\n"
    assert find_errors(log, SIGNATURES)[0].level == "cause"


def test_the_signal_of_a_rank_without_slurm_is_named_and_the_advice_of_argosy_is_not() -> None:
    advice = (
        "to explain the failure, record the output: sh /home/ada/project/job.sh > run.log 2>&1; argosy why run.log\n"
    )
    for number, name in ((11, "segfault"), (9, "killed")):
        log = f"argosy: rank 0 failed first (signal {number}); the others were ended\n"
        assert [error.name for error in find_errors(log + advice, SIGNATURES)] == [name]


CARD_FAILED = """\
n3:811:955 [2] net_ib/common.cc:128 NCCL WARN NET/IB : mlx5_2:1 async fatal event: local catastrophic error

n3:811:931 [2] net_ib/common.cc:21 NCCL WARN NET/IB: ncclIbIsend: communicator encountered a fatal error (detected in x)
n3:811:931 [2] NCCL INFO transport/net.cc:1171 -> 2
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
srun: error: n3: task 10: Aborted (core dumped)
"""
PEER_GONE = """\
5:   File "/home/ada/project/train.py", line 120, in <module>
5:     batch = next(loader)
5: ValueError: sample 99127 has no labels
2: n1:12:30 [2] x:14 NCCL WARN NET/OFI Request 0x7 completed with error. RC: 107. Error: 4124 \
(Unresponsive receiver (connection previously established)). Completed length: 0
2: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
srun: error: n2: task 5: Exited with exit code 1
"""
HOOK = """\
docker: Error response from daemon: OCI runtime create failed: error during container init: error running hook #0: \
error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'csv'
invoking the NVIDIA Container Runtime Hook directly (e.g. the docker --gpus flag) is not supported: unknown.
"""
PSM = """\
n1:rank0.solve: PSM3 can't open nic unit: 0 (err=23)
Abort(1614991) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:
create_vni_context(2137).....: OFI endpoint open failed (ofi_init.c:2137:create_vni_context:Invalid argument)
"""
SOCKET = """\
c1:71:151 [1] misc/ipcsocket.cc:223 NCCL WARN UDS: Sending data over socket /tmp/x failed : Connection refused (111)
c1:71:151 [1] NCCL INFO proxy.cc:1147 -> 2
c1:71:151 [1] proxy.cc:1159 NCCL WARN ncclProxyClientGetFd call to tpRank 0 handle 0x7f3a failed : 2
[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:3356, unhandled system error, NCCL version 2.23.4
"""


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (CARD_FAILED, "ib-card-failed"),
        (PEER_GONE, "program-error"),
        (HOOK, "nvidia-hook-mode"),
        (PSM, "psm-no-endpoint"),
        (SOCKET, "nccl-fd-socket"),
    ],
)
def test_the_first_error_of_a_network_or_container_is_the_cause(log: str, name: str) -> None:
    """What libraries print after it is a symptom."""
    assert next(each.name for each in find_errors(log, SIGNATURES) if each.level == "cause") == name


def test_events_of_the_network_during_a_good_run_are_no_cause() -> None:
    log = (
        "libfabric:815:1732::verbs:fabric:vrb_get_rdma_rai():77<warn> rdma_getaddrinfo: No such device(19)\n"
        "step 10 loss 2.3\n"
        "n1:815:864 [0] net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(17)\n"
        "step 20 loss 2.1\n"
        "training finished, model saved\n"
    )
    assert {error.level for error in find_errors(log, SIGNATURES)} == {"warning"}


CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T12:54:54"


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (
            (
                "step 1\nsrun: error: n2: task 5: Exited with exit code 1\n"
                "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 1\n"
                f"{CANCELLED} ***\nsrun: error: n1: tasks 0-3: Killed\n"
            ),
            ["killed", "ended-with-others"],
        ),
        (
            (
                "step 1\nsrun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 1\n"
                f"{CANCELLED} ***\n"
            ),
            ["slurm-io-lost", "ended-with-others"],
        ),
        (
            (
                f"step 1\n{CANCELLED} DUE TO TIME LIMIT ***\n"
                "slurmstepd: error: *** STEP 7.0 STEPD TERMINATED ON n1 AT 2026-11-20T12:57:25 DUE TO JOB NOT ENDING "
                "WITH SIGNALS ***\n"
            ),
            ["time-limit", "slurm-not-ending"],
        ),
        (
            (
                "slurmstepd: error: switch_g_job_preinit: Error configuring interconnect\n"
                "slurmstepd: error: job_manager: exiting abnormally: Error configuring interconnect\n"
                "srun: error: Task launch for StepId=7.0 failed on node n1: Error configuring interconnect\n"
                "srun: error: Timed out waiting for job step to complete\n"
            ),
            ["slurm-interconnect", "slurm-wait"],
        ),
        (
            (
                "ERROR ~ Error executing process > 'A (1)'\n\nCaused by:\n"
                "  Failed to submit process to grid scheduler for execution\n\nCommand executed:\n  sbatch x\n\n"
                "Command output:\n"
                "sbatch: error: Batch job submission failed: Required node not available (down, drained or reserved)\n"
            ),
            ["slurm-node-down"],
        ),
        (
            (
                "Error in rule align:\n    message: SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. For further "
                "error details see the log\n    shell:\n        bwa mem ref.fa s1.fq\n"
            ),
            ["snakemake-slurm-time", "snakemake-rule"],
        ),
    ],
)
def test_what_slurm_prints_after_the_reason_is_no_cause(log: str, names: list[str]) -> None:
    """Slurm reports one failure in several lines: its helper on the node, srun, and the tool that submitted."""
    assert [error.name for error in find_errors(log, SIGNATURES)] == names


def test_the_node_that_could_not_start_a_task_is_named() -> None:
    log = "srun: error: Task launch for StepId=7.0 failed on node n1: Unspecified error\n"
    assert find_errors(log, SIGNATURES)[0].cause == "a node could not start the tasks on node n1: Unspecified error"
    task = "srun: error: task 0 launch failed: Unspecified error\n"
    assert find_errors(task, SIGNATURES)[0].cause == "a node could not start the tasks: Unspecified error"


def test_memory_limits_that_file_pages_reached_end_nothing() -> None:
    """Old versions of Slurm print this without 'error:' when pages of files filled the memory for a moment."""
    log = "51200+0 records out\nslurmstepd: Exceeded step memory limit at some point.\n"
    assert [(error.name, error.level) for error in find_errors(log, SIGNATURES)] == [("slurm-memory-peak", "warning")]


def test_an_image_of_singularity_hub_that_was_downloaded_is_no_cause() -> None:
    """The later error is that of the container."""
    log = (
        "INFO:    Downloading shub image\n"
        " 87.57 MiB / 87.57 MiB  100.00% 5.85 MiB/s\n"
        "FATAL:   container creation failed: mount /etc/localtime->/etc/localtime error: while mounting "
        "/etc/localtime: mount source /etc/localtime doesn't exist\n"
    )
    assert find_errors(log, SIGNATURES)[0].name == "bind-missing"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (
            (
                "pyxis: importing docker image: nvcr.io/nvidia/pytorch:24.10-py3\n"
                "slurmstepd: error: pyxis: child 4242 failed with error code: 1\n"
                "slurmstepd: error: pyxis: failed to import docker image: nvcr.io/nvidia/pytorch:24.10-py3\n"
                "slurmstepd: error: pyxis: printing enroot log file:\n"
                "slurmstepd: error: pyxis:     [INFO] Authentication succeeded\n"
                "slurmstepd: error: pyxis:     [ERROR] URL https://registry-1.docker.io/v2/nvcr.io/nvidia/pytorch/manifests/"
                "24.10-py3 returned error code: 401 Unauthorized\n"
                "slurmstepd: error: pyxis: couldn't start container\n"
                "srun: error: node1: task 0: Exited with exit code 1\n"
            ),
            "enroot-registry-separator",
        ),
        (
            (
                "srun: error: pyxis: ignoring --container-mounts because neither --container-image nor "
                "--container-name is set\nTraceback (most recent call last):\n"
                '  File "/home/ada/train.py", line 1, in <module>\n    import torch\n'
                "ModuleNotFoundError: No module named 'torch'\nsrun: error: node1: task 0: Exited with exit code 1\n"
            ),
            "pyxis-options-ignored",
        ),
        (
            (
                "slurmstepd: error: pyxis: container start failed with error code: 1\n"
                "slurmstepd: error: pyxis: printing enroot log file:\n"
                "slurmstepd: error: pyxis:     [WARN] fuse: device not found, try 'modprobe fuse' first\n"
                "slurmstepd: error: pyxis:     [ERROR] Failed to mount: /home/ada/train.sqsh\n"
                "slurmstepd: error: pyxis: couldn't start container\n"
            ),
            "fuse-missing",
        ),
        (
            (
                "Error: crun: chdir to `/workspace`: No such file or directory: "
                "OCI runtime attempted to invoke a command that was not found\n"
                "srun: error: node1: task 0: Exited with exit code 127\n"
            ),
            "container-folder-missing",
        ),
        (
            (
                'Error: runc: runc create failed: error mounting "/data" to rootfs at "/in": mount /data:/in: '
                "no such file or directory: OCI runtime attempted to invoke a command that was not found\n"
            ),
            "rootfs-mount",
        ),
    ],
)
def test_the_first_error_of_a_container_is_not_what_the_runtime_makes_of_it(log: str, name: str) -> None:
    assert find_errors(log, SIGNATURES)[0].name == name


def test_a_program_that_runs_outside_of_the_container_and_works_has_no_cause() -> None:
    log = (
        "srun: error: pyxis: ignoring --container-save because neither --container-image nor --container-name is set\n"
    )
    assert find_errors(f"{log}rank 0 of 1\ntraining finished\n", SIGNATURES)[0].level == "survived"


def test_errors_that_ranks_report_below_a_checkpoint_exception_are_the_cause() -> None:
    """torch.distributed.checkpoint raises one exception, whose message is the tracebacks of all ranks."""
    log = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/home/ada/project/train.py", line 72, in <module>\n'
        '[rank0]:     dcp.load(state, checkpoint_id="out/step-500")\n'
        "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\n"
        "[rank0]: Traceback (most recent call last): (RANK 0)\n"
        '[rank0]:   File "/home/ada/project/planner.py", line 163, in plan\n'
        "[rank0]:     local_data = map_fun()\n"
        "[rank0]: {}\n"
        "srun: error: node1: task 0: Exited with exit code 1\n"
    )
    unknown = find_errors(log.format("ValueError: no frobnicator for embed.weight"), SIGNATURES)[0]
    assert "no frobnicator for embed.weight" in unknown.cause
    sizes = (
        "ValueError: Size mismatch between saved torch.Size([32, 5]) and current: torch.Size([64, 5]) for embed.weight"
    )
    assert "embed.weight has the shape torch.Size([32, 5])" in find_errors(log.format(sizes), SIGNATURES)[0].cause


def test_a_setting_of_vllm_for_more_gpus_than_the_node_has_is_no_faulty_file() -> None:
    """Pydantic reports each wrong setting as an invalid configuration; its reason is in the next line."""
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig\n"
        "  Value error, World size (8) is larger than the number of available GPUs (4) in this node. If this is\n"
    )
    assert find_errors(log, SIGNATURES)[0].name == "ray-resources"


def test_workers_that_vllm_stops_after_its_all_reduce_failed_are_a_consequence() -> None:
    log = (
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
        "(EngineCore pid=7) ERROR 11-20 12:00:01 [multiproc_executor.py:314] Worker proc VllmWorker-0 died\n"
        "(EngineCore pid=7) ERROR 11-20 12:00:01 [core.py:700] EngineCore failed to start.\n"
        "(EngineCore pid=7) Traceback (most recent call last):\n"
        '(EngineCore pid=7)   File "/opt/vllm/vllm/v1/engine/core.py", line 691, in run_engine_core\n'
        "(EngineCore pid=7) RuntimeError: cancelled\n"
    )
    assert find_errors(log, SIGNATURES)[0].name == "custom-all-reduce"


def test_a_requeue_that_failed_comes_before_the_time_limit_that_follows() -> None:
    log = (
        "Handling auto-requeue signal: 10\nRequeuing SLURM job 4242 failed with error code 1\n"
        "slurmstepd: error: *** JOB 4242 ON node1 CANCELLED AT 2026-11-20T13:00:00 DUE TO TIME LIMIT ***\n"
    )
    assert [error.name for error in find_errors(log, SIGNATURES)] == ["lightning-requeue", "time-limit"]


def test_the_meeting_point_that_a_rank_did_not_reach_is_named() -> None:
    for line in (
        "[E socket.cpp:1021] [c10d] The client socket has timed out after 9ms while trying to connect to (n1, 29500).",
        "DistNetworkError: The client socket has failed to connect to [n1]:29500 (errno: 110 - Connection timed out).",
    ):
        assert "n1" in find_errors(line, SIGNATURES)[0].cause


def test_the_error_of_the_compiler_that_torch_compile_starts_is_the_cause() -> None:
    """PyTorch prints the command of the compiler as its own error, and below it what the compiler says."""
    log = (
        "[rank0]: torch._inductor.exc.InductorError: CalledProcessError: Command '['gcc', 'cuda_utils.c']'"
        " returned non-zero exit status 1.\n{}\ncompilation terminated.\n"
    )
    for line, name in (
        ("cuda_utils.c:6:10: fatal error: Python.h: No such file or directory", "python-headers"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "triton-libcuda"),
    ):
        assert find_errors(log.format(line), SIGNATURES)[0].name == name


def test_a_server_that_waits_for_gpus_of_ray_until_its_time_limit_is_told_what_it_waits_for() -> None:
    waits = (
        "INFO 11-20 12:00:30 [ray_utils.py:233] Waiting for creating a placement group of specs for 30 seconds. "
        "specs=[{'GPU': 1.0}]. Check `ray status`.\n"
    )
    limit = "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-20T13:00:00 DUE TO TIME LIMIT ***\n"
    assert find_errors(waits + limit, SIGNATURES)[0].name == "vllm-waits-for-gpus"
    assert not find_errors(waits + "INFO:     Application startup complete.\n", SIGNATURES)


def test_a_warning_of_the_libraries_of_pytorch_alone_is_no_cause() -> None:
    """A rank asks for IPv6 first and warns if the host has none, also if it goes on with IPv4."""
    line = (
        "[W{} socket.cpp:764] [c10d] The IPv6 network addresses of (n1, 29513) cannot be retrieved "
        "(gai error: -2 - Name or service not known).\n"
    )
    for time in ("1129 14:36:47.210739157", ""):
        assert {error.level for error in find_errors(line.format(time), SIGNATURES)} <= {"warning"}
        assert {error.level for error in find_errors("[rank1]:" + line.format(time), SIGNATURES)} <= {"warning"}


def test_ranks_that_ask_for_an_unknown_host_until_the_time_limit_are_told_so() -> None:
    line = (
        "[W1129 14:36:47.2 socket.cpp:764] [c10d] The IPv6 network addresses of (n1, 29513) cannot be retrieved "
        "(gai error: -2 - Name or service not known).\n"
    )
    limit = "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-20T13:00:00 DUE TO TIME LIMIT ***\n"
    error = find_errors(line * 9 + limit, SIGNATURES)[0]
    assert error.name == "rendezvous-host"
    assert "n1" in error.cause


def test_deepspeed_that_asks_mpi_for_its_ranks_was_started_without_a_launcher() -> None:
    log = (
        "[INFO] [comm.py:684:init_distributed] Not using the DeepSpeed or dist launchers, attempting to detect MPI\n"
        "Traceback (most recent call last):\n"
        '  File "/home/ada/project/train.py", line 30, in <module>\n'
        "    deepspeed.init_distributed()\n"
        "ModuleNotFoundError: No module named 'mpi4py'\n"
    )
    assert find_errors(log, SIGNATURES)[0].name == "deepspeed-without-launcher"


def test_an_mpi4py_that_finds_no_mpi_library_has_one_cause() -> None:
    tried = ("/opt/argosy/env/lib/libmpi.so.12", "/opt/argosy/env/lib/libmpi.so.40", "libmpi.so.12", "libmpi.so.40")
    log = (
        "Traceback (most recent call last):\n"
        '  File "/home/ada/project/hello.py", line 1, in <module>\n'
        "    from mpi4py import MPI\n"
        "RuntimeError: cannot load MPI library\n"
        + "".join(f"{name}: cannot open shared object file: No such file or directory\n" for name in tried)
    )
    (error,) = find_errors(log, SIGNATURES)
    assert (error.name, error.line) == ("mpi4py-without-mpi", 4)
    assert find_errors("./solver: libmpi.so.12: cannot open shared object file\n", SIGNATURES)[0].name == "mpi-abi"


def test_the_list_of_possible_values_does_not_show_that_openfoam_went_on() -> None:
    values = [f"method{letter}" for letter in "abcdefghijk"]
    log = (
        "[48] --> FOAM FATAL IO ERROR: (openfoam-2306)\n[48] Unknown decompositionMethod type pscotch\n\n"
        "Valid decompositionMethod types :\n\n11\n(\n" + "\n".join(values) + "\n)\n\n\n"
        "file: /case/system/decomposeParDict.decomposer at line 19 to 23.\n"
    )
    error = find_errors(log, SIGNATURES)[0]
    assert (error.name, error.level) == ("foam-dictionary", "cause")


@pytest.mark.parametrize(
    "text",
    [
        "Valid options are :\n  -a  all\n  -b  both",
        "Valid solver types :\n3(a b c)",
        "Valid types :\n2\n[0] (\n[0] a\n[0] )",
    ],
)
def test_only_openfoams_own_list_of_values_is_hidden(text: str) -> None:
    log = f"{text}\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'numpy'\n"
    assert find_errors(log, SIGNATURES)[0].name == "module-missing"
