"""Install pip packages into a layer: uv, which runs in the base, creates a venv of the base's own Python.

The packages of the base stay visible and unchanged.  They are constraints of the resolution, and uv installs pinned
versions without their dependencies, into the venv only.

Packages that were compiled against another PyTorch than a vendor's build in the base are refused. A vendor's
torch 2.3.0a0+x counts as 2.3.0, so the metadata of torchaudio 2.3.0 agree with it. The C++ interface of the two
differs: the import fails with an undefined symbol, or the program computes nonsense.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution, distributions
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from argosy.builder.backends.container import WORK_INSIDE
from argosy.builder.python.base_python import BasePython, site_folders, write_search_path
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_layer
from argosy.builder.python.installer import BUILT_WHEELS, REQUIRE_HASHES, Installer
from argosy.builder.python.pins import (
    CannotHave,
    Pin,
    Row,
    SourcedRequirement,
    asked_demands,
    asked_hashes,
    can_compare,
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
from argosy.builder.python.uv_output import UvProgress, explain_warnings, naming_lines
from argosy.core.errors import CheckFailed
from argosy.core.layout import ENV_PREFIX
from argosy.core.process import Reply
from argosy.core.records import replace
from argosy.core.session import Step
from argosy.images.libraries import BUILD
from argosy.images.rootfs import resolve_in_root, write_in_root
from argosy.recipes.lock import SourceKind
from argosy.recipes.recipe import PipIndex, Recipe
from argosy.recipes.requirements import package_of
from argosy.recipes.uv_options import render_constraints, render_overrides, render_project, render_requirements

ABOUT_PIP = re.compile(r"(?<![\w.-])pip(?![\w-])")
"""The package pip in uv's explanation, but not pip-tools."""

NO_PIP = (
    "the image has no pip: it cannot be found where packages are searched; "
    "'pip download pip -d DIRECTORY' adds it to a folder of wheels"
)

TORCH_LIBRARY = b"libc10.so"
"""A library of PyTorch that every extension module of it is linked with."""


def resolve(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Choose the versions to install over the base; packages of the base stay and are not returned."""
    builds = vendor_builds(installer.python.packages)
    with naming_lines((*recipe.pip, *recipe.constraints)):
        refuse_unmet_demands(asked_demands(recipe), builds, installer.python.version)
        pins = _choose(installer, recipe, step)
    return installer.prepare(installer, pins, step) if installer.prepare else pins


def _choose(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Choose versions, and pin them with the hashes of the index and of the user's files."""
    base = dict(installer.python.packages)
    if recipe.exact:
        return _exact_pins(recipe, base)
    chosen = _choose_versions(installer, recipe, step)
    wanted = {name: row for name, row in chosen.items() if base.get(name) != row["version"]}
    pins = _pin_hashes(installer, wanted, {line.name: line.index for line in recipe.pip if line.index})
    bare = (pin.package for pin in pins if not pin.package.sha256)
    own = found_hashes(bare, installer.settings.local_paths, installer.build_container.session.paths.cache)
    own |= asked_hashes((*recipe.pip, *recipe.constraints))
    if REQUIRE_HASHES in installer.settings.arguments:
        refuse_unhashed(recipe, wanted)
    return tuple(_with_hashes(pin, own.get(pin.package.name, ())) for pin in pins)


def _choose_versions(installer: Installer, recipe: Recipe, step: Step) -> dict[str, Row]:
    """Ask uv which versions it would install over the base; return a row for each package."""
    step.say("choosing versions")
    asked = {line.name: line.requirement.partition(" @ ")[2] for line in recipe.pip if " @ " in line.requirement}
    command, reply = _ask_for_versions(installer, recipe)
    chosen = read_chosen(reply, asked)
    for warning in explain_warnings(reply.stderr, recipe.pip):
        installer.build_container.session.reporter.note(warning)
    if unbuilt := [pin_of(name, row) for name, row in chosen.items() if "version" not in row]:
        _build_ahead(installer, unbuilt, step)
        chosen = read_chosen(installer.uv_checked(*command, doing="choosing versions"), asked)
    return chosen


def _ask_for_versions(installer: Installer, recipe: Recipe) -> tuple[tuple[str, ...], Reply]:
    """Return the command that chooses versions, and uv's answer; pip is left out if only Argosy asks for it in vain.

    Without pip in the layer, `pip list` would fail, or list only the base; but a folder that `pip download -r` filled
    has no pip, and neither have some indexes.
    """
    adds_pip = "pip" not in {*dict(installer.python.packages), *(line.name for line in recipe.pip)}
    command = _choosing_command(installer, recipe, "pip\n" if adds_pip else "")
    try:
        return command, installer.uv_checked(*command, doing="choosing versions")
    except CheckFailed as error:
        if not (adds_pip and ABOUT_PIP.search(error.evidence)):
            raise
    command = _choosing_command(installer, recipe, "")
    reply = installer.uv_checked(*command, doing="choosing versions")
    installer.build_container.session.reporter.note(NO_PIP)
    return command, reply


def _choosing_command(installer: Installer, recipe: Recipe, more: str) -> tuple[str, ...]:
    """Write the requirements and constraints of a recipe for uv, and return the command that chooses versions."""
    base, builds = dict(installer.python.packages), vendor_builds(installer.python.packages)
    requirements = render_requirements(recipe) + more
    with_index = [line for line in recipe.pip if line.index]
    project = render_project(
        (line.requirement for line in with_index), {line.name: line.index for line in with_index if line.index}
    )
    return (
        *("pip", "install", "--python", installer.python.executable, "--break-system-packages"),
        *("--dry-run", "--output-format", "json", *installer.choosing),
        *installer.file("-c", "asked.txt", render_constraints(recipe)),
        *installer.file("-c", "base.txt", render_pins(base)),
        *installer.file("-c", "limits.txt", installer.python.limits),
        *installer.file("--overrides", "overrides.txt", _render_builds(installer) + render_overrides(recipe, builds)),
        *installer.file("-r", "requirements.in", requirements),
        *installer.file("-r", "asked/pyproject.toml", project),
    )


def _render_builds(installer: Installer) -> str:
    """Render the overrides for a vendor's builds: their versions, or no requirement at all if uv does not see them."""
    builds = vendor_builds(installer.python.packages)
    other = {*installer.unseen, *installer.compared}
    seen = {name: version for name, version in builds.items() if name not in other}
    return render_pins(seen) + "".join(f"{name}; sys_platform == 'none'\n" for name in installer.unseen)


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


def resolve_below(
    error: CannotHave, installer: Installer, recipe: Recipe, pins: Iterable[Pin], step: Step
) -> tuple[Installer, tuple[Pin, ...]]:
    """Choose versions again after a chosen package required another build than the base's.

    Only the version of that package is chosen by this build, and only among its wheels: an old version without a
    requirement would be built from source.

    Returns
    -------
    The installer that chose them, and the pins.

    Raises
    ------
    CannotHave
        The same error, if no version of the package fits, or if uv cannot compare the build.
    """
    base, refused = canonicalize_name(error.wanted.name), canonicalize_name(error.by.partition(" ")[0])
    build = vendor_builds(installer.python.packages).get(base, "")
    chosen = {pin.package.name: pin.package for pin in pins if pin.package.source is SourceKind.INDEX}
    if recipe.exact or refused not in chosen or refused in installer.wheels_only or not can_compare(build):
        raise error
    wheels_only = (*installer.wheels_only, refused)
    other = replace(installer, compared=(*installer.compared, base), wheels_only=wheels_only)
    try:
        found = resolve(other, recipe, step)
    except CheckFailed:
        raise error from None
    now = next((pin.package.version for pin in found if pin.package.name == refused), "")
    instead = f"{refused} {now} instead of {chosen[refused].version}" if now else f"no {error.by}"
    note = f"{instead}, which requires {error.wanted}: the base has {base} {build}"
    installer.build_container.session.reporter.note(note)
    return other, found


def create_environment(installer: Installer) -> None:
    """Create the empty venv in the installer's tree."""
    installer.uv_checked(
        *("venv", "--quiet", "--allow-existing", "--system-site-packages", "--python", installer.python.executable),
        ENV_PREFIX,
        doing="creating the environment",
    )
    write_search_path(installer.layer)


def refuse_unmet_requirements(installer: Installer, others: Iterable[SourcedRequirement] = ()) -> None:
    """Refuse the first requirement of an installed package that a vendor's build in the base does not satisfy.

    Parameters
    ----------
    others
        Requirements of packages that are added later without uv.
    """
    builds, installed = vendor_builds(installer.python.packages), map(read_demands, site_folders(installer.layer))
    refuse_unmet_demands(chain(*installed, others), builds, installer.python.version)


def refuse_compiled(installer: Installer, recipe: Recipe, pins: Iterable[Pin]) -> None:
    """Refuse installed packages of an index that need another torch than the vendor's in the base."""
    builds = vendor_builds(installer.python.packages)
    names = {pin.package.name for pin in pins if pin.package.source is SourceKind.INDEX}
    refuse_wheels_for_other_torch(site_folders(installer.layer), builds, names - replaceable(recipe))


def choose_and_install(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Choose versions and install them; packages that are built against the others are installed last, separately."""
    early, late = split_late(recipe)
    pins = resolve(installer, early, step)
    create_environment(installer)
    if pins:
        install_pins(installer, pins, step, exact=recipe.exact)
    refuse_unmet_requirements(installer)
    refuse_compiled(installer, recipe, pins)
    compile_installed(installer, pins, step)
    if not late.pip:
        return pins
    second = installer.after(pins, f"{ENV_PREFIX}/bin/python")
    more = resolve(second, late, step)
    install_pins(second, more, step)
    refuse_unmet_requirements(installer)
    built = _built_packages(second)
    refuse_compiled(installer, recipe, (pin for pin in more if pin.package.name not in built))
    compile_installed(second, more, step)
    return (*pins, *more)


def _built_packages(installer: Installer) -> set[str]:
    """Return the names of the packages that uv has built from source with a cache of its own."""
    return {package_of(file.name)[0] for file in (installer.work / "cache").glob("sdists-v*/**/*.whl")}


def split_late(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """Split a recipe into the packages that are installed first, and those that are built against them."""
    late = tuple(line for line in recipe.pip if line.name in recipe.unisolated)
    return replace(recipe, pip=tuple(line for line in recipe.pip if line not in late)), replace(recipe, pip=late)


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


def write_entry_point_shims(layer: Path, python: BasePython, others: Collection[str] = ()) -> None:
    """Write a script of the same name into the venv for each console script of the base.

    The first line of the base's own ``torchrun``, for example, names the base's interpreter, which does not find the
    packages of the layer.  The script in the venv uses the venv's interpreter, which finds both.

    Parameters
    ----------
    others
        Paths of files that the layer will contain, too; they are not replaced.
    """
    folder = resolve_in_root(layer, f"{ENV_PREFIX}/bin")
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


def vendor_torch(builds: Mapping[str, str]) -> str:
    """Return the version of a vendor's PyTorch, whose C++ interface differs from that on the index; empty if none."""
    torch = builds.get("torch", "")
    return "" if BUILD.search(torch) else torch


def refuse_wheels_for_other_torch(folders: Iterable[Path], builds: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse an installed package whose extension modules need PyTorch, if the base has a vendor's build of it.

    Parameters
    ----------
    folders
        The site-packages of the layer.
    builds
        The vendor's builds in the base: name -> version.
    names
        The packages that are checked. Those from a folder, an address or a repository should not be among them: their
        user may have built them for this base.
    """
    torch = vendor_torch(builds)
    if not torch:
        return
    for dist in (dist for folder in folders for dist in distributions(path=[str(folder)])):
        name = canonicalize_name(dist.metadata["Name"])
        if name in names and _needs_torch(dist):
            raise CheckFailed(
                f"cannot install {name} {dist.version}: it was compiled against a different PyTorch",
                evidence=f"it contains libraries that need {TORCH_LIBRARY.decode()}\nthe base has torch=={torch}",
                hint=f"build it against the base's: replace {name} by {name} @ git+https://…, and pass "
                f"--no-build-isolation {name}; to install this wheel anyway: --allow-replace {name}",
            )


def _needs_torch(dist: Distribution) -> bool:
    """Return whether an extension module of a package is linked with PyTorch."""
    modules = (Path(str(dist.locate_file(file))) for file in dist.files or () if ".so" in file.suffixes)
    return any(module.is_file() and TORCH_LIBRARY in module.read_bytes() for module in modules)
