"""Compute the variables that activating a conda environment sets, so that starting it needs no conda.

conda sources ``etc/conda/activate.d/*.sh`` at each activation. Argosy sources these scripts once at build, in a shell
inside the base, and converts the changes of its environment to plain exports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from argosy.core.layout import ENV_PREFIX, Activation, plan_activation

MARK = "argosy-before"
SENTINEL = "/.argosy/what-was-there"
"""Value of PATH-like variables before the scripts run; it shows which text they add before and after it."""

LISTS = ("LD_LIBRARY_PATH", "MANPATH", "PKG_CONFIG_PATH", "XDG_DATA_DIRS")
"""PATH-like variables that are usually unset or empty; PATH itself is always set."""

SHELL_VARIABLES = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "SHELLOPTS", "BASHOPTS", "LINES", "COLUMNS"})
IGNORED_PREFIXES = ("CONDA_BACKUP_", "_CONDA_", "CE_", "_CE_")
"""Prefixes of variables for a later deactivation, which never happens."""


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


def plan_before(name: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
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


def _added_text(value: str, old: str) -> str:
    """Return the text that a script added to a PATH-like variable; text added at the end is moved to the front."""
    if not old or old not in value:
        return ""
    return ":".join(part for part in value.replace(old, "").split(":") if part)
