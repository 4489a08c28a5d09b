"""Run uv in the container of a build, with the layer and the cache of packages mounted."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from argosy.builder.backends.container import UV_INSIDE, WORK_INSIDE, BuildContainer
from argosy.builder.python.base_python import BasePython
from argosy.builder.python.pins import Pin, vendor_builds
from argosy.builder.python.sources import bring_in, set_versions, write_git_home
from argosy.builder.python.uv_output import NO_SOLUTION, explain_uv
from argosy.core.cache import is_pinned_by_others, pin_entry
from argosy.core.layout import ROOT
from argosy.core.locks import deferred_signals, is_older
from argosy.core.model import Bind
from argosy.core.os_errors import discard
from argosy.core.process import OnLine, Reply
from argosy.core.records import replace
from argosy.core.render import DAY
from argosy.core.session import Session, Step
from argosy.core.shared_folders import is_shared
from argosy.core.store import is_foreign, make_folder, remove_path
from argosy.recipes.uv_options import UvSettings

CACHE_INSIDE = "/.argosy/uv-cache"
SHARED_INSIDE = "/.argosy/shared"
BUILT_WHEELS = "wheels"
"""Folder of built wheels in the installer's work folder."""

UV = "uv"
"""Folder of Argosy's cache for uv's cache, and the name of its pins."""

BY_BASE = "by-base"
"""Folder of uv's cache for packages that were built from source, in a folder for each base."""

TEMPORARY = (".tmp*", f"{BY_BASE}/*/.tmp*", f"{BY_BASE}/*/builds-v*/.tmp*")
"""uv's temporary folders in its cache."""

OF_BUILDS = ("sdists-", "builds-")
"""Beginnings of the names of uv's folders for sources and what was built from them."""

REQUIRE_HASHES = "--require-hashes"

MINORS = range(8, 15)
"""Minor versions of Python 3 for which uv can choose packages (uv 0.13), up to the newest release."""

UV_VARIABLES = (
    ("UV_LINK_MODE", "copy"),  # the cache is another mount in the container: see `LINK_LAYER` for hard links
    ("UV_NO_CONFIG", "1"),
    ("UV_NO_INSTALLER_METADATA", "1"),  # direct_url.json, INSTALLER and REQUESTED would name this machine
    ("UV_NO_PROGRESS", "1"),
    ("UV_PYTHON_DOWNLOADS", "never"),
    ("PYTHONHASHSEED", "0"),
    ("TMPDIR", f"{WORK_INSIDE}/temporary"),
    ("HOME", f"{WORK_INSIDE}/home"),
)

CANNOT_LINK = 96
"""Exit code of `LINK_LAYER` if the link cannot be made."""

LINK_LAYER = Path(__file__).with_name("link-layer.sh").read_text(encoding="utf-8")
"""Links the layer's path into the mount that also holds the cache: hard links do not cross mounts.  Copies of 20,000
files take five times as long, and as much again to remove them (ext4)."""


class Installer(msgspec.Struct, frozen=True):
    """Install packages into one layer."""

    build_container: BuildContainer
    python: BasePython
    settings: UvSettings
    layer: Path
    work: Path
    """The layer's tree, and a folder for small files; both on disk."""
    fresh: bool = False
    """Whether to build packages again, because a cached build may belong to another torch."""
    builds: str = ""
    """Folder in the cache whose builds from source may be used (`separate_builds`); empty: the cache itself."""
    activated: str = ""
    """Shell text that runs before uv and its builds, and sets the environment's own variables."""
    prepare: PreparePins | None = None
    """Returns the pins to install for the chosen pins; None to install the chosen ones."""
    unseen: tuple[str, ...] = ()
    """A vendor's builds in the base that uv does not see: in a virtual environment, it sees only its own packages."""
    compared: tuple[str, ...] = ()
    """A vendor's builds in the base that uv compares with requirements, instead of accepting them for all."""
    wheels_only: tuple[str, ...] = ()
    """Packages of which uv must not choose a version without a wheel, which it would build."""
    shared: Path | None = None
    """Folder on this machine that contains the cache and the layer, so that files of the layer can be hard links to
    the cache, if nothing changes them later.  None to copy them."""

    @property
    def choosing(self) -> tuple[str, ...]:
        """The options for choosing versions, without the check of hashes, which are known only afterwards."""
        wheels = (argument for name in self.wheels_only for argument in ("--only-binary", name))
        return (*(argument for argument in self.settings.arguments if argument != REQUIRE_HASHES), *wheels)

    @property
    def installing(self) -> tuple[str, ...]:
        """The options for installing pins, without constraints, for which uv would require hashes, too."""
        pairs = zip(("", *self.choosing), self.choosing, strict=False)
        kept = (argument for before, argument in pairs if "--constraints" not in {before, argument})
        return (*kept, *self.settings.own)

    def into(self, layer: Path) -> Installer:
        """Return the same installer for another tree."""
        tree = layer / ROOT.lstrip("/")
        kept = (bind for bind in self.build_container.binds if bind.target != ROOT)
        container = replace(self.build_container, binds=(Bind(str(tree), ROOT), *kept))
        return replace(self, build_container=container, layer=layer)

    def after(self, pins: Iterable[Pin], executable: str = "") -> Installer:
        """Return an installer for packages that are built against installed ones.

        Parameters
        ----------
        executable
            The Python of the virtual environment that contains them; empty if the present Python finds them.
        """
        added = {pin.package.name: pin.package.version for pin in pins}
        packages = tuple({**dict(self.python.packages), **added}.items())
        python = replace(self.python, executable=executable or self.python.executable, packages=packages)
        unseen = tuple(name for name in vendor_builds(self.python.packages) if executable and name not in added)
        return replace(self, python=python, unseen=unseen, fresh=True)

    def uv(self, *arguments: str, on_line: OnLine | None = None) -> Reply:
        """Run uv in the container."""
        return self.build_container.run(*self._start(arguments), variables=self.variables(), on_line=on_line)

    def _start(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        text = ("umask g=rwx\n" if self.is_cache_shared else "") + self.activated
        before = ("/bin/sh", "-c", f'{text}exec "$@"', "sh") if text else ()
        return (*before, UV_INSIDE, *arguments)

    @property
    def is_cache_shared(self) -> bool:
        """Whether the users of a group share the cache: then uv's files in it are writable for them."""
        caches = [bind.source for bind in self.build_container.binds if bind.target in {CACHE_INSIDE, SHARED_INSIDE}]
        return any(is_shared(Path(cache)) for cache in caches)

    def uv_installing(self, *arguments: str, on_line: OnLine | None = None) -> Reply:
        """Run uv to write files into the layer, as hard links to its cache if possible."""
        if self.shared and not self.fresh:
            reply = self._uv_linking(self.shared, arguments, on_line)
            if reply.code != CANNOT_LINK:
                return reply
        return self.uv(*arguments, on_line=on_line)

    def _uv_linking(self, shared: Path, arguments: tuple[str, ...], on_line: OnLine | None) -> Reply:
        inside = {
            bind.target: f"{SHARED_INSIDE}/{Path(bind.source).resolve().relative_to(shared)}"
            for bind in self.build_container.binds
            if bind.target in {ROOT, CACHE_INSIDE}
        }
        kept = tuple(bind for bind in self.build_container.binds if bind.target not in inside)
        build_container = replace(self.build_container, binds=(*kept, Bind(str(shared), SHARED_INSIDE)))
        linking = (("UV_CACHE_DIR", str(Path(inside[CACHE_INSIDE], self.builds))), ("UV_LINK_MODE", "hardlink"))
        start = ("/bin/sh", "-c", LINK_LAYER, "sh", ROOT, inside[ROOT])
        return build_container.run(
            *start, *self._start(arguments), variables=(*self.variables(), *linking), on_line=on_line
        )

    def uv_checked(self, *arguments: str, doing: str) -> Reply:
        """Run uv, and raise an error that explains its failure."""
        return self._checked(self.uv(*arguments), arguments, doing)

    def uv_installing_checked(self, *arguments: str, doing: str, on_line: OnLine | None = None) -> Reply:
        """Run `uv_installing`, and raise an error that explains its failure."""
        return self._checked(self.uv_installing(*arguments, on_line=on_line), arguments, doing)

    def _checked(self, reply: Reply, arguments: tuple[str, ...], doing: str) -> Reply:
        if reply.code != 0:
            raise explain_uv(
                self.build_container, arguments, reply, doing=doing, settings=self.settings,
                find_pythons=self.find_pythons,
            )  # fmt: skip
        return reply

    def find_pythons(self, package: str) -> list[str]:
        """Return the minor versions of Python 3 that have a wheel of ``name==version``; none if this Python has one."""
        own = self.python.version.split(".")[1]
        reply = self._choose_wheel(package, own)
        if reply.code == 0 or NO_SOLUTION not in reply.stderr:  # do not ask an index again that does not answer
            return []
        others = (minor for minor in map(str, MINORS) if minor != own)
        return [minor for minor in others if self._choose_wheel(package, minor).code == 0]

    def _choose_wheel(self, package: str, minor: str) -> Reply:
        return self.uv(
            *("pip", "compile", "--quiet", "--python", self.python.executable, "--python-version", f"3.{minor}"),
            *("--no-deps", *self.choosing, "--only-binary", package.partition("==")[0]),
            *self.file("", "one-package.in", f"{package}\n")[1:],
        )

    def file(self, option: str, name: str, text: str) -> tuple[str, ...]:
        """Write a file for uv, and return its option; return nothing for an empty file, which causes a warning."""
        (self.work / name).parent.mkdir(exist_ok=True)
        (self.work / name).write_text(text, encoding="utf-8")
        return (option, f"{WORK_INSIDE}/{name}") if text else ()

    def variables(self) -> tuple[tuple[str, str], ...]:
        """Return the environment of uv, without PIP_*, UV_* and PYTHON* of the caller."""
        cache = f"{WORK_INSIDE}/cache" if self.fresh else str(Path(CACHE_INSIDE, self.builds))
        return (*UV_VARIABLES, ("UV_CACHE_DIR", cache), *self.settings.environment)


PreparePins = Callable[[Installer, tuple[Pin, ...], Step], tuple[Pin, ...]]
"""A step between choosing and installing, in which a bundle builds wheels."""


def separate_builds(cache: Path, base: str, settings: UvSettings, environment: Iterable[str] = ()) -> str:
    """Return the folder in uv's cache for packages that are built from source over a base; make it if necessary.

    uv would use a wheel that it has built again over any base, although it may be linked to another MPI, CUDA or glibc,
    and without the option to build it.  Downloaded files are shared: each folder has links to the cache.  uv names the
    folders of downloads at its first use, so those of a cache that was empty are links to that build's folder.

    Parameters
    ----------
    environment
        The other packages that a build may use.

    Returns
    -------
        A path in the cache.
    """
    facts = "\n".join((base, *settings.arguments, *settings.own, *set_versions(settings), *environment))
    name = f"{BY_BASE}/{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    make_folder(cache / name)
    _sweep_temporary(cache)
    for link in (*cache.glob("*-v*"), *(cache / name).glob("*-v*")):
        if not link.exists():  # the folder was removed
            discard(link)
    for each in _downloads(cache / BY_BASE, "*/*-v*"):
        if not each.is_symlink():
            _link(cache / each.name, each.relative_to(cache))
    for each in _downloads(cache, "*-v*"):
        _link(cache / name / each.name, Path("../..", each.name))
    return name


@contextlib.contextmanager
def sweeping_if_it_fails(session: Session) -> Iterator[None]:
    """Remove what uv left in its cache if the block is interrupted."""
    pin_entry(session.paths.cache, UV, waiting=session.waiting)
    try:
        yield
    except BaseException:
        with deferred_signals():
            _sweep_temporary(session.paths.cache / UV)
        raise


def _sweep_temporary(cache: Path) -> None:
    """Remove what uv left when it was ended: downloads, and environments of builds; with torch, they have gigabytes.

    Their names do not tell which process uses them. If no other build uses the cache, nothing does; the folders are
    listed first, because a build that begins meanwhile makes new ones. Otherwise, only old ones are removed.
    """
    found = [folder for pattern in TEMPORARY for folder in cache.glob(pattern)]
    unused = bool(found) and not is_pinned_by_others(cache.parent, UV)
    for folder in found:
        if (unused or is_older(folder, DAY)) and not is_foreign(folder):
            with contextlib.suppress(OSError):  # another build may remove it, too
                remove_path(folder)


def _downloads(folder: Path, pattern: str) -> list[Path]:
    """Return uv's folders of downloads, sorted."""
    return sorted(each for each in folder.glob(pattern) if not each.name.startswith(OF_BUILDS))


def _link(link: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target)


def shared_folder(build_container: BuildContainer, layer: Path) -> Path | None:
    """Return the cache folder if it also contains the layer, and the build backend allows a link in the base's root.

    Users move parts of the cache elsewhere with symbolic links, so the paths are resolved first.
    """
    cache = build_container.session.paths.cache
    there = all(path.resolve().is_relative_to(cache.resolve()) for path in (layer, cache / "uv"))
    return cache.resolve() if build_container.shows_only_base and there else None


def mount_installation_folders(
    build_container: BuildContainer, settings: UvSettings, *, layer: Path, work: Path
) -> BuildContainer:
    """Mount the layer at its final path, uv's cache, and the local paths in the settings."""
    for folder in (work / "temporary", work / "home", layer / ROOT.lstrip("/")):
        folder.mkdir(parents=True, exist_ok=True)
    cache = build_container.session.paths.cache / "uv"
    make_folder(cache)
    write_git_home(work / "home", settings)
    local = bring_in(settings.local_paths, build_container, work)
    return build_container.with_mounts(
        Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(work), WORK_INSIDE), Bind(str(cache), CACHE_INSIDE), *local
    )
