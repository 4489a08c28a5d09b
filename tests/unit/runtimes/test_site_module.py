"""The module of a site's container runtime."""

from __future__ import annotations

import pytest

from argosy.core.errors import ToolMissing
from argosy.core.records import replace
from argosy.runtimes.choose import find_runtime_module, suggesting_module
from tests.unit.machines import make_host


@pytest.mark.parametrize(
    ("site", "command"), [("mn5-acc", "module load singularity"), ("lumi-g", ""), ("dawn", ""), ("", "")]
)
def test_the_module_is_that_of_the_runtime(site: str, command: str) -> None:
    assert find_runtime_module(make_host(environment={"ARGOSY_SITE": site} if site else {})) == command


def test_a_missing_runtime_is_answered_with_the_module_of_the_site() -> None:
    host = replace(make_host(), environment={"ARGOSY_SITE": "mn5-acc"})
    with pytest.raises(ToolMissing) as caught, suggesting_module(host):
        raise ToolMissing("no container runtime works on this machine", hint="install bubblewrap")
    assert caught.value.hint == "run 'module load singularity' first; elsewhere, install bubblewrap"
