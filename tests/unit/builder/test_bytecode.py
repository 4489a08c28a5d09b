"""Byte code is compiled once per package and Python, and old or damaged byte code never stays."""

from __future__ import annotations

import importlib.util
import json
import marshal
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.backends.plan import RootfsSpec
from argosy.builder.python import bytecode
from argosy.builder.python.bytecode import BytecodeCache, compile_conda, compile_layer
from argosy.builder.python.bytecode_compiler import COMPILE, PLAIN
from argosy.core.layout import ENV_PREFIX
from argosy.core.model import Choice
from argosy.core.process import Command, FakeRunner, OnLine, Reply
from argosy.core.session import Paths, QuietReporter, Session, Step
from argosy.host.probe import probe_host

VERSION = ".".join(map(str, sys.version_info[:3]))
TAG = sys.implementation.cache_tag


class Python(FakeRunner):
    """Compiles what the list names with this Python, as the environment's own would inside."""

    layer = Path()

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:  # noqa: ARG002 - as a runner
        self.seen.append(command)
        own = self.layer.parent / "list"
        listed = command.argv[-2]
        text = (self.layer.parent / f"work{listed.removeprefix(WORK_INSIDE)}").read_text()
        own.write_text(text.replace(ENV_PREFIX, f"{self.layer}{ENV_PREFIX}"))
        put = {f"{ENV_PREFIX}/bin/python": sys.executable, listed: str(own)}
        words = [put.get(word, word) for word in command.argv[command.argv.index(PLAIN[0]) :]]
        done = subprocess.run(words, check=False, capture_output=True)
        return Reply(done.returncode, "", done.stderr.decode())


@pytest.fixture
def build_container(tmp_path: Path) -> BuildContainer:
    runner = Python()
    runner.layer = tmp_path / "layer"
    (tmp_path / "work").mkdir()
    paths = Paths(tmp_path / "cache", tmp_path / "state", ())
    session = Session(probe_host(), runner, paths, QuietReporter())
    return BuildContainer(
        Choice("build-backend", "root", "a test", "machine"), RootfsSpec("", 0, "/"), str(tmp_path), session
    )


def find_target_site(build_container: BuildContainer) -> Path:
    return Path(build_container.scratch) / f"layer{ENV_PREFIX}/lib/python3.11/site-packages"


def put(build_container: BuildContainer, name: str, text: str) -> Path:
    """Install a package of one module; give where its byte code will lie."""
    site = find_target_site(build_container)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").write_text(text)
    (info / "RECORD").write_text(f"{name}/__init__.py,sha256={hash(text)},1\n../../../bin/{name},,\n")
    return site / f"{name}/__pycache__/__init__.{TAG}.pyc"


def compile_now(build_container: BuildContainer, *changed: str) -> int:
    """Compile; give how often Python was started for it."""
    return compile_as(compile_layer, build_container, *changed)


def compile_as(
    compiling: Callable[..., None], build_container: BuildContainer, *changed: str, python: str = VERSION
) -> int:
    runner = build_container.session.runner
    assert isinstance(runner, Python)
    runner.seen.clear()
    folder = Path(build_container.scratch)
    kept = BytecodeCache(folder / "cache/bytecode", python)
    compiling(
        build_container, folder / "layer", folder / "work", kept, set(changed), Step("packages", "", lambda _: None)
    )
    return len(runner.seen)


def test_a_package_is_compiled_once_and_its_byte_code_comes_back_to_the_byte(build_container: BuildContainer) -> None:
    code = put(build_container, "one", "A = 1\n")
    assert compile_now(build_container, "one") == 1
    first = code.read_bytes()
    code.unlink()
    assert compile_now(build_container, "one") == 0
    assert code.read_bytes() == first


def test_another_version_is_compiled_again_beside_old_byte_code(build_container: BuildContainer) -> None:
    code = put(build_container, "one", "A = 1\n")
    compile_now(build_container, "one")
    old = code.read_bytes()
    put(build_container, "one", "A = 2\n")
    assert compile_now(build_container, "one") == 1
    assert code.read_bytes() != old


def test_a_package_whose_record_does_not_match_its_modules_is_compiled_again(
    build_container: BuildContainer,
) -> None:
    code = put(build_container, "one", "A = 1\n")
    compile_now(build_container, "one")
    old = code.read_bytes()
    (code.parent.parent / "__init__.py").write_text("A = 2\n")
    assert compile_now(build_container, "one") == 1
    assert code.read_bytes() != old


def test_unchanged_byte_code_of_an_adopted_layer_is_kept(build_container: BuildContainer) -> None:
    code = put(build_container, "one", "A = 1\n")
    compile_now(build_container, "one")
    code.write_bytes(b"kept")
    put(build_container, "two", "B = 1\n")
    assert compile_now(build_container, "two") == 1
    assert code.read_bytes() == b"kept"


@pytest.mark.parametrize("file", ["0", "list.json"])
@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_damaged_byte_code_in_the_cache_is_compiled_again(
    build_container: BuildContainer, damage: str, file: str
) -> None:
    code = put(build_container, "one", "A = 1\n" * 100)
    compile_now(build_container, "one")
    right = code.read_bytes()
    (place,) = (Path(build_container.scratch) / "cache/bytecode").iterdir()
    kept = place / file
    data = bytearray(kept.read_bytes())
    if damage == "changed":
        data[len(data) // 3] ^= 0xFF
    kept.write_bytes(data[: len(data) // 2] if damage == "cut off" else data)
    assert compile_now(build_container, "one") == 1
    assert code.read_bytes() == right
    assert compile_now(build_container, "one") == 0
    assert code.read_bytes() == right


def test_modules_that_only_pytest_imports_get_no_byte_code(build_container: BuildContainer) -> None:
    put(build_container, "one", "A = 1\n")
    for name in ("one/tests/sub/test_a.py", "one/tests/conftest.py", "one/tests/runner.py", "one/test_of_mine.py"):
        file = find_target_site(build_container) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("T = 1\n")
    assert compile_now(build_container, "one") == 1
    compiled = {Path(path).name.partition(".")[0] for path in codes_of(build_container)}
    assert compiled == {"__init__", "runner", "test_of_mine"}
    assert compile_now(build_container, "two") == 0


def test_an_invalid_module_and_a_module_without_a_package_stop_nothing(build_container: BuildContainer) -> None:
    bad = put(build_container, "bad", "def\n")
    site = find_target_site(build_container)
    (site / "_alone.py").write_text("C = 1\n")
    assert compile_now(build_container, "bad") == 1
    assert not bad.exists()
    assert (site / f"__pycache__/_alone.{TAG}.pyc").is_file()


def put_conda(build_container: BuildContainer, text: str = "A = 1\n") -> None:
    """Make a conda environment anew: a library, a package with byte code of its own, one of pip, one loose module."""
    prefix = Path(build_container.scratch) / f"layer{ENV_PREFIX}"
    shutil.rmtree(prefix, ignore_errors=True)
    put(build_container, "one", "P = 1\n")
    for module, written in (("os.py", "O = 1\n"), ("site-packages/a/__init__.py", text), ("by_a_script.py", "S = 1\n")):
        file = prefix / "lib/python3.11" / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written)
    own = prefix / f"lib/python3.11/site-packages/a/__pycache__/__init__.{TAG}.pyc"
    own.parent.mkdir()
    own.write_bytes(b"the package's own")
    (prefix / "lib/python3.1").symlink_to("python3.11")
    (prefix / "conda-meta").mkdir()
    for name, module in (("python", "os.py"), ("a", "site-packages/a/__init__.py")):
        record = {"name": name, "files": [f"lib/python3.11/{module}", "../../outside.py", f"bin/{name}"]}
        (prefix / f"conda-meta/{name}-1.0-0.json").write_text(json.dumps(record))


def codes_of(build_container: BuildContainer) -> dict[str, bytes]:
    library = Path(build_container.scratch) / f"layer{ENV_PREFIX}/lib/python3.11"
    return {str(path.relative_to(library)): path.read_bytes() for path in library.rglob("*.pyc")}


def test_a_conda_environment_is_compiled_once_even_if_packages_contain_byte_code(
    build_container: BuildContainer,
) -> None:
    put_conda(build_container)
    assert compile_as(compile_conda, build_container, "one") == 1
    first = codes_of(build_container)
    paths = ("__pycache__/os", "__pycache__/by_a_script", "site-packages/a/__pycache__/__init__")
    assert set(first) == {f"{each}.{TAG}.pyc" for each in (*paths, "site-packages/one/__pycache__/__init__")}
    assert {code[4] for code in first.values()} == {1}  # PEP 552: hash-based, unchecked
    put_conda(build_container)
    assert compile_as(compile_conda, build_container, "one") == 0
    assert codes_of(build_container) == first


def test_byte_code_of_pip_packages_serves_environments_of_conda_and_others(build_container: BuildContainer) -> None:
    put(build_container, "one", "P = 1\n")
    compile_now(build_container, "one")
    (place,) = (Path(build_container.scratch) / "cache/bytecode").iterdir()
    put_conda(build_container)
    compile_as(compile_conda, build_container, "one")
    code = find_target_site(build_container) / f"one/__pycache__/__init__.{TAG}.pyc"
    assert code.samefile(place / "0")


@pytest.mark.parametrize("change", ["a module", "the Python"])
def test_a_conda_package_with_another_module_or_python_is_compiled_again(
    build_container: BuildContainer, change: str
) -> None:
    put_conda(build_container)
    compile_as(compile_conda, build_container)
    first = codes_of(build_container)
    put_conda(build_container, "A = 2\n" if change == "a module" else "A = 1\n")
    assert (
        compile_as(
            compile_conda, build_container, python=f"{VERSION}{' of another day' if change == 'the Python' else ''}"
        )
        == 1
    )
    changed = {path for path, code in codes_of(build_container).items() if code != first[path]}
    assert changed == ({f"site-packages/a/__pycache__/__init__.{TAG}.pyc"} if change == "a module" else set())


def test_a_module_that_is_a_link_is_compiled_each_time_and_one_to_nowhere_never(
    build_container: BuildContainer,
) -> None:
    for times in (1, 1):
        put_conda(build_container)
        site = find_target_site(build_container)
        (site / "linked.py").symlink_to("a/__init__.py")
        (site / "nowhere.py").symlink_to("gone.py")
        assert compile_as(compile_conda, build_container, "one") == times
        found = {Path(path).name for path in codes_of(build_container)}
        assert f"linked.{TAG}.pyc" in found
        assert f"nowhere.{TAG}.pyc" not in found


def test_byte_code_does_not_depend_on_pythons_variables(
    build_container: BuildContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = put(build_container, "one", "A = {'x', 'y', 'z'} - set()\nprint(__debug__)\n")
    compile_now(build_container, "one")
    first = code.read_bytes()
    shutil.rmtree(Path(build_container.scratch) / "cache")
    hostile = Path(build_container.scratch) / "hostile"
    hostile.mkdir()
    (hostile / "compileall.py").write_text("raise SystemExit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(hostile))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.chdir(hostile)
    assert compile_now(build_container, "one") == 1
    assert code.read_bytes() == first


FULL = """\
import builtins, errno, os
there = builtins.open
class Full:
    def __init__(self, file): self.file = file
    def __enter__(self): return self
    def __exit__(self, *_): self.file.close()
    def write(self, data):
        self.file.write(data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
builtins.open = lambda name, mode="r", **rest: Full(there(name, mode)) if mode == "xb" else there(name, mode, **rest)
"""


def run_compile(program: str, *modules: Path) -> subprocess.CompletedProcess[str]:
    words = modules[0].parent / "compile.txt"
    words.write_text("root \n" + "".join(f"{module}\n" for module in modules))
    command = (sys.executable, "-B", "-s", "-S", "-c", program, str(words), "2")
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_byte_code_is_equal_to_pythons_own(tmp_path: Path) -> None:
    taken = [Path(module.__file__ or "") for module in (json, shutil, subprocess, py_compile, pytest)]
    modules = [Path(shutil.copy(module, tmp_path / f"m{number}.py")) for number, module in enumerate(taken)]
    assert run_compile(COMPILE, *modules).returncode == 0
    for module in modules:
        made = Path(importlib.util.cache_from_source(str(module)))
        ours = made.read_bytes()
        py_compile.compile(str(module), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        # Which of its parts byte code names twice depends on what else is in memory: compared is what is loaded.
        assert ours[:16] == made.read_bytes()[:16]
        assert marshal.loads(ours[16:]) == marshal.loads(made.read_bytes()[16:])  # noqa: S302 - it was made above


def test_a_full_disk_is_reported_and_leaves_no_partial_byte_code(tmp_path: Path) -> None:
    modules = [tmp_path / "a.py", tmp_path / "b.py"]
    for module in modules:
        module.write_text("A = 1\n")
    done = run_compile(FULL + COMPILE, *modules)
    assert done.returncode == 1
    assert "a.py: No space left on device" in done.stderr
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_package_is_compiled_in_the_same_order_whatever_else_there_is_and_on_however_many_processors(
    build_container: BuildContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytecode, "GROUP_BYTES", 40_000)

    def groups() -> list[list[str]]:
        text = (Path(build_container.scratch) / "list").read_text()
        return [[Path(line).stem for line in group.splitlines()[1:]] for group in text.split("\n\n")]

    def fill(*names: str) -> None:
        shutil.rmtree(Path(build_container.scratch) / "layer", ignore_errors=True)
        for name in names:
            put(build_container, name, f"'{name}'\n")
            site = find_target_site(build_container)
            for number in range(70):
                (site / name / f"{name}{number:02}.py").write_text(f"A = {number} in {{'x', 'y'}}\n" * (number + 1))
            record = site / f"{name}-1.0.dist-info/RECORD"
            record.write_text("".join(f"{name}/{file.name},,\n" for file in (site / name).glob("*.py")))
        (find_target_site(build_container) / "loose.py").write_text("A = 1\n")

    ones = sorted(("__init__", *(f"one{number:02}" for number in range(70))))
    fill("one")
    compile_now(build_container, "one")
    first, loose, second = sorted(groups())
    assert (first + second, loose) == (ones, ["loose"])
    alone = codes_of(build_container)
    shutil.rmtree(Path(build_container.scratch) / "cache")
    fill("one", "two")
    compile_now(build_container, "one", "two")
    assert groups().count(first) == groups().count(second) == 1
    assert {path: code for path, code in codes_of(build_container).items() if "/two" not in path} == alone
