"""Make the images that are measured, once, and keep them beside the lab's root; it measures nothing.

debian + packages, packed as one file  ->  base.sif     what a vendor's image is: packages in the system's Python
base.sif + other packages              ->  delta.sif    base and layer, as `argosy build` makes them
                                       ->  flat.sif     the same with --flatten
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from argosy.builder.build import build_image
from argosy.builder.records import BuildRequest
from argosy.core.cache import fill_once
from argosy.core.process import RealRunner
from argosy.core.session import Paths, PlainReporter, QuietReporter, Session
from argosy.core.store import remove_path, work_folder
from argosy.host.probe import probe_host
from argosy.images.flat import FlatLayer, base_source, layer_source
from argosy.images.open import open_image
from argosy.images.rootfs_cache import unpack_cached
from argosy.images.sif.write import FileSlice, plan_system_part, write_sif
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.superblock import Source

SUITE = "debian:bookworm"
SOURCE = Path(__file__).parents[1] / "src/argosy"
SHAPES_AN_IMAGE = ("core/layout.py", "builder/**/*.py", "images/sif/*.py", "images/squashfs/*.py", "recipes/lock.py")
"""The program's own files that decide what is in an image: when they change, the images are made anew."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the images of one size are made of: lines of requirements files."""

    name: str
    base: tuple[str, ...]
    layer: tuple[str, ...]


FULL = Recipe("full", ("tensorflow-cpu", "scikit-learn"), ("pandas", "matplotlib", "pyarrow"))
QUICK = Recipe("quick", ("packaging",), ("numpy",))


@dataclass(frozen=True)
class Inputs:
    """The images of one size; what no part asks for is not made."""

    recipe: Recipe
    session: Session
    base: Path

    @cached_property
    def delta(self) -> Path:
        """Give the image of base and layer."""
        return _made_image(self, "delta")

    @cached_property
    def flat(self) -> Path:
        """Give the same as one part."""
        return _made_image(self, "flat")

    @cached_property
    def base_tree(self) -> Path:
        """Unpack the base of `delta`."""
        return self._unpacked("base", base_source(open_image(self.delta).image))

    @cached_property
    def layer_tree(self) -> Path:
        """Unpack the layer of `delta`."""
        layer = layer_source(open_image(self.delta).image)
        if layer is None:
            raise RuntimeError(f"{self.delta} has no layer")
        return self._unpacked("layer", layer)

    @cached_property
    def base_bytes(self) -> int:
        """Add up the regular files of the base."""
        return tree_bytes(self.base_tree)

    @cached_property
    def layer_bytes(self) -> int:
        """Add up the regular files of the layer."""
        return tree_bytes(self.layer_tree)

    def _unpacked(self, part: str, source: Source | FlatLayer) -> Path:
        return unpack_cached(self.session, source, key=f"{self.delta.parents[1].name}-{part}")


def bench_folder() -> Path:
    """Give the folder that everything made for measuring lies in; every user may read it."""
    own = "" if os.geteuid() == 0 else f"-{os.geteuid()}"
    folder = Path(os.environ.get("ARGOSY_LAB") or f"/var/tmp/argosy-lab{own}") / "bench"  # noqa: S108 - the lab's place
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def bench_cache() -> Path:
    """Give the cache for making images; Debian bases are those that the tests keep, too."""
    cache, bases = bench_folder() / "cache", bench_folder().parent / "cache" / "bases"
    cache.mkdir(exist_ok=True)
    bases.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (cache / "bases").symlink_to(bases)
    return cache


def open_session(cache: Path, *, quiet: bool = True) -> Session:
    """Give a session of this machine whose cache is `cache`."""
    reporter = QuietReporter() if quiet else PlainReporter()
    return Session(probe_host(), RealRunner(), Paths(cache, cache / "state", ()), reporter, work=str(cache / "work"))


def make_inputs(recipe: Recipe) -> Inputs:
    """Make the base of one size, or find it made; the images are made when they are asked for."""
    session = open_session(bench_cache(), quiet=False)
    return Inputs(recipe, session, made_base(recipe, session))


def tree_bytes(tree: Path) -> int:
    """Add up the sizes of the regular files below a folder."""
    return sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())


def made_base(recipe: Recipe, session: Session) -> Path:
    """Make a vendor's image: packages lie where the system's own Python finds them, and nothing is Argosy's."""
    place = bench_folder() / f"base-{recipe.name}-{_digest(SUITE, *recipe.base)}"
    with fill_once(place, what=f"making {place.name}", waiting=session.waiting) as folder:
        if folder is None:
            return place / "base.sif"
        with work_folder(session.work_parent()) as work:
            made = _build(recipe.base, SUITE, work / "vendor.sif", session, flatten=True)
            image = open_image(made).image
            whole = FileSlice(made, image.base_offset, image.base_size)
            tree = work / "root"
            shutil.move(unpack_cached(session, whole, key=f"{work.name}-vendor"), tree)
            _into_system_python(tree)
            run_pack(session, tree, work / "base.sqfs", time=0)
            part = FileSlice(work / "base.sqfs", 0, (work / "base.sqfs").stat().st_size)
            system = plan_system_part(part, arch=image.arch)
            write_sif(folder / "base.sif", [system], uuid=uuid.uuid4(), time=0, arch=image.arch)
            remove_path(session.paths.cache / "trees" / f"{work.name}-vendor")
    return place / "base.sif"


def _into_system_python(tree: Path) -> None:
    """Move what Argosy installed to where a vendor installs, and take Argosy's own files out."""
    packages = next(tree.glob("opt/argosy/env/lib/python3*/site-packages"))
    target = tree / "usr/local/lib" / packages.parent.name / "dist-packages"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    packages.rename(target)
    for own in (
        *target.glob("_virtualenv*"),
        tree / ".singularity.d/env/98-argosy.sh",
        tree / "etc/profile.d/zz-argosy.sh",
    ):
        own.unlink(missing_ok=True)
    remove_path(tree / "opt/argosy")


def _made_image(inputs: Inputs, name: str) -> Path:
    recipe, session = inputs.recipe, inputs.session
    own = [path.read_text() for pattern in SHAPES_AN_IMAGE for path in sorted(SOURCE.glob(pattern))]
    prefix = f"images-{recipe.name}-"
    together = bench_folder() / (prefix + _digest(str(inputs.base), *recipe.layer, *own))
    if not together.exists():
        _remove_others(prefix, session)
        together.mkdir(exist_ok=True)
    with fill_once(together / name, what=f"making {name} of {together.name}", waiting=session.waiting) as folder:
        if folder is not None:
            _build(recipe.layer, str(inputs.base), folder / f"{name}.sif", session, flatten=name == "flat")
    return together / name / f"{name}.sif"


def _remove_others(prefix: str, session: Session) -> None:
    """Remove the images that an older state of the program made, and every unpacked tree: each can be made again."""
    old = [*bench_folder().glob(f"{prefix}*"), *(session.paths.cache / "trees").glob("*")]
    for folder in old:
        if folder.is_dir():
            remove_path(folder)


def _build(lines: tuple[str, ...], base: str, output: Path, session: Session, *, flatten: bool) -> Path:
    requirements = output.with_suffix(".txt")
    requirements.write_text("".join(f"{line}\n" for line in lines))
    build_image(BuildRequest((requirements,), base, output, flatten=flatten), session)
    return output


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
