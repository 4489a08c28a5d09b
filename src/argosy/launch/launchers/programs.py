"""The shell functions that start ranks inside a container; the text of each is a file in ``data``."""

from __future__ import annotations

from pathlib import Path

from argosy.core.shell import load_helper

DATA = Path(__file__).with_name("data")

TORCHRUN = load_helper(DATA, "start_torchrun", "run_torchrun")
ELASTIC = load_helper(DATA, "start_elastic", "run_torchrun")
RANK = load_helper(DATA, "start_rank")
MPI_RANK = load_helper(DATA, "start_mpi_rank")
NOTE = load_helper(DATA, "note_rank")
COPY = load_helper(DATA, "start_copy")
BIND = load_helper(DATA, "bind_cores")
LOG = load_helper(DATA, "log_rank")
