"""Install the packages of a recipe into a layer: with pip for the base's Python, or into a conda environment."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.builder.base_layer import BaseLayer
from argosy.builder.bases.base import Base
from argosy.builder.bases.choose import needs_python
from argosy.builder.conda import CondaContext, extend_conda, holds_conda, make_conda, take_unpacked
from argosy.builder.finish import InstalledLayer, variables_over
from argosy.builder.inputs import CONDA, with_own_python
from argosy.builder.packed.conda import CondaCache
from argosy.builder.packed.make import build_options, discard_trees, find_wheels, pack_missing
from argosy.builder.packed.store import TORCH, PackedParts, WheelCache
from argosy.builder.python.base_python import BasePython, ask_python, unused_replacements
from argosy.builder.python.installer import (
    BUILT_WHEELS,
    Installer,
    mount_installation_folders,
    separate_builds,
    shared_folder,
)
from argosy.builder.python.packages import (
    choose_and_install,
    compile_installed,
    create_environment,
    install_pins,
    refuse_compiled,
    refuse_unmet_requirements,
    resolve,
    resolve_below,
    vendor_torch,
    write_entry_point_shims,
)
from argosy.builder.python.pins import CannotHave, Pin, hidden_notes, replaceable, vendor_builds
from argosy.builder.python.sources import set_versions
from argosy.builder.python.torch_index import Target, notes_on_other_builds, refuse_torch_in_image
from argosy.builder.python.uv_output import naming_package
from argosy.builder.records import BuildRequest
from argosy.builder.steps import run_scripts
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import ENV_PREFIX, Activation, plan_activation, render_env_script
from argosy.core.records import replace
from argosy.core.render import render_packages
from argosy.core.session import Step
from argosy.core.store import digest_of_file
from argosy.core.worker_threads import WorkerThreads
from argosy.images.squashfs.pack import packer_version
from argosy.recipes.lock import LockedPackage, SourceKind
from argosy.recipes.merge import python_fits, refuse_other_python
from argosy.recipes.recipe import Recipe, render_sources
from argosy.recipes.requirements import package_of
from argosy.recipes.uv_options import UvSettings
from argosy.sites.profile import Site


class PackageJob(msgspec.Struct, frozen=True):
    """A request to install packages over a base."""

    request: BuildRequest
    recipe: Recipe
    """The recipe without the packages that the base already has."""
    base: Base
    target: Target
    """The machines that packages are chosen for."""
    settings: UvSettings
    """Options and environment of uv."""
    tree: Path
    work: Path
    """The layer's folder, and a folder for work files."""
    together: str = ""
    """Why the packages are packed together; empty if they are packed one by one."""
    extended: BaseLayer | None = None
    """The base's layer, if it is not in the tree."""
    site: Site | None = None
    """The site that the image is for, or None."""


def install_packages(job: PackageJob, container: BuildContainer, step: Step) -> InstalledLayer:
    """Run the scripts that come first, then install the recipe's packages."""
    run_scripts(job.request.before, container, job.tree, step)
    job = replace(job, recipe=_with_python(job.recipe, job.base, container))
    with naming_package(job.recipe.pip):
        if job.recipe.wants_conda or holds_conda(job.tree):
            return _install_conda(job, container, step)
        if needs_python(job.recipe):
            return _install_pip(job, container, step)
    activation = plan_activation(extra=variables_over(job.recipe, job.base))
    step.result = f"{render_sources(job.recipe)} ({_describe_backend(container)})"
    packages = _merge_packages(job.base, ())
    return InstalledLayer(job.tree, container, None, packages, activation, (), job.settings)


def _install_pip(job: PackageJob, container: BuildContainer, step: Step) -> InstalledLayer:
    """Install into a venv of the base's Python."""
    recipe, base = job.recipe, job.base
    activation = plan_activation(extra=variables_over(recipe, base))
    python = _find_python(recipe, base, container)
    installer = Installer(
        mount_installation_folders(container, job.settings, layer=job.tree, work=job.work),
        python.without(replaceable(recipe)),
        job.settings,
        job.tree,
        job.work,
        builds=separate_builds(container.session.paths.cache / "uv", base.digest, job.settings),
        prepare=_build_missing_wheels if job.request.portable else None,
        shared=_shared_folder(job, container),
        activated=_render_own_variables(recipe),
    )
    parts: PackedParts | None = None
    if job.together:
        pins = choose_and_install(installer, recipe, step)
    else:
        pins, parts = _choose_and_pack(job, installer, recipe, step)
    write_entry_point_shims(job.tree, python, _paths_beside(job, parts) if parts and python.scripts else ())
    hidden = hidden_notes(dict(python.packages), ((pin.package.name, pin.package.version) for pin in pins))
    packages = _merge_packages(base, pins)
    packed = f", {len(parts.found)} packed before" if parts and parts.found else ""
    step.result = f"{_count(packages, base)} for Python {python.version} ({_describe_backend(container)}){packed}"
    others = notes_on_other_builds(dict(python.packages), (pin.package for pin in pins))
    notes = (*unused_replacements(python, recipe.replaceable), *hidden, *others)
    layer = InstalledLayer(job.tree, container, python, packages, activation, notes, job.settings)
    return replace(layer, parts=parts, together=job.together)


def _paths_beside(job: PackageJob, parts: PackedParts) -> set[str]:
    """Return the paths of the image's files that are not in the tree."""
    return {*parts.paths(), *(job.extended.entries if job.extended else ())}


def _resolve_beside_environment(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    """Create the empty environment, and choose versions meanwhile, which does not depend on it."""
    with WorkerThreads(1) as helper:
        creating = helper.submit(create_environment, installer)
        if installer.build_container.kind.needs_tree:
            # Two programs in one tree: the first to end would remove the mount points of the other.
            creating.result()
        pins = resolve(installer, recipe, step)
        creating.result()
    return pins


def _choose_and_pack(
    job: PackageJob, installer: Installer, recipe: Recipe, step: Step
) -> tuple[tuple[Pin, ...], PackedParts]:
    """Choose versions and pack them; choose again if a version needs another torch than the base's."""
    pins = _resolve_beside_environment(installer, recipe, step)
    while True:
        try:
            return pins, _install_wheels(job, installer, pins, step)
        except CannotHave as error:
            installer, pins = resolve_below(error, installer, recipe, pins, step)
            discard_trees(installer)


def _install_wheels(job: PackageJob, installer: Installer, pins: tuple[Pin, ...], step: Step) -> PackedParts:
    """Pack the wheels that the cache does not have, and install the other packages into the environment."""
    recipe, container = job.recipe, installer.build_container
    # A wheel that --allow-replace exempted from the checks is not used by a build without it.
    exempt = tuple(f"--allow-replace {name}" for name in sorted(replaceable(recipe)))
    torch = vendor_torch(vendor_builds(installer.python.packages))  # maybe in the layer of the base
    cache = WheelCache(
        container.session.paths.cache,
        job.base.digest,
        (container.uv, packer_version(container.session)),
        (
            *(*build_options(installer.settings.arguments), *set_versions(installer.settings)),
            *(*exempt, installer.activated, torch),
        ),
        job.request.site,
    )
    wheels = find_wheels(pins, cache)
    refuse_unmet_requirements(installer, wheels.demands())
    if wheels.missing:
        wheels = pack_missing(wheels, installer, cache, partial(_refuse_unfit_packages, job), step, exact=recipe.exact)
    if wheels.others:
        install_pins(installer, wheels.others, step, exact=recipe.exact)
        _refuse_unfit_packages(job, installer, wheels.others)
    compile_installed(installer, wheels.others, step)
    return wheels


def _refuse_unfit_packages(job: PackageJob, installer: Installer, new: Sequence[Pin]) -> None:
    """Refuse packages that need another build of a package in the base, and a torch that cannot use the site's GPUs."""
    refuse_unmet_requirements(installer)
    refuse_compiled(installer, job.recipe, new)
    if job.site and any(pin.package.name == TORCH for pin in new):
        refuse_torch_in_image(job.site, installer.build_container, installer.layer, job.recipe)


def _install_conda(job: PackageJob, container: BuildContainer, step: Step) -> InstalledLayer:
    """Make a conda environment, or add pip packages to the one that the base has."""
    recipe, base = job.recipe, job.base
    context = _open_conda(job, container, step)
    if recipe.wants_conda:
        _refuse_second_environment(context, base)
        cuda, archspec = job.target.cuda.value, job.target.archspec
        made = make_conda(context, cuda=cuda, archspec=archspec, time=base.time)
    else:
        made = extend_conda(context, base.lock.packages if base.lock else ())
    if made.python:
        refuse_other_python(recipe.python, made.python.version, recipe.python_where)
    python = f"its own Python {made.python.version}" if made.python else "no Python"
    packed = f", {len(made.linked.found)} packed before" if made.linked and made.linked.found else ""
    step.result = f"{_count(made.packages, base)}, {python} ({_describe_backend(container)}){packed}"
    layer = InstalledLayer(job.tree, container, made.python, made.packages, made.activation, made.notes, job.settings)
    if job.together or made.linked is None:
        return replace(layer, build_container=context.build_container, together=job.together)
    if job.site and made.linked.whole:
        refuse_torch_in_image(job.site, container, context.layer, recipe)
    return replace(layer, parts=take_unpacked(context, made.linked, job.tree))


def _open_conda(job: PackageJob, container: BuildContainer, step: Step) -> CondaContext:
    """Open the tools that install a conda environment. Packages that are packed one by one get a tree of their own."""
    request, paths = job.request, container.session.paths
    spare = request.bundle / CONDA if request.bundle else None
    layer = job.tree if job.together else job.work / "conda"
    tools = (version("py-rattler"), packer_version(container.session))
    return CondaContext(
        job.recipe,
        variables_over(job.recipe, job.base),
        mount_installation_folders(container, job.settings, layer=layer, work=job.work),
        job.settings,
        layer,
        job.work,
        step,
        spare,
        cache=None if job.together else CondaCache(paths.cache, job.base.digest, tools),
        base=job.base.digest,
        for_site=job.site is not None,
        prepare=_build_missing_wheels if request.portable else None,
        shared=_shared_folder(job, container),
    )


def _refuse_second_environment(context: CondaContext, base: Base) -> None:
    if context.prefix.exists():
        raise UsageError(
            f"cannot make a conda environment: the base {base.reference} already holds an environment",
            evidence=f"it was built over {base.lock.base.reference}" if base.lock else f"it has {ENV_PREFIX}",
            hint="build over that base, and pass the environment files of both builds",
        )


def _shared_folder(job: PackageJob, container: BuildContainer) -> Path | None:
    """Return the folder for hard links to the cache, or None if scripts may change files in place."""
    return None if job.request.before or job.request.after else shared_folder(container, job.tree)


def _render_own_variables(recipe: Recipe) -> str:
    """Render the recipe's variables for builds of packages, for example FORCE_CUDA and TORCH_CUDA_ARCH_LIST."""
    own = tuple((name, value) for name, value in recipe.variables if name != "PATH")
    return render_env_script(Activation((), (), own)) if own else ""


def _with_python(recipe: Recipe, base: Base, container: BuildContainer) -> Recipe:
    """Let conda install the Python that an environment file asks for if the base has another one, or none.

    This does not apply over a vendor's builds or the layer of an Argosy image: a separate environment would not see
    their packages.
    """
    if recipe.wants_conda or not recipe.interpreter or base.lock:
        return recipe
    found = ask_python(container)
    if found and (python_fits(recipe.python, found.version, recipe.python_where) or vendor_builds(found.packages)):
        return recipe
    there = f"has Python {found.version}" if found else "has no Python"
    container.session.reporter.note(f"the base {there}; conda installs Python {recipe.python.lstrip('=')}".rstrip())
    return with_own_python(recipe)


def _find_python(recipe: Recipe, base: Base, container: BuildContainer) -> BasePython:
    python = ask_python(container)
    if python is None:
        raise CheckFailed(
            f"the base {base.reference} has no Python",
            evidence="neither python3 nor python is on the base's PATH",
            hint="use a base that has one: a vendor's PyTorch image, or --base debian:bookworm (python3 is added)",
        )
    refuse_other_python(
        recipe.python, python.version, recipe.python_where, base.lock.base.reference if base.lock else ""
    )
    if not base.lock:
        return python
    # The packages in the layer of an Argosy image count as packages of the base.
    held = tuple((p.name, p.version) for p in base.lock.packages)
    return replace(python, packages=tuple(dict([*python.packages, *held]).items()))


def _merge_packages(base: Base, pins: tuple[Pin, ...]) -> tuple[LockedPackage, ...]:
    """Return the layer's packages: those of the base's layer, and those that were added."""
    packages = {p.name: p for p in base.lock.packages} if base.lock else {}
    packages |= {pin.package.name: pin.package for pin in pins}
    return tuple(packages[name] for name in sorted(packages))


def _count(packages: tuple[LockedPackage, ...], base: Base) -> str:
    """Describe how many packages the layer holds, and how many of them are new if the base had some."""
    held = {(p.name, p.version) for p in base.lock.packages} if base.lock else set()
    new = sum((p.name, p.version) not in held for p in packages)
    return render_packages(len(packages)) + (
        f" ({len(packages) - new} from the base's layer, {new} new)" if held else ""
    )


def _describe_backend(container: BuildContainer) -> str:
    return f"{container.backend.value}: {container.backend.why}"


def _build_missing_wheels(installer: Installer, pins: tuple[Pin, ...], step: Step) -> tuple[Pin, ...]:
    """Build wheels of sdists, folders and repositories into ``wheels``, and return the pins with their hashes."""
    folder = installer.work / BUILT_WHEELS
    folder.mkdir(exist_ok=True)
    # uv stores built wheels in its cache; a separate cache contains only these.
    apart = replace(installer, fresh=True)
    step.say("looking for packages without a wheel")
    lacking = {pin.package.name for pin in _unbuilt(apart, [pin for pin in pins if not _address(pin)])}
    return tuple(_with_file(apart, pin, folder, step, bare=pin.package.name in lacking) for pin in pins)


def _address(pin: Pin) -> str:
    return pin.spec.partition(" @ ")[2].partition(" ;")[0].strip()


def _unbuilt(apart: Installer, pins: Sequence[Pin]) -> Sequence[Pin]:
    """Find packages that the index has only as source, by bisection."""
    if not pins or _uv_fits(apart, pins):
        return ()
    if len(pins) == 1:
        return pins
    middle = len(pins) // 2
    return (*_unbuilt(apart, pins[:middle]), *_unbuilt(apart, pins[middle:]))


def _uv_fits(apart: Installer, pins: Sequence[Pin]) -> bool:
    return apart.uv(*_install_command(apart, pins), "--dry-run", "--no-build").code == 0


def _install_command(apart: Installer, pins: Sequence[Pin]) -> tuple[str, ...]:
    # A file hides addresses, which may hold a login, from the process list.
    wanted = apart.file("-r", "wheels.txt", "".join(f"{pin.spec}\n" for pin in pins))
    target = ("--python", apart.python.executable, "--target", f"{WORK_INSIDE}/unused")
    return ("pip", "install", "--no-deps", *target, *apart.installing, *wanted)


def _with_file(apart: Installer, pin: Pin, folder: Path, step: Step, *, bare: bool) -> Pin:
    address = urlsplit(_address(pin))
    if not bare and (not address.path or address.path.endswith(".whl")):
        if address.scheme == "file":
            shutil.copy2(unquote(address.path), folder)
        return pin
    package = pin.package
    step.say(f"building a wheel of {package.name} {package.version}")
    apart.uv_checked(*_install_command(apart, [pin]), doing=f"building a wheel of {package.name}")
    built = _find_built_wheel(apart.work / "cache", package)
    wheel = folder / built.name
    shutil.copy2(built, wheel)
    # A locked package of an index may also be built from its sdist, so its hashes stay valid.
    sources = package.sha256 if package.source is SourceKind.INDEX else ()
    hashes = tuple(sorted({*sources, digest_of_file(wheel)}))
    return Pin(replace(package, sha256=hashes), f"{package.name}=={package.version}")


def _find_built_wheel(cache: Path, package: LockedPackage) -> Path:
    for wheel in sorted(cache.rglob("*.whl")):
        if wheel.is_file() and package_of(wheel.name) == (package.name, package.version):
            return wheel
    raise CheckFailed(
        f"the build of {package.name} {package.version} produced no wheel",
        hint="build one (pip wheel), and list it in the requirements",
    )
