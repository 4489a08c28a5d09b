"""Find out what an image contains that matters for a site: start it once, and keep the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed
from argosy.core.model import ContainerRequest, GpuMode, Image, ImageKind
from argosy.core.parse import parse_json
from argosy.core.process import tool_error
from argosy.core.session import Session
from argosy.core.shell import in_double_quotes, quote, read_function
from argosy.core.store import remember_text
from argosy.images.open import file_identity
from argosy.images.torch_build import ASK_TORCH
from argosy.runtimes.open_container import open_container, start_command

MARK = "argosy:"
"""Prefix of each line of the report, since scripts of the image may print too."""

SCRIPT = Path(__file__).parents[1] / "scripts/contents.sh"


class Contents(msgspec.Struct, frozen=True):
    """The contents of an image that matter for a site."""

    glibc: str = ""
    """Version of glibc; empty if the image has another C library."""
    python: str = ""
    torch: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Values of ``torch/version.py``: ``__version__``, ``cuda``, ``hip``, ``xpu``; empty without PyTorch."""
    mpi: str = ""
    libfabric: str = ""
    plugin: str = ""
    """An MPI, libfabric, and a network plugin of NCCL or RCCL; empty if there is none."""
    several_mpis: bool = False
    """Whether there are both Open MPI and an MPI of the MPICH family: MPICH, Intel MPI, MVAPICH."""
    entry: bool = False
    """Whether ``/opt/argosy/enter`` exists."""


def parse_contents(text: str) -> Contents | None:
    """Parse the output of ``contents.sh``; None if the output is incomplete."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(MARK):
            key, _, value = line.removeprefix(MARK).partition("=")
            found.setdefault(key, value)
    if "end" not in found:
        return None
    try:
        torch = parse_json(found.get("torch") or "{}")
    except ValueError:
        torch = {}
    return Contents(
        glibc=found.get("glibc", ""),
        python=found.get("python", ""),
        torch=torch if isinstance(torch, dict) else {},
        mpi=found.get("mpi", "") or found.get("mpilib", ""),
        libfabric=found.get("libfabric", ""),
        plugin=found.get("plugin", ""),
        several_mpis={"openmpi", "mpich"} <= found.keys(),
        entry=found.get("entry") == "yes",
    )


@cache
def _program() -> str:
    return str(read_function(SCRIPT, "contents", {"ASK_TORCH": in_double_quotes(ASK_TORCH)}))


def inspect_image(image: Image, session: Session, *, unpack: bool) -> Contents | None:
    """Return the contents of an image.

    The answer for an image file is cached until the file changes.

    Parameters
    ----------
    unpack
        Whether the image may be unpacked into the cache, if the runtime needs that.

    Raises
    ------
    ArgosyError
        If this machine cannot start the image, or only after it was unpacked and `unpack` is false.
    """
    memo = None
    if image.kind is not ImageKind.TREE:  # the time of a folder does not show changes below it
        program = hashlib.sha256(_program().encode()).hexdigest()[:8]
        memo = session.paths.cache / "contents" / f"{file_identity(image)[:32]}-{program}"
    return parse_contents(remember_text(memo, lambda: _start(image, session, unpack=unpack)))


def _start(image: Image, session: Session, *, unpack: bool) -> str:
    """Start the image, and return its report."""
    request = ContainerRequest(gpu=GpuMode.NONE, workdir="/")
    plan = open_container(request, image.path, session, dry=True)
    if plan.runtime.traits.unpacks and not unpack and not all(Path(tree).exists() for tree in plan.entry.trees):
        hint = f"unpack it: argosy check {quote(image.path)}"
        raise CheckFailed(f"{plan.runtime.name} has to unpack the image first", hint=hint)
    plan = open_container(request, image.path, session)
    command = start_command(plan, ("/bin/sh", "-c", _program(), "sh"), session)
    reply = session.runner.run(command)
    if parse_contents(reply.stdout) is None:
        raise tool_error(command, reply, doing="inspecting the image")
    return reply.stdout
