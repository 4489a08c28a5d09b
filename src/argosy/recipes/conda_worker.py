"""Choose and install conda packages with py-rattler, in a process of its own; it decides nothing: the request says all.

    python -m argosy.recipes.conda_worker < request.json

Standard error: one line of progress at a time.  Standard output: one line of JSON at the end, ``{"event": "done", …}``
or ``{"event": "error", …}``.  Only that line tells the outcome, never the exit code: with rattler loaded the
interpreter crashes in 3 to 15 of 100 exits after all work is done (py-rattler 0.28, PyO3/pyo3-async-runtimes#40), so
this process leaves by `os._exit`.

Nothing else imports rattler: it loads an 80 MB library and starts threads.
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

PROGRESS_EVERY_SECONDS = 0.5
SHA256_DIGITS = 64


class HashMismatch(Exception):
    """A package's bytes are not those that its channel announced."""


class Progress(msgspec.Struct):
    """What rattler calls, from threads of its own, while it downloads, unpacks and links.

    It swallows what these raise and tolerates those that are missing (py-rattler 0.28).
    """

    total: int
    size: int
    linked: int = 0
    loaded: dict[int, int] = msgspec.field(default_factory=dict)
    names: dict[int, str] = msgspec.field(default_factory=dict)
    said: float = 0.0
    begun: float = 0.0

    def on_populate_cache_start(self, _operation: int, package_name: str) -> int:
        """Give the token by which later calls name this package."""
        token = len(self.names) + 1
        self.names[token] = package_name
        return token

    def on_download_start(self, token: int) -> int:
        """Keep the token."""
        return token

    def on_download_progress(self, token: int, progress: int, _total: int | None) -> None:
        """Count bytes, say it twice a second."""
        self.loaded[token] = progress
        now = time.monotonic()
        if now - self.said > PROGRESS_EVERY_SECONDS:
            self.said = now
            self.begun = self.begun or now
            amount = render_amount(sum(self.loaded.values()), self.size, now - self.begun)
            say(f"downloading {self.names.get(token, '')}: {amount}")

    def on_link_start(self, _operation: int, package_name: str) -> int:
        """Say which package is installed now."""
        self.linked += 1
        say(f"installing {self.linked} of {self.total}: {package_name}")
        return 0


def say(text: str) -> None:
    """Write one line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def solve_and_install(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Choose packages, check those that rattler does not check, install them; give what was installed."""
    import rattler  # noqa: PLC0415 - where it fails, the failure is told as any other

    config = rattler.Config.from_toml(request["config"])
    client = rattler.Client.from_config(config)
    cache = Path(request["cache"])
    if request["pins"]:
        records = [_record(*row) for row in request["pins"]]
    else:
        say("reading the channels")
        gateway = rattler.Gateway.from_config(config, cache_dir=cache / "repodata", client=client)
        records = await _solve(request, gateway)
        for record in records:
            await _take_hash(record, request["hashes"], gateway)
    for record in records:
        check_local(record.url, record.sha256, record.md5)
    say(f"{len(records)} packages chosen")
    await rattler.install(
        records,
        target_prefix=request["tree"],
        alternative_target_prefix=request["prefix"],
        package_cache=_package_cache(cache / "pkgs", *([Path(request["spare"])] if request["spare"] else [])),
        platform=rattler.Subdir(request["platform"]),
        client=client,
        config=config,
        installed_packages=[],
        execute_link_scripts=False,  # they run inside the base, at the prefix that the files name
        reporter=Progress(len(records), sum(record.size or 0 for record in records)),  # type: ignore[arg-type]
    )
    order = [record.name.normalized for record in rattler.PackageRecord.sort_topologically(records)]
    return [describe(record) for record in sorted(records, key=lambda record: order.index(record.name.normalized))]


def _record(name: str, version: str, build: str, url: str, sha256: str, md5: str) -> Any:
    """Make the record of a package that is named to the byte: all else is read from the package itself."""
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
    )
    return rattler.RepoDataRecord(package, file, url, channel)


async def _take_hash(record: Any, hashes: dict[str, str], gateway: Any) -> None:
    """Give a package that was asked for by its address the hash it must have: rattler's own specifications drop it.

    One that has none yet gets that of its file in a folder, or what its channel's index says: a lock must know it.
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
    """Take the hash of a package from the index of the channel that its address is in; a bare server has none."""
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
    """Open the cache of unpacked packages; what does not hash as it should is fetched and unpacked anew.

    By default rattler looks at a package's index.json only: a file that was cut off or changed would be linked into
    every environment.
    """
    import rattler.package_cache as caches  # noqa: PLC0415 - as above

    return caches.PackageCache.new_layered(list(folders), validation_mode=caches.ValidationMode.full())


async def _solve(request: dict[str, Any], gateway: Any) -> list[Any]:
    import rattler  # noqa: PLC0415 - as above

    # MatchSpec(strict=False): a string given to solve() is parsed strictly, and conda's own `a=1=b` is refused.
    direct = [rattler.MatchSpec(text, strict=False) for text in request["direct"]]
    # A package of a lower channel satisfies a direct `x >=2` in spite of strict priority (conda/rattler#1928): so only
    # bare names are asked for, and what is asked of them are constraints.
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


def check_local(url: str, sha256: bytes | None, md5: bytes | None) -> None:
    """Check the bytes of a ``file://`` package: rattler checks those of http(s) only (py-rattler 0.28).

    Raises
    ------
    HashMismatch
        Naming the package and both digests.
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
    """Give what is worth knowing of a package that was chosen."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": str(record.subdir),
        "url": str(record.url),
        "sha256": record.sha256.hex() if record.sha256 else "",
        "md5": record.md5.hex() if record.md5 else "",
        "size": record.size or 0,
    }


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request; every failure becomes an answer."""
    os.umask(0o022)
    try:
        return {"event": "done", "packages": asyncio.run(solve_and_install(request))}
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is a BaseException
        return {"event": "error", "kind": type(error).__name__, "message": str(error)}


def main() -> None:
    """Read the request, carry it out, answer and leave at once."""
    reply = answer(json.load(sys.stdin))
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if reply["event"] == "done" else 1)


if __name__ == "__main__":
    main()
