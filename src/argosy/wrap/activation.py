"""Render the other entry points of a prefix: activate scripts, modulefiles, and a Jupyter kernel.

Each finds the prefix by its own path, so that a prefix can be moved.
"""

from __future__ import annotations

import json
import re

from argosy.core.shell import as_comment, quote
from argosy.version import VERSION as ARGOSY
from argosy.wrap.templates import fill_template

ACTIVATE = "activate"
ACTIVATE_FISH = "activate.fish"
MODULES = "modulefiles"
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


def render_kernel(python: str, title: str) -> str:
    """Render a Jupyter kernel specification; interrupts are signals, which reach the program itself."""
    words = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": title, "language": "python", "metadata": {"debugger": True}}
    return json.dumps(spec, indent=1) + "\n"


def _shown_path(name: str, file: str) -> str:
    return as_comment(quote(f"{name}/{file}"))


def _lua(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _tcl(text: str) -> str:
    return '"' + re.sub(r'([\\"$\[\]])', r"\\\1", text.replace("\n", " ")) + '"'
