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
import itertools
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.python.base_python import BasePython, library_folders, site_folders
from argosy.builder.python.bytecode_compiler import render_group, run_compiler
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import decode_json
from argosy.core.session import Step
from argosy.core.shared_folders import share_new
from argosy.core.store import link_or_copy, make_folder, part_name, remove_path

BYTECODE = "bytecode"
"""Folder of the cache."""

MODULE_LIST = "list.json"

METHOD = 4
"""Version of the compile method.  A new method may give other bytes, so that cached byte code is not used."""


class CachedFile(msgspec.Struct, frozen=True, array_like=True):
    """A cached file: its path below the root of its package's modules, and the CRC-32 of its bytes.

    The checksum reveals files that a crash has truncated.
    """

    path: str
    crc: int


class ModuleList(msgspec.Struct, frozen=True):
    """List the modules of a package, as paths below a folder of the environment."""

    root: Path
    paths: tuple[str, ...]


class BytecodeCache(msgspec.Struct, frozen=True):
    """Cache byte code for one Python."""

    folder: Path
    """Folder in the cache."""
    python: str
    """The ``sys.version`` of the Python that loads the byte code."""

    @property
    def tag(self) -> str:
        """The tag in the names of this Python's byte code files."""
        major, minor, *_ = self.python.split(".")
        return f"cpython-{major}{minor}"

    def entry(self, package: ModuleList) -> Path:
        """Return the cache folder for the byte code of a package's modules with their present content."""
        root, digest = str(package.root), hashlib.sha256(f"{METHOD} {self.python}".encode())
        for module in package.paths:
            with suppress(OSError):
                text = _read(f"{root}/{module}")
                digest.update(f"\0{module}\0{len(text)}\0".encode() + text)
        return self.folder / digest.hexdigest()

    def restore(self, package: ModuleList, entry: Path) -> bool:
        """Link a package's cached byte code to its modules, and remove other code; return whether it was cached."""
        self.drop(package)
        root = package.root
        with suppress(OSError, ValueError, msgspec.DecodeError):
            cached = decode_json((entry / MODULE_LIST).read_bytes(), tuple[CachedFile, ...])
            if not {each.path for each in cached} <= set(self._codes(package)):
                raise ValueError("byte code of other modules")
            for folder in {each.path.rpartition("/")[0] for each in cached}:
                (root / folder).mkdir(parents=True, exist_ok=True)
            if all(_link_valid(f"{entry}/{n}", f"{root}/{each.path}", each.crc) for n, each in enumerate(cached)):
                return True
        self.drop(package)  # files that were linked before a damaged one was found
        return False

    def store(self, package: ModuleList, entry: Path) -> None:
        """Store the compiled byte code of a package, replacing an entry that could not be restored."""
        root = package.root
        beside = part_name(entry)
        cached: list[CachedFile] = []
        try:
            with translate_os_errors(entry.parent):
                make_folder(beside)
                for code in self._codes(package):
                    with suppress(FileNotFoundError):
                        cached.append(CachedFile(code, zlib.crc32(_read(f"{root}/{code}"))))
                        link_or_copy(f"{root}/{code}", f"{beside}/{len(cached) - 1}")
                (beside / MODULE_LIST).write_bytes(msgspec.json.encode(cached))
                share_new(beside)
                remove_path(entry)
                with suppress(FileExistsError):  # another build stored the same meanwhile
                    beside.rename(entry)
        finally:
            remove_path(beside)

    def _codes(self, package: ModuleList) -> Iterator[str]:
        """Return the paths of a package's byte code files below its root."""
        for module in package.paths:
            folder, slash, file = module.rpartition("/")
            yield f"{folder}{slash}__pycache__/{file.removesuffix('.py')}.{self.tag}.pyc"

    def drop(self, package: ModuleList) -> None:
        """Remove the byte code of a package's modules."""
        root = str(package.root)
        for code in self._codes(package):
            with suppress(FileNotFoundError):
                os.unlink(f"{root}/{code}")  # noqa: PTH108 - 10,000 of them


def _wheel_modules(site: Path, record: Path) -> ModuleList:
    """Return the modules that a wheel's RECORD lists."""
    rows = csv.reader(record.read_text(errors="replace", encoding="utf-8").splitlines())
    paths = (row[0] for row in rows if row and row[0].endswith(".py"))
    return ModuleList(site, tuple(path for path in paths if not path.startswith("/") and ".." not in path))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - 10,000 of them
        return file.read()


def _link_valid(cached: str, target: str, crc: int) -> bool:
    """Link a cached file to a target, unless it is damaged."""
    if zlib.crc32(_read(cached)) != crc:
        return False
    link_or_copy(cached, target)
    return True


GROUP_BYTES = 3 << 20
"""Size of the modules of a package that one process compiles, about 0.4 s; the byte code depends on it.  Each process
takes 6 ms more than its modules, mostly for page faults."""

TESTS = frozenset({"test", "tests"})
"""Names of folders of tests inside packages."""


class Record(msgspec.Struct, frozen=True):
    """A record of ``conda-meta``: the files of an installed package, as paths below the prefix."""

    files: tuple[str, ...] = ()


def compile_layer(
    build_container: BuildContainer, layer: Path, work: Path, cache: BytecodeCache, changed: Collection[str], step: Step
) -> None:
    """Add byte code for every module of the layer's pip packages, from the cache or by compiling.

    Parameters
    ----------
    work
        Folder of the layer's work files, mounted at `WORK_INSIDE`.
    changed
        Names of the packages that were just installed: their existing byte code belongs to an older version.
    """
    for site in site_folders(layer):
        _compile(build_container, (layer, site), work, cache, _wheels(site, changed), step)


def compile_conda(
    build_container: BuildContainer,
    layer: Path,
    work: Path,
    cache: BytecodeCache,
    changed: Collection[str],
    step: Step,
    besides: Collection[str] = (),
) -> None:
    """Add byte code for every module of a new conda environment, replacing that of the packages.

    Parameters are those of `compile_layer`; `changed` names packages of pip.

    Parameters
    ----------
    besides
        Paths in the layer of modules that do not get byte code.
    """
    omitted = {f"{layer}/{path}" for path in besides}
    prefix = layer / ENV_PREFIX.lstrip("/")
    records = [decode_json(file.read_bytes(), Record).files for file in sorted(prefix.glob("conda-meta/*.json"))]
    for library in library_folders(layer):
        new = _wheels(library / "site-packages", changed)
        found = (path for _, path, _ in _modules(str(library), cache.tag))
        files = (path for path in found if path not in omitted and not os.path.islink(path))  # noqa: PTH114 - 10,000
        rest = {path[len(f"{prefix}/") :] for path in files}
        for package in new:
            rest -= {f"{package.root}/{path}"[len(f"{prefix}/") :] for path in package.paths}
        for listed in (*records, tuple(rest)):  # link scripts created the files that no package lists
            own = tuple(sorted(rest.intersection(listed)))
            rest.difference_update(own)
            new.append(ModuleList(prefix, own))
        packages = [package for package in new if package.paths]
        _compile(build_container, (layer, library), work, cache, packages, step, omitted)


def _wheels(site: Path, changed: Collection[str]) -> list[ModuleList]:
    """Return the modules of each package in `site` that pip just installed."""
    records = sorted(site.glob("*.dist-info/RECORD"))
    return [_wheel_modules(site, record) for record in records if _name_of(record) in changed]


def _compile(
    build_container: BuildContainer,
    folders: tuple[Path, Path],
    work: Path,
    cache: BytecodeCache,
    new: Collection[ModuleList],
    step: Step,
    omitted: Collection[str] = (),
) -> None:
    """Compile the modules in a folder of the layer that have no byte code, and cache that of the new packages."""
    layer, folder = folders
    prefix = layer / ENV_PREFIX.lstrip("/")
    entries = ((package, cache.entry(package)) for package in new)
    missing = [(package, entry) for package, entry in entries if not cache.restore(package, entry)]
    found = _modules(str(folder), cache.tag)
    todo = [(path, size) for size, path, compiled in found if not compiled and path not in omitted]
    if not todo:
        return
    groups = _groups(dict(todo), [package for package, _ in missing])
    step.say(f"compiling byte code: {len(todo)} modules")
    run_compiler(build_container, work, [render_group("", prefix, group) for group in groups], step.say)
    for package, entry in missing:
        cache.store(package, entry)


def compile_wheels(
    build_container: BuildContainer, trees: Mapping[str, Path], work: Path, cache: BytecodeCache
) -> None:
    """Add byte code to wheels that are unpacked each into a tree of its own, as `compile_layer` does in a layer.

    Parameters
    ----------
    trees
        The trees by the names of the packages, below `work`.
    cache
        Not filled: the packed wheels contain the byte code.
    """
    groups = list[tuple[int, str]]()
    for name, tree in trees.items():
        for site in site_folders(tree):
            packages = _wheels(site, {name})
            for package in packages:
                cache.drop(package)
            sizes = {path: size for size, path, _ in _modules(str(site), cache.tag)}
            groups += _render_groups(sizes, packages, tree, work)
    _compile_groups(build_container, work, groups)


def compile_conda_packages(build_container: BuildContainer, trees: Mapping[str, Path], work: Path, python: str) -> None:
    """Add byte code to conda packages that are linked each into a tree of its own, as `compile_conda` does in a layer.

    Parameters
    ----------
    trees
        The trees by the names of the packages, below `work`.
    """
    cache, groups = BytecodeCache(Path(), python), list[tuple[int, str]]()
    for tree in trees.values():
        prefix = tree / ENV_PREFIX.lstrip("/")
        for library in library_folders(tree):
            sizes = {path: size for size, path, _ in _modules(str(library), cache.tag)}
            package = ModuleList(prefix, tuple(path[len(f"{prefix}/") :] for path in sizes))
            cache.drop(package)
            groups += _render_groups(sizes, [package], tree, work)
    _compile_groups(build_container, work, groups)


def _render_groups(
    sizes: Mapping[str, int], packages: Iterable[ModuleList], tree: Path, work: Path
) -> Iterator[tuple[int, str]]:
    """Render the groups of the modules in an unpacked tree, each with its size."""
    root, prefix = f"{WORK_INSIDE}/{tree.relative_to(work)}", tree / ENV_PREFIX.lstrip("/")
    for group in _groups(sizes, packages):
        yield sum(sizes[path] for path in group), render_group(root, prefix, group)


def _compile_groups(build_container: BuildContainer, work: Path, groups: Collection[tuple[int, str]]) -> None:
    """Compile rendered groups, the largest first."""
    if groups:
        run_compiler(build_container, work, [text for _, text in sorted(groups, reverse=True)])


def _groups(sizes: Mapping[str, int], packages: Iterable[ModuleList]) -> list[list[str]]:
    """Group the modules of each package, and those of no package, in the order of their paths; largest group first.

    The modules that a process compiles before a given module are then always the same, independent of other packages
    and of the number of processors.
    """
    rest, groups = set(sizes), list[list[str]]()
    for package in packages:
        own = sorted(rest.intersection(f"{package.root}/{module}" for module in package.paths))
        groups += _split(own, sizes)
        rest.difference_update(own)
    groups += _split(sorted(rest), sizes)
    return sorted(groups, key=lambda group: -sum(sizes[path] for path in group))


def _split(paths: Collection[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Split modules where their total size exceeds a multiple of `GROUP_BYTES`."""
    ends = zip(paths, itertools.accumulate(sizes[path] for path in paths), strict=True)
    for _, group in itertools.groupby(ends, key=lambda end: end[1] // GROUP_BYTES):
        yield [path for path, _ in group]


@contextmanager
def recompiling_changed_modules(
    build_container: BuildContainer, layer: Path, python: BasePython | None, step: Step
) -> Iterator[None]:
    """Compile again the modules that the user's scripts or steps change in the block.

    Python does not check byte code of images, so it would use the old one.
    """
    mark, work = layer.with_name("mark"), layer.with_name("uv")
    mark.touch()  # the clock of the file system may differ from this machine's
    yield
    if not python:
        return
    cache = BytecodeCache(build_container.session.paths.cache / BYTECODE, python.build)
    for module in (module for site in site_folders(layer) for module in site.rglob("*.py")):
        if module.lstat().st_ctime_ns > mark.stat().st_ctime_ns:
            (module.parent / "__pycache__" / f"{module.stem}.{cache.tag}.pyc").unlink(missing_ok=True)
    work.mkdir(exist_ok=True)
    own = Bind(str(layer / ROOT.lstrip("/")), ROOT)
    compile_layer(build_container.with_mounts(own, Bind(str(work), WORK_INSIDE)), layer, work, cache, (), step)


def _name_of(record: Path) -> str:
    return canonicalize_name(record.parent.name.removesuffix(".dist-info").rpartition("-")[0])


def _modules(folder: str, tag: str, *, tests: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Find modules: size, path, and whether they have byte code; byte code of a link does not count.

    Test modules are skipped, a quarter of the code of a hundred packages: nobody imports them, and pytest compiles them
    itself (https://docs.pytest.org/en/stable/how-to/assert.html).
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
