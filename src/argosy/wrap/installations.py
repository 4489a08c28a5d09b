"""Put an existing installation, from a folder or an archive, into the layer of an image, at a fixed path."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

from argosy.builder.backends.container import find_build_container
from argosy.builder.backends.plan import list_backends
from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.choose import open_default_base
from argosy.builder.downloads import static_uv
from argosy.builder.finish import write_layer_files
from argosy.builder.output.assemble import plan_metadata, write_delta
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import APPTAINER_BASE, ENV_PREFIX, LOCK, ROOT, Activation
from argosy.core.model import Bind
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import link_or_copy, work_folder
from argosy.core.tool_errors import run_checked
from argosy.host.architectures import MACHINES, go_arch
from argosy.images.identify import Kind, identify_file
from argosy.images.rootfs import write_in_root
from argosy.images.sif.write import whole_of
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.tables import READABLE
from argosy.images.tree_digests import digest_tree
from argosy.images.unpack import find_known
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, SourceKind, Tools, render_lock
from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import plan_uv_settings
from argosy.version import VERSION
from argosy.wrap.model import InContainer, Needs, PrefixRecipe, VersionImage

MAGIC = b"\x7fELF"
GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0")
MOST_BYTES = 64 << 20
MOST_FILES = 200


def _read_needs(prefix: Path) -> Needs:
    """Read what the programs and libraries of an installation need: architecture and glibc, from their ELF headers."""
    program, arch, newest, by = "", "", (0, 0), ""
    for path in _binaries(prefix):
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
        if not program:
            program, arch = str(path.relative_to(prefix)), MACHINES.get(int.from_bytes(data[18:20], "little"), "")
        asked = max(((int(m[1]), int(m[2])) for m in GLIBC.finditer(data)), default=(0, 0))
        if asked > newest:
            newest, by = asked, str(path.relative_to(prefix))
    return Needs(program, arch, newest, by)


def _binaries(prefix: Path) -> Iterator[Path]:
    """Yield ELF files, Python and its library first."""
    paths = ("bin/python3*", "lib/libpython3*", "bin/*", "lib/*.so*", "lib/python3*/site-packages/*/*.so")
    seen: set[Path] = set()
    for path in (path for pattern in paths for path in sorted(prefix.glob(pattern))):
        if len(seen) >= MOST_FILES:
            return
        if path in seen or path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                seen.add(path)
                yield path


SHEBANG = re.compile(rb"#!\s*(/\S+)/bin/[^/\s]*python[\d.]*\s")
UNPACK = "bin/conda-unpack"


def pack_folder(recipe: PrefixRecipe, folder: Path, session: Session) -> VersionImage:
    """Write an image of the base and a layer with the installation."""
    source = Path(recipe.sources[0])
    with work_folder(session.work_parent()) as work:
        with session.step("base", recipe.base) as step:
            opening = open_default_base if recipe.default_base else open_base
            base = opening(recipe.base, session, work)
            step.result = base.reference
        with session.step("copy", str(source)) as step:
            tree = work / "layer"
            tree.mkdir()
            at = _place(recipe, source, tree, base, session, work)
            needs = _read_needs(tree / at.lstrip("/"))
            _refuse_other_arch(source, needs, base)
            inside = _list_installation(tree / at.lstrip("/"), at)
            step.result = f"{source} to {at}"
        with session.step("pack", "the layer"):
            _finish(tree, at, base, folder / "image.sif", session)
    return VersionImage(folder / "image.sif", replace(recipe.over(base.reference), at=at), needs, inside)


def link_file(source: str, target: str) -> None:
    """Link or copy a file; skip sockets and pipes, which belong to running programs."""
    if stat.S_ISREG(Path(source).lstat().st_mode):
        link_or_copy(source, target)


def _place(recipe: PrefixRecipe, source: Path, tree: Path, base: Base, session: Session, work: Path) -> str:
    """Copy the files to their path in the layer, and return that path."""
    if source.is_dir():
        named = _named_prefix(source)
        refuse_other_place(recipe.at, named, source)
        at = recipe.at or named or str(source)
        place = tree / at.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place, symlinks=True, copy_function=link_file)
        return at
    if identify_file(source).kind is not Kind.TAR:
        hint = "pass the folder of an installation, or a conda-pack archive"
        raise UsageError(f"{source} is {identify_file(source).description}", hint=hint)
    place = work / "unpacked"
    place.mkdir()
    command = Command(("tar", "--extract", "--no-same-owner", "--file", str(source), "--directory", str(place)))
    run_checked(session.runner, command, doing=f"unpacking {source.name}")
    packed, named = (place / UNPACK).is_file(), _named_prefix(place)
    if not packed:
        refuse_other_place(recipe.at, named, source)
    at = recipe.at or (ENV_PREFIX if packed else named)
    if not at:
        raise UsageError(
            f"cannot find out where {source} was installed",
            hint="pass the path that its files contain: --at /path/of/the/env",
        )
    target = tree / at.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(place, target)
    if packed:
        _relocate(tree, at, base, session, work)
    return at


def _relocate(tree: Path, at: str, base: Base, session: Session, work: Path) -> None:
    """Write the new path into the files: run conda-unpack in the container, with the environment's own Python."""
    settings = plan_uv_settings(read_pip_config(session.host.environment, Path(session.host.person.home)), Recipe())
    build_container = find_build_container(
        session, base, static_uv(session, settings), work, list_backends(session.host)
    )
    build_container = build_container.with_mounts(Bind(str(tree / at.lstrip("/")), at))
    build_container.run_checked(f"{at}/bin/python", f"{at}/{UNPACK}", doing="writing the new path into the files")


def refuse_other_place(at: str, named: str, source: Path) -> None:
    """Refuse a path for an installation that differs from the one in its files."""
    if at and named and at != named:
        raise UsageError(
            f"cannot put {source} at {at}: its files contain the path {named}",
            evidence=f"the first line of most programs in {source / 'bin'} begins with #!{named}/bin/python",
            hint="omit --at, or use a conda-pack archive, which Argosy can move to another path",
        )


def _named_prefix(folder: Path) -> str:
    """Return the prefix in the first lines of most scripts of a ``bin``; empty if there is none."""
    counts: dict[str, int] = {}
    for file in sorted((folder / "bin").glob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as text:
                match = SHEBANG.match(text.read(512))
            if match:
                prefix = os.path.normpath(match[1].decode(errors="replace"))  # ".." must not lead out of the layer
                counts[prefix] = counts.get(prefix, 0) + 1
    known = {prefix: count for prefix, count in counts.items() if prefix not in {"/usr", "/usr/local", ""}}
    return max(known, key=lambda prefix: known[prefix], default="")


def _list_installation(place: Path, at: str) -> InContainer:
    """List every program of an installation, as it will be found at `at`."""
    programs: list[str] = []
    for folder, _, names in os.walk(place):
        inside = at + folder.removeprefix(str(place))
        programs += (f"{inside}/{name}" for name in sorted(names) if _is_program(Path(folder, name)))
    python, target = place / "bin/python", ""
    if os.path.lexists(python):
        target = f"{at}/bin/{python.readlink() if python.is_symlink() else 'python'}"
    config = place / "pyvenv.cfg"
    rows = (line.partition("=") for line in config.read_text(encoding="utf-8").splitlines()) if config.is_file() else ()
    return InContainer(
        programs=tuple(programs),
        neighbours=tuple(f"{at}/{name}" for name in sorted(os.listdir(place))),  # noqa: PTH208 - names are wanted
        python=os.path.normpath(target) if target else "",
        venv=tuple((key.strip().lower(), value.strip()) for key, _, value in rows),
    )


def _is_program(path: Path) -> bool:
    """Return whether a file is a program; a link out of the installation may lead to a program of the base."""
    if path.is_symlink() and path.readlink().is_absolute():
        return path.parent.name == "bin"
    return path.is_file() and os.access(path, os.X_OK)


def _refuse_other_arch(source: Path, needs: Needs, base: Base) -> None:
    if needs.arch and base.image.arch and go_arch(needs.arch) != base.image.arch:
        raise CheckFailed(
            f"{source} was built for another architecture",
            evidence=f"{needs.program}: {needs.arch}; the base: {base.image.arch}",
            hint="wrap it on such a machine, or build it here from its environment file",
        )


def _finish(tree: Path, at: str, base: Base, image: Path, session: Session) -> None:
    conda = (tree / at.lstrip("/") / "conda-meta").is_dir()
    identity = [("ARGOSY_PREFIX", ROOT), ("PYTHONNOUSERSITE", "1"), *([("CONDA_PREFIX", at)] if conda else [])]
    activation = Activation(prepend=(("PATH", f"{at}/bin"),), identity=tuple(identity))
    write_layer_files(tree, activation, has_apptainer_base=_has_apptainer_base(base, session))
    lock = Lock(
        base=LockedBase(base.reference, base.digest, base.source.length, base.image.arch),
        tools=Tools(VERSION),
        time=base.time,
        content=digest_tree(tree),
        packages=_packages(tree / at.lstrip("/")),
    )
    write_in_root(tree, LOCK, render_lock(lock))
    layer = tree.with_suffix(".sqfs")
    run_pack(session, tree, layer, time=base.time)
    write_delta(image, base, lock, (whole_of(layer),), plan_metadata(base.opened.sif, lock))


def _has_apptainer_base(base: Base, session: Session) -> bool:
    """Return whether the base itself has the file; the new image does not contain the base's layer."""
    if base.packing.compressor in READABLE:
        return bool(find_known(base.source, (APPTAINER_BASE,)))
    # This partition contains no layer: Argosy packs such a base and its layer again, with zstd.
    name, offset = APPTAINER_BASE.lstrip("/"), str(base.image.base_offset)
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-l", "-o", offset, base.image.path, name)))
    return name in reply.stdout


def _packages(folder: Path) -> tuple[LockedPackage, ...]:
    """Return the Python packages of an installation, from their metadata."""
    found: dict[str, LockedPackage] = {}
    for info in sorted(folder.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        try:
            metadata = PathDistribution(info)
            package = LockedPackage(metadata.name or name, metadata.version or version, source=SourceKind.LOCAL)
        except (ValueError, KeyError, TypeError):
            continue
        found[package.name] = package
    return tuple(found.values())
