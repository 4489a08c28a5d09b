"""Without a known cause, the first error line of the failure is quoted; a run that went well has none."""

from __future__ import annotations

import pytest

from argosy.diagnostics.why.explain import describe_first_rank, render_errors
from argosy.diagnostics.why.failure import is_error_line
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.message import OTHERWISE, next_step
from argosy.diagnostics.why.signatures import read_signatures

SIGNATURES = read_signatures()


TRACEBACK = 'Traceback (most recent call last):\n  File "/p/main.py", line 5, in <module>\n    frob()\n'


def first_error(text: str) -> str:
    """Return the line of the first error that no signature knows; empty if there is none."""
    return next((each.text for each in find_errors(text, SIGNATURES) if each.name == "first-error"), "")


@pytest.mark.parametrize(
    "line",
    [
        "FATAL:   while frobnicating the image: no frobnicator",
        "n1:41:42 [0] x/y.cc:12 NCCL WARN The ring is not a circle",
        "2026-11-23 10:00:00.5: E external/xla/frob.cc:55] frobnication went wrong",
        "[E1123 10:00:01.1 Frob.cpp:7] the frobnicator went away",
        "fatal: not a git repository (or any of the parent directories): .git",
        "[n1:7:0] mm_posix.c:194 UCX  ERROR shm_open failed",
        "Assertion failed in file solve.c at line 474: size != 0",
        "pe=00072 FAIL at line=00325 NetCDF4_FileFormatter.F90 <status=-124>",
        "solver: the mesh file could not be read",
        "frobnicate: partition table mismatch on /dev/frob",
        "FATAL:   while unpacking frob.egg-info/PKG-INFO: link target: no such file or directory",
    ],
)
def test_the_first_error_before_the_cascade_is_quoted(line: str) -> None:
    log = f"step 1\nstep 2\n{line}\nERROR: the step failed\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert first_error(log) == line.strip()


MPICH_STACK = """\
Abort(1091471) on node 5 (rank 5 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:
MPIR_Init_thread(703)........:
MPID_Init(958)...............:
MPIDI_OFI_hook(1382): OFI frobnication failed
"""
HDF5_STACK = """\
HDF5-DIAG: Error detected in HDF5 (1.14.3) thread 0:
  #000: src/H5A.c line 23 in H5Aexists(): can't check the attribute
    major: Attribute
    minor: Can't get value
  #001: src/H5VL.c line 17 in H5VL_object(): the identifier is not one
    major: Invalid arguments to routine
"""
UV = """\
error: Failed to prepare distributions
  Caused by: Failed to fetch wheel: frob==2.6
  Caused by: the build backend has no frobnicator
"""


OPEN_MPI = """\
It looks like opal_init failed for some reason; your parallel process is
fail during opal_init; some of which are due to configuration or
environment problems.  This failure appears to be an internal failure;

  opal_frob_base_select failed
"""


@pytest.mark.parametrize(
    ("log", "inner"),
    [
        (MPICH_STACK, "MPIDI_OFI_hook(1382): OFI frobnication failed"),
        (HDF5_STACK, "#001: src/H5VL.c line 17 in H5VL_object(): the identifier is not one"),
        (UV, "Caused by: the build backend has no frobnicator"),
        (OPEN_MPI, "opal_frob_base_select failed"),
    ],
)
def test_the_innermost_of_listed_causes_is_quoted(log: str, inner: str) -> None:
    assert first_error(f"step 1\n{log}srun: error: n1: task 5: Exited with exit code 143\n") == inner


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: could not find the cache, a new one is made",
        "n1:41:42 [0] NCCL INFO Failed to open the optional plugin",
        "relative error: 1.2e-07",
        "[D 10:54:05.592 NotebookApp] activity on badc06b4: error",
        "test error 0.031, 0 errors",
        "checking for libfrob... not found",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "srun: error: n1: task 0: Exited with exit code 1",
    ],
)
def test_lines_that_only_look_like_an_error_are_none(line: str) -> None:
    assert not is_error_line(line)


BOX = "-" * 74


def test_a_message_of_open_mpi_is_quoted_with_its_first_paragraph() -> None:
    told = f"step 1\n{BOX}\nThe frobnicator that the ranks\nneed was not found:\n\n  Host: n1\n{BOX}\n"
    (found,) = find_errors(told, SIGNATURES)
    assert (found.name, found.line) == ("first-error", 3)
    assert (found.text, *found.below) == ("The frobnicator that the ranks", "need was not found:")


@pytest.mark.parametrize("headline", ["Fatal error:", "lib-4961 : UNRECOVERABLE library error"])
def test_a_headline_is_quoted_with_the_message_below_it(headline: str) -> None:
    (found,) = find_errors(f"step 1\n{headline}\n  There is no frobnicator for 36 ranks\n", SIGNATURES)
    assert (found.text, *found.below) == (headline, "There is no frobnicator for 36 ranks")


REFUSED = """\
[rank1]: frobnicate: error: invalid frob 7
[rank0]: step 3
[rank1]: Check FROB_JOB: it may have expired.
[rank1]: first
[rank1]: second
[rank1]: third
"""


def test_an_unknown_error_is_quoted_with_the_next_lines_of_its_rank_and_their_advice() -> None:
    (found,) = find_errors(REFUSED, SIGNATURES)
    assert (found.text, found.rank) == ("[rank1]: frobnicate: error: invalid frob 7", "1")
    assert [each.removeprefix("[rank1]: ") for each in found.below] == [
        "Check FROB_JOB: it may have expired.",
        "first",
        "second",
    ]
    assert found.fix == "follow the advice of the message: Check FROB_JOB: it may have expired."
    assert "invalid frob 7\n             [rank1]: Check" in render_errors([found], "job-7.out")


@pytest.mark.parametrize(
    "remark", ["WARNING: the frobnicator failed", "The frobnicator is unable to run. It is ignored."]
)
def test_a_remark_of_open_mpi_after_which_it_goes_on_is_none(remark: str) -> None:
    assert find_errors(f"step 1\n{BOX}\n{remark}\n\n  Host: n1\n{BOX}\nstep 2\n", SIGNATURES) == ()


@pytest.mark.parametrize("after", ["step 3\n", "step 3\n" * 20, "# Avg bus bandwidth    : 92.3\n", "exit code: 0\n"])
def test_an_error_after_which_the_run_went_on_or_ended_well_is_not_quoted(after: str) -> None:
    assert first_error("step 2\nFATAL: no frobnicator\n" + after) == ""


def test_a_known_cause_is_preferred_and_one_that_the_program_survived_comes_last() -> None:
    survived = "RuntimeError: No CUDA GPUs are available\n" + "step\n" * 30
    first, second = find_errors(survived + "OSError: [Errno 122] Disk quota exceeded\n", SIGNATURES)
    assert (first.name, second.name) == ("quota", "no-gpu-seen")
    assert first_error("FATAL: no frobnicator\nOSError: [Errno 122] Disk quota exceeded\n") == ""


@pytest.mark.parametrize("after", ["step\n" * 30, "step\n# Avg bus bandwidth    : 92.3\n"])
def test_a_known_error_is_no_cause_if_the_program_went_on_and_nothing_failed_later(after: str) -> None:
    (found,) = find_errors(f"RuntimeError: No CUDA GPUs are available\n{after}", SIGNATURES)
    assert (found.name, found.level) == ("no-gpu-seen", "survived")
    assert "  cause " not in render_errors([found])


@pytest.mark.parametrize(
    "log",
    [
        f"{TRACEBACK}TimeoutError: lock\nattempt 2 failed, retrying\ntraining 10 steps\n",
        f"{TRACEBACK}OSError: [Errno 5] Input/output error\nWARNING:root:skipping 5\nstep 6\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4 GiB.\n-> caught, halving it\nstep 1\n",
        'ERROR download failed: ConnectionResetError(104, "Connection reset by peer"); retry 3/5\nINFO epoch 1\n',
        "curl: (28) Operation timed out\nattempt 3: ok\nstep 1\nAll tasks completed, exit code 0\n",
        "Killed in action, 1916 -> history\nf1 0.913\n",
        "go.sh: line 1: 20331 Terminated   sleep 9\nEpoch 1/2: val_error=0.5\nEpoch 2/2: val_error=0.4\n",
        "Notice: gn13 is down (Xid 79, GPU has fallen off the bus)\n 30 0.849E-12\n VERIFICATION SUCCESSFUL\n",
        "ls: cannot access 'runs': No such file or directory\npi = 3.14159 in 91.2 s\n",
        "go.sh: line 21: 30112 Killed   nvidia-smi dmon > gpu.csv\n# Elapsed : 00:31:10\n# Exit status  : 0\n",
        "row 4 ok (3 s)\nrow 5 failed, will be skipped\n"
        + TRACEBACK
        + "ValueError: no rows\nrow 6 ok (4 s)\nrow 7 ok (2 s)\nrow 8 ok (2 s)\n",
        "t_signal: Segmentation fault (core dumped) is expected here\nPASS: t_gpu\n# FAIL:  0\n",
        "WARNING: could not mount /sys/fs: permission denied\nerror rate: 4.21e-03\nmean coverage 31\n",
        "HDF5-DIAG: Error\n #001: H5A.c line 7 in f(): can't open\n[ 1/4] 1 GB/s\n[ 2/4] 1 GB/s\n[ 3/4] 1 GB/s\n",
        'nvidia-modprobe: unrecognized option: "-c"\nFailed to load GPU Faiss\nadd 10M\nadd 20M\nadd 30M\n',
        "wrote a\nException ignored in: <function f.__del__>\nTypeError: 'NoneType' object is not callable\n",
        "curl: (22) The requested URL returned error: 404\n==> again\n==> hdf5: Successfully installed hdf5\n",
        "12/40 Test ... Passed (WILL_FAIL: terminate called after throwing an instance of 'E')\n100% tests passed\n",
        "Error in rule map:\n    jobid: 7\nTrying to restart job 7.\n24 of 24 steps (100%) done\n",
        "srun: error: n1: task 0: Killed\n+ echo 'result: OK'\nresult: OK\n+ exit 0\n",
        "last run: slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT NOON DUE TO PREEMPTION ***\nstep 9\nexit 0\n",
    ],
)
def test_a_run_that_says_how_it_went_on_has_no_cause(log: str) -> None:
    assert {each.level for each in find_errors(log, SIGNATURES)} <= {"survived", "warning"}


TIMES = "\nreal\t1m2.1s\nuser\t2m3.4s\nsys\t0m1.0s\n"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (
            "forrtl: severe (29): file not found, unit 20, file /data/in.dat\n"
            "Image              PC                Routine            Line        Source\n"
            + "sim.x            000000000057D79C  Unknown               Unknown  Unknown\n"
            * 20,
            "fortran-open",
        ),
        (
            TIMES + "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 11.2 GiB for an array\n" + TIMES,
            "host-memory",
        ),
    ],
)
def test_a_stack_and_the_times_of_a_command_are_no_steps_of_a_loop(log: str, name: str) -> None:
    found = find_errors(log, SIGNATURES)[0]
    assert (found.name, found.level) == (name, "cause")


@pytest.mark.parametrize("file", ["/home/ada/.bashrc", "/home/ada/.bash_profile", "./configure"])
def test_an_error_in_a_start_file_of_the_shell_is_no_cause(file: str) -> None:
    log = f"{file}: line 13: s: command not found\nLmod has detected the following error: The following module(s) are"
    found = find_errors(f'{log} unknown:\n"git"\nTask 1 done\n', SIGNATURES)
    assert [each.name for each in found if each.level == "cause"] == []
    assert "command-missing" not in {each.name for each in found}


def test_the_tests_of_cmake_that_failed_are_no_failure_of_the_build() -> None:
    log = "Determining if the pthread_create exist failed with the following output:\nmake[1]: Entering directory 'x'\n"
    log += "a.c:(.text+0x16): undefined reference to `pthread_create'\nmake: *** [fast] Error 2\n"
    assert {each.level for each in find_errors(log, SIGNATURES)} == {"survived"}


def test_the_last_attempt_that_failed_is_the_cause() -> None:
    attempt = "OSError: [Errno 122] Disk quota exceeded\nattempt failed, retrying\n"
    (found,) = find_errors(f"{attempt}step 1\n{attempt}", SIGNATURES)
    assert (found.name, found.level) == ("quota", "cause")


def test_an_exception_at_the_end_of_a_script_that_ended_well_is_the_cause() -> None:
    (found,) = find_errors(f"step 1\n{TRACEBACK}ValueError: no rows\nState : COMPLETED\nExit code : 0:0\n", SIGNATURES)
    assert (found.name, found.level) == ("program-error", "cause")


def test_the_failure_of_a_node_is_the_cause_of_the_errors_of_its_network() -> None:
    log = "NCCL WARN socketProgress: Connection closed by remote peer n4<481>\nsrun: error: Node failure on n4\n"
    assert find_errors(log, SIGNATURES)[0].name == "node-failure-named"


def test_a_fatal_message_is_the_error_whatever_the_epilogue_prints() -> None:
    log = "FATAL:   no frobnicator for this image\n\nmemory of the job: 20.89 GB\nscratch removed\n"
    assert first_error(log) == "FATAL:   no frobnicator for this image"


def test_a_symptom_before_the_end_of_a_good_run_is_no_cause() -> None:
    log = "slurmstepd: error: task/cgroup: unable to add task[pid=7] to memory cg '(null)'\nepoch 1\njob finished\n"
    assert [each.level for each in find_errors(log, SIGNATURES)] == ["warning"]
    log = (
        "slurmstepd: error: jobacct_gather/cgroup: unable to instanciate job 7 memory cgroup\nepoch 1\nTraining done\n"
    )
    assert [each.level for each in find_errors(log, SIGNATURES)] == ["survived"]


def test_the_abort_of_mpi_that_completed_is_no_good_end() -> None:
    log = "[n1:7] OPAL ERROR: Unreachable in file ext3x_client.c at line 112\n"
    log += (
        "[n1:7] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate messages\n"
    )
    assert "survived" not in [each.level for each in find_errors(log, SIGNATURES)]


def test_the_signal_that_ended_a_rank_comes_before_the_end_of_the_others() -> None:
    log = "W1223 05:17:58.9 33 torch/distributed/elastic/api.py:908] Sending process 77 closing signal SIGTERM\n"
    log += "E1223 05:18:02.9 33 torch/distributed/elastic/api.py:882] failed (exitcode: -11) local_rank: 0 (pid: 3)\n"
    assert [each.name for each in find_errors(log, SIGNATURES)] == ["segfault", "ended-with-others"]


def test_the_verdict_on_a_job_that_failed_does_not_show_that_it_went_on() -> None:
    log = f"{TRACEBACK}RuntimeError: You set `--ntasks=2` in your SLURM bash script, but it is not supported.\n"
    verdict = "argosy: verdict: ranks: 16 of 16 on 2 nodes · network: not reported by NCCL or RCCL\n"
    (found,) = find_errors(f"{log}{verdict}argosy: job 22 ended with code 1\n", SIGNATURES)
    assert (found.name, found.level) == ("lightning-ntasks", "cause")
    assert [each.level for each in find_errors(log + verdict, SIGNATURES)] == ["survived"]


@pytest.mark.parametrize("end", ["srun: error: n1: task 0: Exited with exit code 1\n", "FATAL: no frobnicator\n"])
def test_a_known_error_long_before_the_end_of_a_failed_run_is_still_named(end: str) -> None:
    found = find_errors("RuntimeError: No CUDA GPUs are available\n" + "step\n" * 30 + end, SIGNATURES)
    assert "survived" not in [each.level for each in found]


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (
            "ValueError: no width. Please set the width in the file",
            "follow the advice of the message: Please set the width in",
        ),
        ("cannot stat 'mesh.h5': No such file or directory", "check with 'ls -l PATH' on the node"),
        ("frobnicate: something went wrong", OTHERWISE),
        ("KeyError: override 'rank' not found in the unsupported attributes to resolve", OTHERWISE),
        ("error building [/bin/sh -c pip install -r a.txt]: exit status 9", OTHERWISE),
    ],
)
def test_the_next_step_is_the_messages_own_advice_or_fits_its_words(message: str, step: str) -> None:
    assert next_step(message).startswith(step)


def test_lines_of_debug_output_show_that_the_program_continued_after_an_error() -> None:
    went_on = "".join(f"[DEBUG] column {column} is missing\n" for column in range(20))
    log = f"thread '<unnamed>' panicked at src/fit.rs:7:21:\nno column\n{went_on}Error: BadValue(33)\n"
    assert [each.text for each in find_errors(log, SIGNATURES)] == ["Error: BadValue(33)"]


def test_of_several_jobs_in_one_log_the_last_one_is_explained() -> None:
    end = "slurmstepd: error: *** JOB {} ON n1 CANCELLED AT 2026-11-20T12:54:54 ***\n"
    log = f"ModuleNotFoundError: No module named 'einops'\n{end.format(41)}epoch 1\n{end.format(42)}"
    assert [(each.name, each.line) for each in find_errors(log, SIGNATURES)] == [("job-cancelled", 4)]


def test_warnings_without_any_failure_are_no_cause_and_with_one_they_may_be() -> None:
    log = "2026-02-24 08:32:40.1: W tensorflow/x.cc:326] CUDA driver version is insufficient for CUDA\nepoch 1\n"
    assert {each.level for each in find_errors(log, SIGNATURES)} == {"warning"}
    (found, *_) = find_errors(f"{log}srun: error: node1: task 0: Exited with exit code 1\n", SIGNATURES)
    assert (found.level, found.line) == ("maybe", 1)


def test_a_message_after_which_the_program_went_on_before_is_no_error() -> None:
    rows = "".join(f"slice {number}: unable to converge\n" + "fits\n" * 20 for number in range(9))
    rows += "slice 9: unable to converge\n"
    assert find_errors(rows, SIGNATURES) == ()
    assert first_error(f"{rows}FATAL: no gyre\n") == "FATAL: no gyre"


def test_a_shells_message_on_a_command_is_past_if_a_later_one_ends_the_script() -> None:
    built = "".join(f"Building part{number}\n" for number in range(20))
    log = f"job.sh: line 2: cmake: command not found\n{built}job.sh: line 47: ./out/log: No such file or directory\n"
    assert [each.line for each in find_errors(log, SIGNATURES)] == [22, 1]


def test_of_several_interruptions_the_last_one_ended_the_last_run() -> None:
    run = "".join(f"epoch {number}\n" for number in range(20)) + "KeyboardInterrupt\n"
    log = f"{run}{TRACEBACK}TypeError: no x\n{run}"
    assert next((each.name, each.level) for each in find_errors(log, SIGNATURES)) == ("interrupted-program", "end")


def test_of_several_runs_that_nohup_appended_the_last_one_is_explained() -> None:
    start = "nohup: ignoring input\n"
    log = f"{start}FATAL: no frobnicator\n{start}2026-11-20 loads\n{start}2026-11-21 loads\nFATAL: no gyre\n"
    assert first_error(log) == "FATAL: no gyre"
    assert find_errors(f"{log}{start}epoch 1\n", SIGNATURES) == ()


def test_the_end_of_an_earlier_job_is_not_that_of_one_that_appended_its_output() -> None:
    end = "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-11-20T12:54:54 ***\n"
    log = f"epoch 1\n{end}" + "epoch 2\n" * 200
    assert find_errors(log, SIGNATURES) == ()
    assert first_error(f"{log}FATAL: no frobnicator\n") == "FATAL: no frobnicator"


LSF_REPORT = """
Sender: LSF System <lsfadmin@n1>
Subject: Job 41: <mesh> in cluster <c> {how}

Your job looked like:
------------------------------------------------------------
# LSBATCH: User input
#!/bin/sh
module load python
echo 'error: cannot frob' >&2
{script}python main.py
------------------------------------------------------------

{end}

Resource usage summary:
    CPU time :                                   16.00 sec.
    Max Memory :                                 711 MB
    Max Processes :                              4
    Max Threads :                                6
    Run time :                                   91 sec.
    Turnaround time :                            41110 sec.

The output (if any) is above this job summary.

"""
FAILED = f"{TRACEBACK}NameError: name 'frob' is not defined\n" + LSF_REPORT.format(
    how="Exited", script="cp data.h5 /scratch\n" * 15, end="Exited with exit code 1."
)
WENT_WELL = "epoch 1\n" + LSF_REPORT.format(how="Done", script="", end="Successfully completed.")


def test_the_report_of_lsf_below_a_failure_is_not_output_of_the_program() -> None:
    assert [(each.name, each.line) for each in find_errors(FAILED, SIGNATURES)] == [("program-error", 4)]
    assert find_errors(WENT_WELL, SIGNATURES) == ()


def test_of_several_jobs_of_lsf_in_one_log_the_last_one_is_explained() -> None:
    assert find_errors(FAILED + WENT_WELL, SIGNATURES) == ()
    assert [each.name for each in find_errors(WENT_WELL + FAILED, SIGNATURES)] == ["program-error"]


def test_a_traceback_that_a_logger_writes_as_a_warning_is_no_failure() -> None:
    log = "".join(f"frob.convert: [WARNING] {line}\n" for line in f"{TRACEBACK}RingError: no ring".splitlines())
    assert find_errors(f"epoch 1\n{log}epoch 2\n", SIGNATURES) == ()


@pytest.mark.parametrize(
    "line",
    [
        "INFO:jax._src:925: Unable to initialize backend 'rocm': module 'jaxlib.xla_extension' has no attribute 'GpuA'",
        "I0625 11:35 22 xla_bridge.py:895] Unable to initialize backend 'rocm': module 'jaxlib' has no attribute 'G'",
        "[I] Unable to initialize backend 'rocm': module 'jaxlib.xla_extension' has no attribute 'GpuAllocatorConfig'",
        "E0106 16:56:22 7 torch/_inductor/select_algorithm.py:2100] [7/0] No valid triton configs. OutOfResources: 1",
        "Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No such file or directory",
        "2026-07-30 17:01:52 | ERROR | stderr | \x1b[32mINFO\x1b[0m:     Started server process [77]",
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
        "[2025-10-28 20:50:29,619] [INFO] [config.py:958:print]   zero_force_ds_cpu_optimizer .. True",
    ],
)
def test_parts_that_a_program_can_do_without_are_no_error(line: str) -> None:
    assert find_errors(f"{line}\nsrun: error: n1: task 0: Exited with exit code 1\n", SIGNATURES) == ()


def test_of_several_attempts_in_one_log_the_last_refusal_counts() -> None:
    log = "train.py: error: argument --lr: bad\ntrain.py: error: argument --fp16: expected one argument\n"
    assert [each.line for each in find_errors(log, SIGNATURES)] == [2]


def test_the_end_of_the_script_does_not_mean_that_an_uncaught_exception_was_survived() -> None:
    log = f"{TRACEBACK}RuntimeError: CUDA out of memory. Tried to allocate 2.93 GiB\n\nreal\t0m56.8s\ndone\n"
    assert [(each.level, each.line) for each in find_errors(log, SIGNATURES)] == [("cause", 4)]


def test_debug_messages_of_ucx_are_no_error() -> None:
    log = "[1.2] [n1:7:0] sock.c:32   UCX  DEBUG ioctl(ifr_name=ib2) failed: Cannot assign requested address\n"
    assert find_errors(f"{log}srun: error: n1: task 0: Exited with exit code 1\n", SIGNATURES) == ()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("FATAL: no frobnicator for mesh 7", "the program reports 'no frobnicator for mesh 7'"),
        ("frob: error: the ring is open", "frob reports 'the ring is open'"),
        ("/opt/frob/bin/solve: cannot frob the mesh", "solve reports 'cannot frob the mesh'"),
        ("slurmstepd: error: no frob for step 7", "slurmstepd reports 'no frob for step 7'"),
        (" *** ERROR: the mesh is not closed ***", "the program reports 'the mesh is not closed'"),
        ("n1:41:42 [0] x.cc:12 NCCL WARN The ring is open", "the program reports 'The ring is open'"),
        (
            "gpu-n1-rack:41:42 [0] x.cc:12 NCCL WARN The ring is open",
            "the program reports 'The ring is open'",
        ),
        (
            "Fatal error in frob_open: no ring for it",
            "the program reports 'no ring for it' in frob_open",
        ),
        ("FATAL from PE    3: the frob is NaN here", "the program reports 'the frob is NaN here'"),
        ("ERROR: An error occurred", "not a known error; this is the first error of the failure"),
        ("Error: BadValue(33)", "not a known error; this is the first error of the failure"),
    ],
)
def test_an_error_line_that_tells_what_went_wrong_is_the_cause_and_another_is_only_quoted(
    line: str, cause: str
) -> None:
    assert [each.cause for each in find_errors(f"step 1\n{line}\n", SIGNATURES)] == [cause]


def test_the_message_of_a_box_or_below_a_headline_is_the_cause() -> None:
    told = f"step 1\n{BOX}\nThe frobnicator that the ranks\nneed was not found:\n\n  Host: n1\n{BOX}\n"
    (found,) = find_errors(told, SIGNATURES)
    assert found.cause == "the program reports 'The frobnicator that the ranks need was not found:'"
    (found,) = find_errors("step 1\nFatal error:\n  There is no frobnicator for 36 ranks\n", SIGNATURES)
    assert found.cause == "the program reports 'There is no frobnicator for 36 ranks'"


CANCELLED = "slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-11-20T12:54:54 ***\n"


def test_the_end_of_a_job_from_outside_does_not_hide_an_earlier_unknown_error() -> None:
    named = [each.name for each in find_errors(f"FATAL: no frobnicator for mesh 7\n{CANCELLED}", SIGNATURES)]
    assert named == ["first-error", "job-cancelled"]
    ended = [each.name for each in find_errors(f"{CANCELLED}FATAL: no frobnicator here\n", SIGNATURES)]
    assert ended == ["job-cancelled"]


def test_a_known_error_that_the_program_survived_does_not_hide_the_unknown_one_that_ended_it() -> None:
    log = "RuntimeError: No CUDA GPUs are available\n" + "step\n" * 30 + "FATAL: no frobnicator for mesh 7\n"
    assert [each.name for each in find_errors(log, SIGNATURES)] == ["first-error", "no-gpu-seen"]


def test_a_warning_is_shown_in_one_line_and_hides_no_error() -> None:
    warning = "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': cannot open shared object file\n"
    shown = render_errors(find_errors(f"{warning}step 1\n", SIGNATURES), "job.out").split("\n")
    assert shown[0] == "job.out: no known error ended the program; it went on after these:"
    assert shown[1].startswith("line 1: the InfiniBand library")
    assert first_error(f"{warning}FATAL: no frobnicator\n") == "FATAL: no frobnicator"


def test_a_message_after_the_launchers_report_of_its_rank_is_the_cause() -> None:
    report = "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode -1.\n"
    (first, second) = find_errors(f"{BOX}\n{report}{BOX}\nError: no frobnicator for this mesh\n", SIGNATURES)
    assert first.cause == "the program reports 'no frobnicator for this mesh'"
    assert second.cause.startswith("the program itself ended all its ranks with MPI_Abort (rank 0), because")


def test_the_report_of_nextflow_around_the_error_of_a_task_is_no_error() -> None:
    line = "frobnicate: partition table mismatch on /dev/frob"
    log = "ERROR ~ Error executing process > 'ALIGN (1)'\n\nCaused by:\n  Process `ALIGN (1)` terminated with an error "
    log += (
        f"exit status (1)\n\nCommand error:\n  {line}\n\nWork dir:\n  /home/ada/project/1f\n\nTip: read .command.sh\n"
    )
    assert first_error(log) == line


def test_the_report_of_snakemake_around_the_error_of_a_job_is_no_error() -> None:
    line = "frobnicate: partition table mismatch on /dev/frob"
    log = f"Select jobs to execute...\n{line}\n[Tue Nov 24 10:00:00 2026]\nError in rule align:\n    jobid: 3\n\n"
    log += "Shutting down, this might take some time.\nExiting because a job execution failed. Look below for details\n"
    assert first_error(log) == line


def test_a_long_chain_of_reasons_keeps_its_end() -> None:
    steps = ": ".join(f"while step {number} of the frobnicator" for number in range(9))
    (found,) = find_errors(f"FATAL:   {steps}: the disk is no disk\n", SIGNATURES)
    assert found.cause.endswith(": the disk is no disk'")
    assert "'while step 0 of the frobnicator … " in found.cause


def test_a_damaged_heap_does_not_hide_the_error_before_it() -> None:
    log = "[E::main_mem] failed to open file `reads.fq'\nfree(): double free detected in tcache 2\n"
    (first, second) = find_errors(log, SIGNATURES)
    assert first.cause == "the program reports 'failed to open file `reads.fq''"
    assert second.name == "heap-corruption"


def test_the_rank_that_crashed_comes_before_those_that_the_launcher_killed() -> None:
    edge = f"{'=' * 60}\n"
    report = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK {} PID 7 RUNNING AT n1\n"
    log = "".join(
        f"{edge}{report.format(rank)}=   KILLED BY SIGNAL: {signal}\n{edge}"
        for rank, signal in enumerate(("9 (Killed)", "11 (Segmentation fault)"))
    )
    assert find_errors(log, SIGNATURES)[0].name == "mpi-rank-segfault"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PROC 0 ERROR in /opt/frob/io.cpp, line 12:\nSection RING is unknown here", "Section RING is unknown here"),
        ("Can not open file:\nring.tpr\n-------", "Can not open file: ring.tpr"),
    ],
)
def test_an_error_below_the_report_of_an_abort_or_of_rank_0_is_found(line: str, message: str) -> None:
    abort = "[cli_0]: aborting job:\napplication called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\n"
    first = find_errors(f"{abort}{line}\n", SIGNATURES)[0]
    assert message in first.cause


def test_an_exception_comes_before_a_known_error_that_was_only_a_warning() -> None:
    log = """\
WARNING [_ops.py:20] no vllm._C: libcuda.so.1: cannot open shared object file: No such file or directory
Traceback (most recent call last):
  File "/home/ada/serve.py", line 7, in <module>
    start(dtype)
ValueError: dtype fp5 has no kernel
"""
    found = find_errors(log, SIGNATURES)
    assert [each.name for each in found if each.level == "cause"] == ["program-error"]
    assert len(found) > 1
    assert found[1].level == "maybe"


def test_a_function_in_front_of_a_message_is_not_taken_for_the_program() -> None:
    (found,) = find_errors("step 1\nsocketTryAccept: Accept failed: Bad file descriptor\n", ())
    assert found.cause == "the program reports 'Accept failed: Bad file descriptor' in socketTryAccept"


def test_a_headline_in_capitals_is_not_part_of_the_message() -> None:
    log = "-------------- FATAL CALLED ---------------\n Fatal in file: mod_wind.F90 at line:      12\n CFL violation\n"
    (found,) = find_errors(log, ())
    assert found.cause == "the program reports 'Fatal in file: mod_wind.F90 at line: 12 CFL violation'"


def test_a_message_of_open_mpi_after_which_it_goes_on_is_no_failure() -> None:
    box = "-" * 74
    log = f"""\
{box}
[[101,1],0]: A high-performance Open MPI point-to-point messaging module
was unable to find any relevant network interfaces:

Module: OpenFabrics (openib)
  Host: n7

Another transport will be used instead, although this may result in
lower performance.
{box}
"""
    assert find_errors(log, SIGNATURES) == ()


def test_the_prompt_of_a_shell_after_an_error_does_not_show_that_the_run_went_on() -> None:
    (found,) = find_errors("+ git archive HEAD\nfatal: not a git repository: .git\nada@login1:~/build$\n", ())
    assert found.cause == "the program reports 'not a git repository: .git'"


@pytest.mark.parametrize(
    ("log", "name", "level"),
    [
        (
            """*** The MPI_Comm_rank() function was called after MPI_FINALIZE was invoked.
[n1:7] Local abort after MPI_FINALIZE started completed successfully, but am not able to aggregate""",
            "mpi-not-initialized",
            "cause",
        ),
        (
            """-1:MPT ERROR: MPI_COMM_WORLD rank 617 has terminated without calling MPI_Finalize()
MPT: Received signal 11""",
            "segfault",
            "symptom",
        ),
    ],
)
def test_the_report_of_mpi_about_its_end_is_no_error_and_no_success(log: str, name: str, level: str) -> None:
    first = find_errors(log, SIGNATURES)[0]
    assert (first.name, first.level) == (name, level)


def test_what_slurm_writes_at_the_end_of_a_step_does_not_hide_that_the_run_went_on() -> None:
    skipped = "val: WARNING ignoring image 1.png: The requested array has an inhomogeneous shape after 1 dimensions\n"
    epochs = "".join(f"epoch {number}\n" for number in range(20))
    end = "slurmstepd: error: Unable to move pid 3192 to init root cgroup /sys/fs/cgroup\n"
    assert [each.level for each in find_errors(skipped + epochs + end, SIGNATURES)] == ["survived", "warning"]


def test_a_program_that_ran_without_its_conda_environment_is_not_blamed_on_conda() -> None:
    conda = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    frame = 'Traceback (most recent call last):\n  File "/home/ada/get.py", line 9, in get\n    read()\n'
    of_program = find_errors(
        f"{conda}{frame}requests.exceptions.ChunkedEncodingError: Connection broken: IncompleteRead(48 bytes read)\n",
        SIGNATURES,
    )
    of_environment = find_errors(f"{conda}{frame}ModuleNotFoundError: No module named 'einops'\n", SIGNATURES)
    assert [each.name for each in of_program] == ["download-broken", "conda-skipped"]
    assert of_environment[0].name == "conda-not-initialised"


def test_the_rank_that_failed_first_is_one_of_the_last_job_of_a_log() -> None:
    failed = "srun: error: n1: task 0: Exited with exit code 1\n"
    ends = [f"slurmstepd: error: *** JOB {job} ON n1 CANCELLED AT 2026-11-02T10:00:00 ***\n" for job in (7, 8)]
    assert describe_first_rank(failed, ()) == "rank 0 on n1 failed first (code 1)"
    assert describe_first_rank(failed + ends[0] + "epoch 1\n" + ends[1], ()) == ""


def test_lines_of_the_next_program_do_not_hide_a_fatal_error() -> None:
    log = "Reason: FATAL ERROR: Pair interactions are not supported in the CUDA version\n\nInfo) VMD for LINUXAMD64\n"
    (found,) = find_errors(log, SIGNATURES)
    assert found.cause == "the program reports 'Pair interactions are not supported in the CUDA version'"


def test_a_missing_environment_that_nothing_needed_is_only_a_warning() -> None:
    missing = "run.sh: line 4: /tmp/venv/bin/activate: No such file or directory\n"
    assert [each.level for each in find_errors(missing + "Loading: 17%\n", SIGNATURES)] == ["warning"]
    (found,) = find_errors(missing + "ModuleNotFoundError: No module named 'einops'\n", SIGNATURES)[:1]
    assert found.name == "environment-missing"


def test_find_that_finds_nothing_is_not_the_error_of_a_job() -> None:
    assert find_errors("find: '': No such file or directory\n", SIGNATURES) == ()


def test_of_several_runs_in_one_log_the_last_counts() -> None:
    loaded = "Loaded module: python3/3.7.5\nLoaded module: cudnn/v7.6\n"
    frame = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 9, in train\n    step()\n'
    first, second = f"{loaded}{frame}ValueError: bad shape\n", f"{loaded}{frame}KeyError: 'width'\n"
    (found,) = find_errors(first + second, SIGNATURES)
    assert found.line == 12
    assert found.cause.startswith("the program raised KeyError: 'width' at train.py:9")
    ranks = find_errors(loaded * 2 + frame + "ValueError: bad shape\n" + "Loaded module: python3/3.7.5\n", SIGNATURES)
    assert [each.line for each in ranks] == [8]


def test_the_log_of_a_configure_that_succeeded_names_no_cause() -> None:
    log = "gfortran: error: unrecognized command-line option '-V'\nconfigure: failed program was:\n| int main;\n"
    tried = find_errors(log + "configure: exit 0\n", SIGNATURES)
    assert not {"cause", "symptom"} & {each.level for each in tried}
    failed = find_errors(log + "configure: exit 77\n", SIGNATURES)
    assert failed[0].name == "unknown-option"


def test_a_comparison_that_the_shell_takes_as_false_does_not_end_a_run() -> None:
    log = "run_stop success\n./run.sh: line 20: [: 313.62: binary operator expected\nRESULT,DLRM,313.62\n"
    assert [(each.name, each.level) for each in find_errors(log, SIGNATURES)] == [("shell-test", "warning")]


def test_an_assertion_of_the_host_in_cuda_code_is_not_one_of_a_kernel() -> None:
    log = "dock: ./cuda/kernels.cu:130: void Set(GpuData*): Assertion `0' failed.\nAborted\n"
    assert "device-assert" not in {each.name for each in find_errors(log, SIGNATURES)}


def test_the_next_step_of_full_memory_names_the_gpu_and_not_the_disk() -> None:
    step = next_step("out of memory in alloc.cuh at line 436")
    assert "nvidia-smi" in step
    assert "df -h" not in step
    assert "df -h" in next_step("write /scratch/x: No space left on device")


def test_the_next_step_of_a_forbidden_call_does_not_only_look_at_files() -> None:
    assert "container" in next_step("process_vm_writev(7) returned -1: Operation not permitted")


@pytest.mark.parametrize(
    "end", ["[2/3] Building x.o\n[3/3] Linking x", "...updated 1 target...", "make: Leaving directory '/home/ada/x'"]
)
def test_the_errors_of_a_build_that_succeeded_at_last_are_no_causes(end: str) -> None:
    missing = "ModuleNotFoundError: No module named 'yaml'\n"
    assert {each.level for each in find_errors(f"{missing}{end}\n", SIGNATURES)} == {"survived"}
    failed = f"{missing}make: *** [Makefile:7: x] Error 2\n{end}\n"
    assert find_errors(failed, SIGNATURES)[0].level == "cause"


def test_the_command_line_of_a_compiler_is_no_error() -> None:
    assert find_errors("g++ -Wno-invalid-offsetof -DON_ERROR=1 -c a.C\n", SIGNATURES) == ()


@pytest.mark.parametrize(
    "line",
    [
        "E external/local_xla/xla/stream_executor/cuda_dnn.cc:9261] Unable to register cuDNN factory: it is there",
        "E external/local_xla/xla/stream_executor/stream_executor.h:1] SetPriority unimplemented for this stream.",
        "/opt/lib/python3.11/site-packages/lightning/a.py:302: Couldn't infer the batch indices from your dataloader",
        "f90(221): remark #5140: Unrecognized directive",
        "ls: cannot access checkpoints/net.1*: No such file or directory",
    ],
)
def test_lines_that_only_look_like_errors_at_the_end_of_a_log_are_not_quoted(line: str) -> None:
    assert [each for each in find_errors(f"epoch 1\n{line}\n", SIGNATURES) if each.level != "symptom"] == []


def test_an_error_that_says_what_was_expected_is_one() -> None:
    assert first_error('step\nError: Error("invalid type: null, expected f64", line: 33)\n').startswith("Error: Error(")


def test_a_script_that_could_not_be_read_and_was_started_again_has_no_cause() -> None:
    refused = '  File "/home/ada/utils.py", line 87\n    y = 1\n         ^\nIndentationError: unexpected indent\n'
    run = "".join(f"{{'loss': 0.{n}}}\n" for n in range(30))
    assert [(each.name, each.level) for each in find_errors(refused + run, SIGNATURES)] == [
        ("python-syntax", "survived")
    ]
    assert [each.level for each in find_errors(run + refused, SIGNATURES)] == ["end"]


def test_an_interrupted_run_that_was_started_again_has_no_cause() -> None:
    run = "".join(f"step {n}: energy falls\n" for n in range(30))
    log = f"{TRACEBACK}ValueError: no rows\n{run}KeyboardInterrupt\n"
    assert [each.name for each in find_errors(log, SIGNATURES)] == ["interrupted-program"]
    assert {each.level for each in find_errors(log + run, SIGNATURES)} == {"survived"}
