"""Guards of the architecture that import-linter does not cover; `make check` runs import-linter itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/argosy"

PACKAGES = frozenset(
    "core host recipes sites images slurm runtimes jobs launch builder wrap diagnostics bench cli".split()  # noqa: SIM905
)
LOOSE = frozenset({"__init__", "__main__", "api", "version"})

RUN_IN_IMAGES = {
    SOURCE / name
    for name in (
        *("bench/collectives_program.py", "bench/nodes_program.py"),
        *("launch/launchers/ray_program.py", "launch/launchers/start_ranks.py"),
    )
}
"""Programs that run inside images, with the image's Python; nothing in Argosy imports them."""


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "templates" not in path.parts)


IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import|import (\w[\w., ]*))", re.MULTILINE)


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a module's syntax tree."""
    return list(ast.walk(ast.parse(text_of(path))))


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of a called function."""
    function = call.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def name_of(path: Path) -> str:
    """Return a module's dotted name below argosy."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    """Return what a module imports; programs in its strings count as well."""
    names: set[str] = set()
    for module, several in IMPORT.findall(text_of(path)):
        names |= {module} if module else {name.split()[0] for name in several.split(",")}
    return names


def test_the_house_has_fourteen_packages_and_no_loose_modules() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == PACKAGES
    assert {path.stem for path in SOURCE.glob("*.py")} <= LOOSE


def test_one_module_starts_programs() -> None:
    starters = {name_of(path) for path in modules() if "subprocess" in imports(path) and path not in RUN_IN_IMAGES}
    assert starters == {"core.process"}


def test_only_the_conda_worker_loads_rattler() -> None:
    loaders = {name_of(path) for path in modules() if any(name.split(".")[0] == "rattler" for name in imports(path))}
    assert loaders == {"recipes.conda_worker"}


def test_few_modules_read_the_environment() -> None:
    readers = {name_of(path) for path in modules() if "os.environ" in text_of(path) and path not in RUN_IN_IMAGES}
    allowed = {"host.probe", "core.process", "core.locks", "recipes.trust"}  # whom a process trusts, as its user id
    assert {name for name in readers if not name.startswith("cli.")} <= allowed


def test_records_are_structs() -> None:
    """A class of `dataclasses` costs a millisecond at each start; a launch needs sixty records."""
    assert [name_of(path) for path in modules() if "dataclasses" in imports(path)] == ["core.records"]


def test_no_site_is_named_in_python() -> None:
    names = {path.stem for path in (SOURCE / "sites/data").glob("*.toml")} - {"local"}
    for path in modules():
        found = names & set(re.findall(r"[\"']([a-z0-9_-]+)[\"']", text_of(path)))
        assert not found, f"{path} names {found}"


def test_functions_fit_a_screen_and_modules_are_short() -> None:
    for path in modules():
        assert text_of(path).count("\n") <= 450, f"{path} is too long"
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                assert lines <= 45, f"{path}: {node.name} has {lines} lines"


def test_a_function_used_only_in_its_module_begins_with_an_underscore() -> None:
    others = [path for name in ("tests", "bench", "tools", "lab") for path in (ROOT / name).rglob("*.py")]
    texts = [text_of(path) for path in (*modules(), *others, *(ROOT / "docs").rglob("*.md"))]
    users = Counter(word for text in texts for word in set(re.findall(r"\w+", text)))
    for path in modules():
        module = nodes_of(path)[0]
        for node in module.body if isinstance(module, ast.Module) and path not in RUN_IN_IMAGES else ():
            if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_"):
                assert users[node.name] > 1, f"{path}: {node.name}"


def test_a_class_name_stands_for_one_thing() -> None:
    """A search for the name of a record finds one record; the programs that run in images are read alone."""
    names = Counter(
        node.name
        for path in modules()
        if path not in RUN_IN_IMAGES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_functions_that_raise_refuse_and_those_that_check_return() -> None:
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef):
                name, returns = node.name.lstrip("_"), ast.unparse(node.returns) if node.returns else ""
                assert not name.startswith(("judge_", "require_", "reject_")), f"{path}: {node.name}"
                assert not name.startswith("refuse_") or returns == "None", f"{path}: {node.name}"
                assert not name.startswith("check_") or returns != "None", f"{path}: {node.name}"


def test_contributing_describes_every_package() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) >= PACKAGES


def questions() -> list[tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^\| (Where .*?\?) \| `(\w+)` \| `grep -rn 'def \w+' src/argosy/\w+` \|$", text, re.MULTILINE)


def answers() -> list[tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^\| Where .*?\? \| `(\w+)` \| `grep -rn '(def \w+)' src/argosy/\1` \|$", text, re.MULTILINE)


def test_contributing_answers_six_questions() -> None:
    assert len(questions()) == len(answers()) == 6


@pytest.mark.parametrize(("package", "pattern"), answers())
def test_each_question_is_answered_by_one_hit_in_its_package(package: str, pattern: str) -> None:
    hits = [name_of(path) for path in modules() if re.search(rf"\b{re.escape(pattern)}\b", text_of(path))]
    assert len(hits) == 1, hits
    assert hits[0].startswith(f"{package}.")


def test_the_project_does_not_name_the_folder_that_it_happens_to_be_in() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("*"), *(ROOT / "lab").rglob("*")]:
        if path.is_file() and path.suffix in {".md", ".py", ".toml", ".sh", ""} and "__pycache__" not in path.parts:
            assert f"{ROOT}/" not in path.read_text(encoding="utf-8", errors="replace"), path


def test_tests_start_commands_through_the_program_whose_options_they_inherit() -> None:
    """A click command keeps its help option from its first call: one that was called alone never has ``-h``."""
    alone = re.compile(r"\(\)\.invoke\((?!app\b)\w+")
    found = [f"{path.name}: {hit}" for path in (ROOT / "tests").rglob("*.py") for hit in alone.findall(text_of(path))]
    assert found == []


CLOCKS = frozenset(("time", "monotonic", "perf_counter", "process_time", "getrusage", "elapsed", "took"))
CLOCK_CALL = re.compile(rf"\b({'|'.join(CLOCKS)})\(")
FIGURES = re.compile(r"""\brows\[["'][\w.]+\.(calls|forks|bytes|cpu)""")


def test_no_test_compares_a_time_or_a_figure_with_a_limit() -> None:
    """They depend on the path, on the build of Python and on the load: the bench reports them."""
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        text = text_of(path)
        if not CLOCK_CALL.search(text) and not FIGURES.search(text):
            continue
        nodes = nodes_of(path)
        clocked = [node for node in nodes if isinstance(node, ast.Assign) and reads_clock(node)]
        timed = {name for node in clocked for name in names_of(node)}
        for node in nodes:
            if isinstance(node, ast.Assert):
                used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                found += [f"{path.name}:{node.lineno}" for _ in (used & timed, reads_clock(node)) if _]
            elif isinstance(node, ast.Compare) and FIGURES.search(ast.get_source_segment(text, node) or ""):
                found += [f"{path.name}:{node.lineno}" for sign in node.ops if isinstance(sign, (ast.LtE, ast.Lt))]
    assert found == []


def reads_clock(node: ast.AST) -> bool:
    return any(called_name(each) in CLOCKS for each in ast.walk(node) if isinstance(each, ast.Call))


def names_of(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def test_functions_that_only_compute_get_no_session() -> None:
    """The names are explained in CONTRIBUTING.md; `argosy.api` has the names of the commands."""
    computing = re.compile(r"_?(plan|render|parse|choose)_")
    found = [
        f"{path.name}: {node.name}"
        for path in SOURCE.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef) and computing.match(node.name) and path.name != "api.py"
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.annotation and ast.unparse(argument.annotation) in {"Session", "Runner"}
    ]
    assert found == []


def test_nothing_starts_a_program_by_a_line_that_takes_no_blank() -> None:
    """The path of a checkout may hold blanks: a ``#!`` line takes none, and in a recipe of make it stands in quotes."""
    line = "#!" + "{sys.executable}"
    assert [path.name for path in (ROOT / "tests").rglob("*.py") if line in text_of(path)] == []
    recipes = [row for row in text_of(ROOT / "Makefile").splitlines() if row.startswith("\t")]
    assert [row for row in recipes if re.search(r'(?<!")\$\((VENV|@|PYTHON)\b', row)] == []
    assert re.findall(r"\$\(VENV\)/bin/(?!python)\S*", text_of(ROOT / "Makefile")) == []


def test_every_text_file_is_read_and_written_as_utf8() -> None:
    """The locale's encoding may be another one, which lacks letters of ours and reads those of files wrongly."""
    bad = [
        f"{path}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        for call in nodes_of(path)
        if isinstance(call, ast.Call) and _opens_text(call) and not any(k.arg == "encoding" for k in call.keywords)
    ]
    assert bad == []


def _opens_text(call: ast.Call) -> bool:
    """Tell whether a call opens a file of text, or a program whose output is text."""
    function = ast.unparse(call.func)
    name, of = function.rpartition(".")[2], function.rpartition(".")[0]
    if name in {"read_text", "write_text"}:
        return bool(of) and of != "store"
    if any(keyword.arg in {"text", "universal_newlines"} for keyword in call.keywords) and of == "subprocess":
        return True
    if name not in {"open", "fdopen"} or of in {"tarfile", "io"} or (of, name) == ("os", "open"):
        return False
    place = 1 if of in {"", "os"} else 0
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] or call.args[place : place + 1]
    return not any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in given)


def test_a_wheel_contains_every_data_file() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    packed = {path for pattern in tool["setuptools"]["package-data"]["argosy"] for path in SOURCE.glob(pattern)}
    data = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in data if path.suffix != ".py"} <= packed
