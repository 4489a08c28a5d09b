"""Install a conda environment into a layer: conda packages, then pip packages with the environment's own Python.

The files refer to ``/opt/argosy/env``, their path in the image.  Programs (pip, link scripts, byte compilation,
activation) run in the build container with the layer mounted at that path.  The files of the prefix are normalised, so
that they do not depend on the machine that installed them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import BuildContainer
from argosy.builder.conda_packages import CondaClient, PackageMeta, read_meta, with_dependencies, write_meta
from argosy.builder.conda_scripts import ask_activation, packages_with_scripts, run_link_scripts, unshare
from argosy.builder.packed.conda import (
    PYTHON,
    TREES,
    CondaCache,
    CondaPacker,
    changed_packages,
    file_states,
    move_others,
    needs_all_linked,
    packable_names,
    packed_paths,
)
from argosy.builder.packed.store import PackedPackage, PackedParts
from argosy.builder.python.base_python import BasePython, ask_interpreter
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_conda, compile_layer
from argosy.builder.python.installer import Installer, PreparePins, separate_builds
from argosy.builder.python.packages import install_pins, resolve, split_late
from argosy.builder.python.pins import Pin, asked_demands, meets
from argosy.builder.python.uv_output import mentioned_names
from argosy.core.errors import CheckFailed, NoVersions
from argosy.core.layout import ENV_PREFIX, Activation, render_env_script
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.core.store import remove_path
from argosy.recipes.conda_request import CondaPackage, CondaTarget, parse_cuda, parse_glibc, plan_conda, requested_specs
from argosy.recipes.condarc import read_condarc
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import UvSettings

INTERPRETER = f"{ENV_PREFIX}/bin/python"
NEWEST_GLIBC = "2.99"
"""Newer than any: no package is refused because of the base before the base is known."""

ASK_GLIBC = "getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 || :"


class CondaEnvironment(msgspec.Struct, frozen=True):
    """An installed environment."""

    python: BasePython | None
    """Its Python, or None."""
    packages: tuple[LockedPackage, ...]
    activation: Activation
    notes: tuple[str, ...]
    linked: LinkedPackages | None = None
    """How its packages were installed; None if they are those of the base."""


class LinkedPackages(msgspec.Struct, frozen=True):
    """The conda packages of an environment."""

    packages: tuple[CondaPackage, ...]
    meta: Mapping[str, PackageMeta]
    """The metadata of each package, by its name."""
    found: Mapping[str, PackedPackage]
    made: Mapping[str, PackedPackage]
    """The packed packages that were in the cache, and those that this build packed, by name."""
    whole: bool
    """Whether all packages are in the tree; otherwise those that are packed need not be."""

    @property
    def packed(self) -> tuple[PackedPackage, ...]:
        """All packed packages, sorted by name."""
        return tuple(part for _, part in sorted({**self.found, **self.made}.items()))

    @property
    def packed_meta(self) -> dict[str, PackageMeta]:
        """The metadata of the packed packages."""
        return {part.record.name: self.meta[part.record.name] for part in self.packed}

    def paths(self) -> set[str]:
        """Return the paths in the image that the packed packages have."""
        return packed_paths(self.packed, self.packed_meta.values())

    def without(self, names: Collection[str]) -> LinkedPackages:
        """Return a copy that does not pack some packages."""
        found, made = ({k: v for k, v in parts.items() if k not in names} for parts in (self.found, self.made))
        return replace(self, found=found, made=made)


class CondaContext(msgspec.Struct, frozen=True):
    """The recipe, tools and folders of an environment; the container has the layer at its final path."""

    recipe: Recipe
    variables: tuple[tuple[str, str], ...]
    """The variables that the image sets."""
    build_container: BuildContainer
    settings: UvSettings
    layer: Path
    """The tree into which the packages are linked."""
    work: Path
    step: Step
    spare: Path | None = None
    """A further folder of unpacked conda packages, that of a bundle, or None."""
    cache: CondaCache | None = None
    """The cache of packed packages; None to pack all of them together."""
    base: str = ""
    """Digest of the base."""
    for_site: bool = False
    """Whether the image is for a site, for whose GPUs torch is checked."""
    prepare: PreparePins | None = None
    shared: Path | None = None
    """See `argosy.builder.python.installer.Installer`."""

    @property
    def prefix(self) -> Path:
        """Return the environment's folder on this machine."""
        return self.layer / ENV_PREFIX.lstrip("/")


def holds_conda(layer: Path) -> bool:
    """Return whether a layer contains a conda environment."""
    return (layer / ENV_PREFIX.lstrip("/") / "conda-meta").is_dir()


def make_conda(context: CondaContext, *, cuda: str, archspec: str, time: int) -> CondaEnvironment:
    """Choose and install conda packages, then the ``pip:`` section.

    Parameters
    ----------
    cuda
        CUDA version of the nodes' driver; empty for none.
    archspec
        Instruction set of the nodes; empty for the generic one.
    time
        Time for conda's history, in seconds since 1970.

    Raises
    ------
    ArgosyError
        If there is no solution, a channel is missing, or a package has the wrong digest.
    """
    container, recipe = context.build_container, context.recipe
    glibc = parse_glibc(container.run("/bin/sh", "-c", ASK_GLIBC).stdout)
    client = _make_client(recipe, container.session, context.step, glibc=glibc, cuda=cuda, archspec=archspec)
    client = replace(client, spare=context.spare)
    packages = client.choose()
    linked = _link_packages(context, client, packages, whole=bool(recipe.pip))
    write_meta(context.prefix, packages, linked.meta, requested_specs(recipe), time=time)
    held = tuple(map(_locked, packages))
    if not linked.whole:
        activation, _ = _ask_activation(context)
        return CondaEnvironment(_python_of(packages), held, activation, client.plan.notes, linked)
    return _complete_environment(context, held, linked, client.plan.notes)


def extend_conda(context: CondaContext, held: tuple[LockedPackage, ...]) -> CondaEnvironment:
    """Add pip packages to the conda environment of the base, an Argosy image."""
    made, pins = _add_pip_packages(context, held)
    if made.python:
        container, names = context.build_container, {pin.package.name for pin in pins}
        compile_layer(container, context.layer, context.work, _bytecode(context, made.python), names, context.step)
    return made


def _make_client(recipe: Recipe, session: Session, step: Step, *, glibc: str, cuda: str, archspec: str) -> CondaClient:
    host = session.host
    condarc = read_condarc(host.environment, Path(host.person.home))
    target = CondaTarget(host.target, glibc, parse_cuda(cuda), archspec)
    plan = plan_conda(recipe, condarc, target, environment=host.environment, cwd=Path(host.cwd))
    return CondaClient(session, step, plan, condarc)


def checks_conda(recipe: Recipe) -> bool:
    """Return whether `refuse_without_solution` has something to check: versions of conda packages are to be chosen."""
    return recipe.wants_conda and not recipe.conda_pins


def refuse_without_solution(recipe: Recipe, session: Session, step: Step, *, cuda: str, archspec: str) -> None:
    """Refuse an environment that has no solution over any base; the base need not exist yet."""
    if checks_conda(recipe):
        _make_client(recipe, session, step, glibc=NEWEST_GLIBC, cuda=cuda, archspec=archspec).choose()


def _link_packages(
    context: CondaContext, client: CondaClient, packages: tuple[CondaPackage, ...], *, whole: bool
) -> LinkedPackages:
    """Link the packages that are not packed yet, or all if something needs their files, and pack the new ones."""
    if context.cache is None:
        client.install(packages, context.prefix)
        return LinkedPackages(packages, read_meta(context.prefix, packages), {}, {}, whole=True)
    python = next((package for package in packages if package.name == PYTHON), None)
    cache = replace(context.cache, python=python.sha256 if python else "")
    found = cache.find(packages)
    missing = tuple(package for package in packages if package.name not in found)
    meta = {name: PackageMeta(msgspec.json.decode(part.record.meta)) for name, part in found.items()}
    whole = whole or needs_all_linked(packages, meta, for_site=context.for_site)
    wanted = packages if whole else _needed_on_disk(packages, missing, meta)
    if wanted:
        client.install(wanted, context.prefix)
        meta |= read_meta(context.prefix, missing)
    if not whole and needs_all_linked(packages, meta, for_site=context.for_site):
        whole = True
        if len(wanted) < len(packages):
            remove_path(context.prefix)
            client.install(packages, context.prefix)
            meta |= read_meta(context.prefix, missing)
    packable = packable_names(packages, meta)
    # rattler has moved some of their files.
    meta |= read_meta(context.prefix, [package for package in packages if package.name not in packable])
    packer = CondaPacker(context.build_container, context.layer, context.work, cache)
    new = [package for package in missing if package.name in packable]
    kept = {*meta} if whole else set(with_dependencies(PYTHON, meta))
    made = packer.pack(new, meta, python.version if python else "", kept)
    return LinkedPackages(packages, meta, found, made, whole).without({*meta} - packable)


def _needed_on_disk(
    packages: Collection[CondaPackage], missing: Collection[CondaPackage], meta: Mapping[str, PackageMeta]
) -> tuple[CondaPackage, ...]:
    """Return the missing packages, and those with which their modules are compiled."""
    names = {package.name for package in missing}
    names |= set(with_dependencies(PYTHON, meta)) if names else set()
    return tuple(package for package in packages if package.name in names)


def _python_of(packages: Iterable[CondaPackage]) -> BasePython | None:
    """Return the Python of an environment by its package."""
    version = next((package.version for package in packages if package.name == PYTHON), "")
    numbers = re.match(r"\d+\.\d+\.\d+", version)
    return BasePython(numbers[0] if numbers else version, INTERPRETER, (), ()) if version else None


def _complete_environment(
    context: CondaContext, held: tuple[LockedPackage, ...], linked: LinkedPackages, notes: tuple[str, ...]
) -> CondaEnvironment:
    """Run the scripts of the packages, install the ``pip:`` section, and compile what is not packed."""
    container, layer, step = context.build_container, context.layer, context.step
    scripted = packages_with_scripts(context.prefix, linked.packages, linked.meta)
    if scripted:
        # A script that appends to a hard-linked file would change it in the cache, too.
        unshare(context.prefix)
    before = file_states(layer, linked.packed_meta)
    said = tuple(run_link_scripts(container, context.prefix, scripted, step))
    made, pins = _add_pip_packages(context, held)
    linked = linked.without(changed_packages(layer, linked.packed_meta, before))
    if made.python:
        code, new = _bytecode(context, made.python), {pin.package.name for pin in pins}
        compile_conda(container, layer, context.work, code, new, step, linked.paths())
    return replace(made, notes=(*notes, *said, *made.notes), linked=linked)


def _bytecode(context: CondaContext, python: BasePython) -> BytecodeCache:
    return BytecodeCache(context.build_container.session.paths.cache / BYTECODE, python.build)


def _ask_activation(context: CondaContext) -> tuple[Activation, tuple[str, ...]]:
    container, name = context.build_container, context.recipe.name
    return ask_activation(container, context.layer, name, context.variables, context.step)


def _add_pip_packages(
    context: CondaContext, held: tuple[LockedPackage, ...]
) -> tuple[CondaEnvironment, tuple[Pin, ...]]:
    """Compute the activation of an environment, and install the ``pip:`` section, without byte code."""
    has_python = (context.prefix / "bin/python").exists()
    python = ask_interpreter(context.build_container, INTERPRETER) if has_python else None
    activation, said = _ask_activation(context)
    pins = _install_pip(context, python, held, activation)
    added = {pin.package.name: pin.package for pin in pins}
    kept = [package for package in held if package.kind is PackageKind.CONDA or package.name not in added]
    packages = tuple(sorted((*kept, *added.values()), key=lambda package: (package.name, package.kind)))
    return CondaEnvironment(python, packages, activation, said), pins


def take_unpacked(context: CondaContext, linked: LinkedPackages, tree: Path) -> PackedParts:
    """Move the files that are not packed into another tree, and return the packed packages."""
    move_others(context.layer, tree, linked.paths())
    trees = (context.layer, context.work / TREES)
    return PackedParts(tuple(linked.found.values()), (), (), tuple(linked.made.values()), trees)


def _locked(package: CondaPackage) -> LockedPackage:
    hashes = (package.sha256,) if package.sha256 else ()
    return LockedPackage(
        package.name,
        package.version,
        hashes,
        kind=PackageKind.CONDA,
        build=package.build,
        url=package.url,
        md5=package.md5,
    )


def _install_pip(
    context: CondaContext, python: BasePython | None, held: tuple[LockedPackage, ...], activation: Activation
) -> tuple[Pin, ...]:
    """Install the ``pip:`` section in the activated environment, because conda may have installed git or compilers."""
    recipe, uv_cache = context.recipe, context.build_container.session.paths.cache / "uv"
    if not recipe.pip:
        return ()
    if python is None:
        raise CheckFailed(
            "cannot install pip packages: the environment has no Python", hint="add python to the dependencies"
        )
    refuse_pip_over_conda(recipe, python, held)
    installer = Installer(
        context.build_container,
        python,
        context.settings,
        context.layer,
        context.work,
        builds=separate_builds(uv_cache, context.base, context.settings, (f"{p.name}={p.version}" for p in held)),
        activated=render_env_script(activation),
        prepare=context.prepare,
        shared=context.shared,
    )
    early, late = split_late(recipe)
    pins = _resolve_and_install(installer, early, context.step)
    return (*pins, *_resolve_and_install(installer.after(pins), late, context.step))


def _resolve_and_install(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    if not recipe.pip:
        return ()
    try:
        pins = resolve(installer, recipe, step)
    except NoVersions as error:
        if dict(installer.python.packages).keys() & mentioned_names(error.evidence):
            error.hint = (
                "conda chose these versions: request another version from conda, or install the package with pip"
            )
        raise
    if pins:
        install_pins(installer, pins, step, exact=recipe.exact)
    return pins


def refuse_pip_over_conda(recipe: Recipe, python: BasePython, held: tuple[LockedPackage, ...]) -> None:
    """Refuse pip requirements that would replace a conda package, because other conda packages might break."""
    there = dict(python.packages)
    ours = {package.name for package in held if package.kind is PackageKind.PYPI}
    for demand in asked_demands(recipe):
        name = canonicalize_name(demand.requirement.name)
        if name not in there or name in ours or meets(there[name], demand.requirement):
            continue
        conda = next((p for p in held if p.name == name and p.kind is PackageKind.CONDA), None)
        installed = f"{conda.name} {conda.version} {conda.build}" if conda else name
        raise CheckFailed(
            f"pip would replace the conda package {name}",
            evidence=f"{demand.by}: {demand.requirement}\n"
            f"conda installed {installed} (for Python: {name}=={there[name]})",
            hint=f"request that version from conda, or install {name} only with pip",
        )
