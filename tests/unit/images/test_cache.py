"""The cache: nothing that a living process or a job's script needs is collected; the longest unused goes first."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from argosy.cli.app import app
from argosy.cli.cmd_cache import gc, info
from argosy.core.cache import BUILD, USES, fill_once, pin_entry, read_pins
from argosy.core.errors import UsageError
from argosy.core.locks import this_owner
from argosy.core.process import Reply
from argosy.core.records import asdict, replace
from argosy.core.session import Paths, Session, paths_from
from argosy.host.probe import open_session
from argosy.images.cache import NOTES, CacheEntry, Collected, choose_garbage, collect, disk_bytes, list_entries
from argosy.images.part_digest import cached_digest, describe_part, part_digest, remembered

NOBODY = 1e12
"""Later than any use: everything is old."""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Give a session whose cache holds two trees, a base and wheels."""
    cache = tmp_path / "cache"
    for name in ("trees/one/root", "trees/two/root", "bases/debian", "uv"):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x" * 5000)
    (cache / "trees/one.lease").touch()
    return replace(open_session(), paths=Paths(cache, tmp_path / "state", ()))


def names(found: tuple[CacheEntry, ...] | Collected) -> set[str]:
    return {entry.name for entry in (found.removed if isinstance(found, Collected) else found)}


def test_unused_entries_are_removed_completely(session: Session) -> None:
    everything = {"trees/one", "trees/two", "bases/debian", "uv"}
    assert names(collect(session, NOBODY, dry=True)) == everything
    assert names(list_entries(session)) == everything
    assert names(collect(session, NOBODY)) == everything
    assert list_entries(session) == ()
    assert list((session.paths.cache / "work").iterdir()) == []


def test_notes_about_images_are_one_kind_and_go_by_age(session: Session) -> None:
    cache, image = session.paths.cache, session.paths.cache / "image"
    image.write_bytes(b"bytes")
    part_digest(describe_part(image, 0, 5), cache)
    remembered(cache, image, ("uv", "--version"), lambda: Reply(0, "uv 1", ""))
    for name in ("made/x.json", "references/y.json"):
        (cache / name).parent.mkdir()
        (cache / name).write_text("{}")
        os.utime(cache / name, (1, 1))
    (cache / "links").mkdir()
    (cache / "links/z").symlink_to("/no longer there")
    (cache / "digests/.x.part").touch()
    notes = [entry for entry in list_entries(session) if entry.kind == NOTES]
    assert sorted(Path(name).parts[0] for name in names(tuple(notes))) == [
        *("answers", "digests", "links", "made", "references"),
    ]
    assert names(collect(session, 2)) == {"made/x.json", "references/y.json", "links/z"}


def test_a_note_that_is_used_stays(session: Session) -> None:
    cache, image = session.paths.cache, session.paths.cache / "image"
    image.write_bytes(b"bytes")
    part = describe_part(image, 0, 5)
    digest = part_digest(part, cache)
    (note,) = (cache / "digests").iterdir()
    os.utime(note, (1, 1))
    assert cached_digest(part, cache) == digest
    assert note.stat().st_mtime > 1


def test_all_notes_are_one_line(session: Session) -> None:
    for number in range(3):
        note = session.paths.cache / f"digests/{number}"
        note.parent.mkdir(exist_ok=True)
        note.write_text("{}")
    shown = CliRunner(env={"ARGOSY_CACHE": str(session.paths.cache)})
    assert "notes      notes about images (3), last used" in shown.invoke(info, ["-v"]).output
    gone = shown.invoke(gc, ["--older-than=0h", "--dry-run"]).output
    assert ("notes about images (3)" in gone, "digests/" in gone) == (True, False)


def test_what_killed_processes_left_is_removed_even_if_no_entry_is(session: Session) -> None:
    cache = session.paths.cache
    dead = json.dumps(asdict(replace(this_owner("work folder"), started="1")))
    for name in ("fetched/.one.7.0123abcd.part/image.sif", "work/argosy-work-7-0123abcd/0/root/file"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).touch()
    (cache / "work/argosy-work-7-0123abcd/owner.json").write_text(dead)
    with fill_once(cache / "fetched/two", what="fetching", waiting=session.waiting) as living:
        assert collect(session, 0).removed == ()
        assert list((cache / "fetched").glob(".*.part")) == [living]
        assert list((cache / "work").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link to another user")
@pytest.mark.parametrize("name", ["fetched", "uv", "digests", "work", "uses"])
def test_a_link_of_another_user_in_the_cache_is_not_followed_and_an_own_one_is(session: Session, name: str) -> None:
    cache, other = session.paths.cache, session.paths.cache.parent / "other"
    for file in ("one/thesis.tex", ".one.7.0123abcd.part", "argosy-work-7-0123abcd/thesis.tex"):
        (other / file).parent.mkdir(exist_ok=True, parents=True)
        (other / file).touch()
        os.utime(other / file, (0, 0))
    os.utime(other / "argosy-work-7-0123abcd", (0, 0))
    files = sorted(other.rglob("*"))
    if (cache / name).exists():
        (cache / name).rename(cache / "former")
    (cache / name).symlink_to(other)
    os.lchown(cache / name, 4711, 4711)
    read_pins(cache)
    assert not any(entry.startswith(name) for entry in names(collect(session, NOBODY)))
    assert sorted(other.rglob("*")) == files
    os.lchown(cache / name, os.geteuid(), os.getegid())
    collect(session, NOBODY)
    assert sorted(other.rglob("*")) != files or (name == "uv" and not (cache / name).exists())


def test_old_parts_of_notes_and_records_are_removed_and_new_ones_stay(session: Session) -> None:
    for folder in (session.paths.cache / "digests", session.paths.runs / "7"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (".plan.json.7.0123abcd.part", ".new.json.7.0123abcd.part", ".mine.part"):
            (folder / name).touch()
        os.utime(folder / ".plan.json.7.0123abcd.part", (0, 0))
        os.utime(folder / ".mine.part", (0, 0))
        collect(session, 0)
        assert sorted(each.name for each in folder.glob(".*")) == [".mine.part", ".new.json.7.0123abcd.part"]


def test_entries_of_a_running_process_stay_and_those_of_a_dead_one_go(session: Session) -> None:
    cache = session.paths.cache
    pin_entry(cache, "trees/one", waiting=session.waiting)
    dead = replace(this_owner("trees/two"), started="1")
    (cache / USES / "1.dead").write_text(json.dumps(asdict(dead)))
    assert names(collect(session, NOBODY)) == {"trees/two", "bases/debian", "uv"}
    assert set(read_pins(cache)) == {"trees/one"}


def test_a_process_of_another_machine_counts_as_running_for_a_week(session: Session) -> None:
    cache = session.paths.cache
    record = cache / USES / "1.far"
    record.parent.mkdir()
    record.write_text(json.dumps(asdict(replace(this_owner("trees/two"), host="elsewhere"))))
    assert "trees/two" not in names(collect(session, NOBODY, dry=True))
    os.utime(record, (0, 0))
    assert "trees/two" in names(collect(session, NOBODY, dry=True))


def test_a_collection_on_a_full_disk_frees_space_and_keeps_what_is_in_use(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(path: Path, _text: str, **_options: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_nothing)
    pin_entry(session.paths.cache, "trees/one", waiting=session.waiting)
    assert names(collect(session, NOBODY)) == {"trees/two", "bases/debian", "uv"}
    assert list((session.paths.cache / "work").iterdir()) == []


def test_during_a_build_only_trees_are_collected(session: Session) -> None:
    pin_entry(session.paths.cache, BUILD, waiting=session.waiting)
    assert names(collect(session, NOBODY)) == {"trees/one", "trees/two"}


def test_entries_named_by_a_jobs_script_stay_with_the_reason(session: Session) -> None:
    script = session.paths.state / "runs/1/job.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"bwrap --ro-bind {session.paths.cache}/trees/one/root /\n")
    kept = {entry.name: entry.kept for entry in list_entries(session) if entry.kept}
    assert kept == {"trees/one": f"named by {script}"}
    assert "trees/one" not in names(collect(session, NOBODY))


def name_tree(session: Session, name: str, record: str) -> Path:
    script = session.paths.runs / record / "job.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"bwrap --ro-bind {session.paths.cache}/trees/{name}/root /\n")
    return script


def collected(session: Session, *options: str) -> str:
    """Run `argosy cache gc`; return the lines after those of the entries."""
    variables = {"ARGOSY_CACHE": str(session.paths.cache), "ARGOSY_STATE": str(session.paths.state)}
    done = CliRunner().invoke(app, ("cache", "gc", *options), env=variables)
    assert done.exit_code == 0, done.output
    return "\n".join(line for line in done.output.splitlines() if "last used" not in line)


def test_the_scripts_of_runs_that_have_ended_keep_no_entries(session: Session) -> None:
    ended, killed, alive = (
        name_tree(session, name, f"20260102-03040{number}-123456-abcd").parent
        for number, name in enumerate(("one", "two", "three"))
    )
    (session.paths.cache / "trees/three").mkdir()
    (ended / "end.json").write_text('{"code": 0}')
    owner = this_owner("launch")
    (killed / "started.json").write_text(json.dumps(asdict(replace(owner, started="1"))))
    (alive / "started.json").write_text(json.dumps(asdict(owner)))
    os.utime(alive / "job.sh", (1, 1))
    told = collected(session, "--keep", "0")
    assert re.search(r"^removed .* in 4 entries\nkept .* in 1 entry: named by scripts of jobs", told)
    assert names(list_entries(session)) == {"trees/three"}


def test_the_script_of_a_job_of_slurm_keeps_its_entries_for_30_days(session: Session) -> None:
    scripts = [
        name_tree(session, name, f"20260102-03040{number}-123456-abcd") for number, name in enumerate(("one", "two"))
    ]
    for script, days in zip(scripts, (29, 31), strict=True):
        (script.parent / "submitted.json").write_text('{"job": "7"}')
        (script.parent / "ends").write_text("7 0 0 n1\n")  # it may be requeued
        os.utime(script, (time.time() - days * 86400,) * 2)
    told = collected(session, "--keep", "0")
    assert (
        "in 1 entry: named by scripts of jobs that may wait or run: launched in the last 30 days, or running here"
        in told
    )
    assert names(list_entries(session)) == {"trees/one"}


def test_a_collection_tells_what_it_keeps_beyond_its_limits_and_why(session: Session) -> None:
    name_tree(session, "one", "20260102-030405-123456-abcd")
    pin_entry(session.paths.cache, "trees/two", waiting=session.waiting)
    told = collected(session, "--keep", "1K", "--dry-run").splitlines()
    assert [line.partition(": ")[2] for line in told if line.startswith("kept ")] == [
        "in use by running commands",
        "named by scripts of jobs that may wait or run: launched in the last 30 days, or running here",
    ]
    assert "kept" not in collected(session, "--keep", "1G", "--dry-run")  # all fits
    assert "kept" not in collected(session, "--dry-run")  # nothing is old
    os.utime(session.paths.cache / "trees/one", (1, 1))
    assert collected(session, "--dry-run").count("kept ") == 1


def test_the_contents_of_the_cache_end_with_the_total(session: Session) -> None:
    variables = {"ARGOSY_CACHE": str(session.paths.cache), "ARGOSY_STATE": str(session.paths.state)}
    done = CliRunner().invoke(app, ("cache", "info"), env=variables)
    assert re.search(rf"\n +\S+ .B +total +in {session.paths.cache}\n$", done.output)


def test_a_note_is_not_searched_in_the_scripts_of_jobs(session: Session) -> None:
    note, script = session.paths.cache / "digests/1", session.paths.state / "runs/1/job.sh"
    for file in (note, script):
        file.parent.mkdir(parents=True)
        file.write_text(f"{note}\n")
    assert {entry.name: entry.kept for entry in list_entries(session)}["digests/1"] == ""
    assert "digests/1" in names(collect(session, NOBODY))


def test_using_an_entry_renews_its_age(session: Session) -> None:
    os.utime(session.paths.cache / "trees/one", (1, 1))
    os.utime(session.paths.cache / "trees/two", (1, 1))
    pin_entry(session.paths.cache, "trees/one", waiting=session.waiting)
    used = {entry.name: entry.used for entry in list_entries(session)}
    assert used["trees/two"] == 1 < used["trees/one"]


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    one = disk_bytes(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    assert disk_bytes(tmp_path) == one


entries = st.lists(
    st.builds(
        CacheEntry,
        name=st.uuids().map(str),
        kind=st.just("trees"),
        bytes=st.integers(0, 100),
        used=st.floats(0, 100),
        kept=st.sampled_from(["", "", "in use"]),
    ),
    max_size=8,
)


@given(entries=entries, since=st.floats(0, 100), keep=st.integers(-1, 300))
def test_the_oldest_unused_entries_go_and_no_more_than_needed(
    entries: list[CacheEntry], since: float, keep: int
) -> None:
    gone = choose_garbage(entries, since, keep)
    stays = [each for each in entries if each not in gone]
    assert not [each for each in gone if each.kept]
    assert all(each.used >= since for each in stays if not each.kept)
    assert max((each.used for each in gone), default=0) <= min((e.used for e in stays if not e.kept), default=100)
    if keep >= 0 and sum(each.bytes for each in stays) > keep:
        assert all(each.kept for each in stays)
    young = [each for each in gone if each.used >= since]
    if young:
        assert keep >= 0
        assert sum(each.bytes for each in stays) + young[-1].bytes > keep


def test_folders_follow_the_xdg_variables_and_the_home() -> None:
    home = Path("/home/ada")
    usual = paths_from({"XDG_CACHE_HOME": "relative", "XDG_STATE_HOME": "/state"}, home)
    assert (usual.cache, usual.state) == (home / ".cache/argosy", Path("/state/argosy"))
    assert usual.images == (home / ".local/share/argosy/images",)
    near = paths_from({}, Path("relative"))
    assert near.state == Path.cwd() / "relative/.local/state/argosy"
    named = paths_from({"ARGOSY_CACHE": "~/c:d", "ARGOSY_IMAGES": "~/one:/two"}, home)
    assert (named.cache, named.images) == (home / "c:d", (home / "one", Path("/two")))


@pytest.mark.parametrize(
    ("name", "value"),
    [("ARGOSY_CACHE", "near"), ("ARGOSY_STATE", "./near"), ("ARGOSY_IMAGES", "/one:near"), ("ARGOSY_CACHE", "~ada/c")],
)
def test_a_relative_folder_in_a_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is a relative path: ") as refused:
        paths_from({name: value}, Path("/home/ada"))
    assert str(Path.cwd()) in refused.value.hint


@pytest.mark.parametrize(
    ("size", "code"),
    [("0", 0), ("500M", 0), ("1.5G", 0), ("1.5gb", 0), ("7", 2), (".5G", 2), ("1.5X", 2), ("-1G", 2),
     pytest.param("9" * 400, 2, id="400 digits")],
)  # fmt: skip
def test_a_size_to_keep_may_have_a_fraction(size: str, code: int, tmp_path: Path) -> None:
    done = CliRunner(env={"ARGOSY_CACHE": str(tmp_path)}).invoke(gc, [f"--keep={size}", "--dry-run"])
    assert getattr(done.exception, "code", 0) == code, done.output
