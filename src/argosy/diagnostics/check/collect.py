"""Inspect the contents of an image: C library, PyTorch and its GPU backend, MPI and network plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from argosy.core.process import Command, tool_error
from argosy.core.session import Session
from argosy.core.shell import in_double_quotes, literal_argv
from argosy.images.torch_build import ASK_TORCH
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import outer_environment

MARK = "argosy:"
"""Prefix of each line of the report, since scripts of the image may print too."""

REPORT_SCRIPT = """\
say() { printf "argosy:%s\\n" "$1=$2"; }
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null | tr -dc 0-9.)"
say entry "$([ -x /opt/argosy/enter ] && echo yes || echo no)"
for name in mpirun mpiexec; do ! command -v "$name" >/dev/null || say mpi "$("$name" --version 2>&1 | head -n 1)"; done
[ ! -d /opt/argosy/env ] || set -- "$@" /opt/argosy/env/lib
for pair in libfabric:libfabric.so plugin:libnccl-net plugin:librccl-net plugin:libaws-ofi mpilib:libmpi.so; do
    found=$(find /usr /opt /lib "$@" -xdev -name "${pair#*:}*" -print -quit 2>/dev/null)
    [ -z "$found" ] || say "${pair%%:*}" "$found"
done
for python in python python3; do
    command -v "$python" >/dev/null || continue
    say python "$("$python" -I -c 'import platform; print(platform.python_version())')"
    say torch "$("$python" -I -c "$ASK_TORCH" | tail -n 1)"
    break
done
say end yes
"""


class Contents(msgspec.Struct, frozen=True):
    """The contents of an image that matter for a site.

    Attributes
    ----------
    glibc
        Version of glibc; empty if the image has another C library.
    torch
        Values of ``torch/version.py``: ``__version__``, ``cuda``, ``hip``, ``xpu``; empty without PyTorch.
    mpi, libfabric, plugin
        An MPI, libfabric, and a network plugin of NCCL or RCCL; empty if there is none.
    entry
        Whether ``/opt/argosy/enter`` exists.
    """

    glibc: str = ""
    python: str = ""
    torch: Mapping[str, str] = msgspec.field(default_factory=dict)
    mpi: str = ""
    libfabric: str = ""
    plugin: str = ""
    entry: bool = False


def inspect_image(plan: ContainerPlan, session: Session) -> Contents:
    """Start the container once, and report its contents.

    Raises
    ------
    ToolFailed
        When the container does not start.
    """
    argv = literal_argv(
        plan.argv(("/bin/sh", "-c", REPORT_SCRIPT.replace("$ASK_TORCH", in_double_quotes(ASK_TORCH)), "sh"))
    )
    command = Command(argv, env=outer_environment(plan, session.host.environment))
    reply = session.runner.run(command)
    contents = parse_contents(reply.stdout)
    if contents is None:
        raise tool_error(command, reply, doing="inspecting the image")
    return contents


def parse_contents(text: str) -> Contents | None:
    """Parse the output of `REPORT_SCRIPT`; None if the output is incomplete."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(MARK):
            key, _, value = line.removeprefix(MARK).partition("=")
            found.setdefault(key, value)
    if "end" not in found:
        return None
    try:
        torch = json.loads(found.get("torch") or "{}")
    except ValueError:
        torch = {}
    return Contents(
        glibc=found.get("glibc", ""),
        python=found.get("python", ""),
        torch=torch if isinstance(torch, dict) else {},
        mpi=found.get("mpi", "") or found.get("mpilib", ""),
        libfabric=found.get("libfabric", ""),
        plugin=found.get("plugin", ""),
        entry=found.get("entry") == "yes",
    )
