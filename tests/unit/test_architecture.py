"""Guards of the architecture: layers, one module that starts programs, answers to CONTRIBUTING's questions."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/argosy"

LAYERS = tuple(
    frozenset(line.split())
    for line in (
        "errors model records shell scrub version layout refusals nearest toml_lines yaml_text progress",
        "process store leases whiteouts uses ssh",
        "recipe project lock relock lock_diff sbom pip_config conda conda_worker sites runtimes schedulers launchers",
        "gpus cdi carriers containers images binding node_picture formats seccomp",
        "gpu_probe probe emulation",
        "session tree_notes trees",
        "asked_command entering opening cache",
        "dev",
        "build wrap startup running launch collectives trials ways lint why verify prove doctor check survey",
        "api compat",
        "cli",
    )
)
"""From the bottom up; a module imports from its own layer and from those below."""

PURE = frozenset(
    "errors model shell layout binding node_picture carriers containers gpus launchers schedulers cdi runtimes".split()  # noqa: SIM905
) | {"formats", "progress", "records"}
"""What never touches the machine: planning."""

INSIDE = {SOURCE / name for name in ("collectives/program.py", "trials/program.py", "launchers/ray.py")}
"""Programs that run in images; nothing of them runs here."""

EFFECTS = {"subprocess", "socket", "shutil", "tempfile", "urllib", "requests"}

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("images", "session"): "finding and fetching an image act for a story",
    ("images", "trees"): "likewise",
    ("images", "build"): "likewise: what is fetched is packed",
}


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent != SOURCE]


IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import|import (\w[\w., ]*))", re.MULTILINE)


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def unit(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Give what a module imports; programs in its strings count as well, and a parser would take a second for all."""
    names: set[str] = set()
    for module, several in IMPORT.findall(text_of(path)):
        names |= {module} if module else {name.split()[0] for name in several.split(",")}
    return names


def layer_of(name: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if name in names)


def test_imports_point_down() -> None:
    for path in modules():
        for name in imports(path):
            if name.startswith("argosy.") and (unit(path), name.split(".")[1]) not in EXCEPTIONS:
                assert layer_of(name.split(".")[1]) <= layer_of(unit(path)), f"{path} imports {name} from above"


def test_planning_never_touches_the_machine() -> None:
    touches = re.compile(r"os\.environ|\bopen\(|\.read_text\(|\.write_text\(|\.exists\(|\.is_file\(")
    pure = [path for path in modules() if unit(path) in PURE and path not in INSIDE]
    assert pure
    for path in pure:
        assert not imports(path) & EFFECTS, path
        assert not touches.search(text_of(path)), path


def test_records_are_structs_whose_classes_cost_a_start_next_to_nothing() -> None:
    assert [unit(path) for path in modules() if "dataclasses" in imports(path)] == ["records"]


def test_one_module_starts_programs() -> None:
    starters = {unit(path) for path in modules() if "subprocess" in imports(path) and path not in INSIDE}
    assert starters == {"process"}


def test_the_conda_worker_alone_loads_rattler_in_a_process_of_its_own() -> None:
    loaders = {unit(path) for path in modules() if any(name.split(".")[0] == "rattler" for name in imports(path))}
    assert loaders == {"conda_worker"}


def test_only_the_probe_and_the_command_line_read_the_environment() -> None:
    readers = {unit(path) for path in modules() if "os.environ" in text_of(path) and path not in INSIDE}
    assert readers <= {"probe", "cli", "process", "leases"}


def test_no_site_is_named_in_python() -> None:
    names = {path.stem for path in (SOURCE / "sites/data").glob("*.toml")} - {"local"}
    for path in modules():
        found = names & set(re.findall(r"[\"']([a-z0-9_-]+)[\"']", text_of(path)))
        assert not found, f"{path} names {found}"


def test_functions_fit_a_screen_and_modules_have_one_purpose() -> None:
    for path in modules():
        assert text_of(path).count("\n") <= 450, f"{path} is too long"
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                assert lines <= 45, f"{path}: {node.name} has {lines} lines"


def test_a_function_that_its_module_alone_uses_begins_with_an_underscore() -> None:
    others = [path for name in ("tests", "bench", "tools", "lab") for path in (ROOT / name).rglob("*.py")]
    texts = [text_of(path) for path in (*modules(), *others, *(ROOT / "docs").rglob("*.md"))]
    users = Counter(word for text in texts for word in set(re.findall(r"\w+", text)))
    for path in modules():
        for node in ast.parse(text_of(path)).body if path not in INSIDE else ():
            if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_"):
                assert users[node.name] > 1, f"{path}: {node.name}"


def test_contributing_names_every_package_and_module_from_the_top_down() -> None:
    rows = re.findall(r"^\| ((?:`\w+` )+)\|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    told = [set(re.findall(r"\w+", row)) for row in rows]
    assert set().union(*told) == set().union(*LAYERS)
    levels = [{layer_of(name) for name in names} for names in told]
    assert [max(above) >= max(below) for above, below in pairwise(levels)] == [True] * (len(levels) - 1)


def questions() -> list[tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(r"^\| (Where .*?\?) \| `grep -rn '(def \w+)' src` \|$", text, re.MULTILINE)


def test_contributing_asks_five_questions() -> None:
    assert len(questions()) == 5


@pytest.mark.parametrize(("question", "pattern"), questions())
def test_each_question_is_answered_by_one_hit(question: str, pattern: str) -> None:
    assert sum(text_of(path).count(pattern) for path in modules()) == 1, question


def test_the_project_does_not_name_the_folder_it_happens_to_lie_in() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("*"), *(ROOT / "lab").rglob("*")]:
        if path.is_file() and path.suffix in {".md", ".py", ".toml", ".sh", ""} and "__pycache__" not in path.parts:
            assert f"{ROOT}/" not in path.read_text(errors="replace"), path


def test_tests_start_commands_through_the_program_whose_options_they_inherit() -> None:
    """A command keeps its help option from its first call: one that was called alone has no ``-h`` ever after."""
    alone = re.compile(r"\(\)\.invoke\((?!app\b)\w+")
    found = [
        f"{path.name}: {hit}" for path in (ROOT / "tests").rglob("*.py") for hit in alone.findall(path.read_text())
    ]
    assert found == []


CLOCKS = frozenset(("time", "monotonic", "perf_counter", "process_time", "getrusage", "elapsed", "took"))
FIGURES = re.compile(r"""\brows\[["'][\w.]+\.(calls|forks|bytes|cpu)""")


def test_no_test_compares_a_time_or_a_figure_with_a_limit() -> None:
    """They depend on the path, on the build of Python and on the load: the bench reports them."""
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        text = text_of(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assert):
                called = {ast.unparse(call.func).rpartition(".")[2] for call in calls_in(node)}
                found += [f"{path.name}:{node.lineno}" for _ in called & CLOCKS]
            elif isinstance(node, ast.Compare) and FIGURES.search(ast.get_source_segment(text, node) or ""):
                found += [f"{path.name}:{node.lineno}" for sign in node.ops if isinstance(sign, (ast.LtE, ast.Lt))]
    assert found == []


def calls_in(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


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
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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
