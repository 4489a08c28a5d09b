"""A conda channel of the wheels of `bench.building`: each wheel is a conda package with the same files."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from argosy.core.cache import fill_once
from bench.inputs import bench_cache, bench_folder, open_session
from tests.real.channel import PLACEHOLDER, Channel, CondaPackage, File, python_package

PURE = "none-any.whl"
START = "#!{prefix}/bin/python\nimport sys\nfrom {module} import {name}\nsys.exit({call}())\n"


def conda_channel(wheels: Path) -> Path | None:
    """Give a channel with the packages of a folder of wheels, made once; None where this Python cannot be moved."""
    session = open_session(bench_cache(), quiet=False)
    place = bench_folder() / f"channel-{wheels.name}"
    python = None if place.exists() else python_package()
    if python is None:
        return place if place.exists() else None
    with fill_once(place, what=f"making {place.name}", waiting=session.waiting) as folder:
        if folder is not None:
            _fill_channel(Channel(folder), python, sorted(wheels.glob("*.whl")))
    return place


def _fill_channel(channel: Channel, python: CondaPackage, wheels: Collection[Path]) -> None:
    site = f"lib/python{'.'.join(python.version.split('.')[:2])}/site-packages"
    names = {canonicalize_name(wheel.name.split("-")[0]) for wheel in wheels}
    channel.add(python, *(_package_of(wheel, site, names) for wheel in wheels), form="conda")


def _package_of(wheel: Path, site: str, names: Collection[str]) -> CondaPackage:
    """Make the conda package of a wheel; of its requirements, those in the channel count."""
    pure = wheel.name.endswith(PURE)
    with zipfile.ZipFile(wheel) as archive:
        found = (name.split("/") for name in archive.namelist())
        info = next(parts[0] for parts in found if parts[1:] == ["METADATA"] and parts[0].endswith(".dist-info"))
        dist = PathDistribution(zipfile.Path(archive, f"{info}/"))
        files = dict(_installed_files(archive, "site-packages" if pure else site))
        scripts = dist.entry_points.select(group="console_scripts")
        points = {point.name: point.value.partition("[")[0].strip() for point in scripts}
        depends = sorted({name for name in _required(dist) if name in names})
        if not pure:
            files |= {f"bin/{name}": _start(value) for name, value in points.items()}
        return CondaPackage(
            canonicalize_name(dist.metadata["Name"]),
            dist.version,
            depends=("python", *depends),
            files=files,
            noarch="python" if pure else "",
            entry_points=tuple(f"{name} = {value}" for name, value in points.items()) if pure else (),
        )


def _installed_files(archive: zipfile.ZipFile, site: str) -> Iterator[tuple[str, File]]:
    """Give the files of a wheel at their paths in a prefix; the files in its .data folder are left out."""
    for member in archive.infolist():
        top = member.filename.partition("/")[0]
        if not member.is_dir() and not top.endswith(".data") and not member.filename.endswith(".dist-info/RECORD"):
            executable = (member.external_attr >> 16) & 0o111
            yield f"{site}/{member.filename}", File(archive.read(member), 0o755 if executable else 0o644)


def _required(dist: Distribution) -> Iterator[str]:
    for text in dist.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def _start(value: str) -> File:
    module, _, call = value.partition(":")
    text = START.format(prefix=PLACEHOLDER, module=module, name=call.partition(".")[0], call=call)
    return File(text.encode(), 0o755)


def environment_file(channel: Path, without: Collection[str] = ()) -> str:
    """Write an environment file that asks for all packages of a channel, but for some."""
    names = {file.name.rsplit("-", 2)[0] for file in channel.glob("*/*.conda")} - set(without)
    lines = (f"  - {name}" for name in sorted(names))
    return "\n".join(("name: many", f"channels: ['file://{channel}']", "dependencies:", *lines)) + "\n"
