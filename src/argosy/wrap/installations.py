"""Put an installation that is on disk already, or was packed elsewhere, into the layer of an image, at a fixed path."""

from __future__ import annotations

import os
import re
import shutil
import stat
from importlib.metadata import PathDistribution
from pathlib import Path

import msgspec

from argosy.builder.backends.container import find_build_container
from argosy.builder.backends.plan import list_backends
from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.choose import open_default_base
from argosy.builder.downloads import static_uv
from argosy.builder.output.assemble import write_delta
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import (
    APPTAINER_BASE,
    APPTAINER_ENV,
    ENTER,
    ENV_PREFIX,
    ENV_SCRIPT,
    LOCK,
    PROFILE,
    ROOT,
    Activation,
    render_apptainer_base,
    render_enter,
    render_env_script,
    render_source_line,
)
from argosy.core.model import Bind
from argosy.core.process import Command, run_checked
from argosy.core.session import Session
from argosy.core.store import link_or_copy, work_folder
from argosy.images.identify import Kind, identify_file
from argosy.images.open import GO_ARCH
from argosy.images.sif.write import whole_of
from argosy.images.squashfs.pack import run_pack
from argosy.images.tree_digests import digest_tree
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, SourceKind, Tools, render_lock
from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.recipe import Recipe as Wanted
from argosy.recipes.uv_options import plan_uv_settings
from argosy.version import VERSION
from argosy.wrap.elf import Needs, read_needs
from argosy.wrap.model import InContainer, Recipe

ARCHIVES = frozenset({Kind.TAR})
SHEBANG = re.compile(rb"#!\s*(/\S+)/bin/[^/\s]*python[\d.]*\s")
UNPACK = "bin/conda-unpack"


class Placed(msgspec.Struct, frozen=True):
    """An installation in an image.

    Attributes
    ----------
    at
        Where it is found inside.
    needs
        What its programs need of a machine.
    inside
        Its programs, and what lies beside them: where folders of the host would hide it, no container can be asked.
    base
        The base that was taken.
    """

    image: Path
    at: str
    needs: Needs
    inside: InContainer
    base: str


def pack_folder(recipe: Recipe, folder: Path, session: Session) -> Placed:
    """Make an image of the base and one layer that holds the installation.

    Raises
    ------
    ArgosyError
        When there is no such folder or archive, it is for another kind of machine, or the base cannot be opened.
    """
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
            needs = read_needs(tree / at.lstrip("/"))
            _judge_arch(source, needs, base)
            inside = _list_installation(tree / at.lstrip("/"), at)
            step.result = f"{source} to {at}"
        with session.step("pack", "the layer") as step:
            _finish(tree, at, base, folder / "image.sif", session)
            step.result = "the layer"
    return Placed(folder / "image.sif", at, needs, inside, base.reference)


def bring_file(source: str, target: str) -> None:
    """Bring a file; a socket or a pipe belongs to a program that runs now, and is left out."""
    if stat.S_ISREG(Path(source).lstat().st_mode):
        link_or_copy(source, target)


def _place(recipe: Recipe, source: Path, tree: Path, base: Base, session: Session, work: Path) -> str:
    """Bring the files to where they belong in the layer, and say where that is."""
    if source.is_dir():
        named = _named_prefix(source)
        judge_place(recipe.at, named, source)
        at = recipe.at or named or str(source)
        place = tree / at.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place, symlinks=True, copy_function=bring_file)
        return at
    if identify_file(source).kind not in ARCHIVES:
        hint = "give the folder of an installation, or an archive of conda-pack"
        raise UsageError(f"{source} is {identify_file(source).description}", hint=hint)
    place = work / "unpacked"
    place.mkdir()
    command = Command(("tar", "--extract", "--no-same-owner", "--file", str(source), "--directory", str(place)))
    run_checked(session.runner, command, doing=f"unpacking {source.name}")
    packed, named = (place / UNPACK).is_file(), _named_prefix(place)
    if not packed:
        judge_place(recipe.at, named, source)
    at = recipe.at or (ENV_PREFIX if packed else named)
    if not at:
        raise UsageError(
            f"nothing in {source} says where it was installed",
            hint="name the path its files name: --at /path/of/the/env",
        )
    target = tree / at.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(place, target)
    if packed:
        _relocate(tree, at, base, session, work)
    return at


def _relocate(tree: Path, at: str, base: Base, session: Session, work: Path) -> None:
    """Let conda-pack's own program write the new path into the files, inside, by the environment's own Python."""
    settings = plan_uv_settings(read_pip_config(session.host.environment, Path(session.host.person.home)), Wanted())
    build_container = find_build_container(
        session, base, static_uv(session, settings), work, list_backends(session.host)
    )
    build_container = build_container.with_mounts(Bind(str(tree / at.lstrip("/")), at))
    words = (f"{at}/bin/python", f"{at}/{UNPACK}")
    build_container.run_checked(*words, doing="writing the new path into the files")


def judge_place(at: str, named: str, source: Path) -> None:
    """Refuse another place for an installation than the one that its files name: nothing would be found there.

    Raises
    ------
    UsageError
        With both.
    """
    if at and named and at != named:
        raise UsageError(
            f"{source} cannot be found at {at}: its files name {named}",
            evidence=f"the first line of most programs in {source / 'bin'} begins with #!{named}/bin/python",
            hint="leave --at away, or pack it by conda-pack: such an archive is given the new path",
        )


def _named_prefix(folder: Path) -> str:
    """Give the prefix that most scripts in a ``bin`` name in their first line; empty where none does."""
    counts: dict[str, int] = {}
    for file in sorted((folder / "bin").glob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as text:
                match = SHEBANG.match(text.read(512))
            if match:
                prefix = match[1].decode(errors="replace")
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
        beside=tuple(f"{at}/{name}" for name in sorted(os.listdir(place))),  # noqa: PTH208 - names are wanted
        python=os.path.normpath(target) if target else "",
        venv=tuple((key.strip().lower(), value.strip()) for key, _, value in rows),
    )


def _is_program(path: Path) -> bool:
    """Tell whether a file is a program; a link that leads out of the installation may be one of the base."""
    if path.is_symlink() and path.readlink().is_absolute():
        return path.parent.name == "bin"
    return path.is_file() and os.access(path, os.X_OK)


def _judge_arch(source: Path, needs: Needs, base: Base) -> None:
    if needs.arch and base.image.arch and GO_ARCH.get(needs.arch, needs.arch) != base.image.arch:
        raise CheckFailed(
            f"{source} was made for another kind of machine",
            evidence=f"{needs.program}: {needs.arch}; the base: {base.image.arch}",
            hint="make it on such a machine, or build it here from its environment file",
        )


def _finish(tree: Path, at: str, base: Base, image: Path, session: Session) -> None:
    conda = (tree / at.lstrip("/") / "conda-meta").is_dir()
    identity = [("ARGOSY_PREFIX", ROOT), ("PYTHONNOUSERSITE", "1"), *([("CONDA_PREFIX", at)] if conda else [])]
    activation = Activation(prepend=(("PATH", f"{at}/bin"),), identity=tuple(identity))
    for place, text, mode in (
        (ENTER, render_enter(), 0o755),
        (ENV_SCRIPT, render_env_script(activation), 0o644),
        (APPTAINER_ENV, render_source_line(), 0o755),
        (PROFILE, render_source_line(), 0o644),
        *(() if _has(base, APPTAINER_BASE, session) else ((APPTAINER_BASE, render_apptainer_base(), 0o755),)),
    ):
        file = tree / place.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
    lock = Lock(
        base=LockedBase(base.reference, base.digest, base.image.base_size, base.image.arch),
        tools=Tools(VERSION),
        time=base.time,
        content=digest_tree(tree),
        packages=_packages(tree / at.lstrip("/")),
    )
    (tree / LOCK.lstrip("/")).write_text(render_lock(lock), encoding="utf-8")
    layer = tree.with_suffix(".sqfs")
    run_pack(session, tree, layer, time=base.time)
    write_delta(image, base, lock, (whole_of(layer),))


def _has(base: Base, path: str, session: Session) -> bool:
    offset = str(base.image.base_offset)
    name = path.lstrip("/")
    reply = session.runner.run(Command(("unsquashfs", "-no-progress", "-l", "-o", offset, base.image.path, name)))
    return name in reply.stdout


def _packages(folder: Path) -> tuple[LockedPackage, ...]:
    """List the Python packages of an installation by their metadata."""
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
