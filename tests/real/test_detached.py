"""A detached session stays when the shell that started it ends; later commands enter the same container."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S, wait_until_written
from tests.real.test_interrupts import wait_for

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


NSENTER = """\
#!/bin/sh
# The second nsenter enters the new container again to test it: hold that one at the gate.
case $1 in --target=*) [ ! -p {gate} ] || {{ echo > {arrived}; read -r _ < {gate}; }} ;; esac
exec {nsenter} "$@"
"""


def start_gated(shop: Shop, image: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a session that waits after its container has started; return the gate on which it waits."""
    arrived, gate, shim = (shop.folder / name for name in ("arrived", "gate", "shim"))
    os.mkfifo(arrived)
    os.mkfifo(gate)
    shim.mkdir()
    (shim / "nsenter").write_text(NSENTER.format(gate=gate, arrived=arrived, nsenter=shutil.which("nsenter")))
    (shim / "nsenter").chmod(0o755)
    words = ("shell", image, "--detach", "work", "--runtime", "bwrap")
    first = shop.start(*words, PATH=f"{shim}:{shop.environment()['PATH']}")
    wait_until_written(arrived)
    return first, gate


def test_an_interrupted_start_leaves_no_container(shop: Shop, tiny: Path) -> None:
    first, _ = start_gated(shop, tiny)
    (listed,) = json.loads(shop.argosy("sessions", "ls", "--json").out)
    holder = os.pidfd_open(listed["owner"]["pid"])
    first.send_signal(signal.SIGINT)
    _, err = first.communicate()
    assert first.returncode == 130, err
    assert select.select([holder], [], [], PATIENCE_S)[0], "the process that holds the container runs on"
    os.close(holder)
    assert shop.argosy("sessions", "ls").out == "no sessions\n"


def test_two_starts_of_one_name_make_one_session(shop: Shop, tiny: Path) -> None:
    first, gate = start_gated(shop, tiny)
    second = shop.start("shell", tiny, "--detach", "work", "--runtime", "bwrap")
    wait_for(second, "waiting for process")
    with gate.open("w"):  # returns when the shim reads
        gate.unlink()
    _, err = first.communicate()
    assert first.returncode == 0, err
    _, err = second.communicate()
    try:
        assert second.returncode == 125
        assert "a session work already exists" in err
        assert len(json.loads(shop.argosy("sessions", "ls", "--json").out)) == 1
    finally:
        shop.argosy("sessions", "stop", "work")


@pytest.mark.soak
def test_apptainer_keeps_a_session_for_an_ordinary_user(alices: Shop) -> None:
    image = alices.build("tinypkg==1.0\n")
    script = (
        f"argosy shell {image} --detach work --runtime apptainer; argosy attach work -- tinypkg; "
        'argosy attach work -- sh -c "id -un; exit 4"; echo "code $?"; argosy sessions stop work'
    )
    done = alices.lab("sh", "-c", script)
    assert done.out.splitlines()[1:] == ["tinypkg 1.0", "alice", "code 4", "stopped work"], done.err
