"""A writable folder over an image: which one, by whom, and what is refused; nothing is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.locks import this_owner
from argosy.core.model import Attach, Image, ImageKind
from argosy.core.process import Command
from argosy.core.records import asdict, replace
from argosy.host.probe import probe_host
from argosy.recipes.project_file import read_project
from argosy.runtimes import run as running
from argosy.runtimes.choose import bare_entry
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.dev import (
    LIST_REQUESTED,
    DevRecipe,
    Installed,
    base_of,
    opened_dev,
    plan_dev,
    plan_recipe,
    refuse_existing,
    render_recipe,
)
from argosy.runtimes.run import RunRequest, dev_note
from argosy.runtimes.runtime import RUNTIMES, load_runtime
from tests.unit.core.test_locks import FakeTime
from tests.unit.machines import real_session

HOST = replace(probe_host({"PATH": "/usr/bin", "HOME": "/home/ada"}), cwd="/project")
IMAGE = Image("/images/my.sif", ImageKind.SIF, "sha256:0123456789abcdef", "amd64")

BEFORE = Installed(apt={"bash": "bash"}, pip={"torch": "torch==2.9.0", "rich": "rich==13.0"})


def plan_with(runtime: str = "bwrap", **changes: object) -> ContainerPlan:
    entry = replace(bare_entry(IMAGE, HOST), **changes)  # type: ignore[arg-type] # a test names the fields it changes
    return ContainerPlan(load_runtime(runtime), entry, ())


def test_each_image_has_a_folder_of_its_own_below_the_project() -> None:
    planned = plan_dev(plan_with("apptainer"), HOST)
    assert planned.entry.dev == "/project/.argosy/dev/0123456789ab-apptainer"
    assert plan_dev(plan_with(), HOST).entry.dev != planned.entry.dev
    assert plan_dev(plan_with(), HOST, "mine").entry.dev == "/project/mine"


def test_an_image_without_a_digest_is_identified_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "other.sif"
    file.write_text("one")
    image = Image(str(file), ImageKind.SIF, "", "")
    first = plan_dev(plan_with(image=image), HOST).entry.dev
    file.write_text("another")
    assert plan_dev(plan_with(image=image), HOST).entry.dev != first


def test_a_new_hard_link_to_an_image_keeps_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "other.sif"
    file.write_text("one")
    image = Image(str(file), ImageKind.SIF, "", "amd64")
    planned, ctime = plan_dev(plan_with(image=image), HOST), file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == ctime:  # the clock of the file system has ticks
        (tmp_path / "link.sif").unlink(missing_ok=True)
        (tmp_path / "link.sif").hardlink_to(file)
    assert plan_dev(plan_with(image=image), HOST).entry.dev == planned.entry.dev


@pytest.mark.parametrize("name", [name for name in RUNTIMES if name not in {"apptainer", "singularity", "bwrap"}])
def test_a_runtime_without_bind_mounts_over_an_image_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} cannot make an image writable"):
        plan_dev(plan_with(name), HOST)


def test_a_machine_that_skips_overlays_is_reported() -> None:
    with pytest.raises(CheckFailed, match="cannot make this image writable"):
        plan_dev(plan_with("apptainer", attach=Attach.BIND), HOST)


def test_one_process_at_a_time_writes_and_git_ignores_the_folder(tmp_path: Path) -> None:
    plan = plan_dev(plan_with(), replace(HOST, cwd=str(tmp_path)))
    with opened_dev(plan, print):
        assert {path.name for path in Path(plan.entry.dev).iterdir()} >= {"upper", "work"}
        assert (tmp_path / ".argosy/dev/.gitignore").read_text() == "*\n"
        with pytest.raises(CheckFailed, match="another process") as caught, opened_dev(plan, print):
            pass
        assert f"process {os.getpid()}" in caught.value.evidence
    with opened_dev(plan, print):
        pass


@pytest.mark.parametrize("link", ["opt", "opt/argosy", "opt/argosy/apt.conf"])
def test_a_link_that_a_container_made_is_not_followed_on_this_machine(tmp_path: Path, link: str) -> None:
    host = replace(HOST, cwd=str(tmp_path), person=replace(HOST.person, uid=HOST.person.uid or 1000))
    plan, outside = plan_dev(plan_with(), host, fakeroot=True), tmp_path / "home"
    (outside / "argosy").mkdir(parents=True)
    for name in ("apt.conf", "argosy/apt.conf"):
        (outside / name).write_text("mine\n")
    made = Path(plan.entry.dev, "upper", link)
    made.parent.mkdir(parents=True)
    made.symlink_to(outside / "apt.conf" if link.endswith("conf") else outside)
    with opened_dev(plan, print):
        assert {path.read_text() for path in outside.rglob("apt.conf")} == {"mine\n"}


ELSEWHERE = replace(this_owner("--dev with my.sif"), host="ctl2", boot="another", pid=4711)


def test_a_folder_that_another_host_left_is_taken_over_and_one_in_use_there_is_refused(tmp_path: Path) -> None:
    """The runs on a login node and then on a compute node share the folder, and no process number tells across."""
    plan = plan_dev(plan_with(), replace(HOST, cwd=str(tmp_path)))
    said: list[str] = []
    held = Path(plan.entry.dev) / "lease"
    held.parent.mkdir(parents=True)
    held.write_text(json.dumps(asdict(ELSEWHERE)))
    time = FakeTime()
    with opened_dev(plan, said.append, time.clock()):
        assert json.loads(held.read_text())["pid"] == os.getpid()
    assert [text for text in said if "process 4711" in text and "ctl2" in text] == said != []
    assert not held.exists()
    held.write_text(json.dumps(asdict(ELSEWHERE)))
    living = FakeTime(meanwhile=[lambda: os.utime(held, (time.seconds, held.stat().st_mtime + 1))])
    with pytest.raises(CheckFailed, match="another process"), opened_dev(plan, said.append, living.clock()):
        pass
    assert json.loads(held.read_text())["pid"] == ELSEWHERE.pid


def test_the_process_stays_while_the_folder_is_used_and_gives_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease whose holder became the command has no signs of life, and nobody to remove it."""
    plan = plan_dev(plan_with(), replace(HOST, cwd=str(tmp_path)))
    held = Path(plan.entry.dev) / "lease"
    command = Command(("sh", "-c", 'test -e "$0"', str(held)))
    monkeypatch.setattr(running, "prepare_run", lambda *_: (plan, command))
    assert running.run(RunRequest("my.sif", (), dev=True), real_session(tmp_path)) == 0
    assert not held.exists()


@pytest.mark.parametrize("place", ["/proc/none", "file"])
def test_an_impossible_folder_is_one_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    plan = plan_dev(plan_with(), HOST, str(tmp_path / place))
    with pytest.raises(ArgosyError) as caught, opened_dev(plan, print):
        pass
    assert caught.value.hint
    assert "upper" not in str(caught.value).splitlines()[0] or place == "/proc/none"


def test_files_unpacked_by_another_user_are_refused(tmp_path: Path) -> None:
    stranger = replace(HOST.person, uid=HOST.person.uid + 1)
    plan = plan_dev(plan_with(trees=(str(tmp_path),), person=stranger), HOST, str(tmp_path / "dev"))
    with pytest.raises(CheckFailed, match="belong to another user") as caught, opened_dev(plan, print):
        pass
    assert "ARGOSY_CACHE" in caught.value.hint


def test_the_note_names_the_folder_and_the_command_to_build_an_image(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to("versions/1/bin")
    wrapped = dev_note(RunRequest(str(tmp_path), ()), "/project/.argosy/dev/x-bwrap", "/project")
    assert f"argosy wrap update {tmp_path} PACKAGE…" in wrapped
    note = dev_note(RunRequest("my.sif", ()), "/project/.argosy/dev/x-bwrap", "/project")
    assert ".argosy/dev/x-bwrap keeps the changes" in note
    assert "argosy build requirements.txt --base my.sif -o NEW.sif" in note


def test_a_recipe_has_added_and_changed_packages_and_names_removed_ones() -> None:
    after = Installed(
        apt={"bash": "bash", "graphviz": "graphviz"}, pip={"torch": "torch==2.10.0", "mine": "-e /home/ada/mine"}
    )
    recipe = plan_recipe(BEFORE, after, "my.sif")
    assert recipe.apt == ("graphviz",)
    assert recipe.pip == ("-e /home/ada/mine", "torch==2.10.0")
    assert recipe.removed == ("rich",)


def test_a_recipe_is_a_valid_project_without_a_key_that_it_does_not_need(tmp_path: Path) -> None:
    files = render_recipe(DevRecipe("../my 'own\".sif", ("graphviz", "git"), ()))
    assert list(files) == ["argosy.toml"]
    (tmp_path / "argosy.toml").write_text(files["argosy.toml"])
    table = read_project(tmp_path / "argosy.toml").table
    assert table.image.base == "../my 'own\".sif"
    assert str(table.step[0].run).endswith("--no-install-recommends graphviz git")
    packages = render_recipe(DevRecipe("my.sif", (), ("einops==0.8.1",)))
    assert packages["requirements.txt"] == "einops==0.8.1\n"
    assert "step" not in tomllib.loads(packages["argosy.toml"])


def test_the_base_is_a_path_from_the_recipe_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "my.sif").touch()
    assert base_of("my.sif", Path("a/b"), str(tmp_path)) == "../../my.sif"
    assert base_of("docker://debian:bookworm", Path("a"), str(tmp_path)) == "docker://debian:bookworm"


@pytest.mark.parametrize("name", ["argosy.toml", "requirements.txt"])
def test_a_recipe_replaces_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match="already exists"):
        refuse_existing(tmp_path)


@pytest.mark.parametrize("folder", ["train.py", "train.py/recipe", "locked/recipe"])
def test_a_folder_for_a_recipe_that_cannot_be_made_is_refused_before_the_start(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr("os.access", lambda path, _: path.name != "locked")
    with pytest.raises(UsageError, match=f"cannot write to {tmp_path / folder}"):
        refuse_existing(tmp_path / folder)
    refuse_existing(tmp_path / "new/recipe")


def test_the_program_that_lists_packages_needs_nothing_but_python(tmp_path: Path) -> None:
    for name, origin in (
        ("mine", '{"url": "file:///home/ada/my%20code", "dir_info": {"editable": true}}'),
        ("rich", ""),
    ):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "REQUESTED").touch()
        if origin:
            (info / "direct_url.json").write_text(origin)
    command = (sys.executable, "-S", "-c", LIST_REQUESTED)
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["pip mine -e /home/ada/my code", "pip rich rich==1.0"]
