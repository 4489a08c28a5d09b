"""Compile the modules of a layer to byte code, each package once per machine.

Compiling takes most of an installation's time, and gives the same bytes for the same package, Python and path.  The
cache therefore stores the byte code of a package under the digest of its modules.  The digest covers their content,
because a package's list of files may be wrong, and conda writes the prefix into some modules.

Files in the layer are hard links to the cache.  Creating 10,000 new files takes longer than the rest of an installation
from the cache, because ext4 passes over each inode that was freed a moment ago.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.python.base_python import BasePython, library_folders, site_folders
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import Step
from argosy.core.store import remove_tree

BYTECODE = "bytecode"
"""Folder of the cache."""

MODULE_LIST = "list.json"

WAY = 2
"""Number of the way in which byte code is compiled: another way may give other bytes, which are not taken."""


class BytecodeCache(msgspec.Struct, frozen=True, array_like=True):
    """A file of byte code: its path below the root of its package's modules, and the CRC-32 of its bytes.

    A crash may cut off what was written last; the sum tells.
    """

    path: str
    crc: int


class Modules(msgspec.Struct, frozen=True):
    """The modules of a package, as paths below a folder of the environment, which is at the same place in each."""

    root: Path
    paths: tuple[str, ...]


class Compiled(msgspec.Struct, frozen=True):
    """Where byte code is kept, and for what.

    Attributes
    ----------
    folder
        Of the cache.
    python
        What the Python that loads it says of itself; its version comes first.
    """

    folder: Path
    python: str

    @property
    def tag(self) -> str:
        """Give what Python puts into the names of its byte code; another Python's is compiled and not kept."""
        major, minor, *_ = self.python.split(".")
        return f"cpython-{major}{minor}"

    def place(self, package: Modules) -> Path:
        """Give the folder that keeps the byte code of a package's modules as they are."""
        root, digest = str(package.root), hashlib.sha256(f"{WAY} {self.python}".encode())
        for module in package.paths:
            with suppress(OSError):
                text = _read(f"{root}/{module}")
                digest.update(f"\0{module}\0{len(text)}\0".encode() + text)
        return self.folder / digest.hexdigest()

    def bring(self, package: Modules, place: Path) -> bool:
        """Put the byte code of a package that is kept to its modules, and no other; tell whether it is kept."""
        self._drop(package)
        root = package.root
        with suppress(OSError, ValueError, msgspec.DecodeError):
            kept = msgspec.json.decode((place / MODULE_LIST).read_bytes(), type=tuple[BytecodeCache, ...])
            if not {each.path for each in kept} <= set(self._codes(package)):
                raise ValueError("byte code of other modules")
            for folder in {each.path.rpartition("/")[0] for each in kept}:
                (root / folder).mkdir(parents=True, exist_ok=True)
            if all(_bring(f"{place}/{number}", f"{root}/{each.path}", each.crc) for number, each in enumerate(kept)):
                return True
        self._drop(package)  # what was brought before something damaged was met
        return False

    def keep(self, package: Modules, place: Path) -> None:
        """Keep what was compiled for a package, instead of what was kept for it and could not be brought."""
        root = package.root
        beside = place.with_name(f".{place.name}.{os.urandom(4).hex()}.part")
        kept: list[BytecodeCache] = []
        try:
            with translate_os_errors(place.parent):
                beside.mkdir(parents=True)
                for code in self._codes(package):
                    with suppress(FileNotFoundError):
                        kept.append(BytecodeCache(code, zlib.crc32(_read(f"{root}/{code}"))))
                        _link(f"{root}/{code}", f"{beside}/{len(kept) - 1}")
                (beside / MODULE_LIST).write_bytes(msgspec.json.encode(kept))
                remove_tree(place)
                with suppress(FileExistsError):  # another build kept the same meanwhile
                    beside.rename(place)
        finally:
            remove_tree(beside)

    def _codes(self, package: Modules) -> Iterator[str]:
        """Give where the byte code of a package's modules lies, as paths below its root."""
        for module in package.paths:
            folder, slash, file = module.rpartition("/")
            yield f"{folder}{slash}__pycache__/{file.removesuffix('.py')}.{self.tag}.pyc"

    def _drop(self, package: Modules) -> None:
        root = str(package.root)
        for code in self._codes(package):
            with suppress(FileNotFoundError):
                os.unlink(f"{root}/{code}")  # noqa: PTH108 - 10,000 of them


def _wheel_modules(site: Path, record: Path) -> Modules:
    """Give what a wheel's RECORD names as its modules."""
    rows = csv.reader(record.read_text(errors="replace", encoding="utf-8").splitlines())
    paths = (row[0] for row in rows if row and row[0].endswith(".py"))
    return Modules(site, tuple(path for path in paths if not path.startswith("/") and ".." not in path))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - 10,000 of them
        return file.read()


def _bring(kept: str, target: str, crc: int) -> bool:
    if zlib.crc32(_read(kept)) != crc:
        return False
    _link(kept, target)
    return True


def _link(source: str, target: str) -> None:
    """Give a file a second name; a copy where that cannot be had (another file system, another user's file)."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


LIST = "compile.txt"
GROUP = 64
"""Modules of a package that one process compiles; a number of their own would make byte code another's."""

TESTS = frozenset({"test", "tests"})
"""Names of folders of tests inside packages."""

PLAIN = ("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME", "PYTHONHASHSEED=0")
START = (*PLAIN, f"{ENV_PREFIX}/bin/python", "-B", "-s", "-S", "-W", "ignore", "-c")
"""The environment's Python with none but its own modules.  Up to Python 3.10 byte code holds sets in the order in which
they hash, which -I would leave to chance."""

COMPILE = """\
import sys
sys.path.remove("")
import errno, importlib.util, marshal, os
if not hasattr(importlib.util, "source_hash"):
    sys.exit()  # Python 3.6 and older: byte code that nobody checks is not known
# The tree is read-only: no stat() for each import, the same bytes each time.
UNCHECKED = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
ENDING = ".%s.pyc" % sys.implementation.cache_tag

def compile_file(path):
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except Exception:
        return  # test data of packages often is no valid Python
    folder, _, name = path.rpartition("/")
    folder += "/__pycache__"
    write(folder, name[:-3] + ENDING, UNCHECKED + importlib.util.source_hash(source) + marshal.dumps(code))

def write(folder, name, data):
    target = folder + "/" + name
    os.makedirs(folder, exist_ok=True)
    if os.path.isfile(target):
        os.unlink(target)  # it may be the cache's too
    try:
        with open(target, "xb") as file:
            file.write(data)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            os.unlink(target)
        raise

def compile_group(paths):
    for path in paths:
        try:
            compile_file(path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                sys.stderr.write("%s: %s\\n" % (path, os.strerror(error.errno)))
                sys.stderr.flush()
                return 1
    return 0

text = open(sys.argv[1], encoding="utf-8", errors="surrogateescape").read()
groups = [group.split("\\n") for group in text[:-1].split("\\n\\n")]
waiting, most, started, done, ended = groups[::-1], int(sys.argv[2]), {}, 0, False
while waiting or started:
    if waiting and len(started) < most:
        group = waiting.pop()
        child = os.fork()
        if not child:
            os._exit(compile_group(group))
        started[child] = len(group)
        continue
    child, code = os.wait()
    if code:
        waiting, ended = [], True
    done += started.pop(child)
    sys.stderr.write("compiling byte code: %d of %d modules\\n" % (done, sum(map(len, groups))))
    sys.stderr.flush()
if ended:
    sys.exit("a compiling process was ended")
"""
"""Runs under the environment's Python, as compileall does, which takes a tenth more time and says nothing of a full
disk.  What cannot be compiled or written for another reason is left out.

Each group of modules gets a process that has compiled nothing before: Python's byte code says which parts of it are
used twice, and counts what earlier modules left in memory."""


class Record(msgspec.Struct, frozen=True):
    """What a file of ``conda-meta`` says of an installed package: its files, as paths below the prefix."""

    files: tuple[str, ...] = ()


def compile_layer(
    build_container: BuildContainer, layer: Path, work: Path, kept: Compiled, changed: Collection[str], step: Step
) -> None:
    """Give every module of the layer's packages its byte code, from the cache or by compiling.

    Parameters
    ----------
    work
        Folder of the layer's work files, which the room has at `WORK_INSIDE`.
    changed
        Names of the packages that were just installed: byte code of theirs that is there is an older version's.

    Raises
    ------
    ToolFailed
        When the environment's Python cannot run.
    """
    for site in site_folders(layer):
        _compile(build_container, (layer, site), work, kept, _wheels(site, changed), step)


def compile_conda(
    build_container: BuildContainer, layer: Path, work: Path, kept: Compiled, changed: Collection[str], step: Step
) -> None:
    """Give every module of a new conda environment its byte code, whatever packages brought of their own.

    Parameters and errors are those of `compile_layer`; `changed` are pip's.
    """
    prefix = layer / ENV_PREFIX.lstrip("/")
    records = [
        msgspec.json.decode(file.read_bytes(), type=Record).files for file in sorted(prefix.glob("conda-meta/*.json"))
    ]
    for library in library_folders(layer):
        new = _wheels(library / "site-packages", changed)
        found = (path for _, path, _ in _modules(str(library), kept.tag))
        rest = {path[len(f"{prefix}/") :] for path in found if not os.path.islink(path)}  # noqa: PTH114 - 10,000
        for package in new:
            rest -= {f"{package.root}/{path}"[len(f"{prefix}/") :] for path in package.paths}
        for files in (*records, tuple(rest)):  # what no package names was made by link scripts
            own = tuple(sorted(rest.intersection(files)))
            rest.difference_update(own)
            new.append(Modules(prefix, own))
        _compile(build_container, (layer, library), work, kept, [package for package in new if package.paths], step)


def _wheels(site: Path, changed: Collection[str]) -> list[Modules]:
    """Give the modules of each package in `site` that pip just installed."""
    records = sorted(site.glob("*.dist-info/RECORD"))
    return [_wheel_modules(site, record) for record in records if _name_of(record) in changed]


def _compile(
    build_container: BuildContainer,
    place: tuple[Path, Path],
    work: Path,
    kept: Compiled,
    new: Collection[Modules],
    step: Step,
) -> None:
    """Compile in a folder of the layer what has no byte code, and keep that of the new packages."""
    layer, folder = place
    prefix = layer / ENV_PREFIX.lstrip("/")
    paths = ((package, kept.place(package)) for package in new)
    missing = [(package, at) for package, at in paths if not kept.bring(package, at)]
    todo = [(path, size) for size, path, compiled in _modules(str(folder), kept.tag) if not compiled]
    if not todo:
        return
    groups = _groups(dict(todo), [package for package, _ in missing])
    inside = ("".join(f"{ENV_PREFIX}{path[len(str(prefix)) :]}\n" for path in group) for group in groups)
    (work / LIST).write_text("\n".join(inside), encoding="utf-8")
    step.say(f"compiling byte code: {len(todo)} modules")
    build_container.run_checked(
        *(*START, COMPILE, f"{WORK_INSIDE}/{LIST}", str(build_container.session.host.cpus)),
        doing="compiling byte code",
        on_line=step.say,
    )
    for package, at in missing:
        kept.keep(package, at)


def _groups(sizes: Mapping[str, int], packages: Iterable[Modules]) -> list[list[str]]:
    """Put modules into groups, the largest first: those of one package, and those of none, in the order of their paths.

    So what is compiled before a module is the same whatever else there is to compile, and on however many processors.
    """
    rest, parts = set(sizes), list[list[str]]()
    for package in packages:
        parts.append(sorted(rest.intersection(f"{package.root}/{module}" for module in package.paths)))
        rest.difference_update(parts[-1])
    parts.append(sorted(rest))
    groups = [paths[first : first + GROUP] for paths in parts for first in range(0, len(paths), GROUP)]
    return sorted(groups, key=lambda group: -sum(sizes[path] for path in group))


@contextmanager
def recompiling_changed_modules(
    build_container: BuildContainer, layer: Path, python: BasePython | None, step: Step
) -> Iterator[None]:
    """Compile anew what the block writes, as a user's scripts and steps do: their old byte code would be used unseen.

    Parameters
    ----------
    python
        That of the environment; None where it has none.

    Raises
    ------
    ToolFailed
        When the environment's Python cannot run.
    """
    mark, work = layer.with_name("mark"), layer.with_name("uv")
    mark.touch()  # the file system's own clock
    yield
    if not python:
        return
    kept = Compiled(build_container.session.paths.cache / BYTECODE, python.build)
    for module in (module for site in site_folders(layer) for module in site.rglob("*.py")):
        if module.lstat().st_ctime_ns > mark.stat().st_ctime_ns:
            (module.parent / "__pycache__" / f"{module.stem}.{kept.tag}.pyc").unlink(missing_ok=True)
    work.mkdir(exist_ok=True)
    own = Bind(str(layer / ROOT.lstrip("/")), ROOT)
    compile_layer(build_container.with_mounts(own, Bind(str(work), WORK_INSIDE)), layer, work, kept, (), step)


def _name_of(record: Path) -> str:
    return str(canonicalize_name(record.parent.name.removesuffix(".dist-info").rpartition("-")[0]))


def _modules(folder: str, tag: str, *, tests: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Find modules: size, path, and whether they have byte code; a link's does not count, its source being unknown.

    Those in which pytest looks for tests are left out, a quarter of a hundred packages' code: nobody imports them, and
    pytest compiles them anew in its own way (https://docs.pytest.org/en/stable/how-to/assert.html).
    """
    with os.scandir(folder) as scan:
        entries = list(scan)
    there: set[str] = set()
    with suppress(FileNotFoundError):
        there = set(os.listdir(f"{folder}/__pycache__"))  # noqa: PTH208 - no Path for each
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _modules(entry.path, tag, tests=tests or entry.name in TESTS)
        elif tests and (entry.name.startswith("test_") or entry.name == "conftest.py"):
            continue
        elif entry.name.endswith(".py") and entry.is_file() and "\n" not in entry.path:
            compiled = f"{entry.name[:-3]}.{tag}.pyc" in there and not entry.is_symlink()
            yield entry.stat().st_size, entry.path, compiled
