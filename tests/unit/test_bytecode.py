"""Byte code is compiled once per package and Python, and old or damaged byte code never stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from argosy.build.bytecode import COMPILE, compile_layer
from argosy.build.kept_code import Compiled
from argosy.build.rooms import Room
from argosy.carriers import Ground
from argosy.layout import ENV_PREFIX
from argosy.model import Choice
from argosy.probe import probe_host
from argosy.process import Command, FakeRunner, OnLine, Reply
from argosy.session import Places, QuietReporter, Session, Step

VERSION = ".".join(map(str, sys.version_info[:3]))
TAG = sys.implementation.cache_tag


class Python(FakeRunner):
    """Compiles what the list names with this Python, as the environment's own would inside."""

    layer = Path()

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:  # noqa: ARG002 - as a runner
        self.seen.append(command)
        own = self.layer.parent / "list"
        text = (self.layer.parent / "work/compile.txt").read_text()
        own.write_text(text.replace(ENV_PREFIX, f"{self.layer}{ENV_PREFIX}"))
        done = subprocess.run((sys.executable, "-c", COMPILE, str(own), "2"), check=False, capture_output=True)
        return Reply(done.returncode, "", done.stderr.decode())


@pytest.fixture
def room(tmp_path: Path) -> Room:
    runner = Python()
    runner.layer = tmp_path / "layer"
    (tmp_path / "work").mkdir()
    places = Places(tmp_path / "cache", tmp_path / "state", ())
    session = Session(probe_host(), runner, places, QuietReporter())
    return Room(Choice("carrier", "root", "a test", "machine"), Ground("", 0, "/"), str(tmp_path), session)


def site_of(room: Room) -> Path:
    return Path(room.scratch) / f"layer{ENV_PREFIX}/lib/python3.11/site-packages"


def put(room: Room, name: str, text: str) -> Path:
    """Install a package of one module; give where its byte code will lie."""
    site = site_of(room)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").write_text(text)
    (info / "RECORD").write_text(f"{name}/__init__.py,sha256={hash(text)},1\n../../../bin/{name},,\n")
    return site / f"{name}/__pycache__/__init__.{TAG}.pyc"


def compile_now(room: Room, *changed: str) -> int:
    """Compile; give how often Python was started for it."""
    runner = room.session.runner
    assert isinstance(runner, Python)
    runner.seen.clear()
    folder = Path(room.scratch)
    kept = Compiled(folder / "cache/bytecode", VERSION)
    compile_layer(room, folder / "layer", folder / "work", kept, set(changed), Step("packages", "", lambda _: None))
    return len(runner.seen)


def test_a_package_is_compiled_once_and_its_byte_code_comes_back_to_the_byte(room: Room) -> None:
    code = put(room, "one", "A = 1\n")
    assert compile_now(room, "one") == 1
    first = code.read_bytes()
    code.unlink()
    assert compile_now(room, "one") == 0
    assert code.read_bytes() == first


def test_another_version_is_compiled_anew_even_where_old_byte_code_lies_there(room: Room) -> None:
    code = put(room, "one", "A = 1\n")
    compile_now(room, "one")
    old = code.read_bytes()
    put(room, "one", "A = 2\n")
    assert compile_now(room, "one") == 1
    assert code.read_bytes() != old


def test_a_package_whose_list_of_files_did_not_follow_its_modules_is_compiled_anew(room: Room) -> None:
    code = put(room, "one", "A = 1\n")
    compile_now(room, "one")
    old = code.read_bytes()
    (code.parent.parent / "__init__.py").write_text("A = 2\n")
    assert compile_now(room, "one") == 1
    assert code.read_bytes() != old


def test_what_did_not_change_in_a_layer_taken_over_is_left_as_it_is(room: Room) -> None:
    code = put(room, "one", "A = 1\n")
    compile_now(room, "one")
    code.write_bytes(b"kept")
    put(room, "two", "B = 1\n")
    assert compile_now(room, "two") == 1
    assert code.read_bytes() == b"kept"


@pytest.mark.parametrize("file", ["0", "list.json"])
@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_damaged_byte_code_in_the_cache_is_made_anew(room: Room, damage: str, file: str) -> None:
    code = put(room, "one", "A = 1\n" * 100)
    compile_now(room, "one")
    right = code.read_bytes()
    (place,) = (Path(room.scratch) / "cache/bytecode").iterdir()
    kept = place / file
    data = bytearray(kept.read_bytes())
    if damage == "changed":
        data[len(data) // 3] ^= 0xFF
    kept.write_bytes(data[: len(data) // 2] if damage == "cut off" else data)
    assert compile_now(room, "one") == 1
    assert code.read_bytes() == right
    assert compile_now(room, "one") == 0
    assert code.read_bytes() == right


def test_a_module_that_is_no_python_and_a_module_of_no_package_hinder_nothing(room: Room) -> None:
    bad = put(room, "bad", "def\n")
    site = site_of(room)
    (site / "_alone.py").write_text("C = 1\n")
    assert compile_now(room, "bad") == 1
    assert not bad.exists()
    assert (site / f"__pycache__/_alone.{TAG}.pyc").is_file()
