"""Make a conda environment in a layer: conda's packages, then pip's by the environment's own Python; byte code once.

The files lie in the layer's tree and name ``/opt/argosy/env``, where they will be found.  What has to run (pip, link
scripts, byte compilation, activation) runs inside the base's root with the layer at that path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import BuildContainer
from argosy.builder.bases.python import BasePython, ask_interpreter
from argosy.builder.conda.prefix import LinkScript, link_scripts, tidy_conda_meta, unshare
from argosy.builder.python.bytecode import compile_conda, compile_layer
from argosy.builder.python.bytecode_cache import BYTECODE, Compiled
from argosy.builder.python.conflicts import asked_demands, meets
from argosy.builder.python.packages import Installer, PreparePins, install_pins, mount_installation_folders, resolve
from argosy.builder.python.pins import Pin
from argosy.core.errors import CheckFailed, NoVersions
from argosy.core.layout import ENV_PREFIX, Activation, render_env_script
from argosy.core.locks import hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.recipes.conda_activation import parse_activation, plan_before, render_ask_activation
from argosy.recipes.conda_answer import CondaPackage, parse_answer
from argosy.recipes.conda_request import (
    CondaPlan,
    CondaTarget,
    certificates,
    parse_cuda,
    parse_glibc,
    plan_conda,
    render_request,
    requested_specs,
)
from argosy.recipes.condarc import Condarc, read_condarc
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import UvSettings

PYTHON = f"{ENV_PREFIX}/bin/python"
ASK_GLIBC = "getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 || :"
BY_BASH = 'PATH="$CONDA_PREFIX/bin:$PATH"; export PATH; bash=$(command -v bash) || bash=sh; exec "$bash" "$@"'
"""Packages' scripts are written for bash; a base may have none."""


Compile = Callable[[BuildContainer, Path, Path, Compiled, Collection[str], Step], None]


class CondaEnvironment(msgspec.Struct, frozen=True):
    """An environment that was made.

    Attributes
    ----------
    python
        Its Python; None where it has none.
    """

    python: BasePython | None
    packages: tuple[LockedPackage, ...]
    activation: Activation
    notes: tuple[str, ...]


class CondaContext(msgspec.Struct, frozen=True):
    """Where an environment is made: the room has the layer at its final path.

    Attributes
    ----------
    spare
        A folder of unpacked conda packages that is looked at beside the cache: a bundle's; None: there is none.
    prepare, shared
        As of `argosy.builder.python.packages.Installer`.
    """

    build_container: BuildContainer
    session: Session
    settings: UvSettings
    layer: Path
    work: Path
    step: Step
    spare: Path | None = None
    prepare: PreparePins | None = None
    shared: Path | None = None

    @property
    def prefix(self) -> Path:
        """Give where the environment's files lie on this machine."""
        return self.layer / ENV_PREFIX.lstrip("/")


def open_conda_context(
    build_container: BuildContainer,
    settings: UvSettings,
    step: Step,
    *,
    layer: Path,
    work: Path,
    spare: Path | None,
) -> CondaContext:
    """Furnish a room for an environment of its own."""
    with_mounts = mount_installation_folders(
        build_container, settings, layer=layer, work=work, cache=build_container.session.paths.cache / "uv"
    )
    return CondaContext(with_mounts, build_container.session, settings, layer, work, step, spare)


def holds_conda(layer: Path) -> bool:
    """Tell whether a layer's environment is conda's."""
    return (layer / ENV_PREFIX.lstrip("/") / "conda-meta").is_dir()


def make_conda(
    context: CondaContext,
    recipe: Recipe,
    variables: tuple[tuple[str, str], ...],
    *,
    cuda: str,
    archspec: str,
    time: int,
) -> CondaEnvironment:
    """Choose and install conda's packages, then what stands under ``pip:``.

    Parameters
    ----------
    cuda
        Version of CUDA that the nodes' driver supports; empty: none.
    archspec
        Instruction set of the nodes; empty: the common one.
    time
        Seconds since 1970, for conda's history.

    Raises
    ------
    ArgosyError
        As conda and uv say: nothing fits, a channel is not there, bytes are not those announced.
    """
    host = context.session.host
    glibc = parse_glibc(context.build_container.run("/bin/sh", "-c", ASK_GLIBC).stdout)
    condarc = read_condarc(host.environment, Path(host.person.home))
    target = CondaTarget(host.target, glibc, parse_cuda(cuda), archspec)
    plan = plan_conda(recipe, condarc, target, environment=host.environment, cwd=Path(host.cwd))
    chosen = _run_worker(context, plan, condarc)
    tidy_conda_meta(context.prefix, requested_specs(recipe), time=time)
    notes = [*plan.notes, *_run_link_scripts(context, chosen)]
    return _complete(context, recipe, variables, tuple(map(_locked, chosen)), notes, compiling=compile_conda)


def extend_conda(
    context: CondaContext, recipe: Recipe, variables: tuple[tuple[str, str], ...], held: tuple[LockedPackage, ...]
) -> CondaEnvironment:
    """Add pip packages to the conda environment that an image of ours, taken as base, has."""
    return _complete(context, recipe, variables, held, [], compiling=compile_layer)


def _complete(
    context: CondaContext,
    recipe: Recipe,
    variables: tuple[tuple[str, str], ...],
    held: tuple[LockedPackage, ...],
    notes: list[str],
    *,
    compiling: Compile,
) -> CondaEnvironment:
    python = ask_interpreter(context.build_container, PYTHON) if (context.prefix / "bin/python").exists() else None
    activation, said = _ask_activation(context, recipe.name, variables)
    pins = _install_pip(context, recipe, python, held, activation)
    if python:
        code = Compiled(context.session.paths.cache / BYTECODE, python.build)
        compiling(
            context.build_container, context.layer, context.work, code, {pin.package.name for pin in pins}, context.step
        )
    added = {pin.package.name: pin.package for pin in pins}
    kept = [package for package in held if package.kind is PackageKind.CONDA or package.name not in added]
    packages = tuple(sorted((*kept, *added.values()), key=lambda package: (package.name, package.kind)))
    return CondaEnvironment(python, packages, activation, (*notes, *said))


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


def _run_worker(context: CondaContext, plan: CondaPlan, condarc: Condarc) -> tuple[CondaPackage, ...]:
    session = context.session
    cache = session.paths.cache / "conda"
    with translate_os_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        context.prefix.parent.mkdir(parents=True, exist_ok=True)
    request = render_request(plan, cache=cache, tree=context.prefix, prefix=ENV_PREFIX, spare=context.spare)
    words = (sys.executable, "-m", "argosy.recipes.conda_worker")
    command = Command(words, env=_worker_environment(session, condarc), stdin=request)
    # One at a time fills the cache: locks of rattler's own do not hold on every network file system.
    with hold_lock(cache / "lease", what="installing conda packages", waiting=session.waiting):
        reply = session.runner.run(command, lambda line: context.step.say(line.strip()))
    return parse_answer(reply, plan)


def _worker_environment(session: Session, condarc: Condarc) -> dict[str, str]:
    """Give the caller's network settings and logins, and nothing of another Python or conda."""
    host = session.host.environment
    kept = {name: value for name, value in host.items() if not name.startswith(("PYTHON", "CONDA", "MAMBA"))}
    kept |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
    if roots := certificates(condarc, host):
        kept["SSL_CERT_FILE"] = roots
    return kept


def _run_link_scripts(context: CondaContext, chosen: tuple[CondaPackage, ...]) -> Iterator[str]:
    """Run what packages want to be run after they were installed, at the prefix that they were installed for."""
    scripts = link_scripts(context.prefix, chosen)
    if scripts:
        # A script that appends to a file would change it in the cache too, for all later environments.
        unshare(context.prefix)
    for script in scripts:
        context.step.say(f"running {script.inside}")
        context.build_container.run_checked(
            *("/bin/sh", "-c", BY_BASH, "sh", script.inside),
            variables=_script_variables(script),
            doing=f"the link script of {script.package.name}",
        )
    messages = context.prefix / ".messages.txt"
    if messages.is_file():
        yield from messages.read_text(errors="replace", encoding="utf-8").strip().splitlines()
        messages.unlink()


def _script_variables(script: LinkScript) -> tuple[tuple[str, str], ...]:
    package = script.package
    return (
        ("PREFIX", ENV_PREFIX),
        ("CONDA_PREFIX", ENV_PREFIX),
        ("ROOT_PREFIX", ENV_PREFIX),
        ("PKG_NAME", package.name),
        ("PKG_VERSION", package.version),
        ("PKG_BUILDNUM", package.build.rpartition("_")[2]),
    )


def _install_pip(
    context: CondaContext,
    recipe: Recipe,
    python: BasePython | None,
    held: tuple[LockedPackage, ...],
    activation: Activation,
) -> tuple[Pin, ...]:
    """Install what stands under ``pip:``, in the activated environment: conda may have brought git and compilers."""
    if not recipe.pip:
        return ()
    if python is None:
        raise CheckFailed("the environment has no Python for its pip packages", hint="list python as a dependency")
    judge_pip(recipe, python, held)
    installer = Installer(context.build_container, python, context.settings, context.layer, context.work)
    installer = replace(installer, prepare=context.prepare, shared=context.shared)
    installer = replace(installer, activated=render_env_script(activation))
    late = tuple(line for line in recipe.pip if line.name in recipe.unisolated)
    pins = _resolve_and_install(
        installer, replace(recipe, pip=tuple(x for x in recipe.pip if x not in late)), context.step
    )
    if not late:
        return pins
    there = {**dict(python.packages), **{pin.package.name: pin.package.version for pin in pins}}
    second = replace(installer, python=replace(python, packages=tuple(there.items())), fresh=True)
    return (*pins, *_resolve_and_install(second, replace(recipe, pip=late), context.step))


def _resolve_and_install(installer: Installer, recipe: Recipe, step: Step) -> tuple[Pin, ...]:
    if not recipe.pip:
        return ()
    try:
        pins = resolve(installer, recipe, step)
    except NoVersions as error:
        error.hint = "exact versions that you did not write are conda's: ask conda for another one, or leave it to pip"
        raise
    if pins:
        install_pins(installer, pins, step, exact=recipe.exact)
    return pins


def judge_pip(recipe: Recipe, python: BasePython, held: tuple[LockedPackage, ...]) -> None:
    """Refuse requirements for which pip would replace a package of conda's: others of conda's would break unseen.

    Raises
    ------
    CheckFailed
        Naming the line, and the package that is there.
    """
    there = dict(python.packages)
    ours = {package.name for package in held if package.kind is PackageKind.PYPI}
    for demand in asked_demands(recipe):
        name = str(canonicalize_name(demand.requirement.name))
        if name not in there or name in ours or meets(there[name], demand.requirement):
            continue
        conda = next((p for p in held if p.name == name and p.kind is PackageKind.CONDA), None)
        brought = f"conda installed {conda.name} {conda.version} {conda.build}" if conda else f"conda installed {name}"
        raise CheckFailed(
            f"pip may not replace conda's {name}",
            evidence=f"{demand.by}: {demand.requirement}\n{brought} (for Python: {name}=={there[name]})",
            hint=f"ask conda for the version wanted, or leave {name} to pip alone",
        )


def _ask_activation(
    context: CondaContext, name: str, variables: tuple[tuple[str, str], ...]
) -> tuple[Activation, tuple[str, ...]]:
    """Compute the activation once; where the scripts of packages break the shell, say so and go without them."""
    if not any(context.prefix.glob("etc/conda/activate.d/*.sh")):
        return parse_activation("", name, variables), ()
    context.step.say("computing the activation")
    before = plan_before(name, variables)
    script = ("/bin/sh", "-c", BY_BASH, "sh", "-c", render_ask_activation())
    reply = context.build_container.run(*script, variables=before)
    if reply.code != 0:
        last = (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1]
        return parse_activation("", name, variables), (f"the packages' activation scripts failed: {last}",)
    return parse_activation(reply.stdout, name, variables), ()
