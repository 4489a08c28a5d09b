"""Build a wheel for each pip package that has none, so that a bundle contains exactly what is installed."""

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
    """Build wheels of sdists, folders and repositories into ``wheels``, and return the pins with their hashes.

    Raises
    ------
    CheckFailed, ToolFailed
        If a wheel cannot be built; the message names the package.
    """
    folder = installer.work / BUILT_WHEELS
    folder.mkdir(exist_ok=True)
    # uv stores built wheels in its cache; a separate cache contains only these.
    apart = replace(installer, fresh=True)
    step.say("looking for packages without a wheel")
    lacking = {pin.package.name for pin in _unbuilt(apart, [pin for pin in pins if not _address(pin)])}
    return tuple(_with_file(apart, pin, folder, step, bare=pin.package.name in lacking) for pin in pins)


def _address(pin: Pin) -> str:
    return pin.spec.partition(" @ ")[2].partition(" ;")[0].strip()


def _unbuilt(apart: Installer, pins: Sequence[Pin]) -> Sequence[Pin]:
    """Find packages that the index has only as source, by bisection."""
    if not pins or _uv_fits(apart, pins):
        return ()
    if len(pins) == 1:
        return pins
    middle = len(pins) // 2
    return (*_unbuilt(apart, pins[:middle]), *_unbuilt(apart, pins[middle:]))


def _uv_fits(apart: Installer, pins: Sequence[Pin]) -> bool:
    return apart.uv(*_words(apart, pins), "--dry-run", "--no-build").code == 0


def _words(apart: Installer, pins: Sequence[Pin]) -> tuple[str, ...]:
    # A file hides addresses, which may hold a login, from the process list.
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
    step.say(f"building a wheel of {package.name} {package.version}")
    apart.uv_checked(*_words(apart, [pin]), doing=f"building a wheel of {package.name}")
    built = _find_built_wheel(apart.work / "cache", package)
    wheel = folder / built.name
    shutil.copy2(built, wheel)
    # A locked package of an index may also be built from its sdist, so its hashes stay valid.
    sources = package.sha256 if package.source is SourceKind.INDEX else ()
    hashes = tuple(sorted({*sources, digest_of_file(wheel)}))
    return Pin(replace(package, sha256=hashes), f"{package.name}=={package.version}")


def _find_built_wheel(cache: Path, package: LockedPackage) -> Path:
    for wheel in sorted(cache.rglob("*.whl")):
        if wheel.is_file() and package_of(wheel.name) == (package.name, package.version):
            return wheel
    raise CheckFailed(
        f"the build of {package.name} {package.version} produced no wheel",
        hint="build one (pip wheel), and list it in the requirements",
    )
