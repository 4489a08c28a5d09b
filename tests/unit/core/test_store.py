"""Files and folders appear whole or not at all; what the dead left is swept, what the living have stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.cache import fill_once, final_name, sweep_unfilled
from argosy.core.errors import ArgosyError, CheckFailed, DiskFull, UsageError
from argosy.core.locks import Owner, this_owner
from argosy.core.mounts import in_memory
from argosy.core.os_errors import explain_os_error, translate_os_errors
from argosy.core.records import asdict, replace
from argosy.core.store import OWNER_FILE, atomic_file, remove_path, sweep_parts, work_folder, write_link, write_text
from argosy.host.probe import open_session


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def silent(_owner: Owner) -> None:
    pass


def test_a_file_appears_when_the_block_succeeds(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "x", force=False) as beside:
        beside.write_text("all")
        assert names(tmp_path) == [beside.name]
        assert beside.name.startswith(".x.")
    assert (tmp_path / "x").read_text() == "all"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("force", [True, False])
def test_a_file_does_not_appear_when_the_block_fails(tmp_path: Path, force: bool) -> None:  # noqa: FBT001
    def half() -> None:
        with atomic_file(tmp_path / "x", force=force) as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert names(tmp_path) == []


WRITES_TWICE = """
from pathlib import Path
from argosy.core.errors import CheckFailed
from argosy.core.locks import hold_lock
from argosy.core.store import atomic_file

for make in (lambda: atomic_file(Path("a"), force=True), lambda: hold_lock(Path("b"), what="a", waiting=print)):
    try:
        with make() as beside:
            beside.write_text("text")
    except CheckFailed as error:
        print(error.evidence)
"""


def test_a_folder_on_a_read_only_file_system_is_one_message(tmp_path: Path) -> None:
    """There, Linux refuses to remove also a name that does not exist."""
    sandbox = (
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--chdir",
        str(tmp_path),
        sys.executable,
        "-c",
        WRITES_TWICE,
    )
    shown = subprocess.run(sandbox, capture_output=True, text=True, check=False)
    if "bwrap:" in shown.stderr:
        pytest.skip("this machine lets bubblewrap make no sandbox")
    assert (shown.stderr, shown.stdout) == ("", 2 * "Read-only file system\n")


def test_an_existing_file_is_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(UsageError, match="already exists"), atomic_file(path, force=False):
        pytest.fail("never gets here")
    with atomic_file(path, force=True) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x"]


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "x", force=False) as beside:
            beside.write_text("mine")
            (tmp_path / "x").write_text("theirs")

    with pytest.raises(UsageError, match="already exists"):
        write()
    assert (tmp_path / "x").read_text() == "theirs"
    assert names(tmp_path) == ["x"]


def test_without_hard_links_a_file_gets_its_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with atomic_file(tmp_path / "x", force=False) as beside:
        beside.write_text("all")
    assert names(tmp_path) == ["x"]


KILLED = """
import os, signal, sys
from pathlib import Path
from argosy.core.store import write_text
def die(*_words, **_more):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], die)
write_text(Path(sys.argv[1]), "new")
"""


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_process_that_is_killed_while_it_writes_a_text_leaves_nothing(
    call: str, old: str | None, tmp_path: Path
) -> None:
    if old:
        (tmp_path / "x").write_text(old)
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "x", call], check=False)
    assert names(tmp_path) == (["x"] if old else [])
    assert not old or (tmp_path / "x").read_text() == old


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_text_is_written_with_its_mode_and_replaces_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_CREAT)  # refused, as by NFS
    for text in ("one", "two"):
        write_text(tmp_path / "x", text, mode=0o751)
        assert (tmp_path / "x").read_text() == text
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o751
    with pytest.raises(UsageError, match="already exists"):
        write_text(tmp_path / "x", "three", force=False)
    assert names(tmp_path) == ["x"]


def test_a_link_that_cannot_get_its_name_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x/y").mkdir(parents=True)
    with pytest.raises(CheckFailed):
        write_link(tmp_path / "x", "target")
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_of_that_name_is_never_replaced(tmp_path: Path, force: bool) -> None:  # noqa: FBT001
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match="it is a folder"), atomic_file(tmp_path / "x", force=force):
        pytest.fail("never gets here")


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="device or a pipe"), atomic_file(tmp_path / "pipe", force=True) as beside:
        beside.write_text("x")
    assert (tmp_path / "pipe").is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_parts_of_killed_builds_are_swept_and_those_of_other_names_stay(tmp_path: Path) -> None:
    parts = (".x[1].sif.77.0123abcd.part", ".x[1].sif.y.77.0123abcd.part", ".x1.sif.77.0123abcd.part", ".x[1].sif.part")
    for name in parts:
        (tmp_path / name).touch()
    sweep_parts(tmp_path / "x[1].sif")
    assert names(tmp_path) == sorted(parts[1:])


def test_a_folder_that_a_killed_process_replaced_gets_its_name_back(tmp_path: Path) -> None:
    (tmp_path / ".x.0123abcd.old").mkdir()
    (tmp_path / ".x.0123abcd.old/file").write_text("old")
    (tmp_path / ".x.y.0123abcd.old").mkdir()
    sweep_parts(tmp_path / "x")
    assert (tmp_path / "x/file").read_text() == "old"
    assert names(tmp_path) == [".x.y.0123abcd.old", "x"]


def test_a_replaced_folder_is_removed_if_the_new_one_has_its_name(tmp_path: Path) -> None:
    for name in ("x", ".x.0123abcd.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    sweep_parts(tmp_path / "x")
    assert (tmp_path / "x/file").read_text() == "x"
    assert names(tmp_path) == ["x"]


@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_file_name_is_accepted(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if name in {".", ".."}:
        return
    folder = tmp_path_factory.mktemp("any")
    write_text(folder / name, name)
    sweep_parts(folder / name)
    assert names(folder) == [name]


def test_a_file_name_of_any_bytes_is_written_as_it_is(tmp_path: Path) -> None:
    write_text(tmp_path / "job.sh", os.fsdecode(b"cat caf\xe9"))
    assert (tmp_path / "job.sh").read_bytes() == b"cat caf\xe9"


def test_a_cached_folder_is_made_once_and_then_found(tmp_path: Path) -> None:
    place = tmp_path / "cache/thing"
    with fill_once(place, what="w", waiting=silent) as folder:
        assert folder is not None
        assert final_name(folder / "a file") == f"{place}/a file"
        assert not place.exists()
        (folder / "file").touch()
    with fill_once(place, what="w", waiting=silent) as again:
        assert again is None
    assert names(place) == ["file"]
    assert names(place.parent) == ["thing"]


@pytest.mark.parametrize("mode", [0o2775, 0o755])
def test_the_group_of_a_shared_cache_can_read_an_entry_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    before = os.umask(0o077)
    try:
        for shared in (True, False):
            with fill_once(tmp_path / f"kind/{shared}", what="w", waiting=silent, shared=shared) as folder:
                assert folder is not None
                (folder / "bin").mkdir()
                (folder / "bin/uv").touch(mode=0o700)
                (folder / "data").touch()
                (folder / "link").symlink_to("/etc/shadow")
    finally:
        os.umask(before)
    names_in = (".", "bin", "bin/uv", "data")
    of_group, own = (
        [(tmp_path / "kind" / kind / name).stat().st_mode & 0o777 for name in names_in] for kind in ("True", "False")
    )
    assert own == [0o700, 0o700, 0o700, 0o600]
    assert of_group == ([0o750, 0o750, 0o750, 0o640] if mode & stat.S_ISGID else own)


def test_a_cached_folder_does_not_appear_when_making_it_fails(tmp_path: Path) -> None:
    def half() -> None:
        with fill_once(tmp_path / "thing", what="w", waiting=silent) as folder:
            assert folder is not None
            (folder / "deep").mkdir()
            (folder / "deep/file").touch()
            (folder / "deep").chmod(0o500)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert names(tmp_path) == []


def test_leftovers_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".thing.77.0123abcd.part").mkdir()
    (tmp_path / ".thing.77.0123abcd.part/half").touch()
    with fill_once(tmp_path / "thing", what="w", waiting=silent):
        pass
    assert names(tmp_path) == ["thing"]


def leave_work(parent: Path, name: str, owner: Owner | None, age: float = 0) -> None:
    folder = parent / f"argosy-work-{name}"
    folder.mkdir()
    if owner:
        (folder / "owner.json").write_text(json.dumps(asdict(owner)))
    stamp = folder.stat().st_mtime - age
    os.utime(folder, (stamp, stamp))


def test_a_sweep_removes_the_folder_of_a_killed_process_and_leaves_that_of_a_living_one(tmp_path: Path) -> None:
    dead = replace(this_owner("w"), pid=2**22 + 1, started="1")
    left = tmp_path / f".old.{dead.pid}.0123abcd.part"
    left.mkdir()
    (tmp_path / "old.lease").write_text(json.dumps(asdict(dead)))
    with fill_once(tmp_path / "new", what="w", waiting=silent) as folder:
        assert folder is not None
        sweep_unfilled(tmp_path)
        assert folder.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_work_folders_of_the_dead_are_swept_and_those_of_the_living_stay(tmp_path: Path) -> None:
    alive = this_owner("w")
    elsewhere = replace(alive, host="login7")
    leave_work(tmp_path, "living", alive)
    leave_work(tmp_path, "dead", replace(alive, started="1"))
    leave_work(tmp_path, "elsewhere", elsewhere)
    leave_work(tmp_path, "elsewhere-forgotten", elsewhere, age=8 * 86400)
    leave_work(tmp_path, "begun", None)
    (tmp_path / "somebody's own").mkdir()
    with work_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
    kept = ["argosy-work-begun", "argosy-work-elsewhere", "argosy-work-living", "somebody's own"]
    assert names(tmp_path) == kept


def test_a_sweep_follows_no_link_that_looks_like_a_work_folder(tmp_path: Path) -> None:
    victim, work = tmp_path / "victim", tmp_path / "work"
    for folder in (victim, work):
        folder.mkdir()
    (victim / "thesis.tex").touch()
    os.utime(victim, (0, 0))
    (work / "argosy-work-1-evil").symlink_to(victim)
    with work_folder(work):
        pass
    assert names(victim) == ["thesis.tex"]


def test_odd_entries_with_the_name_of_a_work_folder_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "argosy-work-3-folder/owner.json").mkdir(parents=True)
    (tmp_path / "argosy-work-3-link").symlink_to("argosy-work-3-link")
    (tmp_path / "argosy-work-3-file").touch()
    with work_folder(tmp_path) as folder:
        assert folder.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to another user")
def test_root_sweeps_no_work_folder_of_another_user(tmp_path: Path) -> None:
    leave_work(tmp_path, "of-another", None, age=8 * 86400)
    os.chown(tmp_path / "argosy-work-of-another", 4711, 4711)
    with work_folder(tmp_path):
        pass
    assert names(tmp_path) == ["argosy-work-of-another"]


def test_a_work_folder_that_was_replaced_by_a_link_keeps_the_files_of_its_target(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.tex").touch()
    with work_folder(tmp_path / "work") as folder:
        remove_path(folder)
        folder.symlink_to(victim)
    assert (names(victim), names(tmp_path / "work")) == (["thesis.tex"], [])


def test_a_folder_for_work_files_is_the_same_wherever_a_program_runs() -> None:
    session = open_session(work="mine/work")
    assert session.work_parent() == Path.cwd() / "mine/work"


def test_a_tmpdir_that_is_gone_holds_no_work_files(tmp_path: Path) -> None:
    session = open_session()
    for folder, named in ((tmp_path, tmp_path), (session.paths.cache / "work", tmp_path / "of a job that ended")):
        there = replace(session, host=replace(session.host, environment={"TMPDIR": str(named)}))
        on_disk = not in_memory(tmp_path)
        assert there.work_parent() == (folder if on_disk else session.paths.cache / "work")


def test_a_work_folder_keeps_its_owner_until_all_else_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []

    def watched(path: Path) -> None:
        there.append((folder / OWNER_FILE).exists() or path == folder)
        remove_path(path)

    with work_folder(tmp_path) as folder:
        for name in ("layer", "mount"):
            (folder / name).mkdir()
        (folder / "layer" / "file").touch()
        (folder / "link").symlink_to(tmp_path)
        monkeypatch.setattr("argosy.core.store.remove_path", watched)
    assert there == [True, True, True, True]
    assert list(tmp_path.iterdir()) == []


def test_a_work_folder_is_removed_with_its_contents_when_the_block_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with work_folder(tmp_path / "new") as folder:
            (folder / "a/b").mkdir(parents=True)
            (folder / "a/link").symlink_to("/")
            (folder / "a/b").chmod(0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path / "new") == []


def test_removing_a_folder_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path / "keep")
    remove_path(tmp_path / "tree")
    remove_path(tmp_path / "tree")
    assert names(tmp_path) == ["keep"]
    assert names(tmp_path / "keep") == ["file"]


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFull, "no space left on device"),
        (errno.EDQUOT, DiskFull, "quota"),
        (errno.EACCES, CheckFailed, "cannot write /some/file"),
        (errno.EROFS, CheckFailed, "cannot write /some/file"),
        (errno.ENOENT, UsageError, "no such file or folder: /some/file"),
        (errno.EIO, CheckFailed, "Input/output error"),
    ],
)
def test_errors_of_the_system_are_explained_in_plain_words(number: int, kind: type[ArgosyError], words: str) -> None:
    error = explain_os_error(OSError(number, os.strerror(number), "/some/file"), Path("/"))
    assert type(error) is kind
    assert words in error.what


@pytest.mark.parametrize("name", [".x.sif.lease.3193.1193ffc9", ".x.sif.237.60c31d76.part"])
def test_an_error_about_an_internal_file_names_its_folder(tmp_path: Path, name: str) -> None:
    for number in (errno.ENOENT, errno.EACCES, errno.EROFS):
        error = explain_os_error(OSError(number, os.strerror(number), str(tmp_path / name)), tmp_path)
        assert type(error) is CheckFailed
        assert (error.what, error.evidence) == (f"cannot write to {tmp_path}", os.strerror(number))
    error = explain_os_error(OSError(errno.ENOENT, "No", str(tmp_path / "no" / name)), tmp_path)
    assert error.what == f"no such folder: {tmp_path}/no"


@pytest.mark.parametrize("name", ["x.sif", "data.1.part", "lib.so.4.deadbeef.txt"])
def test_an_error_about_a_users_file_names_that_file(tmp_path: Path, name: str) -> None:
    error = explain_os_error(OSError(errno.ENOENT, "No", str(tmp_path / name)), tmp_path)
    assert error.what == f"no such file or folder: {tmp_path}/{name}"


def test_an_error_about_a_link_names_its_folder(tmp_path: Path) -> None:
    beside = tmp_path / ".best.sif.148.4944a592.part"
    error = explain_os_error(OSError(errno.EACCES, "No", "tool.sif", None, str(beside)), tmp_path)
    assert error.what == f"cannot write to {tmp_path}"


def test_the_first_error_of_a_copied_tree_is_explained() -> None:
    full = str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    met = shutil.Error([("/from/a", "/to/a", full), ("/from/b", "/to/b", full)])
    error = explain_os_error(met, Path("/"))
    assert (error.what, error.evidence.split(" (")[0]) == ("no space left on device", "while writing /to/a")


def test_the_hint_names_the_option_of_the_outer_block(tmp_path: Path) -> None:
    with pytest.raises(ArgosyError) as caught, translate_os_errors(tmp_path, "ARGOSY_STATE"):
        write_text(tmp_path / "missing/x", "")
    assert "ARGOSY_CACHE" not in caught.value.hint
    with (
        pytest.raises(CheckFailed) as caught,
        translate_os_errors(tmp_path, "ARGOSY_STATE"),
        atomic_file(tmp_path / "x", force=True),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.hint.endswith("choose another folder with ARGOSY_STATE")


def test_an_error_that_is_explained_already_is_not_explained_again(tmp_path: Path) -> None:
    ours = UsageError("mine")
    with pytest.raises(UsageError) as raised, translate_os_errors(tmp_path):
        raise ours
    assert raised.value is ours


def test_a_broken_link_is_not_replaced_silently(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("gone")
    with (
        pytest.raises(UsageError, match="is a broken link to gone"),
        atomic_file(tmp_path / "x", force=False),
    ):
        pytest.fail("the block was entered")
    with atomic_file(tmp_path / "x", force=True) as beside:
        beside.write_text("all")
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "x").read_text() == "all"


def test_a_transient_name_conflict_loses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object) -> None:
        raise FileExistsError(errno.EEXIST, "taken")

    monkeypatch.setattr(os, "link", taken)
    with atomic_file(tmp_path / "x", force=False) as beside:
        beside.write_text("all")
    assert (tmp_path / "x").read_text() == "all"


def test_a_file_that_is_replaced_keeps_its_access_rights(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("old")
    for mode in (0o600, 0o664):
        file.chmod(mode)
        write_text(file, "new")
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", mode)
    write_text(file, "own", mode=0o640)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose any group")
def test_a_replaced_file_keeps_its_group_and_mode(tmp_path: Path) -> None:
    file = tmp_path / "profile.toml"
    file.write_text("old")
    os.chown(file, -1, 4242)
    file.chmod(0o640)
    write_text(file, "new")
    assert (file.read_text(), file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)) == ("new", 4242, 0o640)
