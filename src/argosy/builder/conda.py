"""Install a conda environment into a layer: conda packages, then pip packages with the environment's own Python.

The files refer to ``/opt/argosy/env``, their path in the image.  Programs (pip, link scripts, byte compilation,
activation) run in the build container with the layer mounted at that path.  The files of the prefix are normalised, so
that they do not depend on the machine that installed them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import BuildContainer
from argosy.builder.python.base_python import BasePython, ask_interpreter
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_conda, compile_layer
from argosy.builder.python.packages import Installer, PreparePins, install_pins, mount_installation_folders, resolve
from argosy.builder.python.pins import Pin, asked_demands, meets
from argosy.core.errors import CheckFailed, NoVersions
from argosy.core.layout import ENV_PREFIX, ENV_SCRIPT, Activation, parse_env_script, render_env_script
from argosy.core.locks import hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import parse_json
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.redact import redact
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
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.condarc import Condarc, read_condarc
from argosy.recipes.lock import LockedPackage, PackageKind
from argosy.recipes.recipe import Recipe, Where
from argosy.recipes.uv_options import UvSettings

FILE_KEYS = ("fn", "md5", "sha256", "files", "paths_data")
"""Keys of conda-meta about a package's file and its files in the prefix."""

MACHINE_KEYS = ("link", "extracted_package_dir", "package_tarball_full_path", "indexed_timestamp")
"""Keys of conda-meta about the package cache or the time of installation."""

_LINK_SCRIPT = re.compile(r"\.(?P<name>.+)-post-link\.sh\Z")


class LinkScript(msgspec.Struct, frozen=True):
    """A link script, which a package runs after its installation, by its path in the container."""

    package: CondaPackage
    inside: str


def tidy_conda_meta(prefix: Path, requested: Iterable[str], *, time: int) -> None:
    """Normalise the records of installed packages: the same bytes for any cache, link type, umask and channel.

    The metadata come from the package itself, not from the channel's index, which a build from a lock does not read.

    Parameters
    ----------
    requested
        The requested specs in conda's syntax; ``conda env export --from-history`` shows them.
    time
        Time of the history entry, in seconds since 1970.
    """
    asked: dict[str, list[str]] = {}
    for text in requested:
        asked.setdefault(parse_conda_spec(text, Where("", 0)).name, []).append(text)
    urls = []
    for file in sorted((prefix / "conda-meta").glob("*.json")):
        record = parse_json(file.read_text(encoding="utf-8"))
        index = _index_of(record)
        url = redact(record["url"])
        kept = index | {key: record[key] for key in FILE_KEYS if record.get(key)}
        kept |= {"url": url, "channel": url.rsplit("/", 2)[0], "requested_specs": asked.get(record["name"], [])}
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        urls.append(url)
    (prefix / "conda-meta/history").write_text(_render_history(urls, requested, time), encoding="utf-8")
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _index_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the package's ``info/index.json``; without one, the metadata of the channel."""
    index = Path(record.get("extracted_package_dir", ""), "info/index.json")
    if not index.is_file():
        return {key: value for key, value in record.items() if key not in MACHINE_KEYS}
    data: dict[str, Any] = parse_json(index.read_text(encoding="utf-8"))
    return data


def _render_history(urls: Iterable[str], requested: Iterable[str], time: int) -> str:
    """Render one transaction in the form of conda's own history file."""
    moment = datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    rows = sorted(re.sub(r"\.(?:conda|tar\.bz2)\Z", "", url) for url in urls)
    added = [f"+{channel}::{name}" for channel, _, name in (row.rpartition("/") for row in rows)]
    specs = [f"# update specs: {json.dumps(list(requested))}"] if requested else []
    return "\n".join((f"==> {moment} <==", "# cmd: argosy build", *added, *specs)) + "\n"


def _installation_order(prefix: Path) -> list[str]:
    """Return the names of installed packages after their dependencies; cycles are broken by name."""
    records = [parse_json(file.read_text(encoding="utf-8")) for file in sorted((prefix / "conda-meta").glob("*.json"))]
    depends = {record["name"]: sorted(text.split()[0] for text in record.get("depends", ())) for record in records}
    order: dict[str, None] = {}
    waiting = [(name, False) for name in sorted(depends, reverse=True)]
    begun: set[str] = set()
    while waiting:
        name, done = waiting.pop()
        if done:
            order[name] = None
        elif name in depends and name not in begun:
            begun.add(name)
            waiting += [(name, True), *((other, False) for other in reversed(depends[name]))]
    return list(order)


def link_scripts(prefix: Path, chosen: Iterable[CondaPackage]) -> tuple[LinkScript, ...]:
    """List the link scripts in a prefix, each after those of the package's dependencies."""
    order = _installation_order(prefix)
    chosen = sorted(chosen, key=lambda package: order.index(package.name))
    found = {match["name"]: path for path in (prefix / "bin").glob(".*") if (match := _LINK_SCRIPT.match(path.name))}
    return tuple(
        LinkScript(package, f"{ENV_PREFIX}/bin/{found[package.name].name}")
        for package in chosen
        if package.name in found
    )


def unshare(prefix: Path) -> None:
    """Replace each hard link into the cache by a copy."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_nlink > 1:
                copy = path.with_name(f"{name}.argosy-copy")
                shutil.copy2(path, copy)
                copy.replace(path)


PYTHON = f"{ENV_PREFIX}/bin/python"
ASK_GLIBC = "getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 || :"
BY_BASH = 'PATH="$CONDA_PREFIX/bin:$PATH"; export PATH; bash=$(command -v bash) || bash=sh; exec "$bash" "$@"'
"""Runs a script with bash, for which packages write them; falls back to sh if there is no bash."""

Compile = Callable[[BuildContainer, Path, Path, BytecodeCache, Collection[str], Step], None]


class CondaEnvironment(msgspec.Struct, frozen=True):
    """An installed environment.

    Attributes
    ----------
    python
        Its Python, or None.
    """

    python: BasePython | None
    packages: tuple[LockedPackage, ...]
    activation: Activation
    notes: tuple[str, ...]


class CondaContext(msgspec.Struct, frozen=True):
    """The tools and folders that install an environment; the container has the layer at its final path.

    Attributes
    ----------
    spare
        A further folder of unpacked conda packages, that of a bundle, or None.
    prepare, shared
        See `argosy.builder.python.packages.Installer`.
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
        """Return the environment's folder on this machine."""
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
    """Mount the installation folders into a container for a conda environment."""
    with_mounts = mount_installation_folders(
        build_container, settings, layer=layer, work=work, cache=build_container.session.paths.cache / "uv"
    )
    return CondaContext(with_mounts, build_container.session, settings, layer, work, step, spare)


def holds_conda(layer: Path) -> bool:
    """Return whether a layer contains a conda environment."""
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
    """Add pip packages to the conda environment of the base, an Argosy image."""
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
        code = BytecodeCache(context.session.paths.cache / BYTECODE, python.build)
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
    argv = (sys.executable, "-m", "argosy.recipes.conda_worker")
    command = Command(argv, env=_worker_environment(session, condarc), stdin=request)
    # One process at a time fills the cache: rattler's own locks do not work on every network file system.
    with hold_lock(cache / "lease", what="installing conda packages", waiting=session.waiting):
        reply = session.runner.run(command, lambda line: context.step.say(line.strip()))
    return parse_answer(reply, plan)


def _worker_environment(session: Session, condarc: Condarc) -> dict[str, str]:
    """Return the caller's environment without variables of another Python or conda."""
    host = session.host.environment
    kept = {name: value for name, value in host.items() if not name.startswith(("PYTHON", "CONDA", "MAMBA"))}
    kept |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
    if roots := certificates(condarc, host):
        kept["SSL_CERT_FILE"] = roots
    return kept


def _run_link_scripts(context: CondaContext, chosen: tuple[CondaPackage, ...]) -> Iterator[str]:
    """Run the link scripts of the installed packages."""
    scripts = link_scripts(context.prefix, chosen)
    if scripts:
        # A script that appends to a hard-linked file would change it in the cache, too.
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
    """Install the ``pip:`` section in the activated environment, because conda may have installed git or compilers."""
    if not recipe.pip:
        return ()
    if python is None:
        raise CheckFailed(
            "cannot install pip packages: the environment has no Python", hint="add python to the dependencies"
        )
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
        error.hint = "conda chose these versions: request another version from conda, or install the package with pip"
        raise
    if pins:
        install_pins(installer, pins, step, exact=recipe.exact)
    return pins


def judge_pip(recipe: Recipe, python: BasePython, held: tuple[LockedPackage, ...]) -> None:
    """Refuse pip requirements that would replace a conda package, because other conda packages might break.

    Raises
    ------
    CheckFailed
        The evidence shows the line, and the installed package.
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
            f"pip would replace the conda package {name}",
            evidence=f"{demand.by}: {demand.requirement}\n{brought} (for Python: {name}=={there[name]})",
            hint=f"request that version from conda, or install {name} only with pip",
        )


def _computed_before(layer: Path, given: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the variables of the activation in the base's layer, except those that are given now."""
    script = layer / ENV_SCRIPT.lstrip("/")
    earlier = parse_env_script(script.read_text(encoding="utf-8", errors="replace")).default if script.is_file() else ()
    return tuple(name for name, _ in earlier if name not in dict(given))


def _ask_activation(
    context: CondaContext, name: str, variables: tuple[tuple[str, str], ...]
) -> tuple[Activation, tuple[str, ...]]:
    """Compute the activation once; if the packages' scripts fail, return a note and an activation without them."""
    if not any(context.prefix.glob("etc/conda/activate.d/*.sh")):
        return parse_activation("", name, variables), ()
    context.step.say("computing the activation")
    before = plan_before(name, variables)
    script = ("/bin/sh", "-c", BY_BASH, "sh", "-c", render_ask_activation(_computed_before(context.layer, before)))
    reply = context.build_container.run(*script, variables=before)
    if reply.code != 0:
        last = (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1]
        return parse_activation("", name, variables), (f"the packages' activation scripts failed: {last}",)
    return parse_activation(reply.stdout, name, variables), ()
