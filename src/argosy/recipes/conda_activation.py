"""Find out once what a conda environment's activation sets, so that starting it needs no conda; pure text and values.

conda sources ``etc/conda/activate.d/*.sh`` at each activation.  Here a shell inside the base sources them at build,
and the difference of its environment before and after becomes plain exports.
"""

from __future__ import annotations

from collections.abc import Mapping

from argosy.core.layout import ENV_PREFIX, Activation, plan_activation

MARK = "argosy-before"
SENTINEL = "/.argosy/what-was-there"
"""Stands in variables that name lists of folders, so that what scripts put before or behind it can be told."""

LISTS = ("LD_LIBRARY_PATH", "MANPATH", "PKG_CONFIG_PATH", "XDG_DATA_DIRS")
"""Lists that a machine usually has, or has empty; PATH is there anyway."""

OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "SHELLOPTS", "BASHOPTS", "LINES", "COLUMNS"})
LEFT_OUT = ("CONDA_BACKUP_", "_CONDA_", "CE_", "_CE_")
"""What scripts keep for a later deactivation, which never comes."""


def render_ask_activation() -> str:
    """Render the script that a shell of the base runs; its output is for `parse_activation`.

    It prints the environment, zero-separated, before and after sourcing; a script that fails ends nothing, as in conda.
    It asks by ``-e``: under proot 5.1 ``-r`` is false for every file (it does not translate faccessat2).
    """
    return (
        f'env -0; printf "%s\\0" {MARK}\n'
        'for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do\n'
        '    [ ! -e "$file" ] || . "$file" >&2 || :\n'
        "done\n"
        "env -0\n"
    )


def plan_before(name: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Give the environment in which the scripts are sourced: what conda sets itself, and the file's own variables."""
    conda = (("CONDA_PREFIX", ENV_PREFIX), ("CONDA_DEFAULT_ENV", name or ENV_PREFIX), ("CONDA_SHLVL", "1"))
    return (*((each, SENTINEL) for each in LISTS), *conda, *variables)


def parse_activation(text: str, name: str, extra: tuple[tuple[str, str], ...]) -> Activation:
    """Make the activation of a conda environment from what the scripts changed.

    Parameters
    ----------
    text
        What the script of `render_ask_activation` printed; empty where there are no scripts.
    name
        The environment's name; empty: its path.
    extra
        Variables of the environment file: they win over those of packages.
    """
    before, _, after = text.partition(f"{MARK}\0")
    old, new = _variables(before), _variables(after)
    prepend: list[tuple[str, str]] = []
    default: dict[str, str] = {}
    for key, value in new.items():
        if old.get(key) == value or key in OF_THE_SHELL or key.startswith(LEFT_OUT):
            continue
        first = _put_before(value, old.get(key, ""))
        if first:
            prepend.append((key, first))
        elif SENTINEL not in value and old.get(key) is None:
            default[key] = value
    plain = plan_activation()
    path = ":".join(dict.fromkeys((f"{ENV_PREFIX}/bin", *(p for k, v in prepend if k == "PATH" for p in v.split(":")))))
    kept = tuple(pair for pair in plain.identity if pair[0] != "VIRTUAL_ENV")
    return Activation(
        prepend=(("PATH", path), *(pair for pair in prepend if pair[0] != "PATH")),
        identity=(*kept, ("CONDA_PREFIX", ENV_PREFIX), ("CONDA_DEFAULT_ENV", name or ENV_PREFIX)),
        default=tuple((default | dict(extra)).items()),
    )


def _variables(text: str) -> Mapping[str, str]:
    rows = (row.partition("=") for row in text.split("\0") if "=" in row)
    return {name: value for name, _, value in sorted(rows) if name.isidentifier()}


def _put_before(value: str, old: str) -> str:
    """Give what a script put before (or behind: it cannot be behind an unknown rest) a list of folders."""
    if not old or old not in value:
        return ""
    return ":".join(part for part in value.replace(old, "").split(":") if part)
