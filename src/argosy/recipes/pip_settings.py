"""Read the files and variables that pip reads, in pip's order, then those of uv; it never judges what they say.

Source: "Configuration" in pip's documentation.  Later ones win: global, user, site, the file that PIP_CONFIG_FILE
names, variables; and whatever the file, [install] wins over [global].
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from argosy.core.errors import UsageError

_OF_PIP = {
    "UV_INDEX_URL": "index-url",
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_INSECURE_HOST": "trusted-host",
    "UV_CONSTRAINT": "constraint",
    "UV_BUILD_CONSTRAINT": "build-constraint",
    "UV_HTTP_TIMEOUT": "timeout",
    "UV_HTTP_RETRIES": "retries",
    "UV_EXCLUDE_NEWER": "exclude-newer",
    "UV_INDEX_STRATEGY": "index-strategy",
    "UV_OVERRIDE": "override",
    "UV_RESOLUTION": "resolution",
    "UV_TORCH_BACKEND": "torch-backend",
    "UV_CONFIG_FILE": "config-file",
}
"""Of two for the same setting the later one wins, as under uv."""

_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<address>.+)")


def _read_uv_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Give each variable, what pip calls the setting, and the value as pip would have it."""
    for name, key in _OF_PIP.items():
        if value := environment.get(name, "").strip():
            words = value.split(",") if name == "UV_FIND_LINKS" else value.split()
            told = " ".join(_address(word.strip(), environment) for word in words if word.strip())
            yield name, key, told


def _address(word: str, environment: Mapping[str, str]) -> str:
    """Give an address without uv's name for it, with the login that variables of that name hold."""
    found = _NAMED.fullmatch(word)
    if found is None:
        # pip splits a list at blanks: a folder with one is named by its address.
        return f"file://{quote(str(Path(word).expanduser().absolute()))}" if " " in word else word
    key = "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", found["name"].upper())
    login = [quote(environment.get(f"{key}_{each}", ""), safe="") for each in ("USERNAME", "PASSWORD")]
    parts = urlsplit(found["address"])
    if not any(login) or not parts.netloc:
        return found["address"]
    return parts._replace(netloc=f"{':'.join(login)}@{parts.netloc.rpartition('@')[2]}").geturl()


SECTIONS = ("global", "install")
LISTS = ("extra-index-url", "find-links", "trusted-host", "constraint", "build-constraint")
"""Settings that hold several values, apart by white space."""

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""What pip's HTTP library looks at where pip itself names no certificate, in its order."""

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

_NOT_SETTINGS = ("config-file", "version", "help")


class PipSetting(msgspec.Struct, frozen=True):
    """A setting in effect, and who set it: ``/etc/pip.conf [global]`` or ``variable PIP_INDEX_URL``."""

    key: str
    value: str
    source: str


class PipConfig(msgspec.Struct, frozen=True):
    """What pip on this machine would go by.

    Attributes
    ----------
    settings
        One per key, in the alphabet's order.
    home
        The user's home, for paths that begin with ``~``.
    cwd
        What relative paths are relative to.
    folders, files
        The paths among the settings that exist, absolute.
    netrc
        The file with logins for hosts; empty where there is none.
    proxies
        The environment's proxy variables.
    """

    settings: tuple[PipSetting, ...] = ()
    home: str = "/"
    cwd: str = "/"
    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    netrc: str = ""
    proxies: tuple[tuple[str, str], ...] = ()

    def find(self, key: str) -> PipSetting | None:
        """Give a setting, or None."""
        return next((setting for setting in self.settings if setting.key == key), None)

    def local_path(self, address: str) -> str:
        """Give the absolute path of a local address, or nothing for one on a network."""
        if address.startswith("file://"):
            return self.absolute(unquote(urlsplit(address).path))
        return "" if "://" in address else self.absolute(address)

    def absolute(self, path: str) -> str:
        """Give the path that a setting means."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.normpath(Path(self.cwd) / path)


def read_pip_config(
    environment: Mapping[str, str], home: Path, prefix: Path | None = None, *, cwd: Path | None = None
) -> PipConfig:
    """Read what pip would read.

    Parameters
    ----------
    prefix
        The Python installation whose ``pip.conf`` counts as the site's; None leaves that out.

    Raises
    ------
    UsageError
        When a configuration file does not parse; pip stops there too.
    """
    found: dict[str, dict[str, PipSetting]] = {section: {} for section in SECTIONS}
    for file in _config_files(environment, home, prefix):
        for section, setting in _read_file(file):
            found[section][setting.key] = setting
    settings: dict[str, PipSetting] = {}
    for group in (*found.values(), dict(_variables(environment))):
        # pip takes an empty value for none at all, once all files are merged.
        settings |= {key: setting for key, setting in group.items() if setting.value}
    for setting in _uv_variables(environment):
        settings[setting.key] = _joined(settings.get(setting.key), setting)
    if "cert" not in settings:
        settings |= _certificate(environment)
    config = PipConfig(tuple(settings[key] for key in sorted(settings)), str(home), str(cwd or Path.cwd()))
    return _look_up(config, environment, home)


def _uv_variables(environment: Mapping[str, str]) -> Iterator[PipSetting]:
    for name, key, value in _read_uv_variables(environment):
        yield PipSetting(key, value, f"variable {name}")


def _joined(before: PipSetting | None, setting: PipSetting) -> PipSetting:
    """Add a list to what was said before; of a single value the later one wins."""
    if before is None or setting.key not in LISTS:
        return setting
    return PipSetting(setting.key, f"{before.value} {setting.value}", f"{before.source}, {setting.source}")


def _config_files(environment: Mapping[str, str], home: Path, prefix: Path | None) -> Iterator[Path]:
    """Give the files that pip would try, the strongest last."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not named or not Path(named).exists():
        yield home / ".pip" / "pip.conf"
        yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if prefix is not None:
        yield prefix / "pip.conf"
    if named:
        yield Path(named)


def _read_file(file: Path) -> Iterator[tuple[str, PipSetting]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        evidence = " ".join(str(error).split())
        raise UsageError("pip's configuration does not parse", evidence=f"{file}: {evidence}") from error
    for section in SECTIONS:
        for key, value in parser.items(section) if parser.has_section(section) else ():
            name = _normal_key(key)
            yield section, PipSetting(name, value.strip(), f"{file} [{section}]")


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, PipSetting]]:
    for name, value in sorted(environment.items()):
        key = _normal_key(name.removeprefix("PIP_"))
        if name.startswith("PIP_") and key not in _NOT_SETTINGS:
            yield key, PipSetting(key, value.strip(), f"variable {name}")


def _normal_key(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _certificate(environment: Mapping[str, str]) -> dict[str, PipSetting]:
    for name in CERTIFICATE_VARIABLES:
        if (value := environment.get(name)) and Path(value).exists():
            return {"cert": PipSetting("cert", value, f"variable {name}")}
    return {}


def _look_up(config: PipConfig, environment: Mapping[str, str], home: Path) -> PipConfig:
    """See which of the paths are there: uv stops at a missing folder, pip goes on."""
    keys = (*LISTS, "cert", "client-cert", "index-url")
    words = [word for setting in config.settings if setting.key in keys for word in setting.value.split()]
    words += [setting.value for setting in config.settings if setting.key in ("cert", "client-cert")]
    paths = {path for word in words if (path := config.local_path(word))}
    logins = (environment.get("NETRC"), str(home / ".netrc"), str(home / "_netrc"))
    proxies = [name for low in PROXY_VARIABLES for name in (low, low.upper()) if environment.get(name)]
    return PipConfig(
        settings=config.settings,
        home=config.home,
        cwd=config.cwd,
        folders=frozenset(path for path in paths if Path(path).is_dir()),
        files=frozenset(path for path in paths if Path(path).is_file()),
        netrc=next((path for path in logins if path and Path(path).is_file()), ""),
        proxies=tuple((name, environment[name]) for name in proxies),
    )
