"""Share the tests out over processes (`pytest -n 3 --dist loadgroup`): what needs the same cluster stays together."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# In the background of a script ^C is ignored, and so it would be by all that tests start to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test of the lab's cluster into one group; elsewhere a file is a group, for its costly fixtures."""
    for item in items:
        where = item.path.relative_to(HERE)
        on_cluster = where.parts[0] == "lab" or "cluster" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("lab" if on_cluster else str(where)))
