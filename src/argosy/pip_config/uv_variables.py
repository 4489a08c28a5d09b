"""What uv's own variables say, in pip's words: who set up uv for a site's mirror set up its builds, too.

Source: "Environment variables" of uv's reference.  uv's configuration files are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

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


def read_uv_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
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
