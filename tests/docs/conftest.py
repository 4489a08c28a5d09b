"""Read the pages of the documentation, and run their console blocks; it knows nothing of what the commands mean.

A page is run from top to bottom in a folder of its own:

=====================  =============================================================================================
```console             each ``$ command`` is run here, and what it prints is compared
```console lab         likewise, on the login node of the lab's Slurm cluster
```console lab soak    likewise, where time is (``make soak``)
```LANGUAGE file=NAME  is written to that file first
``<!-- needs: … -->``  what lies in the folder before the first command: ``digits.sif``, ``examples``, …
=====================  =============================================================================================

A line that is ``…`` stands for any lines, ``…`` within a line for any text; times, sizes and digests may differ.  A
command that fails must be followed by ``$ echo $?``.  Every other block is for reading only.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from argosy.images.sif_read import read_sif

REPO = Path(__file__).parents[2]
KEPT = Path(os.environ.get("ARGOSY_LAB", "/var/tmp/argosy-lab")) / "cache"  # noqa: S108 - kept between runs on purpose
FOLDER_IN_DOCS = "/home/ada/project"
SOAK = bool(os.environ.get("ARGOSY_SOAK"))
PATIENCE_S = 300  # a hang ends here; no test is about time
PROGRAMS = ("bwrap", "mksquashfs", "unsquashfs", "mmdebstrap")
DIGITS = "argosy build examples/digits/environment.yml --base debian:bookworm -o digits.sif"
VENDOR_TORCH = "2.9.0a0+145a3a7bda.nv25.10"

FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: (?P<names>[^>]*) -->")
PROGRESS = re.compile(r"^(packages {4}|(base|pack) {8})\S.*\n?", re.MULTILINE)
"""A line that a log gets where a step is silent for long: on a busy machine, and not on another."""
MEASURED = (
    (re.compile(r"\b\d+(\.\d+)? (bytes|[kMG]B)\b(?!/s)"), "N MB"),
    (re.compile(r"\b\d+(\.\d+)?(?= (s|seconds)\b)"), "N"),
    (re.compile(r"(?<=\(base )\d+, packages \d+, pack \d+(, clean up \d+)?"), "N"),
    (re.compile(r"(?<=loss )\d+\.\d+"), "N"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:N"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and what the page says that it prints."""

    words: str
    expected: str
    line: int
    lab: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be done for one page."""

    path: Path
    needs: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]


Said = tuple[int, str]
"""Exit code of a command, and what it printed, both streams as on a terminal."""

Run = Callable[[str], Said]


def read_page(path: Path) -> Page:
    """Read a page's blocks."""
    text = path.read_text()
    files: list[tuple[str, str]] = []
    commands: list[Command] = []
    for block in FENCE.finditer(text):
        kind, *more = block["info"].split()
        files += [(word.removeprefix("file="), block["body"]) for word in more if word.startswith("file=")]
        if kind == "console" and (SOAK or "soak" not in more):
            first = text.count("\n", 0, block.start("body")) + 1
            commands += read_commands(block["body"], first, lab="lab" in more)
    needs = tuple(name for found in NEEDS.finditer(text) for name in found["names"].split())
    return Page(path, needs, tuple(files), tuple(commands))


def read_commands(body: str, first: int, *, lab: bool = False) -> Iterator[Command]:
    """Take a block apart at its prompts; a command that ends with a backslash goes on in the next line."""
    number, lines = first, body.splitlines()
    while lines:
        start, words = number, lines.pop(0)
        if not words.startswith("$ "):
            raise ValueError(f"line {start}: a console block begins with '$ ', not {words!r}")
        while words.endswith("\\") and lines:
            words += "\n" + lines.pop(0)
        expected: list[str] = []
        while lines and not lines[0].startswith("$ "):
            expected.append(lines.pop(0))
        number += words.count("\n") + 1 + len(expected)
        yield Command(words.removeprefix("$ "), "\n".join(expected), start, lab)


def neutral(text: str) -> str:
    """Give a text without what depends on the machine's speed: numbers that were measured, lines of progress."""
    text = PROGRESS.sub("", text)
    for pattern, letter in MEASURED:
        text = pattern.sub(letter, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def agrees(expected: str, printed: str) -> bool:
    """Tell whether a command printed what the page says."""
    parts = ("(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in neutral(expected).splitlines())
    return re.fullmatch("".join(parts), neutral(printed) + "\n" * bool(printed.strip("\n"))) is not None


def _line(expected: str) -> str:
    return ".*".join(map(re.escape, expected.split("…"))) + "\n"


def run_page(page: Page, run: Run, lab: Run | None = None) -> None:
    """Run a page's commands in order and fail at the first that does not do what the page says."""
    before = 0
    for index, command in enumerate(page.commands):
        start = lab if command.lab else run
        assert start is not None
        code, text = start(f"(exit {before})\n{command.words}")
        place = f"{os.path.relpath(page.path, REPO)}:{command.line}: $ {command.words}"
        if not agrees(command.expected, text):
            pytest.fail(f"{place}\nprints something else (exit {code}):\n{_difference(command.expected, text)}")
        following = page.commands[index + 1].words if index + 1 < len(page.commands) else ""
        if code and following != "echo $?":
            pytest.fail(f"{place}\nends with code {code}, and the page does not say so:\n{text}")
        before = code


def _difference(expected: str, printed: str) -> str:
    page, program = neutral(expected).splitlines(), neutral(printed).splitlines()
    return "\n".join(difflib.unified_diff(page, program, "the page", "the program", lineterm=""))


@dataclass(slots=True)
class Shop:
    """What pages are run with: one cache, and the images that they need, each made once."""

    folder: Path
    built: dict[str, tuple[Path, Said]] = field(default_factory=dict)

    def here(self, project: Path, words: str) -> Said:
        """Run a command on this machine; a build of the same words as before gives the same image again."""
        build = words.partition("\n")[2]
        if build == DIGITS:
            self.digits()
        if build in self.built:
            image, said = self.built[build]
            (project / image.name).symlink_to(image)
            return said
        return self.start(project, words)

    def start(self, project: Path, words: str) -> Said:
        """Run a command in a clean environment, and show paths as the pages do."""
        done = subprocess.run(
            ("/bin/sh", "-c", words),
            cwd=project,
            env=self.environment(project),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout.replace(str(project), FOLDER_IN_DOCS)

    def environment(self, project: Path) -> dict[str, str]:
        """Give the environment of a user; what this machine must know to reach an index is kept."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "ARGOSY_DEBIAN"))}
        return kept | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ["HOME"],
            "LANG": "C.UTF-8",
            "PWD": str(project),
            "ARGOSY_CACHE": str(self.folder / "cache"),
            "ARGOSY_STATE": str(self.folder / "state"),
        }

    def put(self, name: str, project: Path) -> None:
        """Put what a page needs into its folder."""
        if name == "examples":
            shutil.copytree(REPO / "examples", project / name)
        elif name == "digits.sif":
            (project / name).symlink_to(self.digits())
        elif name == "vendor.sqfs":
            (project / name).symlink_to(self.vendor())
        else:
            raise ValueError(f"no page can need {name!r}")

    def digits(self) -> Path:
        """Build the image of the tutorial with the tutorial's own words, once."""
        if DIGITS not in self.built:
            project = self.folder / "digits"
            project.mkdir()
            self.put("examples", project)
            said = self.start(project, DIGITS)
            assert said[0] == 0, said[1]
            self.built[DIGITS] = (project / "digits.sif", said)
        return self.built[DIGITS][0]

    def vendor(self) -> Path:
        """Make a stand-in for a vendor's image: a Debian with a torch of its own, which computes nothing."""
        base = self.folder / "vendor.sqfs"
        if base.exists():
            return base
        debian, tree = read_sif(self.digits()).parts[0], self.folder / "vendor"
        words = ("unsquashfs", "-quiet", "-no-progress", "-o", str(debian.offset), "-d", tree, self.digits())
        subprocess.run(words, check=True, capture_output=True)
        site = tree / "usr/local/lib/python3.11/dist-packages"
        info = site / f"torch-{VENDOR_TORCH}.dist-info"
        info.mkdir(parents=True)
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text(f'__version__ = "{VENDOR_TORCH}"\n')
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {VENDOR_TORCH}\n")
        (info / "RECORD").write_text("torch/__init__.py,,\n")
        packed = ("mksquashfs", tree, base, "-comp", "zstd", "-Xcompression-level", "1", "-quiet", "-no-progress")
        subprocess.run(packed, check=True, capture_output=True)
        shutil.rmtree(tree)
        return base


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    """Open the shop: bases, tools and downloads are kept on this machine, everything else is this run's own."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="argosy-docs-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "cache").mkdir()
    for name in ("bases", "tools", "uv"):
        (KEPT / name).mkdir(parents=True, exist_ok=True)
        (folder / "cache" / name).symlink_to(KEPT / name)
    yield Shop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def load(name: str, path: Path) -> ModuleType:
    """Import a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


LAB = load("lab_fixtures", REPO / "tests/lab/conftest.py")
example_image = load("slurm_fixtures", REPO / "tests/lab/slurm/conftest.py").example_image
lab = LAB.lab
cluster = LAB.cluster


@pytest.fixture
def open_page() -> Callable[[Path], Page]:
    """Give the reader of pages."""
    return read_page


@pytest.fixture
def compare() -> Callable[[str, str], bool]:
    """Give the comparison of what a page says with what a command printed."""
    return agrees


@pytest.fixture
def follow() -> Callable[..., None]:
    """Give what runs a page."""
    return run_page


@pytest.fixture
def reload() -> Callable[[str, Path], ModuleType]:
    """Give the importer of files that belong to no package."""
    return load


@pytest.fixture
def lab_image(shop: Shop) -> Callable[[str], Path]:
    """Give what finds an image that pages of the lab need by its name: the tutorial's, or an example's."""
    return lambda name: shop.digits() if name == "digits.sif" else example_image(name.removesuffix(".sif"))


def pages(*, lab: bool) -> Sequence[Path]:
    """List the pages with console blocks: those that need the lab's cluster, or those that do not."""
    every = (
        REPO / "README.md",
        *sorted((REPO / "docs").rglob("*.md")),
        *sorted((REPO / "examples").rglob("README.md")),
    )
    read = ((path, read_page(path).commands) for path in every)
    return [path for path, commands in read if commands and any(command.lab for command in commands) == lab]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `page_here` or `page_in_lab` each such page."""
    for name, in_lab in (("page_here", False), ("page_in_lab", True)):
        if name in metafunc.fixturenames:
            found = pages(lab=in_lab)
            metafunc.parametrize(name, found, ids=[str(path.relative_to(REPO)) for path in found])
