"""Fetch the wheels of a lock, with the pip of the environment that was just made: it knows which fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from argosy.build.finishing import Made
from argosy.build.hashes import package_of
from argosy.build.rooms import WORK_INSIDE
from argosy.build.torch_index import INDEX, OPTION
from argosy.errors import CheckFailed
from argosy.layout import ENV_PREFIX
from argosy.lock import LockedPackage, SourceKind
from argosy.model import Bind
from argosy.pip_config import UvSettings

VALUED = {"--default-index": "PIP_INDEX_URL", "--index": "PIP_EXTRA_INDEX_URL", "--find-links": "PIP_FIND_LINKS"}


def fetch_wheels(made: Made, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Put the wheel of each pip package into a folder where some are already.

    Raises
    ------
    CheckFailed
        When one of them has no wheel, or it cannot be fetched: pip's words are the evidence.
    """
    there = {package_of(file.name) for file in folder.iterdir()}
    pip = [package for package in packages if (package.name, package.version) not in there]
    if not pip:
        return
    (folder / "lock.txt").write_text("".join(f"{_line(package)}\n" for package in pip), encoding="utf-8")
    inside = f"{WORK_INSIDE}/wheels"
    local = (Bind(path, path, read_only=True) for path in made.settings.local_paths if Path(path).exists())
    room = made.room.furnished(Bind(str(made.tree / "opt/argosy"), "/opt/argosy"), Bind(str(folder), inside), *local)
    words = (f"{ENV_PREFIX}/bin/python", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:")
    options = ("--require-hashes", "--quiet", "--no-cache-dir", "--disable-pip-version-check")
    reply = room.run(
        *words, *options, "--dest", inside, "-r", f"{inside}/lock.txt", variables=pip_variables(made.settings)
    )
    (folder / "lock.txt").unlink()
    if reply.code != 0:
        raise CheckFailed(
            "not all wheels could be fetched",
            evidence="\n".join(reply.stderr.strip().splitlines()[-8:]),
            hint="make a wheel of what is named (pip wheel), and name that in the requirements",
        )


def _line(package: LockedPackage) -> str:
    name = f"{package.name}=={package.version}"
    if package.source is not SourceKind.INDEX and package.url:
        name = f"{package.name} @ {package.url}"
    return " ".join((name, *(f"--hash=sha256:{digest}" for digest in package.sha256)))


def pip_variables(settings: UvSettings) -> tuple[tuple[str, str], ...]:
    """Say uv's settings in pip's words, as variables: an address may hold a login, which no process list may show."""
    words = iter((*settings.arguments, *settings.own))
    found: dict[str, list[str]] = {}
    logins = dict(settings.environment)
    for word in words:
        if word in VALUED:
            found.setdefault(VALUED[word], []).append(_with_login(next(words), logins))
        elif word == OPTION:
            found.setdefault("PIP_EXTRA_INDEX_URL", []).append(f"{INDEX}{next(words)}")
        elif word == "--no-index":
            found["PIP_NO_INDEX"] = ["1"]
    kept = ((name, value) for name, value in logins.items() if not name.startswith("UV_"))
    cert = (("PIP_CERT", logins["SSL_CERT_FILE"]),) if "SSL_CERT_FILE" in logins else ()
    return (*((name, " ".join(values)) for name, values in found.items()), *kept, *cert)


def _with_login(address: str, logins: dict[str, str]) -> str:
    """Put a login back into an address: uv is told ``argosy-1=https://…`` and its variables."""
    name, equals, bare = address.partition("=")
    if not equals or not name.startswith("argosy-"):
        return address
    number = name.removeprefix("argosy-")
    user = logins.get(f"UV_INDEX_ARGOSY_{number}_USERNAME", "")
    password = logins.get(f"UV_INDEX_ARGOSY_{number}_PASSWORD", "")
    scheme, _, rest = bare.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"
