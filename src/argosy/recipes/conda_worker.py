"""Choose or install conda packages with py-rattler, in a separate process.

    python -m argosy.recipes.conda_worker < request.json

The process writes lines of progress to standard error, and one line of JSON at the end to standard output:
``{"event": "done", …}`` or ``{"event": "error", …}``. The exit code is not reliable: with rattler loaded, 3 to 15 of
100 interpreters crash at exit, after all work is done (py-rattler 0.28, PyO3/pyo3-async-runtimes#40). So this process
ends with `os._exit`.

No other module imports rattler, which loads an 80 MB library and starts threads. Imports are inside functions here, so
that a failed import is reported as JSON like other errors.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from argosy.core.progress import render_amount
from argosy.core.shared_folders import is_shared

PROGRESS_EVERY_SECONDS = 0.5
SHA256_DIGITS = 64


class HashMismatch(Exception):
    """The digest of a package differs from that in its channel's index."""


class Progress(msgspec.Struct):
    """Callbacks that rattler calls from its threads while it downloads, unpacks and links.

    rattler ignores exceptions from callbacks, and missing callbacks (py-rattler 0.28).
    """

    total: int
    sizes: dict[str, int]
    linked: int = 0
    loaded: dict[int, int] = msgspec.field(default_factory=dict)
    names: dict[int, str] = msgspec.field(default_factory=dict)
    said: float = 0.0
    begun: float = 0.0

    def on_populate_cache_start(self, _operation: int, package_name: str) -> int:
        """Return the token that identifies this package in later calls."""
        token = len(self.names) + 1
        self.names[token] = package_name
        return token

    def on_populate_cache_complete(self, cache_entry: int) -> None:
        """Leave out the size of a package that was not downloaded, because the cache has it."""
        if cache_entry not in self.loaded:
            self.sizes.pop(self.names.get(cache_entry, ""), None)

    def on_download_start(self, token: int) -> int:
        """Return the token."""
        return token

    def on_download_progress(self, token: int, progress: int, _total: int | None) -> None:
        """Count bytes, and report progress twice per second."""
        self.loaded[token] = progress
        now = time.monotonic()
        if now - self.said > PROGRESS_EVERY_SECONDS:
            self.said = now
            self.begun = self.begun or now
            amount = render_amount(sum(self.loaded.values()), sum(self.sizes.values()), now - self.begun)
            say(f"downloading {self.names.get(token, '')}: {amount}")

    def on_link_start(self, _operation: int, package_name: str) -> int:
        """Report the package that is being installed."""
        self.linked += 1
        say(f"installing {self.linked} of {self.total}: {package_name}")
        return 0


def say(text: str) -> None:
    """Write one line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def choose(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Solve, take the hashes that rattler drops, and return the chosen packages."""
    import rattler  # noqa: PLC0415 - see the module's docstring

    config = rattler.Config.from_toml(request["config"])
    client = rattler.Client.from_config(config)
    say("reading the channels")
    gateway = rattler.Gateway.from_config(config, cache_dir=Path(request["cache"], "repodata"), client=client)
    records = await _solve(request, gateway)
    for record in records:
        await _take_hash(record, request["hashes"], gateway)
    say(f"{len(records)} packages chosen")
    return [describe(record) for record in records]


async def install(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Check the hashes that rattler does not check, and install exact packages."""
    import rattler  # noqa: PLC0415 - as above

    config = rattler.Config.from_toml(request["config"])
    records = [_record(*row) for row in request["pins"]]
    for record in records:
        refuse_damaged_package(record.url, record.sha256, record.md5)
    await rattler.install(
        records,
        target_prefix=request["tree"],
        alternative_target_prefix=request["prefix"],
        package_cache=_package_cache(
            Path(request["cache"], "pkgs"), *([Path(request["spare"])] if request["spare"] else [])
        ),
        platform=rattler.Subdir(request["platform"]),
        client=rattler.Client.from_config(config),
        config=config,
        installed_packages=[],
        execute_link_scripts=False,  # they run inside the base, at the prefix that the files name
        reporter=Progress(len(records), {record.name.normalized: record.size or 0 for record in records}),  # type: ignore[arg-type]
    )
    return [describe(record) for record in records]


def _record(name: str, version: str, build: str, url: str, sha256: str, md5: str, size: int) -> Any:
    """Return the record of an exact package; rattler reads most other data from the package itself."""
    import rattler  # noqa: PLC0415 - as above

    channel, subdir, file = url.rsplit("/", 2)
    package = rattler.PackageRecord(
        name,
        version,
        rattler.BuildString(build),
        0,
        subdir,
        sha256=bytes.fromhex(sha256) or None,
        md5=bytes.fromhex(md5) or None,
        size=size or None,
        python_site_packages_path=_free_threaded_folder(version) if name == "python" and _is_free(build) else None,
    )
    return rattler.RepoDataRecord(package, file, url, channel)


def _is_free(build: str) -> bool:
    """Return whether a build of Python is free-threaded, for example ``h9a34b6e_5_cp313t``."""
    return build.rpartition("_")[2].startswith("cp") and build.endswith("t")


def _free_threaded_folder(version: str) -> str:
    """Return the folder for noarch packages, which rattler only takes from the channel's index."""
    return f"lib/python{'.'.join(version.split('.')[:2])}t/site-packages"


async def _take_hash(record: Any, hashes: dict[str, str], gateway: Any) -> None:
    """Set the hash of a package that was requested by address, because rattler's specifications drop it.

    Without a requested hash, it is computed from a local file or read from the channel's index, for the lock.
    """
    wanted = hashes.get(str(record.url), "")
    if len(wanted) == SHA256_DIGITS:
        record.sha256 = bytes.fromhex(wanted)
    elif wanted:
        record.md5 = bytes.fromhex(wanted)
    elif record.sha256 is None and str(record.url).startswith("file://"):
        record.sha256 = _digest_of(str(record.url), "sha256")
    elif record.sha256 is None:
        await _ask_index(record, gateway)


async def _ask_index(record: Any, gateway: Any) -> None:
    """Set the hash of a package from its channel's index, if the server has one."""
    from rattler.exceptions import GatewayError  # noqa: PLC0415 - as above

    channel, subdir, _ = str(record.url).rsplit("/", 2)
    try:
        found = await gateway.query([channel], [subdir], [record.name.normalized], recursive=False)
    except (GatewayError, ValueError, OSError):
        return
    for other in (row for rows in found for row in rows):
        if str(other.url) == str(record.url):
            record.sha256, record.md5 = other.sha256, other.md5


def _package_cache(*folders: Path) -> Any:
    """Open the cache of unpacked packages; packages with wrong hashes are downloaded again.

    By default rattler checks only a package's index.json, so truncated or changed files would be linked into every
    environment.
    """
    import rattler.package_cache as caches  # noqa: PLC0415 - as above

    return caches.PackageCache.new_layered(list(folders), validation_mode=caches.ValidationMode.full())


async def _solve(request: dict[str, Any], gateway: Any) -> list[Any]:
    import rattler  # noqa: PLC0415 - as above

    # solve() parses strings strictly and rejects conda's own `a=1=b`; MatchSpec(strict=False) accepts it.
    direct = [rattler.MatchSpec(text, strict=False) for text in request["direct"]]
    # Despite strict priority, a package of a lower channel can satisfy a direct `x >=2` (conda/rattler#1928). So only
    # names are requested, and versions are constraints.
    bare = [rattler.MatchSpec(name) for name in request["names"]]
    return await rattler.solve(
        request["channels"],
        [*bare, *direct],
        gateway=gateway,
        platforms=[request["platform"], "noarch"],
        virtual_packages=[_virtual(*row) for row in request["virtual"]],
        constraints=[rattler.MatchSpec(text, strict=False) for text in request["constraints"]],
        channel_priority=getattr(rattler.ChannelPriority, request["priority"]),
    )


def _virtual(name: str, version: str, build: str) -> Any:
    import rattler  # noqa: PLC0415 - as above

    return rattler.GenericVirtualPackage(
        rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build)
    )


def refuse_damaged_package(url: str, sha256: bytes | None, md5: bytes | None) -> None:
    """Refuse a damaged ``file://`` package: rattler checks those of http(s) only (py-rattler 0.28).

    Raises
    ------
    HashMismatch
        If the digest differs.
    """
    wanted = (sha256 and ("sha256", sha256)) or (md5 and ("md5", md5))
    if not url.startswith("file://") or not wanted:
        return
    name, digest = wanted
    found = _digest_of(url, name)
    if found != digest:
        raise HashMismatch(f"{url}\n{name} announced: {digest.hex()}\n{name} found: {found.hex()}")


def _digest_of(url: str, algorithm: str) -> bytes:
    with Path(unquote(urlsplit(url).path)).open("rb") as file:
        return hashlib.file_digest(file, algorithm).digest()


def describe(record: Any) -> dict[str, Any]:
    """Return the data of a package for the reply."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "url": str(record.url),
        "sha256": record.sha256.hex() if record.sha256 else "",
        "md5": record.md5.hex() if record.md5 else "",
        "size": record.size or 0,
    }


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Execute a request; every error becomes a reply."""
    try:
        os.umask(0o002 if is_shared(Path(request["cache"])) else 0o022)
        do = install if request["pins"] else choose
        return {"event": "done", "packages": asyncio.run(do(request))}
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is a BaseException
        return {"event": "error", "kind": type(error).__name__, "message": str(error)}


def main() -> None:
    """Read the request, execute it, write the reply and end the process."""
    reply = answer(json.load(sys.stdin))
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if reply["event"] == "done" else 1)


if __name__ == "__main__":
    main()
