"""A conda channel in a folder: packages written byte by byte, and its index; it needs neither conda nor a network."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MADE = 1_700_000_000
PLACEHOLDER = "/placehold" + "_placehold" * 24 + "_end."
"""Stands for the prefix in packages; 255 characters, as conda-build makes it, so that a binary has room for any."""
assert len(PLACEHOLDER) == 255

NOT_NEEDED = re.compile(
    r"(^|/)(test|idlelib|ensurepip|lib2to3|turtledemo|tkinter|site-packages|__pycache__|config-[^/]*)/"
    r"|/(distutils|pydoc_data|wsgiref|curses|dbm|unittest)/|/lib-dynload/(_test|_codecs_|_ctypes_test|_curses|xx)"
    r"|/encodings/(?!cp437|cp1252)(cp|mac_|iso8859_[2-9]|iso8859_1\d|koi8)"
)
"""What is left out of a Python that is unpacked and compiled by many tests."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a package; `link` makes it a symbolic link."""

    data: bytes = b""
    mode: int = 0o644
    link: str = ""


@dataclass(frozen=True, slots=True)
class CondaPackage:
    """A conda package.

    `noarch` is empty, ``python`` or ``generic``; `entry_points` (``name = module:function``) are for the installer.
    """

    name: str
    version: str
    build: str = "0"
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    files: Mapping[str, File] = field(default_factory=dict)
    noarch: str = ""
    entry_points: tuple[str, ...] = ()
    subdir: str = "linux-64"

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.version}-{self.build}"

    @property
    def folder(self) -> str:
        return "noarch" if self.noarch else self.subdir

    def index(self) -> dict[str, Any]:
        """Give what a channel's index says of the package."""
        index: dict[str, Any] = {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": 0,
            "depends": list(self.depends),
            "constrains": list(self.constrains),
            "subdir": self.folder,
            "timestamp": MADE * 1000,
            "license": "MIT",
        }
        if self.noarch:
            index["noarch"] = self.noarch
        if self.name == "python":
            index["python_site_packages_path"] = f"lib/python{'.'.join(self.version.split('.')[:2])}/site-packages"
        return index

    def papers(self) -> dict[str, File]:
        """Give the files below ``info/``."""
        papers: dict[str, Any] = {
            "info/index.json": self.index(),
            "info/paths.json": {
                "paths": [_path(name, file) for name, file in sorted(self.files.items())],
                "paths_version": 1,
            },
            "info/about.json": {"license": "MIT", "summary": self.name},
        }
        if self.noarch == "python":
            points = {"type": "python", "entry_points": list(self.entry_points)}
            papers["info/link.json"] = {"noarch": points, "package_metadata_version": 1}
        return {name: File(json.dumps(paper, sort_keys=True).encode()) for name, paper in papers.items()}


def _path(name: str, file: File) -> dict[str, Any]:
    row = {
        "_path": name,
        "path_type": "softlink" if file.link else "hardlink",
        "sha256": hashlib.sha256(file.data).hexdigest(),
        "size_in_bytes": len(file.data),
    }
    if PLACEHOLDER.encode() in file.data:
        row["prefix_placeholder"] = PLACEHOLDER
        row["file_mode"] = "binary" if b"\0" in file.data else "text"
    return row


@dataclass(slots=True)
class Channel:
    """A channel in a folder; `index` must be written after its packages."""

    folder: Path
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def add(self, *packages: CondaPackage, form: str = "tar.bz2") -> Channel:
        """Write packages into the channel and list them in its index."""
        for package in packages:
            folder = self.folder / package.folder
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{package.stem}.{form}"
            file.write_bytes(_tar_bz2(package) if form == "tar.bz2" else _conda(package))
            data = file.read_bytes()
            row = package.index() | {
                "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
            }
            self.rows.setdefault(package.folder, {})[file.name] = row
        return self.write_index()

    def write_index(self) -> Channel:
        """Write ``repodata.json`` of each folder."""
        for subdir in {"noarch", "linux-64", *self.rows}:
            rows = self.rows.get(subdir, {})
            index = {
                "info": {"subdir": subdir},
                "packages": {name: row for name, row in rows.items() if name.endswith(".tar.bz2")},
                "packages.conda": {name: row for name, row in rows.items() if name.endswith(".conda")},
                "repodata_version": 1,
            }
            (self.folder / subdir).mkdir(parents=True, exist_ok=True)
            (self.folder / subdir / "repodata.json").write_text(json.dumps(index))
        return self


def _tar(files: Mapping[str, File]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode = MADE, file.mode
            if file.link:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
            entry.size = len(file.data)
            archive.addfile(entry, io.BytesIO(file.data))
    return out.getvalue()


def _tar_bz2(package: CondaPackage) -> bytes:
    return bz2.compress(_tar({**package.papers(), **package.files}), 1)


def _conda(package: CondaPackage) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (
            ("metadata.json", b'{"conda_pkg_format_version": 2}'),
            (f"pkg-{package.stem}.tar.zst", _zstd(_tar(package.files))),
            (f"info-{package.stem}.tar.zst", _zstd(_tar(package.papers()))),
        ):
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    return subprocess.run(
        (shutil.which("zstd") or "zstd", "-q", "-1", "-c"), input=data, check=True, capture_output=True
    ).stdout


def python_package() -> CondaPackage | None:
    """Make a ``python`` package of the interpreter that runs the tests; None where it cannot be moved.

    Its one address, that of libpython, is in the program's run path, which becomes relative to the program.
    """
    base, version = Path(sys.base_prefix), ".".join(map(str, sys.version_info[:3]))
    name = "python" + ".".join(version.split(".")[:2])
    program = (base / "bin" / name).resolve()
    library = sorted((base / "lib").glob(f"lib{name}.so.*"))
    own = f"{base}/lib".encode()
    here = b"$ORIGIN/../lib"
    if not library or not program.is_file() or len(own) < len(here) or own + b"\0" not in program.read_bytes():
        return None
    data = program.read_bytes().replace(own + b"\0", here + b"\0" * (len(own) - len(here) + 1))
    files = {
        f"bin/{name}": File(data, 0o755),
        "bin/python3": File(link=name),
        "bin/python": File(link=name),
        f"lib/{library[0].name}": File(library[0].read_bytes(), 0o755),
        f"lib/{name}/site-packages/README.txt": File(b"Packages go here.\n"),
    }
    for path in sorted((base / "lib" / name).rglob("*")):
        inside = path.relative_to(base)
        if path.is_file() and not NOT_NEEDED.search(str(inside)):
            text = path.read_bytes()
            if b"\0" not in text:
                text = text.replace(str(base).encode(), PLACEHOLDER.encode())
            files[str(inside)] = File(text, stat.S_IMODE(path.stat().st_mode) & 0o755 | 0o600)
    return CondaPackage("python", version, "0_cpython", ("__glibc >=2.17",), files=files)
