"""Share the tests out over processes (`-n 4 --dist loadgroup`): what needs the same costly fixtures stays together."""

from __future__ import annotations

import gc
import signal
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.tiers import is_soak

if TYPE_CHECKING:
    from xdist.remote import Producer

# In the background of a script ^C is ignored, and so it would be by all that tests start to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST = (
    "tests/docs/test_docs.py",
    "tests/lab/slurm/test_slurm_ends.py",
    "tests/contract/test_runtimes.py",
    "tests/lab/slurm/test_slurm_time.py",
    "tests/real/test_projects.py",
    "tests/examples/test_examples.py",
    "tests/real/test_locks.py",
    "tests/lab/test_lab_cluster.py",
    "tests/real/test_conda.py",
    "tests/lab/slurm/test_slurm_mpi.py",
    "tests/real/test_builds.py",
    "tests/lab/slurm/test_slurm_ranks.py",
    "tests/real/test_bad_input.py",
    "tests/lab/slurm/test_slurm_faults.py",
    "tests/real/test_wrap.py",
    "tests/lab/slurm/test_slurm_places.py",
    "tests/real/test_interrupts.py",
    "tests/real/test_same_bytes.py",
    "tests/real/test_registry.py",
    "tests/lab/slurm/test_slurm_by_ssh.py",
    "tests/real/test_kills.py",
    "tests/real/test_other_machines.py",
    "tests/real/test_bundles.py",
    "tests/lab/slurm/test_slurm_build.py",
    "tests/bench/test_quick_bench.py",
)
"""What takes longest comes first: no process is left with it at the end.  The kinds alternate: the tests of a cluster
wait more than they compute, those of builds compute."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the soak, and put the files in the order in which they are handed out."""
    for item in items:
        if is_soak(item.nodeid):
            item.add_marker(pytest.mark.soak)
    paths = {file: place for place, file in enumerate(FIRST)}
    items.sort(key=lambda item: paths.get(item.nodeid.partition("::")[0], len(FIRST)))


class ByFixtures(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file is a group, for its images; each process that gets one of the lab's starts a cluster, in some seconds.

    Of the manual's pages those that need the cluster stand apart: one process would take longer than all the others.
    xdist's own groups are marks that it writes into a private field of pytest, which pytest 9.2 no longer has.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        return "pages of the lab" if "a_slurm_page" in test else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures | None:
    """Share out by groups where that is asked for."""
    return ByFixtures(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of each garbage collection: a sixth of the time of fast tests."""
    gc.collect()
    gc.freeze()
