"""Ask the Python of a base, or of an environment, for its version, folders and packages.

The Python of a wrapped venv has the prefix as its ``sys.prefix``, whose ``lib`` in the container is a link into the
image.  Without a replaced search path, every module path contains the prefix, and each lookup of such a path (for
example in `inspect`) asks the host's file system: ``import torch`` does so 2,240 times.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import BuildContainer
from argosy.builder.python.pins import render_pins
from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed
from argosy.core.layout import ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.core.parse import parse_json
from argosy.core.process import Reply
from argosy.core.records import replace
from argosy.core.suggest import did_you_mean
from argosy.images.rootfs import resolve_in_root, write_in_root

FIND_PYTHON = Path(__file__).with_name("find-python.sh").read_text(encoding="utf-8")

ASK_PYTHON = """\
import json, os, sys
try:
    import importlib.metadata as metadata
except ImportError:
    print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "build": sys.version,
                      "executable": sys.executable, "dists": []}))
    raise SystemExit
import re
seen, rows, scripts = set(), [], []
for dist in metadata.distributions():
    name = dist.metadata["Name"]
    key = re.sub(r"[-_.]+", "-", name or "").lower()
    if not name or key in seen:
        continue
    seen.add(key)
    rows.append([key, dist.version])
    for point in dist.entry_points:
        if point.group == "console_scripts":
            scripts.append([point.name, point.value.split("[")[0].strip()])
try:
    limits = open(os.getenv("PIP_CONSTRAINT", "")).read()
except (OSError, ValueError):
    limits = ""
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "build": sys.version,
                  "executable": sys.executable, "dists": sorted(rows), "scripts": sorted(scripts), "limits": limits}))
"""
"""Prints facts about a base's Python as JSON; runs with Python 3.6 and later.  Of two packages with the same name, the
first one counts, as on sys.path."""


class BasePython(msgspec.Struct, frozen=True):
    """The Python of a base."""

    version: str
    executable: str
    """Its path in the container."""
    packages: tuple[tuple[str, str], ...]
    """Normalised name and version of each package that it can import."""
    scripts: tuple[tuple[str, str], ...]
    """Console scripts of those packages: name and ``module:function``."""
    limits: str = ""
    """Text of the constraint file in the base's ``PIP_CONSTRAINT``, which NVIDIA's images have."""
    build: str = ""
    """Its ``sys.version``: version, build date and compiler."""

    def without(self, names: Collection[str]) -> BasePython:
        """Return a copy without some packages, which another version may hide."""
        kept = (line for line in self.limits.splitlines() if _limited_package(line) not in names)
        packages = tuple(package for package in self.packages if package[0] not in names)
        return replace(self, packages=packages, limits="".join(f"{line}\n" for line in kept))


def unused_replacements(python: BasePython, names: Collection[str]) -> tuple[str, ...]:
    """Describe names of packages to replace that neither the base nor its constraint file has."""
    known = {*dict(python.packages), *map(_limited_package, python.limits.splitlines())}
    hints = {name: did_you_mean(name, known, "") for name in names if name not in known}
    return tuple(
        f"--allow-replace {name} has no effect: the base has no such package{f'; {hint}' if hint else ''}"
        for name, hint in hints.items()
    )


def _limited_package(line: str) -> str:
    """Return the package name in a line of a constraint file."""
    return canonicalize_name(re.split(r"[\s=<>!~@;\[]", line.strip(), maxsplit=1)[0])


def ask_python(build_container: BuildContainer) -> BasePython | None:
    """Ask the base's Python for its facts, or return None without one."""
    reply = build_container.ask("/bin/sh", "-c", FIND_PYTHON, "sh", ROOT, ASK_PYTHON)
    path, _, facts = reply.stdout.partition("\n")
    if reply.code != 0 and path:
        raise build_container.failure((path,), reply, doing=f"asking {path} in the base")
    if reply.code != 0:
        raise _no_shell(build_container, reply)
    return _read_facts(path, facts) if path else None


def ask_interpreter(build_container: BuildContainer, path: str) -> BasePython:
    """Ask the Python at `path` in the container for its facts."""
    reply = build_container.run_checked(path, "-I", "-c", ASK_PYTHON, doing=f"asking {path} in the base")
    return _read_facts(path, reply.stdout)


def _read_facts(path: str, text: str) -> BasePython:
    """Read the facts that `ASK_PYTHON` printed."""
    try:
        facts = parse_json(text)
        return BasePython(
            version=facts["version"],
            executable=facts["executable"] or path,
            packages=tuple((name, version) for name, version in facts["dists"]),
            scripts=tuple((name, value) for name, value in facts.get("scripts", ())),
            limits=facts.get("limits", ""),
            build=facts.get("build", ""),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(
            f"cannot read the facts that {path} in the base printed",
            evidence=text[-400:],
            hint="the base's Python must print nothing at its start: check its sitecustomize.py, or use another base",
        ) from error


def _no_shell(build_container: BuildContainer, reply: Reply) -> ArgosyError:
    """Return the error for a base in which no shell starts, for example one with a single static program."""
    if "/bin/sh" in reply.stderr and "o such file" in reply.stderr:
        return CheckFailed(
            "the base has no shell",
            evidence=reply.stderr.strip(),
            hint="use a base with /bin/sh: containers start through it",
        )
    return build_container.failure(("/bin/sh",), reply, doing="looking for Python in the base")


FILE = "argosy_prefix.pth"
TEXT = """\
import os, sys; sys.path[:] = map(lambda path, lib=os.getenv("ARGOSY_WRAP", "\\0") + "/lib": \
os.path.realpath(path) if path.startswith(lib) else path, sys.path)
"""
"""Python runs such lines of a ``.pth`` file at startup (https://docs.python.org/3/library/site.html)."""


def library_folders(layer: Path) -> list[Path]:
    """Return the library folders of a layer's environment: one for each Python.

    conda adds a link ``python3.1`` for programs that read 3.11 as a number; it is left out.
    """
    found = resolve_in_root(layer, f"{ENV_PREFIX}/lib").glob("python3*")
    return [folder for folder in found if folder.is_dir() and not folder.is_symlink()]


def site_folders(layer: Path) -> list[Path]:
    """Return the ``site-packages`` folders of a layer's environment."""
    sites = (folder / "site-packages" for folder in library_folders(layer))
    return [site for site in sites if site.is_dir() and not site.is_symlink()]


def write_search_path(layer: Path) -> None:
    """Write the file into the venv of a layer."""
    for folder in site_folders(layer):
        write_in_root(folder, FILE, TEXT)


BASE_CONSTRAINTS = "/.argosy/constraints.txt"
"""Path of the constraint file with the base's packages in the container of a build."""

FREE = frozenset({"pip", "setuptools", "wheel"})
"""Build tools: pip's constraints also apply to isolated builds, which need other versions."""

HOLD = f"export PIP_CONSTRAINT={BASE_CONSTRAINTS} UV_CONSTRAINT={BASE_CONSTRAINTS}"


def protecting_base_packages(
    build_container: BuildContainer, work: Path, replaceable: Collection[str]
) -> BuildContainer:
    """Mount a constraint file with the base's packages into the container."""
    python = ask_python(build_container)
    file = work / "base-packages.txt"
    file.write_text(_render_constraints(python.without(replaceable)) if python else "", encoding="utf-8")
    return build_container.with_mounts(Bind(str(file), BASE_CONSTRAINTS, read_only=True))


def _render_constraints(python: BasePython) -> str:
    """Render constraints for the base's packages, with the lines of its own constraint file for other packages."""
    pins = {name: version for name, version in python.packages if name not in FREE}
    limits = (line for line in python.limits.splitlines() if _limited_package(line) not in pins)
    return render_pins(pins) + "".join(f"{line}\n" for line in limits)


def hold_line(build_container: BuildContainer) -> str:
    """Return the shell line that sets the constraints for pip and uv; it does nothing without a constraint file."""
    return HOLD if any(bind.target == BASE_CONSTRAINTS for bind in build_container.binds) else ":"
