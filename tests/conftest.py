"""Share the tests out over processes (`-n 4 --dist loadgroup`): what needs the same costly fixtures stays together."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

# In the background of a script ^C is ignored, and so it would be by all that tests start to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)


OWN_CLUSTERS = ("tests/lab/test_", "tests/lab/slurm/test_slurm_like.py", "tests/lab/slurm/test_slurm_survey.py")
"""Files of the lab whose tests start clusters of their own."""


class ByFixtures(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """What shares the lab's cluster is one group, what starts its own another; elsewhere a file is, for its images.

    Of the manual's pages those that need the cluster stand apart: one process would take longer than all the others.
    xdist's own groups are marks that it writes into a private field of pytest, which pytest 9.2 no longer has.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        if path.startswith(OWN_CLUSTERS):
            return "clusters"
        if path.startswith("tests/lab/"):
            return "lab"
        return "pages of the lab" if "a_slurm_page" in test else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures | None:
    """Share out by groups where that is asked for."""
    return ByFixtures(config, log) if config.getoption("dist") == "loadgroup" else None
