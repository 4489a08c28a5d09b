"""Look into an image by one start of its container: C library, torch and its back ends, MPI, network plugins."""

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
"""Before each line, since an image's own scripts may print."""

LOOK = """\
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
    """What an image holds, as far as it concerns a site.

    Attributes
    ----------
    glibc
        Version of its C library; empty where it is another one.
    torch
        What ``torch/version.py`` says: ``__version__``, ``cuda``, ``hip``, ``xpu``; empty without torch.
    mpi, libfabric, plugin
        An MPI, libfabric, and a network plugin of NCCL or RCCL; empty where there is none.
    entry
        Whether ``/opt/argosy/enter`` is there.
    """

    glibc: str = ""
    python: str = ""
    torch: Mapping[str, str] = msgspec.field(default_factory=dict)
    mpi: str = ""
    libfabric: str = ""
    plugin: str = ""
    entry: bool = False


def look_into(plan: ContainerPlan, session: Session) -> Contents:
    """Start a container once and look.

    Raises
    ------
    ToolFailed
        When it does not start.
    """
    words = literal_argv(plan.argv(("/bin/sh", "-c", LOOK.replace("$ASK_TORCH", in_double_quotes(ASK_TORCH)), "sh")))
    command = Command(words, env=outer_environment(plan, session.host.environment))
    reply = session.runner.run(command)
    contents = parse_contents(reply.stdout)
    if contents is None:
        raise tool_error(command, reply, doing="looking into the image")
    return contents


def parse_contents(text: str) -> Contents | None:
    """Read what `LOOK` prints; None where it did not come to its end."""
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
