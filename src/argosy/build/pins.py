"""What uv chose, package by package, and the requirements that install exactly that; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec
from packaging.utils import canonicalize_name

from argosy.lock import LockedPackage, SourceKind
from argosy.process import Reply
from argosy.scrub import STARS, scrub

Row = Mapping[str, str]
"""Of a package that was chosen: its version, where it is known, and its address, where it was named by one."""

ADDRESS = re.compile(r"^ \+ (?P<name>[^\s=@]+)(?:==\S+)? (?:@ |\(from )(?P<url>\S+?)\)?$", re.MULTILINE)
"""uv's JSON tells no addresses (uv 0.13), its lines do: ``+ a @ URL``, and ``+ a==1 (from URL)`` once it was built."""


class Pin(msgspec.Struct, frozen=True):
    """A package as it is locked, and the requirement that installs it (``name==1.2``, ``name @ URL``)."""

    package: LockedPackage
    spec: str


def read_chosen(reply: Reply, asked: Mapping[str, str]) -> dict[str, Row]:
    """Read what ``uv pip install --dry-run`` would install, by normalised name.

    Parameters
    ----------
    asked
        Addresses as the user's files have them: uv shows stars for a login.
    """
    shown = {str(canonicalize_name(found["name"])): found["url"] for found in ADDRESS.finditer(reply.stderr)}
    urls = {name: asked.get(name, url) if STARS in url else url for name, url in shown.items()}
    rows = [row for row in json.loads(reply.stdout).get("changes", []) if row["action"] == "installed"]
    names = [str(canonicalize_name(row["name"])) for row in rows]
    return {
        name: {key: value for key, value in (("url", urls.get(name)), ("version", row.get("version"))) if value}
        for name, row in zip(names, rows, strict=True)
    }


def render_pins(packages: Mapping[str, str]) -> str:
    """Give one line ``name==version`` for each package."""
    return "".join(f"{name}=={version}\n" for name, version in packages.items())


def pin_of(name: str, row: Row) -> str:
    """Give the requirement that installs what was chosen."""
    return f"{name} @ {row['url']}" if row.get("url") else f"{name}=={row['version']}"


def is_pin(line: str) -> bool:
    """Tell a requirement from an empty line, a comment and an option."""
    return bool(line.strip()) and not line.lstrip().startswith(("#", "-"))


def parse_pin(line: str, versions: Mapping[str, str]) -> Pin:
    """Read one line of ``uv pip compile --generate-hashes``, its continuation lines joined.

    Parameters
    ----------
    versions
        Version of each package that is known by an address only.
    """
    words = line.split()
    hashes = tuple(sorted(w.removeprefix("--hash=sha256:") for w in words if w.startswith("--hash=sha256:")))
    spec = " ".join(w for w in words if not w.startswith("--hash="))
    name = str(canonicalize_name(re.split(r"[\s=@;\[]", spec, maxsplit=1)[0]))
    match = re.search(r"==\s*([^\s;]+)", spec)
    source = SourceKind.INDEX
    if " @ " in spec:
        source = SourceKind.VCS if re.search(r"@ \w+\+", spec) else SourceKind.LOCAL
    version = match[1] if match and source is SourceKind.INDEX else versions.get(name, "")
    # The address of a file of this machine means nothing elsewhere: its hash finds it again.
    address = spec.partition(" @ ")[2].partition(" ;")[0].strip()
    url = "" if address.startswith("file:") else scrub(address)
    return Pin(LockedPackage(name, version, hashes, source, url=url), spec)


def render_pin(pin: Pin) -> str:
    """Give the line that installs exactly this package."""
    return " ".join((pin.spec, *(f"--hash=sha256:{digest}" for digest in pin.package.sha256)))
