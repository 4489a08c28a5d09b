"""Changes are joined with a base layer that is packed already; files that differ from package records are found."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from argosy.builder.base_layer import BaseLayer, Changes, join_changes, plan_changes
from argosy.builder.finish import FIND_MPI, lacks_mpi
from argosy.builder.python.file_lists import find_altered_packages
from argosy.core.layout import LOCK
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images.sif.write import whole_of, write_pieces
from argosy.images.squashfs.pack import run_pack, run_unsquashfs
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.tree_digests import describe_remembering, digest_tree
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, LockedStep, PackageKind, Tools
from tests.unit.machines import real_session

SITE = "opt/argosy/env/site-packages"
INSIDE = LOCK.lstrip("/")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return real_session(tmp_path)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    tree = tmp_path / "layer"
    (tree / SITE / "pkg").mkdir(parents=True)
    for number in range(9):
        (tree / SITE / f"pkg/{number}.py").write_text(str(number) * 1000)
    (tree / SITE / "link").symlink_to("pkg")
    (tree / INSIDE).write_text("lock of the first\n")
    return tree


def packed(session: Session, tree: Path) -> BaseLayer:
    out = tree.with_name("before.sqfs")
    run_pack(session, tree, out, time=7)
    return BaseLayer(whole_of(out), describe_remembering(tree))


def joined(session: Session, tree: Path, before: BaseLayer) -> Path | None:
    """Give the new squashfs; None where all is to be packed."""
    now = {name: entry for name, entry in describe_remembering(tree).items() if name != INSIDE}
    pieces = join_changes(session, tree, before, now, time=7)
    if not pieces:
        return None
    write_pieces(tree.with_name("after.sqfs"), pieces)
    return tree.with_name("after.sqfs")


def test_changes_are_new_contents_and_removed_or_replaced_entries() -> None:
    before = {".": b"40755 .", "a": b"100644 a 1", "b": b"100644 b 1", "c": b"100644 c 1", "d": b"120777 d e"}
    now = {".": b"40755 .", "a": b"100644 a 1", "b": b"100644 b 2", "d": b"40755 d", "e": b"100755 e 1"}
    assert plan_changes(before, now) == Changes(("b", "d", "e", INSIDE), ("c", "d"))


def test_an_mpi4py_of_pip_without_an_mpi_is_noted() -> None:
    base = LockedBase("docker://python:3.12", "sha256:" + "a" * 64, 1, "amd64")
    wheel = LockedPackage("mpi4py", "4.1.0")
    lock = Lock(base, Tools("0.1.0"), 1, "sha256:" + "b" * 64, packages=(wheel,))
    assert lacks_mpi(lock, lambda: "\n")
    assert not lacks_mpi(lock, lambda: "listed\n")
    assert not lacks_mpi(replace(lock, packages=(replace(wheel, kind=PackageKind.CONDA),)), lambda: "")
    assert not lacks_mpi(replace(lock, packages=(wheel, LockedPackage("mpich", "4.3"))), lambda: "")
    assert not lacks_mpi(replace(lock, packages=()), lambda: "")
    assert not lacks_mpi(replace(lock, steps=(LockedStep(("make install",)),)), lambda: "")


def test_the_mpi_of_a_base_is_found_by_the_linker_or_in_a_folder(tmp_path: Path) -> None:
    def search(list_: str, library_path: str = "") -> str:
        program = tmp_path / "ldconfig"
        program.write_text(f"#!/bin/sh\n{list_}\n")
        program.chmod(0o755)
        variables = {"PATH": f"{tmp_path}:/bin", "LD_LIBRARY_PATH": library_path}
        command = ["/bin/sh", "-c", FIND_MPI]
        return subprocess.run(command, check=True, env=variables, capture_output=True, text=True).stdout

    assert search("echo 'libmpi.so.40 (libc6,x86-64) => /usr/lib/libmpi.so.40'") == "listed\n"
    assert search("exit 1") == "unknown\n"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmpi.so.12").touch()
    found = search("echo 'libc.so.6 => /lib/libc.so.6'", f"/none:{tmp_path}/lib")
    assert found == f"{tmp_path}/lib/libmpi.so.12\n"


def test_the_new_layer_holds_the_new_tree_and_only_changes_were_packed(
    session: Session, layer: Path, tmp_path: Path
) -> None:
    before = packed(session, layer)
    (layer / SITE / "pkg/0.py").unlink()
    (layer / SITE / "pkg/1.py").chmod(0o755)
    (layer / SITE / "new").mkdir()
    (layer / SITE / "new/a.py").write_text("new\n")
    (layer / SITE / "link").unlink()
    (layer / SITE / "link").mkdir()
    (layer / SITE / "link/inside").write_text("a folder now\n")
    (layer / INSIDE).write_text("lock of the second\n")
    after = joined(session, layer, before)
    assert after
    run_unsquashfs(session, after, 0, tmp_path / "out", doing="unpacking")
    assert digest_tree(tmp_path / "out") == digest_tree(layer)
    assert (tmp_path / "out" / INSIDE).read_text() == "lock of the second\n"
    there = {str(path.relative_to(tmp_path / "changes")) for path in (tmp_path / "changes").rglob("*")}
    assert {f"{SITE}/pkg/{number}.py" for number in range(2, 9)} & there == set()
    assert {f"{SITE}/pkg/1.py", f"{SITE}/new/a.py", INSIDE} <= there
    assert read_superblock(after).mkfs_time == 7


def test_the_bytes_are_the_same_whatever_is_linked_or_copied(
    session: Session, layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed(session, layer)
    (layer / SITE / "pkg/1.py").write_text("other\n")
    first = joined(session, layer, before)
    assert first
    kept = first.read_bytes()
    for left in ("changes", "changes.sqfs", "after.sqfs"):
        layer.with_name(left).rename(layer.with_name(f"old-{left}"))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    second = joined(session, layer, before)
    assert second
    assert second.read_bytes() == kept


def test_everything_is_packed_again_if_most_of_it_is_new(session: Session, layer: Path) -> None:
    before = packed(session, layer)
    (layer / SITE / "large").write_text("x" * 100_000)
    assert joined(session, layer, before) is None


def test_everything_is_packed_again_once_much_of_the_old_layer_is_dead(session: Session, layer: Path) -> None:
    noise = os.urandom(40_000).hex()
    for number in range(9):
        (layer / SITE / f"pkg/{number}.py").write_text(noise[number * 7 :])
    before, rounds = packed(session, layer), 0
    while rounds < 9:
        (layer / SITE / f"pkg/{rounds}.py").write_text(os.urandom(40_000).hex())
        after = joined(session, layer, before)
        if after is None:
            break
        rounds += 1
        after = after.rename(after.with_name(f"round-{rounds}.sqfs"))
        for left in ("changes", "changes.sqfs"):
            layer.with_name(left).rename(layer.with_name(f"round-{rounds}-{left}"))
        before = BaseLayer(whole_of(after), describe_remembering(layer))
    assert 2 <= rounds <= 6


SITE_PACKAGES = "opt/argosy/env/lib/python3.11/site-packages"


def row(name: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text)}\n"


def judged(tree: Path, *packages: str) -> list[str]:
    return list(find_altered_packages(tree / "layer", describe_remembering(tree / "layer"), packages))


def test_byte_code_that_the_wheel_lists_is_made_again_and_no_damage(tmp_path: Path) -> None:
    site = tmp_path / "layer" / SITE_PACKAGES
    (site / "numpy-1.26.4.dist-info").mkdir(parents=True)
    (site / "numpy/__pycache__").mkdir(parents=True)
    (site / "numpy/__pycache__/conv.cpython-311.pyc").write_text("compiled by the build")
    rows = row("numpy/__pycache__/conv.cpython-311.pyc", "published")
    (site / "numpy-1.26.4.dist-info/RECORD").write_text(rows)
    assert judged(tmp_path, "numpy") == []


def test_a_file_that_was_damaged_in_the_cache_is_named(tmp_path: Path) -> None:
    site = tmp_path / "layer" / SITE_PACKAGES
    info = site / "My_Pkg-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_pkg").mkdir()
    (site / "my_pkg/one,two.py").write_text("whole\n")
    (site / "../../../bin").mkdir()
    (site / "../../../bin/mine").write_text("#!python\n")
    rows = ('"my_pkg/one,two.py"' + row("", "whole\n"), row("../../../bin/mine", "#!python\n"), row("gone.py", "x"))
    (info / "RECORD").write_text("".join((*rows, "My_Pkg-1.0.dist-info/RECORD,,\n", "odd,sha256=!,\n")))
    assert judged(tmp_path, "my-pkg") == []
    (site / "my_pkg/one,two.py").write_text("half")
    [said] = judged(tmp_path, "my-pkg")
    assert said.startswith("my-pkg has files that differ from its RECORD: my_pkg/one,two.py; ")
    assert judged(tmp_path, "another") == []
