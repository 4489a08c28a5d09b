"""A detached session stays when the shell that started it ends; later commands enter the same container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real


@pytest.mark.parametrize("who", ["shop", pytest.param("alices", marks=pytest.mark.soak)])
def test_a_session_is_entered_again_and_stopped(who: str, tiny: Path, request: pytest.FixtureRequest) -> None:
    shop: Shop = request.getfixturevalue(who)
    started = shop.argosy("shell", tiny, "--detach", "work", "--env", "COLOR=blue", "--runtime", "bwrap")
    assert started.code == 0, started.err
    try:
        assert "argosy attach work" in started.out
        again = shop.argosy("shell", tiny, "--detach", "work")
        assert "a session work already exists" in again.err
        command = ("sh", "-c", 'echo "$COLOR"; readlink /proc/self/ns/mnt; cat /etc/old; exit 3')
        first, second = (shop.argosy("attach", "work", "--", *command) for _ in range(2))
        assert first.code == second.code == 3, first.err
        assert first.out == second.out
        color, namespace, old = first.out.splitlines()
        assert (color, old) == ("blue", "old")
        assert namespace != str(Path("/proc/self/ns/mnt").readlink())
        (listed,) = json.loads(shop.argosy("sessions", "ls", "--json").out)
        assert (listed["name"], listed["state"], listed["runtime"]) == ("work", "running", "bwrap")
    finally:
        stopped = shop.argosy("sessions", "stop", "work")
    assert stopped.out == "stopped work\n"
    assert shop.argosy("sessions", "ls").out == "no sessions\n"
    assert shop.argosy("attach", "work", "--", "true").code != 0


@pytest.mark.soak
def test_apptainer_keeps_a_session_for_an_ordinary_user(alices: Shop) -> None:
    image = alices.build("tinypkg==1.0\n")
    script = (
        f"argosy shell {image} --detach work --runtime apptainer; argosy attach work -- tinypkg; "
        'argosy attach work -- sh -c "id -un; exit 4"; echo "code $?"; argosy sessions stop work'
    )
    done = alices.lab("sh", "-c", script)
    assert done.out.splitlines()[1:] == ["tinypkg 1.0", "alice", "code 4", "stopped work"], done.err
