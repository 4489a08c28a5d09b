"""Install pip packages into a layer: uv, which runs in the base, creates a venv of the base's own Python.

The packages of the base stay visible and unchanged.  They are constraints of the resolution, and uv installs pinned
versions without their dependencies, into the venv only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from argosy.builder.backends.container import UV_INSIDE, WORK_INSIDE, BuildContainer
from argosy.builder.python.base_python import BasePython, site_folders, write_search_path
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_layer
from argosy.builder.python.compiled import refuse_wheels_for_other_torch
from argosy.builder.python.pins import (
    Demand,
    Pin,
    Row,
    asked_demands,
    asked_hashes,
    found_hashes,
    is_pin,
    parse_pin,
    pin_of,
    read_chosen,
    read_demands,
    refuse_unhashed,
    refuse_unmet_demands,
    render_pin,
    render_pins,
    replaceable,
    vendor_builds,
)
from argosy.builder.python.sources import bring_in, write_git_home
from argosy.builder.python.uv_output import UvProgress, explain_uv, explain_warnings, naming_lines
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.core.process import OnLine, Reply
from argosy.core.records import replace
from argosy.core.session import Step
from argosy.images.rootfs import resolve_in_root, write_in_root
from argosy.recipes.recipe import PipIndex, Recipe
from argosy.recipes.render import render_constraints, render_overrides, render_project, render_requirements
from argosy.recipes.uv_options import UvSettings

CACHE_INSIDE = "/.argosy/uv-cache"
SHARED_INSIDE = "/.argosy/shared"
BUILT_WHEELS = "wheels"
"""Folder of built wheels in the installer's work folder."""

REQUIRE_HASHES = "--require-hashes"

UV_VARIABLES = (
    ("UV_CACHE_DIR", CACHE_INSIDE),
    (
        "UV_LINK_MODE",
        "copy",
    ),  # the cache is another mount in the container, so hard links are impossible; but see `LINK_LAYER`
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
    """Install packages into one layer.

    Attributes
    ----------
    layer, work
        The layer's tree, and a folder for small files; both on disk.
    fresh
        Whether to build packages again, because a cached build may belong to another torch.
    activated
        Shell text that runs before uv and its builds, and sets the environment's own variables.
    prepare
        Returns the pins to install for the chosen pins; None to install the chosen ones.
    shared
        Folder on this machine that contains the cache and the layer, so that files of the layer can be hard links to
        the cache, if nothing changes them later.  None to copy them.
    """

    build_container: BuildContainer
    python: BasePython
    settings: UvSettings
    layer: Path
    work: Path
    fresh: bool = False
    activated: str = ""
    prepare: PreparePins | None = None
    shared: Path | None = None

    @property
    def choosing(self) -> tuple[str, ...]:
        """The options for choosing versions, without the check of hashes, which are known only afterwards."""
        return tuple(argument for argument in self.settings.arguments if argument != REQUIRE_HASHES)

    @property
    def installing(self) -> tuple[str, ...]:
        """The options for installing pins, without constraints, for which uv would require hashes, too."""
        return (*_without_option(self.choosing, "--constraints"), *self.settings.own)

    def into(self, layer: Path) -> Installer:
        """Return the same installer for another tree."""
        tree = layer / ROOT.lstrip("/")
        kept = (bind for bind in self.build_container.binds if bind.target != ROOT)
        container = replace(self.build_container, binds=(Bind(str(tree), ROOT), *kept))
        return replace(self, build_container=container, layer=layer)

    def uv(self, *arguments: str, on_line: OnLine | None = None) -> Reply:
        """Run uv in the container."""
        return self.build_container.run(*self._start(arguments), variables=self.variables(), on_line=on_line)

    def _start(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        before = ("/bin/sh", "-c", f'{self.activated}exec "$@"', "sh") if self.activated else ()
        return (*before, UV_INSIDE, *arguments)

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
        linking = (("UV_CACHE_DIR", inside[CACHE_INSIDE]), ("UV_LINK_MODE", "hardlink"))
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
            raise explain_uv(self.build_container, arguments, reply, doing=doing, settings=self.settings)
        return reply

    def file(self, option: str, name: str, text: str) -> tuple[str, ...]:
        """Write a file for uv, and return its option; return nothing for an empty file, which causes a warning."""
        (self.work / name).parent.mkdir(exist_ok=True)
        (self.work / name).write_text(text, encoding="utf-8")
        return (option, f"{WORK_INSIDE}/{name}") if text else ()

    def variables(self) -> tuple[tuple[str, str], ...]:
        """Return the environment of uv, without PIP_*, UV_* and PYTHON* of the caller."""
        own = (("UV_CACHE_DIR", f"{WORK_INSIDE}/cache"),) if self.fresh else ()
        return (*UV_VARIABLES, *own, *self.settings.environment)


def _without_option(arguments: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Remove each occurrence of an option and its value from a command."""
    pairs = zip(("", *arguments), arguments, strict=False)
    return tuple(argument for before, argument in pairs if option not in {before, argument})


PreparePins = Callable[[Installer, tuple[Pin, ...], Step], tuple[Pin, ...]]
"""A step between choosing and installing, in which a bundle builds wheels."""


def open_installer(
    build_container: BuildContainer, python: BasePython, settings: UvSettings, *, layer: Path, work: Path, cache: Path
) -> Installer:
    """Return an installer for `python`, which is the Python of the base or of a conda environment."""
    return Installer(
        mount_installation_folders(build_container, settings, layer=layer, work=work, cache=cache),
        python,
        settings,
        layer,
        work,
    )


def shared_folder(build_container: BuildContainer, layer: Path) -> Path | None:
    """Return the cache folder if it also contains the layer, and the build backend allows a link in the base's root.

    Users move parts of the cache elsewhere with symbolic links, so the paths are resolved first.
    """
    cache = build_container.session.paths.cache
    there = all(path.resolve().is_relative_to(cache.resolve()) for path in (layer, cache / "uv"))
    return cache.resolve() if build_container.shows_only_base and there else None


def mount_installation_folders(
    build_container: BuildContainer, settings: UvSettings, *, layer: Path, work: Path, cache: Path
) -> BuildContainer:
    """Mount the layer at its final path, the cache, and the local paths in the settings."""
    for folder in (work / "temporary", work / "home", cache, layer / ROOT.lstrip("/")):
        folder.mkdir(parents=True, exist_ok=True)
    write_git_home(work / "home", settings)
    local = bring_in(settings.local_paths, build_container, work)
    return build_container.with_mounts(
        Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(work), WORK_INSIDE), Bind(str(cache), CACHE_INSIDE), *local
    )


def resolve(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Choose the versions to install over the base; packages of the base stay and are not returned.

    Raises
    ------
    CheckFailed
        If the requirements conflict with each other or with the base's packages; the evidence is uv's explanation.
    """
    with naming_lines((*recipe.pip, *recipe.constraints)):
        pins = _choose(installer, recipe, step)
    return installer.prepare(installer, pins, step) if installer.prepare else pins


def _choose(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    base = dict(installer.python.packages)
    builds = vendor_builds(installer.python.packages)
    refuse_unmet_demands(asked_demands(recipe), builds, installer.python.version)
    if recipe.exact:
        return _exact_pins(recipe, base)
    requirements = render_requirements(recipe)
    if "pip" not in base:
        requirements += "pip\n"  # without pip in the layer, `pip list` would fail, or list only the base
    step.say("choosing versions")
    asked = {line.name: line.requirement.partition(" @ ")[2] for line in recipe.pip if " @ " in line.requirement}
    indexes = {line.name: line.index for line in recipe.pip if line.index}
    placed = render_project((line.requirement for line in recipe.pip if line.index), indexes)
    command = (
        *("pip", "install", "--python", installer.python.executable, "--break-system-packages"),
        *("--dry-run", "--output-format", "json", *installer.choosing),
        *installer.file("-c", "asked.txt", render_constraints(recipe)),
        *installer.file("-c", "base.txt", render_pins(base)),
        *installer.file("-c", "limits.txt", installer.python.limits),
        *installer.file("--overrides", "overrides.txt", render_pins(builds) + render_overrides(recipe, builds)),
        *installer.file("-r", "requirements.in", requirements),
        *installer.file("-r", "asked/pyproject.toml", placed),
    )
    reply = installer.uv_checked(*command, doing="choosing versions")
    chosen = read_chosen(reply, asked)
    for warning in explain_warnings(reply.stderr, recipe.pip):
        installer.build_container.session.reporter.note(warning)
    if unbuilt := [pin_of(name, row) for name, row in chosen.items() if "version" not in row]:
        _build_ahead(installer, unbuilt, step)
        chosen = read_chosen(installer.uv_checked(*command, doing="choosing versions"), asked)
    wanted = {name: row for name, row in chosen.items() if base.get(name) != row["version"]}
    pins = _pin_hashes(installer, wanted, indexes)
    bare = (pin.package for pin in pins if not pin.package.sha256)
    own = found_hashes(bare, installer.settings.local_paths, installer.build_container.session.paths.cache)
    own |= asked_hashes((*recipe.pip, *recipe.constraints))
    if REQUIRE_HASHES in installer.settings.arguments:
        refuse_unhashed(recipe, wanted)
    return tuple(_with_hashes(pin, own.get(pin.package.name, ())) for pin in pins)


def _build_ahead(installer: Installer, specs: list[str], step: Step) -> None:
    """Build packages with an address first, because uv 0.13 reports a version only for packages in its cache."""
    step.say("building packages from addresses")
    wanted = installer.file("-r", "unbuilt.txt", "".join(f"{spec}\n" for spec in specs))
    target = ("--python", installer.python.executable, "--target", f"{WORK_INSIDE}/unused")
    installer.uv_checked(
        "pip", "install", "--no-deps", *target, *installer.installing, *wanted, doing="building packages"
    )


def _with_hashes(pin: Pin, hashes: tuple[str, ...]) -> Pin:
    return replace(pin, package=replace(pin.package, sha256=hashes)) if hashes else pin


def _exact_pins(recipe: Recipe, base: Mapping[str, str]) -> tuple[Pin, ...]:
    """Return the pins of an exact recipe, without packages that the base has in the same version."""
    lines = [line for line in recipe.pip if f"{line.name}=={base.get(line.name)}" != line.text]
    versions = {line.name: line.text.partition("==")[2] for line in lines}
    return tuple(parse_pin(" ".join((line.spec, *(f"--hash={x}" for x in line.hashes))), versions) for line in lines)


def _pin_hashes(installer: Installer, wanted: Mapping[str, Row], indexes: Mapping[str, PipIndex]) -> tuple[Pin, ...]:
    """Pin the chosen versions, with the hashes of the index."""
    if not wanted:
        return ()
    specs = {name: pin_of(name, row) for name, row in sorted(wanted.items())}
    free = "".join(f"{spec}\n" for name, spec in specs.items() if name not in indexes)
    own = render_project((spec for name, spec in specs.items() if name in indexes), indexes)
    reply = installer.uv_checked(
        *("pip", "compile", "--python", installer.python.executable, "--no-deps", "--generate-hashes"),
        *("--no-header", "--no-annotate", "--quiet", *installer.choosing),
        *installer.file("", "pins.in", free)[1:],
        *installer.file("", "pins/pyproject.toml", own)[1:],
        doing="asking the index for hashes",
    )
    versions = {name: row.get("version", "") for name, row in wanted.items()}
    return tuple(parse_pin(line, versions) for line in reply.stdout.replace("\\\n", " ").splitlines() if is_pin(line))


def create_environment(installer: Installer) -> None:
    """Create the empty venv in the installer's tree."""
    installer.uv_checked(
        *("venv", "--quiet", "--allow-existing", "--system-site-packages", "--python", installer.python.executable),
        ENV_PREFIX,
        doing="creating the environment",
    )
    write_search_path(installer.layer)


def refuse_unmet_requirements(installer: Installer, others: Iterable[Demand] = ()) -> None:
    """Refuse the first requirement of an installed package that a vendor's build in the base does not satisfy.

    Parameters
    ----------
    others
        Requirements of packages that are added later without uv.

    Raises
    ------
    CheckFailed
        For that requirement.
    """
    builds, installed = vendor_builds(installer.python.packages), map(read_demands, site_folders(installer.layer))
    refuse_unmet_demands(chain(*installed, others), builds, installer.python.version)


def refuse_compiled(installer: Installer, recipe: Recipe) -> None:
    """Refuse installed wheels that need another torch than the vendor's in the base (`compiled`)."""
    builds = vendor_builds(installer.python.packages)
    refuse_wheels_for_other_torch(site_folders(installer.layer), builds, replaceable(recipe))


def choose_and_install(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Choose versions and install them; packages that are built against the others are installed last, separately.

    Raises
    ------
    CheckFailed, ToolFailed
        As for `resolve` and `refuse_unmet_requirements`, or if a package cannot be installed.
    """
    late = tuple(line for line in recipe.pip if line.name in recipe.unisolated)
    pins = resolve(installer, replace(recipe, pip=tuple(x for x in recipe.pip if x not in late)), step)
    create_environment(installer)
    if pins:
        install_pins(installer, pins, step, exact=recipe.exact)
    refuse_unmet_requirements(installer)
    refuse_compiled(installer, recipe)
    compile_installed(installer, pins, step)
    if not late:
        return pins
    python = installer.python
    there = {**dict(python.packages), **{pin.package.name: pin.package.version for pin in pins}}
    whole = replace(python, executable=f"{ENV_PREFIX}/bin/python", packages=tuple(there.items()))
    second = replace(installer, python=whole, fresh=True)
    more = resolve(second, replace(recipe, pip=late), step)
    install_pins(second, more, step)
    compile_installed(second, more, step)
    return (*pins, *more)


def compile_installed(installer: Installer, pins: tuple[Pin, ...], step: Step) -> None:
    """Add byte code for the modules of the installed packages."""
    cache = BytecodeCache(installer.build_container.session.paths.cache / BYTECODE, installer.python.build)
    names = {pin.package.name for pin in pins}
    compile_layer(installer.build_container, installer.layer, installer.work, cache, names, step)


def install_pins(
    installer: Installer, pins: tuple[Pin, ...], step: Step, *, exact: bool = False, again: bool = False
) -> None:
    """Install exactly these packages into the environment.

    Parameters
    ----------
    exact
        Whether the pins come from a lock.
    again
        Whether to install packages that are installed already.
    """
    (installer.work / "lock.txt").write_text("".join(f"{render_pin(pin)}\n" for pin in pins), encoding="utf-8")
    built = ("--find-links", f"{WORK_INSIDE}/{BUILT_WHEELS}") if installer.prepare else ()
    hashed = (REQUIRE_HASHES,) if all(pin.package.sha256 for pin in pins) else ()
    command = (
        *("pip", "install", "--python", f"{ENV_PREFIX}/bin/python", "--break-system-packages", "--no-deps"),
        *(*hashed, *installer.installing, *built, *(("--reinstall",) if again else ())),
        *("-r", f"{WORK_INSIDE}/lock.txt"),
    )
    # Locked packages that are in the cache need no network.
    if exact and installer.uv_installing(*command, "--offline").code == 0:
        return
    installer.uv_installing_checked(*command, doing="installing the packages", on_line=UvProgress(step.say).hear)


def write_entry_point_shims(layer: Path, python: BasePython, others: Collection[str] = ()) -> int:
    """Write a script of the same name into the venv for each console script of the base, and return their number.

    The first line of the base's own ``torchrun``, for example, names the base's interpreter, which does not find the
    packages of the layer.  The script in the venv uses the venv's interpreter, which finds both.

    Parameters
    ----------
    others
        Paths of files that the layer will contain, too; they are not replaced.
    """
    folder = resolve_in_root(layer, f"{ENV_PREFIX}/bin")
    count = 0
    for name, value in python.scripts:
        module, _, function = value.partition(":")
        target = folder / name
        if "/" in name or not function or os.path.lexists(target) or str(target.relative_to(layer)) in others:
            continue
        text = (
            f"#!{ENV_PREFIX}/bin/python\nimport sys\n\nfrom {module} import {function.partition('.')[0]}\n\n"
            f"sys.exit({function}())\n"
        )
        write_in_root(folder, name, text, mode=0o755)
        count += 1
    return count
