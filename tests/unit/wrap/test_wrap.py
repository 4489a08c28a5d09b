"""Wrapping: what is chosen, and what the generated files say and do, without a container."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.core.errors import CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.model import Attach, Bind, GpuMode, Image, ImageKind, Person
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.images.prefix import current_version, image_of_prefix
from argosy.runtimes.bwrap import ENTER_PROGRAM, HOLD, JOIN
from argosy.runtimes.choose import bare_entry
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import load_runtime
from argosy.sites.read import read_site
from argosy.wrap.check import refuse_gpu_build
from argosy.wrap.installations import link_file, refuse_other_place
from argosy.wrap.model import InContainer, PrefixRecipe, PrefixSourceKind, Settings, UpdateRequest, Version, WrapRequest
from argosy.wrap.new_version import collect_notes, parse_probe, probe_image, with_gpu_mode
from argosy.wrap.plan import (
    merge_files,
    plan_commands,
    plan_paths,
    refuse_host_setting,
    refuse_relative_paths,
    refuse_unusable_interpreter,
    settings_at_site,
    shadowed_folders,
    venv_interpreter,
)
from argosy.wrap.prefix import create_prefix, plan_update, prune_prefix, read_history, rollback_prefix, update_prefix
from argosy.wrap.render import render_start, render_venv, render_wrapper
from argosy.wrap.request import parse_environ, plan_recipe
from argosy.wrap.root_entries import How, Root, RootEntry
from argosy.wrap.start import SYSTEM_PATH, StartFile, render_join, render_names
from argosy.wrap.templates import read_template
from argosy.wrap.versions import (
    MARK,
    keep_readers,
    locked_prefix,
    open_prefix,
    refuse_prefix,
    share_new_prefix,
    switch,
    versions,
    write_version,
)
from tests.unit.machines import make_host, make_session

START = StartFile(
    number=3,
    identity="abc",
    what="requirements.txt over debian:bookworm",
    runtime="apptainer",
    program="apptainer",
    image="image.sif",
    elsewhere="",
    path="/opt/argosy/env/bin:/usr/bin",
    drop=("PYTHONPATH", "LD_LIBRARY_PATH"),
    shadowed=("workspace",),
    on_top=True,
    binds=(Bind("/data, old", "/data"),),
    variables=(("GREETING", "it's $5"),),
    gpu=GpuMode.AUTO,
    host=False,
)

ROOT = Root(
    (
        RootEntry("/bin", How.LINK, "usr/bin"),
        RootEntry("/etc", How.BIND, "joined-a1/root/etc"),
        RootEntry("/opt", How.FOLDER),
    ),
    folder="joined-a1",
    users="root:x:0:0:it's $0:/root:/bin/sh\n",
    groups="root:x:0:\n",
)


def inside(*programs: str, **more: object) -> InContainer:
    return replace(InContainer(programs), **more)  # type: ignore[arg-type] # a test names the fields it sets


def test_the_first_of_two_commands_of_one_name_counts_and_the_other_is_noted() -> None:
    plan = plan_commands(inside("/opt/v/bin/python", "/usr/bin/python", "/usr/bin/git"), ["/opt/v/bin"], image="x.sif")
    assert [(each.name, each.target) for each in plan.commands] == [
        ("git", "/usr/bin/git"),
        ("python", "/opt/v/bin/python"),
    ]
    assert plan.hidden == (("python", "/opt/v/bin/python", "/usr/bin/python"),)


def test_a_path_that_the_image_lacks_is_an_error_so_nothing_is_installed_empty() -> None:
    with pytest.raises(ImageError, match="no programs at /opt/none"):
        plan_commands(inside("/usr/bin/git", missing=("/opt/none",)), ["/usr/bin", "/opt/none"], image="x.sif")


def test_wrapping_an_image_that_argosy_did_not_build_needs_absolute_paths() -> None:
    with pytest.raises(UsageError, match="cannot choose the commands"):
        plan_paths(Settings(), argosy=False, image="x.sif")
    with pytest.raises(UsageError, match="it must be absolute"):
        refuse_relative_paths(
            Settings(paths=("python", "env/bin")), PrefixRecipe(PrefixSourceKind.FILES, ("/r/requirements.txt",))
        )
    assert plan_paths(Settings(paths=("/opt/v/bin/", "/opt/v/bin")), argosy=True, image="x") == ("/opt/v/bin",)
    assert plan_paths(Settings(), argosy=True, image="x") == ("/opt/argosy/env/bin",)


def test_the_probes_output_is_found_among_the_images() -> None:
    text = (
        "welcome\nargosy:path:/usr/bin\nargosy:program:/usr/bin/a:b\nargosy:setting:home = /usr/bin\nargosy:end:yes\n"
    )
    found = parse_probe(text)
    assert found is not None
    assert (found.path, found.programs, found.venv) == ("/usr/bin", ("/usr/bin/a:b",), (("home", "/usr/bin"),))
    assert parse_probe(text.replace("argosy:end:yes\n", "")) is None


@pytest.mark.parametrize("mode", [0o755, 0o2750, 0o700])
def test_a_new_version_is_read_by_those_who_read_the_old_one(tmp_path: Path, mode: int) -> None:
    old, new, tree = (tmp_path / name for name in ("versions/1", "versions/.2.part", "cache/trees/t"))
    for folder in (old / "bin", new / "bin", tree / "root/etc"):
        folder.mkdir(parents=True)
    switch(tmp_path, 1)
    (new / "bin/python").touch(0o700)
    (new / "version.json").touch(0o600)
    (new / "image.sif").symlink_to(tmp_path / "own.sif")
    (tmp_path / "own.sif").touch(0o600)
    (tree / "root/etc/shadow").touch(0o600)
    for folder in (new, new / "bin", tree, tree / "root", tree.parent, tree.parent.parent):
        folder.chmod(0o700)
    old.chmod(mode)
    keep_readers(tmp_path, new, ("t",))
    readers = mode & 0o055
    for folder in (new, new / "bin", new / "bin/python", tree, tree / "root", tree.parent, tree.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700 | readers
    assert (new / "version.json").stat().st_mode & 0o777 == 0o600 | readers & 0o044
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "own.sif", tree / "root/etc/shadow")] == [0o600, 0o600]


@pytest.mark.parametrize("shared", ["parent", "prefix", ""])
def test_the_group_of_a_shared_folder_can_read_a_new_prefix(tmp_path: Path, shared: str) -> None:
    prefix = tmp_path / "env"
    new, tree = (prefix / name for name in ("versions/.1.part", "cache/trees/t"))
    for folder in (prefix, new.parent, new, tree.parent.parent, tree.parent, tree, prefix / "modulefiles"):
        folder.mkdir(mode=0o700)
    for name in ("versions/.1.part/version.json", "activate", "modulefiles/env.lua"):
        (prefix / name).touch(0o600)
    (prefix if shared == "prefix" else tmp_path).chmod(0o2770 if shared else 0o755)
    keep_readers(prefix, new, ("t",))
    share_new_prefix(prefix)
    paths = (prefix, *(path for path in prefix.rglob("*")))
    closed = [path.name for path in paths if not path.stat().st_mode & 0o040]
    assert bool(closed) != bool(shared), closed
    assert not any(path.stat().st_mode & 0o007 for path in paths)


@pytest.mark.parametrize("order", [("usr/bin/python3", "venv/bin/python"), ("venv/bin/python", "usr/bin/python3")])
def test_of_several_pythons_the_one_in_a_venv_gives_the_packages(tmp_path: Path, order: tuple[str, ...]) -> None:
    for name in order:
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    words = ["/bin/sh", "-c", read_template("probe.sh"), "sh", *(str(tmp_path / name) for name in order)]
    found = parse_probe(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert found is not None
    assert found.venv == (("home", "/usr/bin"),)


def test_a_container_that_does_not_start_is_tried_alone_in_the_next_step() -> None:
    session = make_session(runner=FakeRunner([((), Reply(1, "", "bwrap: setting up uid map: Permission denied"))]))
    entry = bare_entry(Image("/images/my.sif", ImageKind.SIF, "", "amd64"), session.host)
    with pytest.raises(ToolFailed) as error:
        probe_image(ContainerPlan(load_runtime("bwrap"), entry, ()), ("/usr/bin",), session, image="my.sif")
    assert "Permission denied" in error.value.evidence
    assert "argosy run IMAGE" in error.value.hint


@pytest.mark.parametrize(("uid", "advice"), [(0, "as an ordinary user"), (1000, "argosy run IMAGE")])
def test_a_kernel_that_cannot_mount_the_image_is_explained_to_root(uid: int, advice: str) -> None:
    message = "FATAL: kernel reported a bad superblock for squashfs image partition"
    host = make_host(person=Person(uid, uid, "me", "/home/me"))
    session = make_session(host=host, runner=FakeRunner([((), Reply(255, "", message))]))
    entry = bare_entry(Image("/images/my.sif", ImageKind.SIF, "", "amd64"), session.host)
    with pytest.raises(ToolFailed) as error:
        probe_image(ContainerPlan(load_runtime("bwrap"), entry, ()), ("/usr/bin",), session, image="my.sif")
    assert advice in error.value.hint


def test_folders_of_the_image_are_not_hidden_by_those_of_the_host() -> None:
    assert shadowed_folders(inside(folders=("/usr", "/home", "/workspace", "/lib64", "/.singularity.d"))) == (
        "workspace",
    )


def test_host_is_refused_if_the_environment_needs_the_base() -> None:
    refuse_host_setting(Settings(host=True), inside(python="/opt/argosy/env/bin/python3.12"))
    with pytest.raises(UsageError, match="system folders"):
        refuse_host_setting(Settings(host=True), inside(python="/usr/bin/python3.11"))


def test_a_file_of_variables_is_parsed_and_computed_values_are_refused_by_line() -> None:
    assert parse_environ("# a\nexport A='x $y'\nB=two\nC=\n", "env") == (("A", "x $y"), ("B", "two"), ("C", ""))
    with pytest.raises(UsageError) as error:
        parse_environ("A=1\nexport PATH=/x:$PATH\n", "env")
    assert error.value.evidence == "env:2: export PATH=/x:$PATH"


def test_an_update_keeps_earlier_packages_and_adds_new_ones() -> None:
    old = PrefixRecipe(PrefixSourceKind.FILES, ("/a/environment.yml",), base="debian:bookworm", added=("numpy",))
    new = plan_update(UpdateRequest(Path("p"), packages=("scipy", "numpy"), files=("/b/environment.yml",)), old)
    assert new.sources == ("/b/environment.yml",)
    assert new.added == ("numpy", "scipy")
    assert merge_files(("/a/x.yml",), ("/b/y.txt",)) == ("/a/x.yml", "/b/y.txt")
    with pytest.raises(UsageError, match="built from files"):
        plan_update(UpdateRequest(Path("p"), image="x.sif"), old)
    with pytest.raises(UsageError, match="wraps an image"):
        plan_update(UpdateRequest(Path("p"), files=("x",)), PrefixRecipe(PrefixSourceKind.IMAGE, ("x.sif",)))


def test_a_missing_bind_source_is_noted(tmp_path: Path) -> None:
    binds = (Bind(str(tmp_path), "/here"), Bind("/nope", "/nope"), Bind("/nor", "/nor", optional=True))
    assert collect_notes((), binds) == (
        "--bind /nope: not on this machine; the commands start only on machines that have it",
    )


def test_the_last_requirement_of_a_package_wins() -> None:
    old = PrefixRecipe(
        PrefixSourceKind.FILES, ("/a/requirements.txt",), "debian:bookworm", added=("Idna<3", "x @ https://e.org/x.whl")
    )
    new = plan_update(UpdateRequest(Path("p"), packages=("idna==3.7", "./folder")), old)
    assert new.added == ("x @ https://e.org/x.whl", "idna==3.7", "./folder")


def test_a_venv_keeps_its_settings_but_its_home_until_python_wants_one() -> None:
    settings = (("home", "/usr/bin"), ("include-system-site-packages", "true"), ("version", "3.11.2"))
    assert render_venv(inside(venv=settings)) == "include-system-site-packages = true\nversion = 3.11.2\n"
    assert render_venv(inside(venv=(*settings[:2], ("version_info", "3.14.0")))) == ""
    assert render_venv(inside()) == ""


def test_a_prefix_is_created_only_in_an_empty_or_prefix_folder(tmp_path: Path) -> None:
    refuse_prefix(tmp_path / "absent")
    refuse_prefix(tmp_path)
    (tmp_path / "versions").mkdir()
    (tmp_path / MARK).touch()
    refuse_prefix(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty"):
        refuse_prefix(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        refuse_prefix(tmp_path / "thesis.tex")
    for name in ('a "b"', "a\nb", os.fsdecode(b"caf\xe9")):
        with pytest.raises(UsageError, match="it has a quote, a line break or invalid UTF-8"):
            refuse_prefix(tmp_path / name)


@pytest.mark.parametrize("name", ["versions", "cache", "modulefiles", "activate", "activate.fish"])
def test_a_folder_of_the_user_with_a_name_of_a_prefix_is_refused_and_kept(tmp_path: Path, name: str) -> None:
    results = tmp_path / "mine" / name / "results.csv"
    results.parent.mkdir(parents=True)
    results.write_text("precious")
    request = WrapRequest(tmp_path / "mine", PrefixRecipe(PrefixSourceKind.IMAGE, ("/absent.sif",)), Settings())
    with pytest.raises(UsageError, match=f"is not empty\n  it contains {name}"):
        create_prefix(request, make_session(tmp_path / "session"))
    assert results.read_text() == "precious"


def test_a_failed_creation_removes_what_it_created_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"

    def fail(prefix: Path, *_: object) -> None:
        for name in ("versions/1", "cache/trees"):
            (prefix / name).mkdir(parents=True, exist_ok=True)
        raise ImageError("damaged")

    monkeypatch.setattr("argosy.wrap.prefix.add_version", fail)
    request = WrapRequest(mine, PrefixRecipe(PrefixSourceKind.IMAGE, ("/absent.sif",)), Settings())
    for left, stays in ((), [".hidden"]), (("cache/own",), [".hidden", MARK, "cache"]):
        for name in left:  # as a killed creation
            (mine / name).mkdir(parents=True)
            (mine / MARK).touch()
        mine.mkdir(exist_ok=True)
        (mine / ".hidden").touch()
        with pytest.raises(ImageError):
            create_prefix(request, make_session(tmp_path / "session"))
        assert sorted(path.name for path in mine.iterdir()) == sorted(stays)


def test_leftovers_of_killed_processes_in_a_prefix_are_removed(tmp_path: Path) -> None:
    end = "1.0123abcd.part"
    left = (f".activate.{end}", f"modulefiles/.env.lua.{end}", f"versions/.2.{end}/file", "versions/.1.gone.part/file")
    trees = (f"cache/trees/.t.{end}/file", "cache/trees/.t.gone.part/file")
    own = (".film.part", f".film.{end}", "modulefiles/env.lua", "versions/.x.part", "cache/trees/.x.part")
    for name in (*left, *trees, *own):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / f".bin.{end}").symlink_to("versions/1")
    with locked_prefix(tmp_path, make_session(), doing="testing", new=True):
        pass
    kept = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert sorted(str(path.relative_to(tmp_path)) for path in kept) == sorted(own)


def test_the_link_current_selects_the_version_of_a_prefix(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / "versions" / str(number)
        (folder / "bin").mkdir(parents=True)
        (folder / "image.sif").touch()
        (folder / "wrap.json").touch()
    assert current_version(tmp_path) is None
    switch(tmp_path, 2)
    assert (current_version(tmp_path), versions(tmp_path)) == (2, (1, 2))
    assert image_of_prefix(tmp_path) == tmp_path / "versions/2/image.sif"
    switch(tmp_path, 1)
    assert image_of_prefix(tmp_path) == tmp_path / "versions/1/image.sif"
    with pytest.raises(UsageError, match="already contains wrapped commands"):
        refuse_prefix(tmp_path)


def test_a_prefix_that_lost_its_switch_goes_to_its_last_version(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"versions/{number}").mkdir(parents=True)
        (tmp_path / f"versions/{number}/image.sif").touch()
        version = Version(
            number, "abc", "", "new", "0", PrefixRecipe(PrefixSourceKind.FILES, ()), Settings(), "bwrap", "image.sif"
        )
        write_version(tmp_path / f"versions/{number}", version)
    with pytest.raises(
        UsageError, match=r"does not contain wrapped commands(.|\n)*-> switch to its last version: argosy wrap rollback"
    ):
        read_history(tmp_path)
    report = rollback_prefix(tmp_path, 0, make_session(tmp_path))
    assert (report.version.number, report.previous, current_version(tmp_path)) == (2, 0, 2)
    assert rollback_prefix(tmp_path, 0, make_session(tmp_path)).version.number == 1


TREES = (f"sha256-{'0a' * 32}", "file-1a-2b-0-4d-5e-1000", "joined-version-1")
"""Names of unpacked trees in a prefix."""


def make_version(prefix: Path, number: int, trees: tuple[str, ...]) -> None:
    folder = prefix / f"versions/{number}"
    folder.mkdir(parents=True)
    recipe = PrefixRecipe(PrefixSourceKind.FILES, ())
    write_version(folder, Version(number, "abc", "", "new", "0", recipe, Settings(), "bwrap", "image.sif", trees=trees))


def test_a_pruned_prefix_loses_the_trees_that_no_version_needs_and_tells_it(tmp_path: Path) -> None:
    make_version(tmp_path, 1, TREES[:1])
    switch(tmp_path, 1)
    for name in (*TREES, "of-the-user"):
        (tmp_path / "cache/trees" / name / "root").mkdir(parents=True)
    told = CliRunner().invoke(app, ["wrap", "prune", str(tmp_path)])
    assert told.output == f"removed: {TREES[1]}, {TREES[2]} (unpacked trees that no version needs)\n"
    assert sorted(path.name for path in (tmp_path / "cache/trees").iterdir()) == ["of-the-user", TREES[0]]
    again = CliRunner().invoke(app, ["wrap", "prune", str(tmp_path), "--json"])
    assert json.loads(again.output) == {"removed": [], "trees": []}


def test_a_prefix_without_write_permission_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_version(tmp_path, 1, ())
    switch(tmp_path, 1)
    own = f"argosy wrap {tmp_path} -w /bin --prefix DIR"
    version = open_prefix(tmp_path)
    write_version(tmp_path / "versions/1", replace(version, settings=Settings(paths=("/bin",))))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CheckFailed, match="cannot write to") as refused:
        update_prefix(UpdateRequest(tmp_path, ("tqdm",)), None, make_session(tmp_path / "session"))
    assert refused.value.hint == f"make your own prefix from its image, and change that one: {own}"
    with (
        pytest.raises(CheckFailed) as refused,
        locked_prefix(tmp_path / "new", make_session(tmp_path / "session"), doing="wrapping", new=True),
    ):
        pytest.fail("it was locked")
    assert refused.value.hint == "choose a folder with write permission"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link to another user")
@pytest.mark.parametrize("name", ["cache", "cache/trees", "versions", "modulefiles"])
def test_a_change_of_a_prefix_follows_no_link_of_another_user(tmp_path: Path, name: str) -> None:
    prefix, victim = tmp_path / "prefix", tmp_path / "victim"
    make_version(prefix, 1, ())
    switch(prefix, 1)
    (victim / "trees" / TREES[0]).mkdir(parents=True)
    (victim / TREES[0]).mkdir()
    (prefix / name).parent.mkdir(exist_ok=True)
    if (prefix / name).exists():
        shutil.rmtree(prefix / name)
    (prefix / name).symlink_to(victim)
    os.lchown(prefix / name, 4711, 4711)
    with pytest.raises(CheckFailed, match=f"{name} is a link of another user\n  it leads to {victim}"):
        prune_prefix(prefix, 0, make_session(tmp_path / "session"))
    assert sorted(path.name for path in victim.rglob("*")) == sorted([TREES[0], TREES[0], "trees"])


def test_a_pipe_in_the_place_of_the_record_of_a_version_is_not_waited_for(tmp_path: Path) -> None:
    make_version(tmp_path, 1, ())
    switch(tmp_path, 1)
    (tmp_path / "versions/1/wrap.json").unlink()
    os.mkfifo(tmp_path / "versions/1/wrap.json")
    with pytest.raises(CheckFailed, match=r"cannot read the record of version 1(.|\n)*not a regular file"):
        read_history(tmp_path)


def test_a_missing_prefix_is_not_created_by_a_change(tmp_path: Path) -> None:
    session = make_session(tmp_path / "cache")
    for change in (rollback_prefix, prune_prefix):
        with pytest.raises(UsageError, match=r"does not contain wrapped commands\n  no such folder"):
            change(tmp_path / "typo", 0, session)
    assert not (tmp_path / "typo").exists()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Make a prefix whose runtime is a program that prints how it was started."""
    made = tmp_path / "my, own: prefix"
    folder = made / "versions/3"
    (folder / "bin").mkdir(parents=True)
    (folder / "inside").mkdir()
    (folder / "image.sif").touch()
    (folder / "bin/python").write_text(render_wrapper("python", 3))
    (folder / "bin/python").chmod(0o755)
    (folder / "start.sh").write_text(render_start(START))
    runtime = tmp_path / "tools/apptainer"
    runtime.parent.mkdir()
    runtime.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\nprintf "=END=\\0"\nexec env -0\n')
    runtime.chmod(0o755)
    switch(made, 3)
    return made


def call(
    prefix: Path, *words: str, program: str = "", cwd: str | Path = "", **env: str
) -> tuple[list[str], dict[str, str]]:
    """Call a wrapper, and give the runtime's arguments and environment."""
    variables = {"PATH": f"{prefix.parent}/tools:/usr/bin:/bin", "HOME": str(prefix.parent)} | env
    command = [program or str(prefix / "bin/python"), *words]
    done = subprocess.run(command, env=variables, cwd=cwd or prefix.parent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    arguments, _, rest = done.stdout.decode().partition("\0=END=\0")
    return arguments.split("\0"), dict(row.split("=", 1) for row in rest.split("\0") if "=" in row)


def test_a_wrapper_hands_its_arguments_on_unchanged(prefix: Path) -> None:
    words = ["", "a b", "*", "$HOME", "`id`", "new\nline", "--", "x" * 100_000]
    arguments, _ = call(prefix, *words)
    assert arguments[:3] == ["--silent", "exec", "--no-eval"]
    at = arguments.index(f"{prefix}/versions/3/image.sif")
    assert arguments[at + 1 :] == [f"{prefix}/bin/python", *words]


def test_a_wrapper_mounts_parents_before_their_children(prefix: Path) -> None:
    arguments, _ = call(prefix)
    mounts = [arguments[n + 1] for n, word in enumerate(arguments) if word == "--mount"]
    assert mounts[-1] == f'type=bind,"src={prefix}/versions/3/inside","dst={prefix}",ro'
    assert mounts[-2] == 'type=bind,"src=/data, old","dst=/data"'
    assert mounts[-3] == f'type=bind,"src={prefix.parent}","dst={prefix.parent}"'


def test_a_wrapper_that_shows_the_host_keeps_its_path(prefix: Path) -> None:
    (prefix / "versions/3/start.sh").write_text(render_start(replace(START, host=True)))
    _, seen = call(prefix)
    assert seen["APPTAINERENV_PATH"] == f"{prefix}/bin:{prefix.parent}/tools:/usr/bin:/bin"


@pytest.mark.parametrize("flag", ["--nv", "--rocm"])
def test_a_wrapper_takes_the_gpus_that_the_node_has(prefix: Path, flag: str) -> None:
    device = {"--nv": "/dev/nvidiactl", "--rocm": "/dev/kfd"}[flag]
    text = (prefix / "versions/3/start.sh").read_text()
    for place, is_there in ((prefix, True), (prefix / "none", False)):
        (prefix / "versions/3/start.sh").write_text(text.replace(device, f"'{place}'"))
        assert (flag in call(prefix)[0]) is is_there


def test_a_wrapper_keeps_host_software_outside_and_forces_its_variables(prefix: Path) -> None:
    dirty = {
        "PYTHONPATH": "/x",
        "APPTAINERENV_LD_LIBRARY_PATH": "/x",
        "SINGULARITY_CONTAIN": "1",
        "APPTAINER_BIND": "/y",
    }
    _, seen = call(prefix, **dirty)
    assert not {"PYTHONPATH", "APPTAINERENV_LD_LIBRARY_PATH", "SINGULARITY_CONTAIN"} & set(seen)
    assert seen["APPTAINER_BIND"] == "/y"
    for family in ("APPTAINER", "SINGULARITY"):
        assert seen[f"{family}ENV_PATH"] == f"{prefix}/bin:/opt/argosy/env/bin:/usr/bin"
        assert seen[f"{family}ENV_GREETING"] == "it's $5"
    assert (seen["PYTHONNOUSERSITE"], seen["ARGOSY_WRAP"]) == ("1", str(prefix))


def test_variables_of_an_outer_container_are_dropped(prefix: Path) -> None:
    _, seen = call(prefix, APPTAINER_CONTAINER="/old.sif", APPTAINER_BIND="/gone", SINGULARITY_NAME="old.sif")
    assert not {"APPTAINER_CONTAINER", "APPTAINER_BIND", "SINGULARITY_NAME"} & set(seen)


def test_a_wrapper_is_found_by_a_relative_path_and_from_an_environment_on_top(prefix: Path) -> None:
    arguments, _ = call(prefix, "-c", "pass", program=f"./{prefix.name}/bin/python")
    assert f"{prefix}/bin/python" in arguments
    top = prefix.parent / "top"
    (top / "bin").mkdir(parents=True)
    (top / "pyvenv.cfg").touch()
    (top / "bin/python").symlink_to(prefix / "bin/python")
    (top / "bin/python3").symlink_to("python")
    arguments, seen = call(prefix, program=f"{top}/bin/python3")
    assert arguments[-1] == f"{top}/bin/python3"
    assert f'type=bind,"src={top}","dst={top}"' in arguments
    assert seen["APPTAINERENV_PATH"].startswith(f"{top}/bin:{prefix}/bin:")
    assert seen["PYTHONPATH"] == f"{prefix}/.on-top"


@pytest.mark.parametrize(("link", "rest"), [("linked", ""), ("folder", "/{0}")], ids=["itself", "a folder above"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "relative"])
def test_a_prefix_behind_a_link_is_mounted_at_its_real_path(
    prefix: Path, tmp_path_factory: pytest.TempPathFactory, link: str, rest: str, *, whole: bool
) -> None:
    target = prefix if not rest else prefix.parent
    place = tmp_path_factory.mktemp("home") / link
    place.symlink_to(target if whole else os.path.relpath(target, place.parent))
    arguments, seen = call(prefix, program=f"{place}{rest.format(prefix.name)}/bin/python")
    assert f'type=bind,"src={prefix}/versions/3/inside","dst={prefix}",ro' in arguments
    assert arguments[-1] == f"{prefix}/bin/python"
    assert seen["ARGOSY_WRAP"] == str(prefix)


def test_an_environment_on_top_behind_a_link_is_mounted_at_its_real_path(prefix: Path) -> None:
    top = prefix.parent / "real/top"
    (top / "bin").mkdir(parents=True)
    (top / "pyvenv.cfg").touch()
    (top / "bin/python").symlink_to(prefix / "bin/python")
    (prefix.parent / "link").symlink_to(top.parent)
    arguments, _ = call(prefix, program=f"{prefix.parent}/link/top/bin/python")
    assert f'type=bind,"src={top}","dst={top}"' in arguments
    assert arguments[-1] == f"{top}/bin/python"


def test_a_command_starts_in_the_prefix_if_the_container_lacks_the_working_folder(prefix: Path) -> None:
    (prefix / "versions/3/inside/bin").mkdir()
    (prefix / "versions/3/inside/lib").symlink_to("/opt/argosy/env/lib")
    (prefix / "lib/own").mkdir(parents=True)
    for folder, workdir in (
        ("versions/3/bin", prefix),
        ("versions/3/inside", prefix),
        ("bin", prefix),
        ("lib/own", prefix / "lib/own"),
    ):
        arguments, _ = call(prefix, cwd=prefix / folder)
        assert arguments[arguments.index("--pwd") + 1] == str(workdir), folder
        assert ("--no-mount" in arguments) is (workdir == prefix), folder
    arguments, _ = call(prefix, cwd=prefix / "bin", PWD=str(prefix / "bin"))
    assert arguments[arguments.index("--pwd") + 1] == str(prefix / "bin")
    link = prefix.parent / "link"
    link.symlink_to(prefix)
    here = f"{link}/versions/3/bin"
    arguments, _ = call(prefix, program=f"{link}/bin/python", cwd=here, PWD=here)
    assert arguments[arguments.index("--pwd") + 1] == str(prefix)


@pytest.mark.parametrize(("root", "word"), [(ROOT, 3), (Root(), 8)], ids=["in place", "overlay"])
def test_bubblewrap_starts_in_the_prefix_if_the_container_lacks_the_working_folder(
    prefix: Path, root: Root, word: int
) -> None:
    """Stubs show the arguments of `enter_container` (in place) or of `join_container`, which follow the program."""
    tools = prefix.parent / "tools"
    for name, lines in {
        "bwrap": "echo 1 >&3",
        "nsenter": 'printf "%s\\0" "$@"',
        "unshare": 'printf "%s\\0" "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tools / name).chmod(0o755)
    (prefix / "cache/trees/joined-a1").mkdir(parents=True)
    start = replace(START, runtime="bwrap", program="bwrap", trees=("/a1",), root=root)
    text = render_start(start).replace(f"PATH={SYSTEM_PATH}", f"PATH='{tools}':{SYSTEM_PATH}")
    (prefix / "versions/3/start.sh").write_text(text)
    (prefix / "versions/3/join.sh").write_text(render_join(start))
    (prefix / "versions/3/names.sh").write_text(render_names(start))
    (prefix / "versions/3/inside/bin").mkdir()
    for folder, workdir in (("bin", prefix), ("", prefix), ("..", prefix.parent)):
        arguments, _ = call(prefix, cwd=prefix / folder)
        assert arguments[arguments.index("-c") + 1 + word] == str(workdir), folder


def test_the_working_folder_never_covers_the_images_files(prefix: Path) -> None:
    for cwd, is_left_out in ((prefix, True), (prefix / "bin", True), (prefix.parent, False)):
        words = call(prefix, cwd=cwd)[0]
        assert words[words.index("--no-mount") + 1 :][:1] == ["cwd"] if is_left_out else "--no-mount" not in words
    assert not [word for word in call(prefix, cwd="/opt")[0] if "dst=/opt" in word or word == "--pwd"]


@pytest.mark.parametrize("above", ["link", "real", "none"])
def test_an_installation_is_bound_at_its_real_path(prefix: Path, above: str) -> None:
    real = prefix.parent / "real"
    (real / "tools").mkdir(parents=True)
    (prefix.parent / "link").symlink_to(real)
    at = prefix.parent / above / "tools"
    (prefix / "versions/3/start.sh").write_text(render_start(replace(START, at=str(at), layer_part=2)))
    (shown,) = (word for word in call(prefix)[0] if "image-src" in word)
    place = at if above == "none" else real / "tools"
    image = f"{prefix}/versions/3/image.sif"
    assert shown == f'type=bind,"src={image}","dst={place}","image-src={at}",ro,id=2'


def test_a_removed_tree_is_named_with_the_command_to_make_it_again(prefix: Path) -> None:
    start = replace(START, runtime="bwrap", program="sh", trees=("a1", "/elsewhere"), root=ROOT)
    (prefix / "versions/3/start.sh").write_text(render_start(start))
    (prefix / "cache/trees/a1").mkdir(parents=True)
    done = subprocess.run([prefix / "bin/python"], capture_output=True, text=True, check=False)
    gone = f"argosy: the unpacked image is gone: {prefix}/cache/trees/joined-a1"
    assert (done.returncode, done.stderr.splitlines()) == (
        125,
        [gone, f'  -> unpack it again: argosy wrap update "{prefix}"'],
    )


def test_an_update_of_a_missing_image_names_the_image(tmp_path: Path) -> None:
    (tmp_path / "versions/1/bin").mkdir(parents=True)
    (tmp_path / "versions/1/image.sif").symlink_to("/gone/vendor.sif")
    switch(tmp_path, 1)
    old = PrefixRecipe(PrefixSourceKind.IMAGE, ("/gone/vendor.sif",))
    write_version(tmp_path / "versions/1", Version(1, "abc", "", "new", "0", old, Settings(), "bwrap", "image.sif"))
    with pytest.raises(ImageError) as error:
        update_prefix(UpdateRequest(tmp_path, packages=("six",)), None, make_session(tmp_path))
    assert error.value.evidence == "/gone/vendor.sif"


def test_inside_a_container_the_wrapper_starts_the_program_itself(prefix: Path) -> None:
    outer = prefix.parent / "outer"
    (outer / "bin").mkdir(parents=True)
    (outer / ".inside-abc").touch()
    (outer / "bin/python").write_text("#!/bin/sh\nprintf 'itself\\0=END=\\0'\n")
    (outer / "bin/python").chmod(0o755)
    assert call(prefix, ARGOSY_WRAP=str(outer))[0] == ["itself"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-m", "pip", "install", "numpy"), "argosy wrap update"),
        (("-m", "pip", "uninstall", "numpy"), "argosy wrap update"),
        (("-m", "pip", "-q", "--no-color", "install", "numpy"), "argosy wrap update"),
    ],
)
def test_installing_with_pip_answers_with_the_command_that_does_it(
    prefix: Path, words: tuple[str, ...], said: str
) -> None:
    done = subprocess.run([prefix / "bin/python", *words], env={"PATH": f"{prefix.parent}/tools:/usr/bin:/bin"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 125
    assert said in done.stderr
    call(prefix, "-m", "pip", "install", "--target", "x", "numpy")
    call(prefix, "-m", "pip", "show", "install")


def test_a_removed_working_folder_is_reported(prefix: Path) -> None:
    gone = prefix.parent / "gone"
    gone.mkdir()
    script = ["dash", "-c", 'rmdir "$PWD"; exec dash "$1"', "sh", str(prefix / "bin/python")]
    env = {"PATH": f"{prefix.parent}/tools:/usr/bin:/bin"}
    done = subprocess.run(script, env=env, cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "the current folder was removed" in done.stderr


def test_control_characters_of_paths_do_not_reach_the_terminal(prefix: Path) -> None:
    odd = prefix.with_name("a\x1b[31m\nü")
    prefix.rename(odd)
    (odd / "versions/3/image.sif").unlink()
    done = subprocess.run([odd / "bin/python"], env={"PATH": f"{odd.parent}/tools"}, capture_output=True, check=False)
    plain = f"{odd.parent}/a?[31m?ü"
    assert (done.returncode, done.stderr.decode().splitlines()) == (
        125,
        [
            f"argosy: cannot read the image: {plain}/versions/3/image.sif",
            f'  -> restore it, or: argosy wrap rollback "{plain}"',
        ],
    )


def test_a_name_with_a_line_break_starts_nothing_of_its_own(prefix: Path) -> None:
    name = "x\ntouch made"
    program = prefix / "versions/3/bin" / name
    program.write_text(render_wrapper(name, 3))
    program.chmod(0o755)
    (prefix / "versions/3/start.sh").write_text(render_start(replace(START, what=name)))
    assert call(prefix, program=str(prefix / "bin" / name))[0]
    assert not (prefix.parent / "made").exists()


def test_a_folder_without_programs_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    request = WrapRequest(
        tmp_path / "env", PrefixRecipe(PrefixSourceKind.FOLDER, (str(tmp_path / "data"),)), Settings()
    )
    with pytest.raises(UsageError, match="has no folder bin"):
        create_prefix(request, make_session(tmp_path / "cache"))
    assert not (tmp_path / "env").exists()


def test_sockets_and_pipes_of_an_installation_are_not_copied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(tmp_path / "socket"))
    (tmp_path / "file").write_text("x")
    for name in ("pipe", "socket", "file"):
        link_file(str(tmp_path / name), str(tmp_path / f"{name}.new"))
    assert [path.name for path in tmp_path.glob("*.new")] == ["file.new"]


def test_a_missing_image_and_a_missing_runtime_are_reported_with_a_next_step(prefix: Path) -> None:
    env = {"PATH": f"{prefix.parent}/tools:/usr/bin:/bin"}
    (prefix / "versions/3/image.sif").unlink()
    done = subprocess.run([prefix / "bin/python"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert f"{prefix}/versions/3/image.sif" in done.stderr
    assert "argosy wrap rollback" in done.stderr
    shutil.rmtree(prefix.parent / "tools")
    done = subprocess.run([prefix / "bin/python"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "apptainer is not on this node" in done.stderr


def test_the_path_of_a_linked_image_is_text_in_the_message_that_it_is_missing(prefix: Path) -> None:
    hostile = '/data/5" $(touch made) `touch made` \\ run.sif'
    start = render_start(replace(START, elsewhere=hostile))
    (prefix / "versions/3/start.sh").write_text(start)
    assert call(prefix, "-c", "x")[0][-2:] == ["-c", "x"]
    (prefix / "versions/3/image.sif").unlink()
    env = {"PATH": f"{prefix.parent}/tools:/usr/bin:/bin"}
    done = subprocess.run(
        [prefix / "bin/python"], env=env, cwd=prefix.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 125
    assert f"a link to {hostile}\n" in done.stderr
    assert not (prefix.parent / "made").exists()


def test_every_program_that_a_start_defines_is_passed_to_sh() -> None:
    start = replace(START, runtime="bwrap", program="bwrap", trees=("a1", "b2"), root=ROOT)
    text = render_start(start) + render_join(start)
    for program in (HOLD, ENTER_PROGRAM, JOIN):
        assert f"\n{program.name}='" in text
        assert f'"${program.name}"' in text


@pytest.mark.parametrize(
    "start",
    [
        START,
        replace(START, host=True, gpu=GpuMode.ROCM, attach=Attach.BIND, layer_part=2, elsewhere="/data/vendor.sif"),
        replace(START, runtime="bwrap", program="bwrap", trees=("a1", "/big/tree")),
        replace(START, runtime="bwrap", program="bwrap", trees=("a1", "b2"), root=ROOT),
    ],
    ids=["apptainer", "host", "bwrap", "bwrap, folder by folder"],
)
def test_generated_scripts_pass_shellcheck(start: StartFile, tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed here")
    # As one file, since they are one program: what one sets the others use.
    text = "\n".join([*render_wrapper("python", 3).splitlines()[:-1], render_start(start)])
    text = text.replace('. "$argosy_version/join.sh"\n', render_join(start))
    script = tmp_path / "whole.sh"
    script.write_text(text.replace('. "$argosy_version/names.sh"\n', render_names(start)))
    # SC2016: programs of other shells stand in single quotes on purpose.
    done = subprocess.run([shellcheck, "-s", "sh", "-e", "SC2016", script], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_wrapper_starts_no_program_before_the_runtime(prefix: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed here")
    trace = prefix.parent / "trace"
    options = ["-f", "-e", "trace=execve,fork,vfork,clone,clone3", "-o", str(trace)]
    command = ["strace", *options, str(prefix / "bin/python"), "-c", "x"]
    env = {"PATH": f"{prefix.parent}/tools:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("this machine lets nobody trace")
    calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines() if "exited" not in line]
    before = calls[: next(n for n, line in enumerate(calls) if "tools/apptainer" in line)]
    assert all(line.startswith(('execve("/bin/sh"', f'execve("{prefix}/bin/python"')) for line in before), before


def test_an_installation_is_mounted_at_the_path_in_its_files() -> None:
    refuse_other_place("", "/home/a/env", Path("/x"))
    refuse_other_place("/home/a/env", "/home/a/env", Path("/x"))
    refuse_other_place("/soft", "", Path("/x"))
    with pytest.raises(UsageError, match="its files contain the path /home/a/env"):
        refuse_other_place("/soft", "/home/a/env", Path("/x"))


def test_a_prefix_for_a_site_starts_with_its_runtime() -> None:
    site, here = read_site("lumi-g"), make_host()
    there = make_host("singularity", "bwrap")
    assert settings_at_site(Settings(), site, there) == (Settings(runtime="singularity"), "")
    assert settings_at_site(Settings(runtime="bwrap"), site, there) == (Settings(runtime="bwrap"), "")
    kept, note = settings_at_site(Settings(), site, here)
    assert kept == Settings()
    assert "wrap on a node of it" in note
    assert "run 'module load singularity'" in settings_at_site(Settings(), read_site("mn5-acc"), here)[1]


@pytest.mark.parametrize(
    ("site", "variable", "gpu"),
    [("lumi-g", "", "none"), ("", "lumi-g", "none"), ("mn5-acc", "", "auto")],
)
def test_the_gpu_mode_of_a_prefix_is_that_of_the_given_or_configured_site(
    tmp_path: Path, site: str, variable: str, gpu: str
) -> None:
    session = make_session(tmp_path)
    host = replace(session.host, environment={"ARGOSY_SITE": variable} if variable else {})
    recipe = PrefixRecipe(PrefixSourceKind.FILES, ("r.txt",), site=site)
    chosen = with_gpu_mode(Settings(), recipe, "singularity", replace(session, host=host))
    assert chosen.gpu == gpu
    asked = Settings(gpu=GpuMode.ROCM)
    assert with_gpu_mode(asked, recipe, "singularity", session) == asked


def test_a_torch_for_other_gpus_is_refused_and_no_torch_passes(tmp_path: Path) -> None:
    profile = tmp_path / "x.toml"
    profile.write_text('name = "x"\ntitle = "x"\nscheduler = "slurm"\nchecked = "2026-11-20"\n'
                       '[node]\ncores = 8\ngpus = 2\ngpu_vendor = "amd"\n')  # fmt: skip
    site = read_site(str(profile), ())
    refuse_gpu_build({}, site, "env.tar.gz")
    refuse_gpu_build({"__version__": "2.9", "hip": "6.4"}, site, "env.tar.gz")
    with pytest.raises(CheckFailed, match=r"torch 2.9 of env.tar.gz cannot use the GPUs of x") as error:
        refuse_gpu_build({"__version__": "2.9", "cuda": "12.8"}, site, "env.tar.gz")
    assert "this torch supports cuda" in error.value.evidence


@pytest.mark.parametrize(
    ("names", "base"), [(("absent.yml",), ""), (("absent",), "debian:bookworm"), (("there.txt", "absent"), "")]
)
def test_a_missing_source_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], base: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").write_text("tabulate\n")
    with pytest.raises(UsageError, match="no such file: absent"):
        plan_recipe(names, base)


def test_a_prefix_is_wrapped_as_the_image_behind_it(prefix: Path) -> None:
    recipe = plan_recipe((str(prefix),))
    assert recipe == PrefixRecipe(PrefixSourceKind.IMAGE, (str(prefix),), copy=True)


def test_a_venv_whose_python_is_not_in_the_base_is_refused() -> None:
    venv = InContainer((), venv=(("home", "/usr/bin"), ("version", "3.11.2")))
    assert venv_interpreter(venv) == "/usr/bin/python3.11"
    assert not venv_interpreter(InContainer(()))
    missing = InContainer((), missing=("/usr/bin/python3.11",), folders=("/usr", "/etc"))
    with pytest.raises(UsageError, match="the base does not have the Python of this venv") as error:
        refuse_unusable_interpreter("/p/env", "/usr/bin/python3.11", missing)
    assert "pip freeze" in error.value.hint
    refuse_unusable_interpreter("/p/env", "/usr/bin/python3.11", replace(missing, missing=()))
    refuse_unusable_interpreter("/p/env", "/appl/bin/python3.11", replace(missing, missing=("/appl/bin/python3.11",)))


def test_a_venv_of_another_prefix_is_refused() -> None:
    with pytest.raises(UsageError, match="its Python is a wrapped command of") as error:
        refuse_unusable_interpreter("/p/env", "/p/w1/bin/python3.11", InContainer(()), prefix="/p/w1")
    assert "argosy wrap update /p/w1" in error.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another group")
def test_a_version_in_a_setgid_prefix_has_its_group(tmp_path: Path) -> None:
    prefix, own = tmp_path / "env", tmp_path / "own.sif"
    new, tree = (prefix / name for name in ("versions/.1.part", "cache/trees/t/root"))
    for folder in (new, tree):
        folder.mkdir(parents=True)
    own.write_text("image")
    own.chmod(0o700)
    (new / "image.sif").hardlink_to(own)
    (tree / "file").touch()
    for folder in (tmp_path, prefix):
        os.chown(folder, -1, 4711)
        folder.chmod(0o2770)
    keep_readers(prefix, new, ("t",))
    shared = (new, new / "image.sif", tree, tree.parent)
    assert {path.stat().st_gid for path in shared} == {4711}
    assert (new / "image.sif").read_text() == "image"
    assert stat.S_IMODE((new / "image.sif").stat().st_mode) == 0o750
    assert (own.stat().st_gid, own.stat().st_nlink, stat.S_IMODE(own.stat().st_mode)) == (os.getegid(), 1, 0o700)
    assert (tree / "file").stat().st_gid == os.getegid()
