"""The story of `argosy wrap kernel`: let Jupyter start the Python of a prefix."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import atomic_file
from argosy.wrap.activation import render_kernel
from argosy.wrap.versions import open_prefix

NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
"""What Jupyter takes as the name of a kernel."""


class KernelRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy wrap kernel`.

    Attributes
    ----------
    to
        A data folder of Jupyter; None: the user's own.
    name, title
        What commands call the kernel, and what people see; empty: after the prefix.
    force
        Replace a kernel of that name that starts something else.
    """

    prefix: Path
    to: Path | None = None
    name: str = ""
    title: str = ""
    force: bool = False


def add_kernel(request: KernelRequest, session: Session) -> Path:
    """Write the specification, and give its path.

    Raises
    ------
    UsageError
        When the name is none, or another kernel has it.
    CheckFailed
        When the prefix has no ``python`` that imports ``ipykernel``.
    """
    version = open_prefix(request.prefix)
    python = request.prefix / "bin/python"
    if "python" not in {command.name for command in version.commands}:
        raise CheckFailed(f"{request.prefix} wraps no python", hint="name its folder: argosy wrap update DIR -w PATH")
    name = (request.name or re.sub(r"[^A-Za-z0-9._-]+", "-", request.prefix.name)).lower()
    if not NAME.match(name):
        raise UsageError(f"{name!r} is no name of a kernel", hint="letters, digits, '.', '_' and '-': --name NAME")
    _need_ipykernel(python, request.prefix, session)
    folder = (request.to or _jupyter_data(session)) / "kernels" / name
    spec = folder / "kernel.json"
    if not request.force:
        _refuse_other(spec, str(python))
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(spec, force=True) as beside:
        beside.write_text(render_kernel(str(python), request.title or request.prefix.name), encoding="utf-8")
    return spec


def _need_ipykernel(python: Path, prefix: Path, session: Session) -> None:
    reply = session.runner.run(Command((str(python), "-c", "import ipykernel")))
    if reply.code != 0:
        raise CheckFailed(
            f"the python of {prefix} cannot be a kernel",
            evidence=(reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1],
            hint=f"add it: argosy wrap update {quote(str(prefix))} ipykernel",
        )


def _jupyter_data(session: Session) -> Path:
    """Give the user's own folder, as ``jupyter --data-dir`` does on Linux."""
    environment = session.host.environment
    if environment.get("JUPYTER_DATA_DIR"):
        return Path(environment["JUPYTER_DATA_DIR"])
    data = environment.get("XDG_DATA_HOME") or str(Path(session.host.person.home) / ".local/share")
    return Path(data) / "jupyter"


def _refuse_other(spec: Path, python: str) -> None:
    """Refuse to take the name of a kernel that starts something else."""
    if not spec.is_file():
        return
    try:
        starts = msgspec.json.decode(spec.read_bytes(), type=dict[str, object]).get("argv")
    except msgspec.DecodeError:
        starts = None
    if not (isinstance(starts, list) and starts[:1] == [python]):
        raise UsageError(
            f"another kernel is called {spec.parent.name}", evidence=str(spec), hint="--name NAME, or --force"
        )
