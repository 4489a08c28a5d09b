"""What only bubblewrap needs to keep: joined trees, the kernel's refusals, nothing left behind, GPUs by hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.core.layout import GPU_LIBRARIES
from argosy.core.model import Attach, Bind, Devices, Image, ImageKind, Variable
from argosy.core.shell import ShellExpr, join, literal_argv
from argosy.runtimes.bwrap import BWRAP

if TYPE_CHECKING:
    from tests.contract.conftest import Stage

pytestmark = pytest.mark.real


@pytest.fixture(params=["bwrap, root", "bwrap, user"])
def stage(request: pytest.FixtureRequest, stage_called: Callable[[str], Stage]) -> Stage:
    return stage_called(request.param)


def test_trees_with_odd_names_are_joined(stage: Stage) -> None:
    odd = [stage.images.folder / f"{path.name}, a:b 'c' \"d\\e" for path in (stage.images.layer, stage.images.base)]
    for link, tree in zip(odd, (stage.images.layer, stage.images.base), strict=True):
        if not link.exists():
            shutil.copytree(tree, link, symlinks=True)
    reply = stage.start(stage.entry(trees=tuple(map(str, odd))), ("hello",))
    assert reply.stdout == "hello from /opt/argosy\n", reply.stderr


def test_a_single_tree_gets_mount_points_and_stays_untouched(stage: Stage) -> None:
    before = sorted(map(str, stage.images.base.rglob("*")))
    image = Image(str(stage.images.base), ImageKind.TREE, "", "amd64")
    binds = (Bind(str(stage.work), "/deep/new/place"), Bind(str(stage.work), "/top"))
    entry = stage.entry(image=image, attach=Attach.FLAT, trees=(str(stage.images.base),), binds=binds, workdir="/top")
    reply = stage.start(entry, ("sh", "-c", "test -d /deep/new/place && pwd"))
    assert reply.stdout == "/top\n", reply.stderr
    assert sorted(map(str, stage.images.base.rglob("*"))) == before


@pytest.mark.parametrize("name", ["bwrap, root", pytest.param("bwrap, lab", marks=pytest.mark.lab)])
def test_if_the_kernel_refuses_an_overlay_fuse_mounts_it(stage_called: Callable[[str], Stage], name: str) -> None:
    stage = stage_called(name)
    stub = stage.work / "stub"
    stub.mkdir(exist_ok=True)
    (stub / "mount").write_text('#!/bin/sh\n[ "$2" != overlay ] || exit 32\nexec /usr/bin/mount "$@"\n')
    (stub / "mount").chmod(0o755)
    if not stage.lab and not (shutil.which("fuse-overlayfs") and os.access("/dev/fuse", os.W_OK)):
        pytest.skip("needs fuse-overlayfs and a /dev/fuse that this user may open")
    # The daemon holds a pipe of its own: its end shows that the daemon is gone.
    around = 'mkfifo alive; PATH="$STUB:$PATH"; "$@" 8> alive & timeout 600 cat alive || echo stays; rm alive; wait $!'
    reply = stage.start(stage.entry(), ("hello",), env={"STUB": str(stub)}, around=around)
    assert reply.stdout == "hello from /opt/argosy\n", reply.stderr


def test_the_error_shows_why_no_overlay_can_be_mounted(stage: Stage) -> None:
    stub = stage.work / "stub-all"
    stub.mkdir(exist_ok=True)
    (stub / "mount").write_text(
        '#!/bin/sh\n[ "$2" != overlay ] || { echo "kernel says no" >&2; exit 32; }\n'
        f'exec {shutil.which("mount")} "$@"\n'
    )
    (stub / "fuse-overlayfs").write_text('#!/bin/sh\necho "fuse says no" >&2\nexit 1\n')
    for path in stub.iterdir():
        path.chmod(0o755)
    reply = stage.start(stage.entry(), ("hello",), env={"PATH": f"{stub}:{os.environ['PATH']}"})
    assert reply.code == 125
    assert "kernel says no\nfuse says no\nargosy: neither the kernel nor fuse-overlayfs can mount" in reply.stderr


def test_an_image_without_a_shell_runs_with_a_note(stage: Stage) -> None:
    tree = stage.images.folder / "no-shell"
    (tree / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2(stage.images.base / "bin/busybox", tree / "bin/busybox")
    image = Image(str(tree), ImageKind.TREE, "", "amd64")
    entry = stage.entry(image=image, trees=(str(tree),), variables=(Variable("A", "b `c`"),))
    reply = stage.start(
        entry, ("busybox", "sh", "-c", 'echo "$A"; pwd; for a; do echo "<$a>"; done; exit 9', "x", "", "a b")
    )
    assert (reply.stdout, reply.code) == (f"b `c`\n{stage.work}\n<>\n<a b>\n", 9)
    assert "no /bin/sh" in reply.stderr


def test_an_environment_script_of_an_image_cannot_touch_the_command(stage: Stage) -> None:
    layer = stage.images.folder / "spoiling"
    (layer / ".singularity.d/env").mkdir(parents=True, exist_ok=True)
    (layer / ".singularity.d/env/91-spoil.sh").write_text("set -- spoiled\n")
    reply = stage.start(stage.entry(trees=(str(layer), *stage.entry().trees)), ("sh", "-c", 'echo "$1"', "sh", "kept"))
    assert reply.stdout == "kept\n", reply.stderr


@pytest.mark.parametrize("link", ["etc", "etc/passwd"])
def test_a_link_of_an_image_shows_no_file_of_this_machine(stage_called: Callable[[str], Stage], link: str) -> None:
    stage = stage_called("bwrap, user")
    layer, outside = stage.images.folder / f"linked-{link.replace('/', '-')}", stage.images.folder / "mine"
    outside.mkdir(exist_ok=True)
    (outside / "passwd").write_text("secret:x:0:0::/:/bin/sh\n")
    (layer / link).parent.mkdir(parents=True, exist_ok=True)
    (layer / link).symlink_to(outside / "passwd" if link.endswith("passwd") else outside)
    reply = stage.start(stage.entry(trees=(str(layer), *stage.entry().trees)), ("cat", "/etc/passwd"))
    assert (reply.code, "alice" in reply.stdout, "secret" in reply.stdout) == (0, True, False), reply.stderr


def test_a_missing_bind_source_ends_with_125(stage: Stage) -> None:
    reply = stage.start(stage.entry(binds=(Bind("/no/such/place", "/x"),), workdir="/"), ("hello",))
    assert reply.code == 125
    assert "/no/such/place" in reply.stderr


def test_a_missing_directory_ends_with_125(stage: Stage) -> None:
    reply = stage.start(stage.entry(workdir="/no/such"), ("hello",))
    assert reply.code == 125
    assert "argosy: the container has no directory /no/such\n  -> check the path; to mount" in reply.stderr


def test_afterwards_no_mount_is_left(stage: Stage) -> None:
    stage.start(stage.entry(), ("hello",))
    assert str(stage.images.folder) not in Path("/proc/self/mountinfo").read_text()
    assert list((stage.images.folder / "scratch").iterdir()) == []


def test_the_program_is_the_process_that_was_started_and_the_only_one(stage: Stage) -> None:
    script = (
        'echo "$$"; for p in /proc/[0-9]*; do read -r l < $p/stat 2> /dev/null && set -- $l && echo "parent $4"; done'
    )
    around = 'sh -c \'echo "$$"; exec "$@"\' sh "$@"'
    lines = stage.start(stage.entry(), ("sh", "-c", script), around=around).stdout.split("\n")
    assert lines[0] == lines[1]
    assert f"parent {lines[0]}" not in lines[2:]


def test_a_process_dies_with_its_parent_on_request(stage: Stage) -> None:
    words = literal_argv(BWRAP.argv(stage.entry(), ("sh", "-c", "echo ready; exec sleep 1000")))
    parent = ("sh", "-c", 'setpriv --pdeathsig KILL -- "$@" & wait', "sh")
    child = subprocess.Popen((*stage.unprivileged, *parent, *words), cwd=stage.work, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    # The pipe ends when the program, its last writer, is gone.
    assert child.stdout.read() == b""
    child.stdout.close()
    child.wait()


def test_an_inherited_descriptor_reaches_the_program(stage: Stage) -> None:
    around = 'exec 9> passed 8> passed8; "$@"; code=$?; cat passed passed8; exit $code'
    reply = stage.start(stage.entry(), ("sh", "-c", "echo nine >&9; echo eight >&8"), around=around)
    assert (reply.stdout, reply.code) == ("nine\neight\n", 0), reply.stderr


def test_late_values_are_expanded_by_the_script_that_starts_it(stage: Stage) -> None:
    entry = stage.entry(variables=(Variable("NODE", ShellExpr("$node-$((1 + 1))")),))
    line = join(BWRAP.argv(entry, ("sh", "-c", 'echo "$NODE" "$1"', "sh", ShellExpr("$node x"))))
    reply = stage.outside(("/bin/sh", "-c", f"node='a  b'; {line}"), {"PATH": os.environ["PATH"]})
    assert reply.stdout == "a  b-2 a  b x\n", reply.stderr


def test_devices_and_driver_files_are_carried_in(stage: Stage) -> None:
    driver = stage.images.folder / "libcuda.so.550.1"
    driver.write_text("driver\n")
    devices = Devices(
        nodes=("/dev/full",),
        binds=(
            Bind(str(driver), f"{GPU_LIBRARIES}/libcuda.so.1", read_only=True),
            Bind(str(driver), "/usr/lib/x86_64-linux-gnu/libcuda.so.550.1", read_only=True),
        ),
        variables=(Variable("NVIDIA_VISIBLE_DEVICES", "void"),),
        links=(("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so"),),
        library_folders=("/usr/lib/x86_64-linux-gnu",),
    )
    script = (
        'cat "$1/libcuda.so.1" /usr/lib/x86_64-linux-gnu/libcuda.so.550.1; readlink "$1/libcuda.so"; '
        'echo "$NVIDIA_VISIBLE_DEVICES"; echo "$LD_LIBRARY_PATH"; test -c /dev/full && test ! -e /dev/kmsg'
    )
    home = stage.entry(devices=devices, contain=True, workdir="/", binds=())
    reply = stage.start(home, ("sh", "-c", script, "sh", GPU_LIBRARIES))
    folders = f"{GPU_LIBRARIES}:/usr/lib/x86_64-linux-gnu:{GPU_LIBRARIES}"
    expected = f"driver\ndriver\n/usr/lib/x86_64-linux-gnu/libcuda.so.1\nvoid\n{folders}\n"
    assert (reply.stdout, reply.code) == (expected, 0), reply.stderr
