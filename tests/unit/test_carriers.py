"""Carriers as words: which are worth trying on a machine, and what each is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.build.rooms import Room
from argosy.carriers import CARRIERS, JOIN, PRIVATE_NAMESPACE, Ground, Inside, candidates, needs_tree, plan_inside
from argosy.errors import ToolMissing
from argosy.layout import DEFAULT_PATH
from argosy.model import Bind, Choice, Host, Person
from argosy.process import FakeRunner
from argosy.session import Places, QuietReporter, Session

ALL = ("apptainer", "bwrap", "proot", "singularity", "unshare")
GROUND = Ground("/base.sif", 4096)
INSIDE = Inside(("uv", "pip list", "$x"), (Bind("/a b", "/x"), Bind("/c", "/y", read_only=True)), (("UV_CACHE", "/u"),))


def host(*programs: str, root: bool = False, namespaces: bool = True, environment: dict[str, str] = {}) -> Host:  # noqa: B006 - read only
    found = {name: f"/usr/bin/{name}" for name in programs}
    person = Person(0 if root else 1000, 1000, "alice", "/home/alice")
    return Host("h", "x86_64", person, "/", "/tmp", 2, 1 << 30, found, namespaces, root, True, environment=environment)  # noqa: S108


def names(where: Host, asked: str = "") -> list[str]:
    return [choice.value for choice in candidates(where, asked)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (host(*ALL, root=True), list(CARRIERS)),
        (host(*ALL), ["userns", "apptainer", "singularity", "proot"]),
        (host(*ALL, namespaces=False), ["apptainer", "singularity", "proot"]),
        (host("proot"), ["proot"]),
        (host("bwrap", "proot"), ["proot"]),
        (host("bwrap", "unshare", root=True, namespaces=False), ["root"]),
    ],
    ids=["root", "user", "no namespaces", "only proot", "no unshare", "root without namespaces"],
)
def test_the_carriers_of_a_machine_are_tried_best_first(where: Host, expected: list[str]) -> None:
    assert names(where) == expected


@pytest.mark.parametrize("asked", CARRIERS)
def test_the_one_asked_for_is_the_only_one(asked: str) -> None:
    assert names(host(*ALL, root=True), asked) == [asked]
    assert candidates(host(*ALL, root=True), asked)[0].source == "option"


@pytest.mark.parametrize("asked", ["", *CARRIERS])
def test_where_none_can_work_one_error_says_what_is_missing(asked: str) -> None:
    with pytest.raises(ToolMissing) as raised:
        candidates(host(namespaces=False), asked)
    said = str(raised.value)
    for text in ("switched off on this machine", "bwrap: not found", "apptainer: not found", "proot: not found"):
        assert text in said
    assert raised.value.code == 4


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_words_of_the_program_stay_as_they_are_and_come_last(carrier: str) -> None:
    command = plan_inside(carrier, GROUND, INSIDE, scratch="/s", host=host(*ALL))
    assert command.words[-3:] == INSIDE.words


@pytest.mark.parametrize("carrier", CARRIERS)
def test_nothing_of_the_callers_settings_reaches_a_build(carrier: str) -> None:
    leaks = {"PYTHONPATH": "/evil", "PIP_INDEX_URL": "x", "UV_INDEX": "x", "APPTAINER_BIND": "/", "CONDA_PREFIX": "/c"}
    command = plan_inside(carrier, GROUND, INSIDE, scratch="/s", host=host(*ALL, environment=leaks))
    assert command.env is not None
    assert not leaks.keys() & command.env.keys()
    assert not any("evil" in word for word in command.words)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_variables_of_the_step_arrive_and_show_in_no_process_list(carrier: str) -> None:
    command = plan_inside(carrier, GROUND, INSIDE, scratch="/s", host=host(*ALL))
    assert command.env is not None
    forced = {"apptainer": "APPTAINERENV_UV_CACHE", "singularity": "SINGULARITYENV_UV_CACHE"}
    assert command.env[forced.get(carrier, "UV_CACHE")] == "/u"
    assert not any("UV_CACHE" in word for word in command.words)


def test_namespaces_have_their_own_mounts_and_processes_and_end_with_their_parent() -> None:
    root = plan_inside("root", GROUND, INSIDE, scratch="/s", host=host(*ALL)).words
    user = plan_inside("userns", GROUND, INSIDE, scratch="/s", host=host(*ALL)).words
    assert root[: len(PRIVATE_NAMESPACE)] == PRIVATE_NAMESPACE
    assert {"--mount", "--pid", "--mount-proc", "--kill-child"} <= set(PRIVATE_NAMESPACE)
    assert tuple(word for word in user if word not in {"--user", "--map-root-user"}) == root
    assert user[1:3] == ("--user", "--map-root-user")


def test_binds_keep_their_blanks_and_their_mode() -> None:
    words = plan_inside("root", GROUND, INSIDE, scratch="/s", host=host(*ALL)).words
    text = "\0".join(words)
    assert "\0--bind\0/a b\0/x\0" in text
    assert "\0--ro-bind\0/c\0/y\0" in text
    words = plan_inside("apptainer", GROUND, INSIDE, scratch="/s", host=host(*ALL)).words
    assert "/a b:/x" in words
    assert "/c:/y:ro" in words


def test_the_programs_outside_are_found_on_the_callers_path_and_those_inside_on_the_bases() -> None:
    command = plan_inside("root", GROUND, INSIDE, scratch="/s", host=host(*ALL, environment={"PATH": "/opt/tools"}))
    assert command.env is not None
    assert command.env["PATH"] == "/opt/tools"
    position = command.words.index("--setenv")
    assert command.words[position : position + 3] == ("--setenv", "PATH", DEFAULT_PATH)


def test_a_runtime_runs_the_file_itself_or_the_tree_where_it_was_unpacked() -> None:
    for ground, image in ((GROUND, "/base.sif"), (Ground("/base.sif", 0, "/tree"), "/tree")):
        words = plan_inside("apptainer", ground, INSIDE, scratch="/s", host=host(*ALL)).words
        assert words[:3] == ("apptainer", "--silent", "exec")
        assert image in words
    assert "--contain" in words


def test_only_proot_needs_an_unpacked_tree_from_the_start() -> None:
    assert [name for name in CARRIERS if needs_tree(name)] == ["proot"]


def test_what_joins_base_and_layer_quotes_every_word_it_is_given() -> None:
    for line in JOIN.splitlines():
        for name in ("scratch", "image", "tree"):
            assert f" ${name}" not in line.replace(f'"${name}', ""), line


@pytest.mark.parametrize("carrier", ["apptainer", "singularity", "proot"])
def test_steps_are_refused_where_a_carrier_would_lose_what_they_change(carrier: str, tmp_path: Path) -> None:
    session = Session(host(*ALL), FakeRunner(), Places(tmp_path, tmp_path, ()), QuietReporter())
    room = Room(Choice("carrier", carrier, "no user namespaces", "machine"), GROUND, "/s", session)
    with pytest.raises(ToolMissing, match="nothing here can keep such changes") as caught:
        room.keeping(tmp_path / "changes")
    assert carrier in caught.value.evidence
    assert "definition file" in caught.value.hint
    assert not (tmp_path / "changes").exists()
