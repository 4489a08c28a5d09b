"""Lines that look like a known error of one program, but that another program or a listing prints."""

from __future__ import annotations

import pytest

from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures

SIGNATURES = read_signatures()
NOT_CONFIRMED = "srun: error: Unable to confirm allocation for job 19: "

OTHERS = [
    ("slurm-prolog", "RuntimeError: cublasLt epilogue fusion failed for this shape"),
    ("slurm-array", "MaxArraySize            = 1001"),
    ("timeout-command", "finished 124 of 500 files"),
    ("slurm-limits", "slurm: Account|GrpTRES|MaxSubmitJobs"),
    ("slurm-plugin", "error: cannot load plugin eslint-react"),
    ("slurm-nodes-silent", "ray: error: Node worker-3 not responding"),
    ("slurm-account", "srun: job 4 queued\nStorage account abc not found"),
    ("slurm-authentication", "INFO authentication: none\nslurm job started"),
    ("slurmdbd-database", "RuntimeError: The database connection could not be established"),
    ("slurm-expired-job", f"{NOT_CONFIRMED}Socket timed out\nsrun: Check SLURM_JOB_ID. Expired or invalid job 19"),
    ("mpi-session-folder", "Failed to open session: Unable to create session"),
    ("permission-denied", "find: '/root/x': Permission denied"),
    ("registry-denied", "Failed to start docker.service: Interactive authentication required."),
    ("no-driver-on-host", "INFO:    Could not find any nv files on this host!\nERROR: cannot read deck input.inp"),
    ("registry-denied", 'failed to resolve source metadata for alpine: error getting credentials - err: exec: "x"'),
    ("registry-denied", "failed to resolve source metadata for alpine: dial tcp: lookup a on [::1]:53: i/o timeout"),
    ("slurm-controller", "psycopg2.OperationalError: connection to server failed: Connection refused"),
    ("node-failure", "states: PENDING, RUNNING, FAILED, NODE_FAIL, PREEMPTED, BOOT_FAIL, TIMEOUT"),
    ("slurm-name", "ValueError: Invalid feature name 'x'"),
    ("slurm-time-too-long", "gurobi: invalid time limit"),
    ("slurm-configuration", "Parse error in file config.xml"),
    ("pals-node-lost", "ping failed on eth0"),
    ("container-exists", "ERROR 409: instance db-1 already exists"),
    ("udocker-root", "Error: do not run as root"),
    ("shifter-image", "Failed to find image cat.png"),
    ("podman-storage", "error creating object storage client: permission denied"),
    ("image-absent", "No such image: assets/cat.png"),
    ("nvidia-requirement", "solver: unsatisfied condition: x > 3"),
    ("registry-old-client", "error: unsupported schema version 7 in package-lock"),
    ("registry-denied", "Error: GET https://zenodo.org/record/1: unexpected status code 404"),
    ("image-signature", "ERROR: failed to verify token: key expired"),
    ("build-folder", "FATAL: open /etc/prometheus.yml: no such file or directory"),
    (
        "mpi-inside-mpi",
        "[unset]: write_line error; fd=-1 buf=:cmd=abort\nsystem msg for write_line failure : Bad file descriptor",
    ),
    ("munge-files", "[INFO] Keyfile not found: using default"),
    ("container-hook", "husky: error running hook: exit status 1"),
    ("slurm-mpi-type", "MPI plugin type: none"),
    ("mpi-host-name", "unable to get host address for metrics"),
    ("enroot-command", "[ERROR] Command not found: make"),
    ("build-file-system", "xattr not supported on this FS, continuing"),
    ("container-exec-denied", "FATAL: permission denied"),
]


@pytest.mark.parametrize(("name", "text"), OTHERS)
def test_a_line_of_another_program_does_not_get_the_cause(name: str, text: str) -> None:
    assert name not in [each.name for each in find_errors(f"{text}\n", SIGNATURES)]


def test_the_reason_why_an_allocation_was_not_confirmed_is_the_cause() -> None:
    found = [
        find_errors(f"{NOT_CONFIRMED}{why}\n", SIGNATURES)[0].name
        for why in (
            "Socket timed out on send/recv operation",
            "Unexpected message received",
            "Invalid job id specified",
        )
    ]
    assert found == ["slurm-controller", "slurm-controller", "slurm-expired-job"]


def test_a_refused_connection_at_the_start_of_a_step_is_that_of_the_node() -> None:
    found = find_errors("srun: error: Application launch failed: Connection refused\n", SIGNATURES)
    assert [each.name for each in found] == ["slurm-node-timeout"]


def test_the_program_with_which_mpiexec_starts_its_helpers_is_not_the_program_of_the_user() -> None:
    (found,) = find_errors("execvp error on file srun (No such file or directory)\n", SIGNATURES)
    assert found.cause.startswith("mpiexec starts its helper processes with srun")


def test_a_missing_ssh_is_the_cause_and_what_open_mpi_says_after_it_follows() -> None:
    said = 'The value of the MCA parameter "plm_rsh_agent" was set to a path\nthat could not be found:\n'
    (found,) = find_errors(f"{said}\n  plm_rsh_agent: ssh : rsh\n\n  orte_ess_init failed\n", SIGNATURES)
    assert (found.name, "(ssh : rsh)" in found.cause) == ("mpi-rsh-agent", True)
