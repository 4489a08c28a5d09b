"""Run the scripts of conda packages in the build container: link scripts, and activation scripts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.builder.conda_meta import PackageMeta, dependency_order
from argosy.core.layout import ENV_PREFIX, ENV_SCRIPT, Activation, parse_env_script
from argosy.core.session import Step
from argosy.recipes.conda_activation import parse_activation, plan_before, render_ask_activation
from argosy.recipes.conda_answer import CondaPackage

BY_BASH = 'PATH="$CONDA_PREFIX/bin:$PATH"; export PATH; bash=$(command -v bash) || bash=sh; exec "$bash" "$@"'
"""Runs a script with bash, for which packages write them; falls back to sh if there is no bash."""


class LinkScript(msgspec.Struct, frozen=True):
    """A link script, which a package runs after its installation, by its path in the container."""

    package: CondaPackage
    inside: str


def link_scripts(
    prefix: Path, packages: Collection[CondaPackage], meta: Mapping[str, PackageMeta]
) -> tuple[LinkScript, ...]:
    """List the link scripts in a prefix, each after those of the package's dependencies."""
    order = dependency_order(meta)
    scripts = (
        (package, prefix / f"bin/.{package.name}-post-link.sh")
        for package in sorted(packages, key=lambda package: order.index(package.name))
    )
    return tuple(LinkScript(package, f"{ENV_PREFIX}/bin/{path.name}") for package, path in scripts if path.is_file())


def unshare(prefix: Path) -> None:
    """Replace each hard link into the cache by a copy."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_nlink > 1:
                copy = path.with_name(f"{name}.argosy-copy")
                shutil.copy2(path, copy)
                copy.replace(path)


def run_link_scripts(
    build_container: BuildContainer, prefix: Path, scripts: Collection[LinkScript], step: Step
) -> Iterator[str]:
    """Run link scripts, and return their messages."""
    for script in scripts:
        step.say(f"running {script.inside}")
        build_container.run_checked(
            *("/bin/sh", "-c", BY_BASH, "sh", script.inside),
            variables=_script_variables(script),
            doing=f"the link script of {script.package.name}",
        )
    messages = prefix / ".messages.txt"
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


def _computed_before(layer: Path, given: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the variables of the activation in the base's layer, except those that are given now."""
    script = layer / ENV_SCRIPT.lstrip("/")
    earlier = parse_env_script(script.read_text(encoding="utf-8", errors="replace")).default if script.is_file() else ()
    return tuple(name for name, _ in earlier if name not in dict(given))


def ask_activation(
    build_container: BuildContainer, layer: Path, name: str, variables: tuple[tuple[str, str], ...], step: Step
) -> tuple[Activation, tuple[str, ...]]:
    """Compute the activation once; if the packages' scripts fail, return a note and an activation without them."""
    if not any((layer / ENV_PREFIX.lstrip("/")).glob("etc/conda/activate.d/*.sh")):
        return parse_activation("", name, variables), ()
    step.say("computing the activation")
    before = plan_before(name, variables)
    script = ("/bin/sh", "-c", BY_BASH, "sh", "-c", render_ask_activation(_computed_before(layer, before)))
    reply = build_container.run(*script, variables=before)
    if reply.code != 0:
        last = (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1]
        return parse_activation("", name, variables), (f"the packages' activation scripts failed: {last}",)
    return parse_activation(reply.stdout, name, variables), ()
