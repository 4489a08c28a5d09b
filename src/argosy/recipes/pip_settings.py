"""Read pip's configuration files and variables in pip's order, then the variables of uv.

Later ones win: global, user, the file in PIP_CONFIG_FILE, variables. In all files, [install] wins over [global].
Source: "Configuration" in pip's documentation.
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
from argosy.core.parse import parse_path
from argosy.core.records import replace

_PIP_NAMES = {
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
"""Variables of uv -> pip's names of the settings; for the same setting, the later one wins, as in uv."""

_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<address>.+)")


def _address(word: str, environment: Mapping[str, str]) -> str:
    """Return an address without uv's name for it, with the login from the variables of that name."""
    found = _NAMED.fullmatch(word)
    if found is None:
        # pip splits lists at blanks, so a folder with a blank in its path becomes a file:// address.
        return f"file://{quote(str(parse_path(word).absolute()))}" if " " in word else word
    key = "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", found["name"].upper())
    login = [quote(environment.get(f"{key}_{each}", ""), safe="") for each in ("USERNAME", "PASSWORD")]
    parts = urlsplit(found["address"])
    if not any(login) or not parts.netloc:
        return found["address"]
    return parts._replace(netloc=f"{':'.join(login)}@{parts.netloc.rpartition('@')[2]}").geturl()


SECTIONS = ("global", "install")
LISTS = ("extra-index-url", "find-links", "trusted-host", "constraint", "build-constraint")
"""Settings with several values, separated by white space."""

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that pip's HTTP library reads, in its order, if pip has no certificate setting."""

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

_NOT_SETTINGS = ("config-file", "version", "help")


class PipSetting(msgspec.Struct, frozen=True):
    """An effective setting and its source: ``/etc/pip.conf [global]`` or ``variable PIP_INDEX_URL``."""

    key: str
    value: str
    source: str


class PipConfig(msgspec.Struct, frozen=True):
    """The effective configuration of pip on this machine."""

    settings: tuple[PipSetting, ...] = ()
    """One setting per key, sorted by key."""
    home: str = "/"
    """The user's home, for paths that begin with ``~``."""
    cwd: str = "/"
    """The folder for relative paths."""
    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    """Existing paths in the settings, absolute."""
    netrc: str = ""
    """File with logins for hosts; may be empty."""
    proxies: tuple[tuple[str, str], ...] = ()
    """Proxy variables of the environment."""

    def find(self, key: str) -> PipSetting | None:
        """Return a setting, or None."""
        return next((setting for setting in self.settings if setting.key == key), None)

    def local_path(self, address: str) -> str:
        """Return the absolute path of a local address; empty for an address in a network."""
        if address.startswith("file://"):
            return self.absolute(unquote(urlsplit(address).path))
        return "" if "://" in address else self.absolute(address)

    def absolute(self, path: str) -> str:
        """Return the absolute path of a setting."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.normpath(Path(self.cwd) / path)


def read_pip_config(environment: Mapping[str, str], home: Path, *, cwd: Path | None = None) -> PipConfig:
    """Read pip's configuration for a Python without a ``pip.conf`` of its own."""
    found: dict[str, dict[str, PipSetting]] = {section: {} for section in SECTIONS}
    for file in _config_files(environment, home):
        for section, setting in _read_file(file):
            found[section][setting.key] = setting
    settings: dict[str, PipSetting] = {}
    for group in (*found.values(), {setting.key: setting for setting in _variables(environment)}):
        # pip ignores empty values after it has merged all files.
        settings |= {key: setting for key, setting in group.items() if setting.value}
    for setting in _uv_variables(environment):
        settings[setting.key] = _joined(settings.get(setting.key), setting)
    if "cert" not in settings:
        settings |= _certificate(environment)
    config = PipConfig(tuple(settings[key] for key in sorted(settings)), str(home), str(cwd or Path.cwd()))
    return _look_up(config, environment, home)


def _uv_variables(environment: Mapping[str, str]) -> Iterator[PipSetting]:
    """Yield the setting of each variable under pip's name, with the value in pip's syntax."""
    for name, key in _PIP_NAMES.items():
        value = environment.get(name, "").strip()
        words = [word.strip() for word in (value.split(",") if name == "UV_FIND_LINKS" else value.split())]
        if value:
            value = " ".join(_address(word, environment) for word in words if word)
            yield PipSetting(key, value, f"variable {name}")


def _joined(before: PipSetting | None, setting: PipSetting) -> PipSetting:
    """Append the values of a list setting to the earlier ones; other settings are replaced."""
    if before is None or setting.key not in LISTS:
        return setting
    return PipSetting(setting.key, f"{before.value} {setting.value}", f"{before.source}, {setting.source}")


def _config_files(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the paths of pip's configuration files; later files win."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not named or not Path(named).exists():
        yield home / ".pip" / "pip.conf"
        yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if named:
        yield Path(named)


def _read_file(file: Path) -> Iterator[tuple[str, PipSetting]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        evidence = " ".join(str(error).split())
        raise UsageError(
            "pip's configuration file is invalid",
            evidence=f"{file}: {evidence}",
            hint="correct it: [global], then KEY = VALUE lines",
        ) from error
    for section in SECTIONS:
        for key, value in parser.items(section) if parser.has_section(section) else ():
            name = _normal_key(key)
            yield section, PipSetting(name, value.strip(), f"{file} [{section}]")


def _variables(environment: Mapping[str, str]) -> Iterator[PipSetting]:
    for name, value in sorted(environment.items()):
        key = _normal_key(name.removeprefix("PIP_"))
        if name.startswith("PIP_") and key not in _NOT_SETTINGS:
            yield PipSetting(key, value.strip(), f"variable {name}")


def _normal_key(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _certificate(environment: Mapping[str, str]) -> dict[str, PipSetting]:
    for name in CERTIFICATE_VARIABLES:
        if (value := environment.get(name)) and Path(value).exists():
            return {"cert": PipSetting("cert", value, f"variable {name}")}
    return {}


def _look_up(config: PipConfig, environment: Mapping[str, str], home: Path) -> PipConfig:
    """Find which paths in the settings exist: uv fails for a missing folder, pip ignores it."""
    keys = (*LISTS, "cert", "client-cert", "index-url")
    words = [word for setting in config.settings if setting.key in keys for word in setting.value.split()]
    words += [setting.value for setting in config.settings if setting.key in ("cert", "client-cert")]
    paths = {path for word in words if (path := config.local_path(word))}
    logins = (environment.get("NETRC"), str(home / ".netrc"), str(home / "_netrc"))
    proxies = [name for low in PROXY_VARIABLES for name in (low, low.upper()) if environment.get(name)]
    return replace(
        config,
        folders=frozenset(path for path in paths if Path(path).is_dir()),
        files=frozenset(path for path in paths if Path(path).is_file()),
        netrc=next((path for path in logins if path and Path(path).is_file()), ""),
        proxies=tuple((name, environment[name]) for name in proxies),
    )
