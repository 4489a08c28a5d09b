"""Run the scripts of conda packages in the build container: link scripts, and activation scripts.

conda sources ``etc/conda/activate.d/*.sh`` at each activation. Argosy sources these scripts once at build, in a shell
inside the base, and converts the changes of its environment to plain exports: starting the environment needs no conda.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.conda_packages import PackageMeta, dependency_order
from argosy.core.layout import ENV_PREFIX, ENV_SCRIPT, Activation, parse_env_script, plan_activation
from argosy.core.session import Step
from argosy.recipes.conda_request import CondaPackage

BY_BASH = 'PATH="$CONDA_PREFIX/bin:$PATH"; export PATH; bash=$(command -v bash) || bash=sh; exec "$bash" "$@"'
"""Runs a script with bash, for which packages write them; falls back to sh if there is no bash."""

MARK = "argosy-before"
SENTINEL = "/.argosy/what-was-there"
"""Value of PATH-like variables before the scripts run; it shows which text they add before and after it."""

LISTS = ("LD_LIBRARY_PATH", "MANPATH", "PKG_CONFIG_PATH", "XDG_DATA_DIRS")
"""PATH-like variables that are usually unset or empty; PATH itself is always set."""

SHELL_VARIABLES = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "SHELLOPTS", "BASHOPTS", "LINES", "COLUMNS"})
IGNORED_PREFIXES = ("CONDA_BACKUP_", "_CONDA_", "CE_", "_CE_")
"""Prefixes of variables for a later deactivation, which never happens."""


def packages_with_scripts(
    prefix: Path, packages: Collection[CondaPackage], meta: Mapping[str, PackageMeta]
) -> list[CondaPackage]:
    """Return the packages with a link script, which runs after their installation; each after its dependencies."""
    order = dependency_order(meta)
    found = (package for package in packages if (prefix / _link_script(package)).is_file())
    return sorted(found, key=lambda package: order.index(package.name))


def _link_script(package: CondaPackage) -> str:
    return f"bin/.{package.name}-post-link.sh"


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
    build_container: BuildContainer, prefix: Path, packages: Iterable[CondaPackage], step: Step
) -> Iterator[str]:
    """Run the link scripts of packages, and return their messages."""
    for package in packages:
        script = f"{ENV_PREFIX}/{_link_script(package)}"
        step.say(f"running {script}")
        build_container.run_checked(
            *("/bin/sh", "-c", BY_BASH, "sh", script),
            variables=_script_variables(package),
            doing=f"the link script of {package.name}",
        )
    messages = prefix / ".messages.txt"
    if messages.is_file():
        yield from messages.read_text(errors="replace", encoding="utf-8").strip().splitlines()
        messages.unlink()


def _script_variables(package: CondaPackage) -> tuple[tuple[str, str], ...]:
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
    before = _plan_before(name, variables)
    script = ("/bin/sh", "-c", BY_BASH, "sh", "-c", render_ask_activation(_computed_before(layer, before)))
    reply = build_container.run(*script, variables=before)
    if reply.code != 0:
        last = (reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1]
        return parse_activation("", name, variables), (f"the packages' activation scripts failed: {last}",)
    return parse_activation(reply.stdout, name, variables), ()


def render_ask_activation(unset: Iterable[str] = ()) -> str:
    """Render the script that a shell of the base runs; `parse_activation` parses its output.

    It prints the environment, separated by null bytes, before and after sourcing. As in conda, failing scripts are
    ignored. It tests files with ``-e``, because ``-r`` is always false in proot 5.1, which does not translate
    faccessat2.

    Parameters
    ----------
    unset
        Variables that the base sets because an earlier build computed them, and that the scripts may set again.
    """
    return (
        "".join(f"unset {name}\n" for name in unset) + f'env -0\nprintf "%s\\0" {MARK}\n'
        'for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do\n'
        '    [ ! -e "$file" ] || . "$file" >&2 || :\n'
        "done\n"
        "env -0\n"
    )


def _plan_before(name: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the environment for sourcing the scripts: conda's own variables and those of the environment file."""
    conda = (("CONDA_PREFIX", ENV_PREFIX), ("CONDA_DEFAULT_ENV", name or ENV_PREFIX), ("CONDA_SHLVL", "1"))
    return (*((each, SENTINEL) for each in LISTS), *conda, *variables)


def parse_activation(text: str, name: str, extra: tuple[tuple[str, str], ...]) -> Activation:
    """Return the activation of a conda environment, from the changes that its scripts made.

    Parameters
    ----------
    text
        Output of the script of `render_ask_activation`, or empty.
    name
        The environment's name. If it is empty, the path is used.
    extra
        Variables of the environment file, which replace those of packages.
    """
    before, _, after = text.partition(f"{MARK}\0")
    old, new = _variables(before), _variables(after)
    prepend: list[tuple[str, str]] = []
    default: dict[str, str] = {}
    for key, value in new.items():
        if old.get(key) == value or key in SHELL_VARIABLES or key.startswith(IGNORED_PREFIXES):
            continue
        first = _added_text(value, old.get(key, ""))
        if first:
            prepend.append((key, first))
        elif SENTINEL not in value and old.get(key) is None:
            default[key] = value
    plain = plan_activation()
    path = _path(old.get("PATH", ""), new.get("PATH", ""))
    kept = tuple(pair for pair in plain.identity if pair[0] != "VIRTUAL_ENV")
    return Activation(
        prepend=(("PATH", path), *(pair for pair in prepend if pair[0] != "PATH")),
        identity=(*kept, ("CONDA_PREFIX", ENV_PREFIX), ("CONDA_DEFAULT_ENV", name or ENV_PREFIX)),
        default=tuple((default | dict(extra)).items()),
    )


def _path(old: str, new: str) -> str:
    """Return the folders of the environment for the PATH: those that scripts put before its programs come first."""
    first, _, last = new.partition(old) if old and old in new else ("", "", "")
    return ":".join(dict.fromkeys(filter(None, (*first.split(":"), f"{ENV_PREFIX}/bin", *last.split(":")))))


def _variables(text: str) -> Mapping[str, str]:
    rows = (row.partition("=") for row in text.split("\0") if "=" in row)
    return {name: value for name, _, value in sorted(rows) if name.isidentifier()}


def _added_text(value: str, old: str) -> str:
    """Return the text that a script added to a PATH-like variable; text added at the end is moved to the front."""
    if not old or old not in value:
        return ""
    return ":".join(part for part in value.replace(old, "").split(":") if part)
