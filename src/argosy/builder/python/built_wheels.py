"""Make a wheel of each pip package that has none, before it is installed: what is installed is what is taken along."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from argosy.builder.backends.container import WORK_INSIDE
from argosy.builder.python.packages import BUILT_WHEELS, Installer
from argosy.builder.python.pins import Pin, package_of
from argosy.core.errors import CheckFailed
from argosy.core.records import replace
from argosy.core.session import Step
from argosy.core.store import digest_of_file
from argosy.recipes.lock import LockedPackage, SourceKind


def build_missing_wheels(installer: Installer, pins: tuple[Pin, ...], step: Step) -> tuple[Pin, ...]:
    """Give the pins, those of sources, folders and repositories with a wheel of theirs in the folder ``wheels``.

    Raises
    ------
    CheckFailed, ToolFailed
        Naming the package of which no wheel can be made.
    """
    folder = installer.work / BUILT_WHEELS
    folder.mkdir(exist_ok=True)
    # uv keeps the wheel of what it builds in its cache: in one of their own they are these and no others.
    apart = replace(installer, fresh=True)
    step.say("looking for packages without a wheel")
    lacking = {pin.package.name for pin in _unbuilt(apart, [pin for pin in pins if not _address(pin)])}
    return tuple(_with_file(apart, pin, folder, step, bare=pin.package.name in lacking) for pin in pins)


def _address(pin: Pin) -> str:
    return pin.spec.partition(" @ ")[2].partition(" ;")[0].strip()


def _unbuilt(apart: Installer, pins: Sequence[Pin]) -> Sequence[Pin]:
    """Find what the index has as source only: all are asked for at once, and halves of them where that fails."""
    if not pins or _uv_fits(apart, pins):
        return ()
    if len(pins) == 1:
        return pins
    middle = len(pins) // 2
    return (*_unbuilt(apart, pins[:middle]), *_unbuilt(apart, pins[middle:]))


def _uv_fits(apart: Installer, pins: Sequence[Pin]) -> bool:
    return apart.uv(*_words(apart, pins), "--dry-run", "--no-build").code == 0


def _words(apart: Installer, pins: Sequence[Pin]) -> tuple[str, ...]:
    # An address may hold a login, which no process list may show: hence a file.
    wanted = apart.file("-r", "wheels.txt", "".join(f"{pin.spec}\n" for pin in pins))
    place = ("--python", apart.python.executable, "--target", f"{WORK_INSIDE}/unused")
    return ("pip", "install", "--no-deps", *place, *apart.placing, *wanted)


def _with_file(apart: Installer, pin: Pin, folder: Path, step: Step, *, bare: bool) -> Pin:
    address = urlsplit(_address(pin))
    if not bare and (not address.path or address.path.endswith(".whl")):
        if address.scheme == "file":
            shutil.copy2(unquote(address.path), folder)
        return pin
    package = pin.package
    step.say(f"making a wheel of {package.name} {package.version}")
    apart.uv_checked(*_words(apart, [pin]), doing=f"making a wheel of {package.name}")
    built = _made(apart.work / "cache", package)
    wheel = folder / built.name
    shutil.copy2(built, wheel)
    # What an index has may be built from its source too; of an address the file there is another one.
    sources = package.sha256 if package.source is SourceKind.INDEX else ()
    hashes = tuple(sorted({*sources, digest_of_file(wheel)}))
    return Pin(replace(package, sha256=hashes), f"{package.name}=={package.version}")


def _made(cache: Path, package: LockedPackage) -> Path:
    for wheel in sorted(cache.rglob("*.whl")):
        if wheel.is_file() and package_of(wheel.name) == (package.name, package.version):
            return wheel
    raise CheckFailed(
        f"no wheel of {package.name} {package.version} came out of its build",
        hint="make one of it (pip wheel), and name that in the requirements",
    )
