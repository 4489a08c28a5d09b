"""The lab's one-shot login node is what the other tests believe it to be."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.conftest import Lab

pytestmark = pytest.mark.lab

REPO = Path(__file__).parents[2]
LAB_IN = str(REPO / "lab" / "in")
ROOTFS = str(REPO / "lab" / "rootfs")

PACK_LAYER = (
    "mkdir -p layer/opt && echo from the layer > layer/opt/word && "
    "mksquashfs layer layer.sqfs -quiet -no-progress -all-root > mksquashfs.log"
)


@pytest.mark.parametrize("user", ["alice", "root"])
def test_apptainer_runs_an_image(lab: Lab, tiny_image: Path, user: str) -> None:
    ran = lab.run(["apptainer", "exec", str(tiny_image), "echo", "hello"], user=user, binds=[tiny_image.parent])
    assert ran.stdout == "hello\n"


@pytest.mark.parametrize("user", ["alice", "root"])
def test_apptainer_mounts_an_overlay_partition_of_an_image(lab: Lab, tiny_image: Path, user: str) -> None:
    script = (
        f"cd && cp '{tiny_image}' a.sif && {PACK_LAYER} && "
        "apptainer sif add --datatype 4 --partfs 1 --parttype 4 --partarch 2 --groupid 1 a.sif layer.sqfs && "
        "apptainer sif list a.sif && apptainer exec a.sif cat /opt/word"
    )
    ran = lab.run(["sh", "-euc", script], user=user, binds=[tiny_image.parent])
    assert "Squashfs/Overlay" in ran.stdout
    assert ran.stdout.endswith("from the layer\n")


@pytest.mark.parametrize("user", ["alice", "root"])
def test_apptainer_binds_a_folder_out_of_a_squashfs_file(lab: Lab, tiny_image: Path, user: str) -> None:
    script = f"cd && {PACK_LAYER} && apptainer exec -B layer.sqfs:/srv:image-src=/opt '{tiny_image}' cat /srv/word"
    ran = lab.run(["sh", "-euc", script], user=user, binds=[tiny_image.parent])
    assert ran.stdout == "from the layer\n"


def test_this_checkout_of_argosy_is_importable_inside(lab: Lab) -> None:
    program = "import argosy, click, msgspec, yaml; print(argosy.__file__)"
    ran = lab.run(["/opt/argosy-dev/bin/python", "-c", program], cwd="/")
    assert ran.stdout.strip() == str(REPO / "src" / "argosy" / "__init__.py")


def test_argosy_answers_inside(lab: Lab) -> None:
    assert lab.run(["argosy", "--version"], cwd="/").stdout.startswith("argosy")


def test_the_environment_is_the_login_nodes_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "leaked")
    lines = lab.run(["env"], cwd="/").stdout.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert "SBATCH_ACCOUNT" not in names
    assert {"HOME=/home/alice", "USER=alice", "LOGNAME=alice"} <= set(lines)


def test_a_variable_is_passed_on_request(lab: Lab) -> None:
    ran = lab.run(["sh", "-c", 'printf %s "$WORD"'], env={"WORD": "a b\n$HOME"}, cwd="/")
    assert ran.stdout == "a b\n$HOME"


def test_hostile_arguments_arrive_unchanged(lab: Lab) -> None:
    words = ["a b", "$HOME", "`id`", "", "*", "-n", "new\nline", "'\"", "é"]
    ran = lab.run(["printf", "<%s>", *words], cwd="/")
    assert ran.stdout == "".join(f"<{word}>" for word in words)


def test_a_checkout_at_a_path_with_blanks_runs(lab: Lab, tmp_path: Path) -> None:
    assert lab.root.is_dir()
    checkout = tmp_path / "a clone, it's one"
    for name in ("lab", "src"):
        shutil.copytree(REPO / name, checkout / name)
    shutil.copy(REPO / "pyproject.toml", checkout)
    start = [str(checkout / "lab/in"), "-u", "root", "-w", str(checkout / "src"), "--"]
    assert run_program([*start, "pwd"]) == f"{checkout}/src\n"
    assert run_program([*start, "argosy", "--version"]).startswith("argosy ")


def test_exit_codes_are_the_commands_own(lab: Lab) -> None:
    assert lab.run(["sh", "-c", "exit 42"], check=False).code == 42
    assert lab.run(["sh", "-c", "kill -TERM $$"], check=False).code == 128 + signal.SIGTERM


def test_a_signal_reaches_the_command(lab: Lab) -> None:
    assert lab.root.is_dir()
    script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([LAB_IN, "-w", "/", "bash", "-c", script], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.terminate()
        assert started.stdout.read() == "caught\n"
    assert started.returncode == 9


def test_nothing_outlives_a_killed_login_node(lab: Lab) -> None:
    assert lab.root.is_dir()
    # Standard output reaches its end only when the last process that holds it is gone.
    words = [LAB_IN, "-w", "/", "sh", "-c", "echo ready; setsid sleep 600 & sleep 600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.kill()
        assert started.stdout.read() == ""


def test_no_mount_is_left_on_this_machine(lab: Lab) -> None:
    lab.run(["true"])
    cache = str(lab.root.parent)
    assert not [line for line in Path("/proc/self/mounts").read_text().splitlines() if cache in line]


def test_files_that_a_command_writes_vanish_with_its_login_node(lab: Lab) -> None:
    before = set((lab.root / "home" / "alice").iterdir())
    lab.run(["sh", "-c", "echo x > ~/left && echo x > /tmp/left"])
    assert lab.run(["sh", "-c", "ls ~/left /tmp/left"], check=False).code != 0
    assert set((lab.root / "home" / "alice").iterdir()) == before


def test_a_bound_folder_is_shared_with_this_machine(lab: Lab, tmp_path: Path) -> None:
    lab.run(["sh", "-c", "echo word > /mnt/file"], user="root", binds=[f"{tmp_path}:/mnt"])
    assert (tmp_path / "file").read_text() == "word\n"


def test_the_package_index_of_this_machine_answers_inside(lab: Lab) -> None:
    script = "python3 -m venv v && v/bin/pip download --quiet --no-deps --dest d click && ls d"
    assert lab.run(["sh", "-euc", f"cd && {script}"]).stdout.startswith("click-")


def test_a_second_network_is_loopback_only(lab: Lab) -> None:
    assert lab.root.is_dir()
    shown = run_program([LAB_IN, "--net", "ip", "-o", "link"])
    assert [line.split(":")[1].strip() for line in shown.splitlines()] == ["lo"]


def test_the_tree_is_named_by_its_recipe(lab: Lab) -> None:
    variant = os.environ.get("ARGOSY_LAB_VARIANT", "trixie")
    assert lab.root.name == f"root-{variant}-{run_program([ROOTFS, 'digest']).strip()}"


def test_remove_keeps_a_tree_in_use_and_clears_leftovers_of_a_crash(lab: Lab, tmp_path: Path) -> None:
    assert lab.root.is_dir()
    for name in ("root-trixie-used", "root-trixie-old", "venv-old", "building/root"):
        (tmp_path / name / "etc").mkdir(parents=True)
    with (tmp_path / "root-trixie-used.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        environment = os.environ | {"ARGOSY_LAB": str(tmp_path)}
        done = subprocess.run([ROOTFS, "remove"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"rootfs: {tmp_path}/root-trixie-used is in use and stays\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["log", "mnt", "root-trixie-used"]


def test_a_variable_names_the_tree_of_commands_that_name_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_LAB_VARIANT", "bookworm")
    assert run_program([ROOTFS, "digest"]) == run_program([ROOTFS, "digest", "bookworm"])
    words = [str(REPO / "lab" / "cluster"), "--run", str(tmp_path / "run"), "up", "--accounting"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "cluster: the root file system 'bookworm' has no slurmdbd\n")


def test_an_unknown_tree_is_refused_in_one_line() -> None:
    done = subprocess.run([ROOTFS, "digest", "sarge"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "rootfs: no root file system is called 'sarge'; there are: trixie accounting bookworm sid\n"


def run_program(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
