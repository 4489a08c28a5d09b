"""Defaults of options from the environment, the user's configuration file and the system's.

The keys are the options whose row has ``config``, and the folders of Argosy. A key ``account`` is read from the
variable ``ARGOSY_ACCOUNT``, from ``~/.config/argosy/config.toml`` and from ``/etc/argosy/config.toml``, in this order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.locks import Owner
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.session import Session, config_folder, paths_from, refuse_relative
from argosy.core.store import editing, write_text
from argosy.core.suggest import did_you_mean
from argosy.core.toml_lines import describe_ignored, find_line, load_toml
from argosy.recipes.launch_options import LAUNCH
from argosy.recipes.option_row import refuse_other_choices

SYSTEM_CONFIG = Path("/etc/argosy/config.toml")
TRUSTED_FOLDERS = "trusted_folders"
FOLDERS: Mapping[str, str] = {
    "cache": "Folder of the cache. Default: ~/.cache/argosy.",
    "state": "Folder of the records of launches. Default: ~/.local/state/argosy.",
    "images": "Folders with images, separated by colons. Default: ~/.local/share/argosy/images.",
    TRUSTED_FOLDERS: "Folders, separated by colons, in which argosy.toml and argosy-sites may belong to other users.",
}
"""Keys that are not options: key -> help text."""

LISTS = frozenset({"images", TRUSTED_FOLDERS})
"""Keys of folders, separated by colons."""

VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
"""A variable in a path."""

EVERYWHERE = frozenset({"site", "mail_type", *FOLDERS})
"""Keys that do not depend on the site; the others count only for the site that their file names."""

ROWS = {name: row for name, row in LAUNCH.items() if row.config}
KEYS: Mapping[str, str] = {name: row.help for name, row in ROWS.items()} | dict(FOLDERS)
"""Every key of a configuration file -> help text."""


class ConfigSetting(msgspec.Struct, frozen=True):
    """A configured value."""

    key: str
    value: str
    source: str
    """Name of the variable, or file and line."""


def variable_name(key: str) -> str:
    """Return the environment variable of a key, for example ``ARGOSY_ACCOUNT``."""
    return f"ARGOSY_{key.upper()}"


def user_config(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's configuration file; None for a user without a home."""
    folder = config_folder(environment)
    return folder / "config.toml" if folder else None


def read_variables(environment: Mapping[str, str], keys: Collection[str] = tuple(KEYS)) -> dict[str, ConfigSetting]:
    """Return the values that environment variables set."""
    names = {key: variable_name(key) for key in keys if key in KEYS}
    found = {key: ConfigSetting(key, environment[name], name) for key, name in names.items() if environment.get(name)}
    _refuse_other_choices(found)
    return found


def read_files(
    environment: Mapping[str, str], keys: Collection[str] = tuple(KEYS), *, site: str = ""
) -> dict[str, ConfigSetting]:
    """Return the values of the user's and the system's configuration file; the user's take precedence.

    The partition, the account and other keys that depend on the site count only if the chosen site is the one that
    their file names, or it names none. An empty value of the user's file unsets that of the system's.

    Parameters
    ----------
    site
        The chosen site; empty: the one of the variable, else of the files.
    """
    user = user_config(environment)
    files = (_read_config(SYSTEM_CONFIG), _read_config(user) if user else {})
    sites = [file["site"].value for file in files if "site" in file]
    chosen = site or environment.get(variable_name("site")) or (sites[-1] if sites else "")
    found = {key: each for file in files for key, each in file.items() if key in EVERYWHERE or _is_for(file, chosen)}
    asked = {key: setting for key, setting in found.items() if key in keys and setting.value}
    _refuse_other_choices(asked)
    return asked


def _is_for(file: Mapping[str, ConfigSetting], site: str) -> bool:
    """Return whether a file names this site, or none."""
    own = file["site"].value if "site" in file else ""
    return not own or is_same_site(own, site)


def is_same_site(one: str, other: str) -> bool:
    """Return whether two texts mean the same site: its name, or the path of its profile."""
    return Path(one).name.removesuffix(".toml") == Path(other).name.removesuffix(".toml")


def _refuse_other_choices(found: Mapping[str, ConfigSetting]) -> None:
    values = {key: setting.value for key, setting in found.items()}
    refuse_other_choices(values, ROWS, lambda key: found[key].source)


def _read_config(path: Path) -> dict[str, ConfigSetting]:
    """Return the values of a configuration file; a file that does not exist has none, nor has a link to /dev/null."""
    if os.path.realpath(path) == os.devnull:
        return {}
    _refuse_special(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", evidence=str(error), hint="check the file and its mode") from error
    table = load_toml(text, str(path), hint='write one KEY = "VALUE" per line')
    known = {key: value for key, value in table.items() if key in KEYS or path != SYSTEM_CONFIG}
    return {key: _check(path, text, key, value) for key, value in known.items()}


def describe_unused_settings() -> str:
    """Return a note about the keys of the system's file that this version does not know; empty if there is none."""
    try:
        text = SYSTEM_CONFIG.read_text(encoding="utf-8-sig")
        table = load_toml(text, str(SYSTEM_CONFIG))
    except (OSError, UnicodeDecodeError, UsageError):
        return ""  # whoever reads the values gets this error
    return describe_ignored(SYSTEM_CONFIG, {key: find_line(text, (key,)) for key in table if key not in KEYS})


def _refuse_special(path: Path) -> None:
    """Refuse a pipe, a socket or a device, which may never end, and a folder."""
    if os.path.exists(path) and not path.is_file():  # noqa: PTH110 - Path's raises
        raise UsageError(
            f"cannot read {path}",
            evidence="it is not a regular file",
            hint="move it away, or replace it with a text file",
        )


def _check(path: Path, text: str, key: str, value: object) -> ConfigSetting:
    line = f"{path}:{find_line(text, (key,))}"
    if key not in KEYS:
        raise UsageError(f"{path} has an unknown key {key!r}", evidence=f"{line}: {key}", hint=_suggest_key(key))
    if not isinstance(value, str):
        raise UsageError(
            f"{path} is not valid",
            evidence=f"{line}: the value of {key} is not a string",
            hint=f'write {key} = "VALUE"',
        )
    return ConfigSetting(key, value, line)


def _suggest_key(key: str) -> str:
    """Return the hint for an unknown key: the most similar key if there is one."""
    return did_you_mean(key.replace("-", "_"), KEYS, "'argosy config' lists the keys", form="'{}'")


def fill_options(
    options: Mapping[str, Any], keys: Collection[str], environment: Mapping[str, str], preset: Collection[str] = ()
) -> dict[str, Any]:
    """Return options with the configured values of those that are not given.

    Use this for options that no other file sets; `argosy.launch.request` adds ``argosy.toml`` between variables and
    files.

    Parameters
    ----------
    keys
        Options of the command.
    preset
        Options that a variable of Slurm sets: it takes precedence over the files.
    """
    read = read_files(environment, keys, site=options.get("site") or "")
    files = {key: setting for key, setting in read.items() if key not in preset}
    found = files | read_variables(environment, keys)
    missing = {key: setting.value for key, setting in found.items() if not options.get(key)}
    return {**options, **missing}


def configured_site(given: str, environment: Mapping[str, str]) -> str:
    """Return the given site, else the configured one; empty if there is neither."""
    return str(fill_options({"site": given}, ("site",), environment)["site"])


def choose_site(given: str, environment: Mapping[str, str]) -> str:
    """Return the given site, else the configured one."""
    name = configured_site(given, environment)
    if not name:
        raise UsageError("no site is given", hint="add --site NAME, or set a default: argosy config set site NAME")
    return name


def configure_folders(session: Session) -> Session:
    """Return a session with the folders that configuration files set, unless variables set others."""
    environment = session.host.environment
    settings = read_files(environment, [key for key in FOLDERS if not environment.get(variable_name(key))]).items()
    found = {variable_name(key): expand_folders(setting, environment) for key, setting in settings}
    paths = paths_from({**found, **environment}, Path(session.host.person.home))
    return replace(session, paths=paths) if found else session


def expand_folders(setting: ConfigSetting, environment: Mapping[str, str]) -> str:
    """Return the value of a setting; in one of folders, `$NAME` and `${NAME}` are replaced by the variables."""
    if setting.key not in FOLDERS:
        return setting.value

    def replaced(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environment.get(name):
            raise UsageError(
                f"the variable {name} is not set",
                evidence=f"{setting.source}: {setting.key} = {setting.value}",
                hint=f"set {name}, or the folder itself with {variable_name(setting.key)}",
            )
        return environment[name]

    value = VARIABLE.sub(replaced, setting.value)
    if re.search(r"[${}]", VARIABLE.sub("", setting.value)):
        raise UsageError(
            f"{setting.key} contains $, {{ or }}",
            evidence=f"{setting.source}: {setting.key} = {setting.value}",
            hint="write variables of the environment as $NAME or ${NAME}, for example $USER",
        )
    for path in value.split(":") if setting.key in LISTS else (value,):
        if path:
            refuse_relative(path, setting.key, setting.source)
    return value


def refuse_unknown_key(key: str) -> None:
    """Refuse an unknown key."""
    if key not in KEYS:
        raise UsageError(
            f"there is no configuration key {key!r}", evidence=f"known: {', '.join(KEYS)}", hint=_suggest_key(key)
        )


def write_config(
    environment: Mapping[str, str], key: str, value: str | None, *, waiting: Callable[[Owner], None]
) -> Path:
    """Set a key of the user's configuration file, or remove it if `value` is None; return the file.

    Other lines of the file stay as they are. An empty value unsets that of the system's file.

    `waiting` is called with the process that writes to the file, if this process must wait for it.
    """
    path = user_config(environment)
    if path is None:
        raise UsageError("there is no folder for your configuration: HOME is not set", hint="set XDG_CONFIG_HOME")
    _refuse_special(path)
    if value is None and not path.is_file():
        raise _not_set(path, key)
    if value == "" and key not in _read_config(SYSTEM_CONFIG):
        raise UsageError(f"cannot set {key} to an empty value", hint=f"remove it with: argosy config unset {key}")
    with translate_os_errors(path.parent, "XDG_CONFIG_HOME"):
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()  # a link to a file of a repository of settings stays a link
        with editing(target, waiting=waiting):
            text = target.read_text(encoding="utf-8-sig") if target.is_file() else ""
            write_text(target, _change(path, text, key, value))
    return path


def _change(path: Path, text: str, key: str, value: str | None) -> str:
    """Return the text of the configuration file at `path` with another value of a key."""
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - only this function edits a file

    try:
        changed = edit_config(text, key, value)
    except TOMLKitError as error:
        raise UsageError(f"{path} is not valid TOML", evidence=f"{path}: {error}", hint="correct it by hand") from error
    if value is None and changed == text:
        raise _not_set(path, key)
    return changed


def _not_set(path: Path, key: str) -> UsageError:
    """Return the error for the removal of a key that the file does not set."""
    refuse_unknown_key(key)
    system = _read_config(SYSTEM_CONFIG).get(key)
    return UsageError(
        f"{path} does not set {key}",
        evidence=f"{system.source} sets it for all users" if system else "",
        hint=f"to have none: argosy config set {key} ''"
        if system
        else "see where each value comes from: argosy config",
    )


def edit_config(text: str, key: str, value: str | None) -> str:
    """Return the text of a configuration file with another value of a key; None removes the key.

    Comments and other keys stay as they are.
    """
    import tomlkit  # noqa: PLC0415 - it takes 30 ms to import

    document = tomlkit.parse(text)
    if value is None:
        document.pop(key, None)
    else:
        document[key] = value
    return tomlkit.dumps(document)
