"""Build backends: which are worth trying on a machine, and the command that each runs."""

from __future__ import annotations

import errno
import shutil
import struct
from pathlib import Path

import pytest

from argosy.builder.backends.container import UV_INSIDE, BuildContainer
from argosy.builder.backends.plan import (
    BACKENDS,
    JOIN,
    PRIVATE_NAMESPACE,
    ExecSpec,
    RootfsSpec,
    list_backends,
    plan_exec,
)
from argosy.builder.backends.writable_copy import CopiedBase, apply_changes, gather_changes, take_marks
from argosy.builder.python.installer import CACHE_INSIDE
from argosy.core.errors import ToolMissing, UsageError
from argosy.core.layout import DEFAULT_PATH
from argosy.core.model import Bind, Choice, Host, Person
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.host.seccomp import Step, plan_old_calls, plan_owners, render_filter
from argosy.images.squashfs.pack import is_whiteout
from tests.unit.machines import make_host, make_session

ALL = ("apptainer", "bwrap", "proot", "singularity", "unshare")
GROUND = RootfsSpec("/base.sif", 4096)
INSIDE = ExecSpec(
    ("uv", "pip list", "$x"), (Bind("/a b", "/x"), Bind("/c", "/y", read_only=True)), (("UV_CACHE", "/u"),)
)


def host(*programs: str, root: bool = False, namespaces: bool = True, environment: dict[str, str] = {}) -> Host:  # noqa: B006 - read only
    person = Person(0 if root else 1000, 1000, "alice", "/home/alice")
    changes = {"person": person, "user_namespaces": namespaces, "can_mount": root, "environment": environment}
    return make_host(*programs, **changes)


def names(where: Host, asked: str = "") -> list[str]:
    return [choice.value for choice in list_backends(where, asked)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (host(*ALL, root=True), list(BACKENDS)),
        (host(*ALL), ["userns", "apptainer", "singularity", "proot"]),
        (host(*ALL, namespaces=False), ["apptainer", "singularity", "proot"]),
        (host("proot"), ["proot"]),
        (host("bwrap", "proot"), ["proot"]),
        (host("bwrap", "unshare", root=True, namespaces=False), ["root"]),
    ],
    ids=["root", "user", "no namespaces", "only proot", "no unshare", "root without namespaces"],
)
def test_the_build_backends_of_a_machine_are_tried_best_first(where: Host, expected: list[str]) -> None:
    assert names(where) == expected


@pytest.mark.parametrize("asked", BACKENDS)
def test_only_the_requested_build_backend_is_tried(asked: str) -> None:
    assert names(host(*ALL, root=True), asked) == [asked]
    assert list_backends(host(*ALL, root=True), asked)[0].source == "option"


@pytest.mark.parametrize("asked", ["", *BACKENDS])
def test_if_no_backend_works_one_error_names_what_is_missing(asked: str) -> None:
    with pytest.raises(ToolMissing) as raised:
        list_backends(host(namespaces=False), asked)
    said = str(raised.value)
    for text in ("disabled on this machine", "bwrap: not found", "apptainer: not found", "proot: not found"):
        assert text in said
    assert raised.value.code == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_programs_arguments_come_last_and_unchanged(backend: str) -> None:
    command = plan_exec(BACKENDS[backend], GROUND, INSIDE, scratch="/s", host=host(*ALL))
    assert command.argv[-3:] == INSIDE.argv


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_the_callers_settings_reaches_a_build(backend: str) -> None:
    leaks = {"PYTHONPATH": "/evil", "PIP_INDEX_URL": "x", "UV_INDEX": "x", "APPTAINER_BIND": "/", "CONDA_PREFIX": "/c"}
    command = plan_exec(BACKENDS[backend], GROUND, INSIDE, scratch="/s", host=host(*ALL, environment=leaks))
    assert command.env is not None
    assert not leaks.keys() & command.env.keys()
    assert not any("evil" in word for word in command.argv)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_variables_of_the_step_arrive_and_show_in_no_process_list(backend: str) -> None:
    command = plan_exec(BACKENDS[backend], GROUND, INSIDE, scratch="/s", host=host(*ALL))
    assert command.env is not None
    forced = {"apptainer": "APPTAINERENV_UV_CACHE", "singularity": "SINGULARITYENV_UV_CACHE"}
    assert command.env[forced.get(backend, "UV_CACHE")] == "/u"
    assert not any("UV_CACHE" in word for word in command.argv)


def test_namespaces_have_their_own_mounts_and_processes_and_end_with_their_parent() -> None:
    root = plan_exec(BACKENDS["root"], GROUND, INSIDE, scratch="/s", host=host(*ALL)).argv
    user = plan_exec(BACKENDS["userns"], GROUND, INSIDE, scratch="/s", host=host(*ALL)).argv
    assert root[: len(PRIVATE_NAMESPACE)] == PRIVATE_NAMESPACE
    assert {"--mount", "--pid", "--mount-proc", "--kill-child"} <= set(PRIVATE_NAMESPACE)
    assert tuple(word for word in user if word not in {"--user", "--map-root-user"}) == root
    assert user[1:3] == ("--user", "--map-root-user")


def test_binds_keep_their_blanks_and_their_mode() -> None:
    words = plan_exec(BACKENDS["root"], GROUND, INSIDE, scratch="/s", host=host(*ALL)).argv
    text = "\0".join(words)
    assert "\0--bind\0/a b\0/x\0" in text
    assert "\0--ro-bind\0/c\0/y\0" in text
    words = plan_exec(BACKENDS["apptainer"], GROUND, INSIDE, scratch="/s", host=host(*ALL)).argv
    assert "/a b:/x" in words
    assert "/c:/y:ro" in words


def test_the_programs_outside_are_found_on_the_callers_path_and_those_inside_on_the_bases() -> None:
    command = plan_exec(
        BACKENDS["root"], GROUND, INSIDE, scratch="/s", host=host(*ALL, environment={"PATH": "/opt/tools"})
    )
    assert command.env is not None
    assert command.env["PATH"] == "/opt/tools"
    position = command.argv.index("--setenv")
    assert command.argv[position : position + 3] == ("--setenv", "PATH", DEFAULT_PATH)


def test_a_runtime_starts_the_file_or_its_unpacked_tree() -> None:
    for rootfs, image in ((GROUND, "/base.sif"), (RootfsSpec("/base.sif", 0, "/tree"), "/tree")):
        words = plan_exec(BACKENDS["apptainer"], rootfs, INSIDE, scratch="/s", host=host(*ALL)).argv
        assert words[:3] == ("apptainer", "--silent", "exec")
        assert image in words
    assert "--contain" in words


def test_only_proot_needs_an_unpacked_tree_from_the_start() -> None:
    assert [name for name, backend in BACKENDS.items() if backend.needs_tree] == ["proot"]


def test_the_script_that_joins_base_and_layer_quotes_every_argument() -> None:
    for line in JOIN.splitlines():
        for name in ("scratch", "image", "tree"):
            assert f" ${name}" not in line.replace(f'"${name}', ""), line


@pytest.mark.parametrize(
    ("backend", "copied"), [("root", False), ("userns", False), ("apptainer", True), ("proot", True)]
)
def test_without_overlays_a_copy_of_the_base_is_changed(backend: str, copied: bool) -> None:  # noqa: FBT001 - a parameter
    assert BACKENDS[backend].overlay is not copied


def test_programs_that_change_a_copy_run_as_fake_root_and_cannot_change_the_machine() -> None:
    rootfs = RootfsSpec("/base.sif", tree="/copy", changes="/changes", writable=True)
    words = plan_exec(BACKENDS["apptainer"], rootfs, INSIDE, scratch="/s", host=host(*ALL)).argv
    assert words[words.index("--fakeroot") :][:4] == ("--fakeroot", "--writable", "--workdir", "/changes")
    assert "/copy" in words
    words = plan_exec(BACKENDS["proot"], rootfs, INSIDE, scratch="/s", host=host(*ALL)).argv
    assert words[3:8] == ("proot", "/usr/bin/proot", "-0", "-r", "/copy")
    assert "/etc/hosts" not in words
    assert "/etc/hosts" in plan_exec(BACKENDS["proot"], GROUND, INSIDE, scratch="/s", host=host(*ALL)).argv


def test_changes_of_a_copy_equal_those_of_an_overlay(tmp_path: Path) -> None:
    tree, upper = tmp_path / "tree", tmp_path / "up"
    for name in ("keep/a", "edit/b", "drop/c", "drop/deep/d", "swap/e", "tmp/f", "old"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("was\n")
    upper.mkdir()
    copy = CopiedBase(tree, take_marks(tree))
    (tree / "edit/b").write_text("now\n")
    (tree / "new/sub").mkdir(parents=True)
    (tree / "new/sub/link").symlink_to("/nowhere")
    shutil.rmtree(tree / "drop")
    shutil.rmtree(tree / "swap")
    (tree / "swap").write_text("a file now\n")
    (tree / "tmp/f").write_text("not kept\n")
    (tree / "keep").chmod(0o711)
    (tree / "old").unlink()
    gather_changes(copy, upper, ignored=("tmp",))
    found = {str(path.relative_to(upper)) for path in upper.rglob("*")}
    assert found == {"edit", "edit/b", "new", "new/sub", "new/sub/link", "drop", "swap", "keep", "old"}
    assert [name for name in sorted(found) if is_whiteout(upper / name)] == ["drop", "old"]
    assert (upper / "keep").stat().st_mode & 0o777 == 0o711
    again = tmp_path / "again"
    shutil.copytree(tree, again, symlinks=True)
    (again / "old").touch()
    apply_changes(upper, again)
    assert not (again / "old").exists()
    assert (again / "edit/b").read_text() == "now\n"


def judge(steps: tuple[Step, ...], machine: int, call: int, *arguments: int) -> int:
    """Run a filter as the kernel does."""
    data = struct.pack("=iIQ6Q", call, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    value, at = 0, 0
    while True:
        operation, true, false, operand = steps[at]
        at += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif operation == 0x54:
            value &= operand
        else:
            assert operation == 0x15
            at += true if value == operand else false


ALLOWED, SUCCEEDS = 0x7FFF0000, 0x00050000
X86, ARM = 0xC000003E, 0xC00000B7


@pytest.mark.parametrize(
    ("machine", "number", "call", "arguments", "answer"),
    [
        ("x86_64", X86, 92, (0, 33, 33), SUCCEEDS),
        ("x86_64", X86, 260, (0, 0, 33), SUCCEEDS),
        ("x86_64", X86, 133, (0, 0o020666), SUCCEEDS),
        ("x86_64", X86, 133, (0, 0o010666), ALLOWED),
        ("x86_64", X86, 259, (0, 0, 0o060660), SUCCEEDS),
        ("x86_64", X86, 1, (), ALLOWED),
        ("x86_64", 0x40000003, 92, (), ALLOWED),
        ("aarch64", ARM, 54, (0, 0, 33), SUCCEEDS),
        ("aarch64", ARM, 33, (0, 0, 0o100644), ALLOWED),
        ("aarch64", ARM, 92, (), ALLOWED),
    ],
    ids=["chown", "fchownat", "device", "pipe", "block device", "write", "32 bits", "arm", "arm file", "arm 92"],
)
def test_changes_of_owner_succeed_and_all_else_is_the_kernels(
    machine: str, number: int, call: int, arguments: tuple[int, ...], answer: int
) -> None:
    assert judge(plan_owners(machine), number, call, *arguments) == answer


@pytest.mark.parametrize(("machine", "number", "statx", "chown"), [("x86_64", X86, 332, 92), ("aarch64", ARM, 291, 55)])
def test_under_proot_calls_newer_than_it_are_not_there(machine: str, number: int, statx: int, chown: int) -> None:
    assert judge(plan_old_calls(machine), number, statx) == 0x00050000 + errno.ENOSYS
    assert judge(plan_old_calls(machine), number, chown) == ALLOWED


def test_a_machine_whose_calls_are_not_known_gets_no_filter() -> None:
    assert render_filter(plan_owners("ppc64le")) == b""
    assert len(render_filter(plan_owners("aarch64"))) == 8 * len(plan_owners("aarch64"))


def test_an_unknown_build_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown build backend 'foo'") as caught:
        list_backends(make_host(), "foo")
    assert "userns" in caught.value.hint


@pytest.mark.parametrize(
    ("backend", "rootfs", "starts"),
    [
        ("root", RootfsSpec("base.sif"), 1),
        ("userns", RootfsSpec("base.sif"), 1),
        ("root", RootfsSpec("base.sif", changes="/changes"), 2),
        ("root", RootfsSpec("", tree="/tree"), 2),
        ("apptainer", RootfsSpec("base.sif"), 2),
    ],
    ids=["root", "userns", "with changes of steps", "a folder", "folders of a site"],
)
def test_a_base_is_asked_once_in_a_container_that_shows_only_its_files(
    tmp_path: Path, backend: str, rootfs: RootfsSpec, starts: int
) -> None:
    (tmp_path / "base.sif").touch()
    rootfs = replace(rootfs, image=str(tmp_path / rootfs.image) if rootfs.image else "")
    runner = FakeRunner()
    session = make_session(tmp_path, runner=runner)
    container = BuildContainer(Choice("build-backend", backend, "", ""), rootfs, str(tmp_path), session)
    container.ask("test", "-e", "/etc/passwd")
    container.ask("test", "-e", "/etc/passwd")
    assert len(runner.seen) == starts


def test_an_error_of_a_program_in_the_container_names_the_folders_of_this_machine(tmp_path: Path) -> None:
    binds = (Bind("/opt/uv", UV_INSIDE), Bind("/home/ada/.cache/argosy/uv", CACHE_INSIDE), Bind("/tree", "/opt/argosy"))
    choice = Choice("build-backend", "root", "", "")
    container = BuildContainer(choice, RootfsSpec("", 0), "", make_session(tmp_path), binds)
    said = f"error: failed to write to file `{CACHE_INSIDE}/a/b.py`: No space left on device (os error 28)"
    error = container.failure((UV_INSIDE, "pip"), Reply(2, "", said), doing="installing")
    assert error.what == "installing failed: no space left"
    assert "`/home/ada/.cache/argosy/uv/a/b.py`" in error.evidence
    assert error.evidence.startswith("$ uv pip\n")


@pytest.mark.parametrize(
    ("lines", "way", "hint"),
    [
        (40, None, "add --verbose to see its whole output"),
        (40, "set CW_LOG_LEVEL=3", "set CW_LOG_LEVEL=3 to see its whole output"),
        (3, None, "these lines are its whole output"),
    ],
)
def test_a_hint_to_see_the_whole_output_names_what_the_command_has(lines: int, way: str | None, hint: str) -> None:
    """pip-containerize has no option --verbose; and a short output is complete already."""
    session = make_session() if way is None else replace(make_session(), show_all=way)
    container = BuildContainer(Choice("build-backend", "root", "", ""), RootfsSpec("", 0), "", session)
    error = container.failure(("uv",), Reply(1, "", "a line\n" * lines), doing="installing")
    assert error.hint == hint
