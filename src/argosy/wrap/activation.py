"""Render the other entry points of a prefix: activate scripts, modulefiles, and a Jupyter kernel.

Each finds the prefix by its own path, so that a prefix can be moved.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import decode_json
from argosy.core.process import Command
from argosy.core.session import Session
from argosy.core.shell import as_comment, quote
from argosy.core.store import write_text
from argosy.version import VERSION as ARGOSY
from argosy.wrap.model import Version
from argosy.wrap.templates import fill_template
from argosy.wrap.versions import ACTIVATE, ACTIVATE_FISH, MODULES, open_prefix

PROMPT_SIGNS = re.compile(r"[$`\\%!]")
"""Characters that shells expand in a prompt."""
MODULE_NAME = re.compile(r"[^A-Za-z0-9._+-]+")


def module_name(name: str) -> str:
    """Return the name of a prefix's module, without blanks, because users type it."""
    return MODULE_NAME.sub("-", name).strip("-.") or "environment"


def render_activate(prefix: str, name: str) -> str:
    """Render the script for sh; bash and zsh find its folder themselves, other shells use `prefix`."""
    prompt = quote(f"({PROMPT_SIGNS.sub('_', as_comment(name))}) ")
    script = _shown_path(name, ACTIVATE)
    return fill_template("activate.sh", script=script, argosy=ARGOSY, prefix=quote(prefix), prompt=prompt)


def render_activate_fish(name: str) -> str:
    """Render the script for fish; it does not change the prompt, which is a function of the user."""
    return fill_template("activate.fish", script=_shown_path(name, ACTIVATE_FISH), argosy=ARGOSY)


def render_lua(prefix: str, name: str, what: str) -> str:
    """Render the modulefile for Lmod."""
    module, folder = module_name(name), _shown_path(name, MODULES)
    return fill_template(
        "modulefile.lua",
        folder=folder,
        module=module,
        argosy=ARGOSY,
        prefix=_lua(prefix),
        name=_lua(name),
        what=_lua(what),
    )


def render_tcl(name: str, what: str) -> str:
    """Render the modulefile for Environment Modules, which Lmod also reads."""
    module, folder = module_name(name), _shown_path(name, MODULES)
    return fill_template("modulefile.tcl", folder=folder, module=module, argosy=ARGOSY, what=_tcl(what))


def _render_kernel(python: str, title: str) -> str:
    """Render a Jupyter kernel specification; interrupts are signals, which reach the program itself."""
    words = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": title, "language": "python", "metadata": {"debugger": True}}
    return json.dumps(spec, indent=1) + "\n"


def write_activation(prefix: Path, version: Version) -> None:
    """Write the activate scripts and the modulefiles; only their descriptions differ from version to version."""
    modules = prefix / MODULES
    with translate_os_errors(prefix):
        modules.mkdir(exist_ok=True)
    default = module_name(prefix.name)
    lua = next(iter(sorted(modules.glob("*.lua"))), modules / f"{default}.lua")
    what = str(version.recipe)
    for file, text in (
        (prefix / ACTIVATE, render_activate(str(prefix), prefix.name)),
        (prefix / ACTIVATE_FISH, render_activate_fish(prefix.name)),
        (lua, render_lua(str(prefix), prefix.name, what)),
        (lua.with_suffix(""), render_tcl(prefix.name, what)),
    ):
        write_text(file, text)


def _shown_path(name: str, file: str) -> str:
    return as_comment(quote(f"{name}/{file}"))


def _lua(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _tcl(text: str) -> str:
    return '"' + re.sub(r'([\\"$\[\]])', r"\\\1", text.replace("\n", " ")) + '"'


NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
"""Names that Jupyter accepts for a kernel."""


class KernelRequest(msgspec.Struct, frozen=True):
    """A request of `argosy wrap kernel`."""

    prefix: Path
    to: Path | None = None
    """A data folder of Jupyter; None for the user's own."""
    name: str = ""
    title: str = ""
    """Name for commands, and title in menus; empty for the name of the prefix."""
    force: bool = False
    """Whether to replace a kernel of that name that starts another program."""


def add_kernel(request: KernelRequest, session: Session) -> Path:
    """Write the specification of a kernel, and return its path.

    Raises
    ------
    UsageError
        If the name is invalid, or another kernel has it.
    CheckFailed
        If the prefix has no ``python``, or that one cannot import ``ipykernel``.
    """
    version = open_prefix(request.prefix)
    python = request.prefix / "bin/python"
    if "python" not in {command.name for command in version.commands}:
        raise CheckFailed(
            f"{request.prefix} does not wrap python", hint="wrap its folder: argosy wrap update DIR -w PATH"
        )
    name = (request.name or re.sub(r"[^A-Za-z0-9._-]+", "-", request.prefix.name)).lower()
    if not NAME.match(name):
        raise UsageError(f"invalid kernel name {name!r}", hint="use letters, digits, '.', '_' and '-': --name NAME")
    _need_ipykernel(python, request.prefix, session)
    folder = (request.to or _jupyter_data(session)) / "kernels" / name
    spec = folder / "kernel.json"
    if not request.force:
        _refuse_other(spec, str(python))
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(spec, _render_kernel(str(python), request.title or request.prefix.name))
    return spec


def _need_ipykernel(python: Path, prefix: Path, session: Session) -> None:
    reply = session.runner.run(Command((str(python), "-c", "import ipykernel")))
    if reply.code != 0:
        raise CheckFailed(
            f"cannot add the python of {prefix} as a kernel: it does not import ipykernel",
            evidence=(reply.stderr.strip().splitlines() or [f"exit code {reply.code}"])[-1],
            hint=f"add it: argosy wrap update {quote(str(prefix))} ipykernel",
        )


def _jupyter_data(session: Session) -> Path:
    """Return the user's data folder, as ``jupyter --data-dir`` does on Linux."""
    environment = session.host.environment
    if environment.get("JUPYTER_DATA_DIR"):
        return Path(environment["JUPYTER_DATA_DIR"])
    data = environment.get("XDG_DATA_HOME") or str(Path(session.host.person.home) / ".local/share")
    return Path(data) / "jupyter"


def _refuse_other(spec: Path, python: str) -> None:
    """Reject the name of a kernel that starts another program."""
    if not spec.is_file():
        return
    try:
        starts = decode_json(spec.read_bytes(), dict[str, object]).get("argv")
    except msgspec.DecodeError:
        starts = None
    if not (isinstance(starts, list) and starts[:1] == [python]):
        raise UsageError(
            f"another kernel has the name {spec.parent.name}", evidence=str(spec), hint="use --name NAME, or --force"
        )
