"""^C and SIGTERM at each step of a build, and two builds of one image at once; moments are found by what is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real


LAST_STEP = "$ mksquashfs /"

GATED = """\
#!/bin/sh
# Stands before the real one until it is let through; its version is asked for before.
[ "$1" = -version ] || read -r _ < "$GATE"
PATH=${PATH#*:} exec mksquashfs "$@"
"""


def wait_for(child: subprocess.Popen[str], text: str) -> None:
    """Read lines until one holds `text`; a child that never says it is ended."""
    assert child.stderr is not None
    seen = []
    alarm = threading.Timer(PATIENCE_S, child.kill)
    alarm.start()
    try:
        for line in child.stderr:
            seen.append(line)
            if text in line:
                return
    finally:
        alarm.cancel()
    pytest.fail(f"never said {text!r}:\n{''.join(seen)}")


def without_packed_wheels(shop: Shop) -> Shop:
    """Give a shop whose builds install and pack each package, whatever other tests have built."""
    cache = shop.folder / "cache"
    cache.mkdir()
    for part in shop.cache.iterdir():
        if part.name not in {"packed", "work", "uses"}:
            (cache / part.name).symlink_to(part.resolve())
    return replace(shop, cache=cache)


def with_gate(shop: Shop) -> tuple[dict[str, str], Path]:
    """Return the variables with which a build waits before it packs, and the gate that lets it go on."""
    gate = shop.folder / "gate"
    os.mkfifo(gate)
    folder = shop.folder / "bin"
    folder.mkdir()
    (folder / "mksquashfs").write_text(GATED)
    (folder / "mksquashfs").chmod(0o755)
    return {"PATH": f"{folder}:{shop.environment()['PATH']}", "GATE": str(gate)}, gate


def group_is_empty(group: int) -> bool:
    """Tell whether no process of a session is left: the build starts its programs in it."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            if int(words[3]) == group and words[0] != "Z":
                return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize(
    "moment",
    [
        "base      ",
        "choosing a build backend",
        "choosing versions",
        "fetching ",
        "compiling the byte code",
        LAST_STEP,
    ],
)
def test_a_signal_at_any_step_leaves_nothing_and_no_process(shop: Shop, moment: str, number: signal.Signals) -> None:
    shop = without_packed_wheels(shop)
    recipe = shop.write("r.txt", "tinypkg\n")
    # The last step waits at the gate, so that the build cannot end before the signal arrives.
    variables = with_gate(shop)[0] if moment == LAST_STEP else {}
    child = shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "-v", **variables)
    with child:
        wait_for(child, moment)
        child.send_signal(number)
        _, err = child.communicate()
    assert child.returncode == 128 + number, err
    assert "argosy: stopped" in err
    assert "Traceback" not in err
    assert not (shop.folder / "x.sif").exists()
    assert group_is_empty(child.pid)
    shop.nothing_left()


def test_a_second_signal_does_not_disturb_the_cleaning(shop: Shop) -> None:
    recipe = shop.write("r.txt", "tinypkg\n")
    child = shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "-v")
    with child:
        wait_for(child, "choosing versions")
        for _ in range(5):
            child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == 130
    shop.nothing_left()


def test_the_whole_foreground_group_may_get_the_signal_as_from_a_terminal(shop: Shop) -> None:
    recipe = shop.write("r.txt", "tinypkg\n")
    child = shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "-v")
    with child:
        wait_for(child, "choosing versions")
        os.killpg(child.pid, signal.SIGINT)
        child.communicate()
    assert child.returncode == 130
    shop.nothing_left()


def test_a_closed_pipe_leaves_no_partial_image(shop: Shop) -> None:
    recipe = shop.write("r.txt", "tinypkg\n")
    child = shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "-v")
    with child:
        wait_for(child, "choosing versions")
        assert child.stderr is not None
        child.stderr.close()
        child.wait()
    if (shop.folder / "x.sif").exists():
        shop.sif(shop.folder / "x.sif")
    shop.nothing_left()


class TestTwoBuildsOfOneImage:
    """The second one says whom it waits for, and then finds the image there."""

    def start_gated(self, shop: Shop) -> tuple[subprocess.Popen[str], Path]:
        """Start a build that stands still while it packs."""
        variables, gate = with_gate(shop)
        recipe = shop.write("first.txt", "tinypkg==1.0\n")
        words = ("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", "-v")
        first = shop.start(*words, **variables)
        wait_for(first, "choosing versions")
        return first, gate

    def start_second(self, shop: Shop, *more: str) -> subprocess.Popen[str]:
        recipe = shop.write("second.txt", "tinypkg==2.0\n")
        second = shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "x.sif", *more)
        wait_for(second, "waiting for process")
        return second

    def let_through(self, first: subprocess.Popen[str], gate: Path) -> None:
        """Open the gate for each program that stands before it."""
        while first.poll() is None:
            with suppress(OSError):
                handle = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
                os.write(handle, b"\n")
                os.close(handle)
            with suppress(subprocess.TimeoutExpired):
                first.wait(0.05)
        first.communicate()

    def test_the_second_waits_and_then_refuses_to_overwrite(self, shop: Shop) -> None:
        first, gate = self.start_gated(shop)
        second = self.start_second(shop)
        self.let_through(first, gate)
        _, err = second.communicate()
        assert first.returncode == 0
        assert second.returncode == 2
        assert "already exists" in err
        assert shop.run(shop.folder / "x.sif", "tinypkg").out == "tinypkg 1.0\n"
        shop.nothing_left()

    def test_the_second_waits_and_then_replaces_when_forced(self, shop: Shop) -> None:
        first, gate = self.start_gated(shop)
        second = self.start_second(shop, "--force")
        self.let_through(first, gate)
        second.communicate()
        assert (first.returncode, second.returncode) == (0, 0)
        assert shop.run(shop.folder / "x.sif", "tinypkg").out == "tinypkg 2.0\n"
        shop.nothing_left()

    def test_the_second_takes_over_when_the_first_is_killed(self, shop: Shop) -> None:
        first, _ = self.start_gated(shop)
        second = self.start_second(shop)
        first.kill()
        first.communicate()
        _, err = second.communicate()
        assert second.returncode == 0, err
        assert shop.run(shop.folder / "x.sif", "tinypkg").out == "tinypkg 2.0\n"
        shop.nothing_left()

    def test_a_signal_ends_the_waiting(self, shop: Shop) -> None:
        first, gate = self.start_gated(shop)
        second = self.start_second(shop)
        second.send_signal(signal.SIGINT)
        second.communicate()
        assert second.returncode == 130
        self.let_through(first, gate)
        assert first.returncode == 0
        shop.nothing_left(shop.folder / "x.sif")

    def test_builds_of_different_images_do_not_wait_for_each_other(self, shop: Shop) -> None:
        first, gate = self.start_gated(shop)
        shop_second = shop.argosy(
            "build", shop.write("s.txt", "another\n"), "--base", shop.base, "-o", shop.folder / "y.sif"
        )
        assert shop_second.code == 0
        assert "waiting" not in shop_second.err
        self.let_through(first, gate)
        assert first.returncode == 0
