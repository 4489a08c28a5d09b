"""The ways into a prefix that are not its commands: activate script, modulefiles, Jupyter kernel; text only.

Each finds the prefix by its own place, so that a prefix may be moved.
"""

from __future__ import annotations

import json
import re

from argosy.core.shell import as_comment, quote
from argosy.version import VERSION as ARGOSY

ACTIVATE = "activate"
ACTIVATE_FISH = "activate.fish"
MODULES = "modulefiles"
PROMPT_SIGNS = re.compile(r"[$`\\%!]")
"""What shells replace, and run, in a prompt."""
MODULE_NAME = re.compile(r"[^A-Za-z0-9._+-]+")


def module_name(name: str) -> str:
    """Give the name of a prefix's module: no blanks, since users type it."""
    return MODULE_NAME.sub("-", name).strip("-.") or "environment"


def render_activate(prefix: str, name: str) -> str:
    """Render the script that a shell sources; bash and zsh tell where it lies, other shells find it at `prefix`."""
    return f"""\
# shellcheck shell=sh
# Read this by the shell: . {_told(name, ACTIVATE)}      It puts the commands of this folder first on PATH.
# Back again: deactivate      Made by Argosy {ARGOSY}, which need not be here.
argosy_dir={quote(prefix)}
if [ -n "${{BASH_VERSION-}}" ]; then
    # shellcheck disable=SC3028,SC3054
    argosy_dir=${{BASH_SOURCE-}}
elif [ -n "${{ZSH_VERSION-}}" ]; then
    eval 'argosy_dir=${{(%):-%x}}'
else
    argosy_dir=$argosy_dir/{ACTIVATE}
fi
case $argosy_dir in */*) ;; *) argosy_dir=./$argosy_dir ;; esac
if argosy_dir=$(CDPATH="" cd -- "${{argosy_dir%/*}}" 2> /dev/null && pwd) && [ -d "$argosy_dir/bin" ]; then
    [ -z "${{argosy_activated-}}" ] || deactivate
    argosy_activated=yes
    ARGOSY_ACTIVE=$argosy_dir
    PATH=$ARGOSY_ACTIVE/bin:$PATH
    export ARGOSY_ACTIVE PATH
    if [ -z "${{VIRTUAL_ENV_DISABLE_PROMPT-}}" ] && [ -n "${{PS1-}}" ]; then
        argosy_prompt=$PS1
        PS1={quote(f"({PROMPT_SIGNS.sub('_', as_comment(name))}) ")}$PS1
    fi
    deactivate() {{
        PATH=:$PATH:
        PATH=${{PATH%%":$ARGOSY_ACTIVE/bin:"*}}:${{PATH#*":$ARGOSY_ACTIVE/bin:"}}
        PATH=${{PATH#:}}
        PATH=${{PATH%:}}
        PS1=${{argosy_prompt-${{PS1-}}}}
        unset -v ARGOSY_ACTIVE argosy_activated argosy_prompt
        unset -f deactivate
        hash -r 2> /dev/null || :
    }}
    hash -r 2> /dev/null || :
else
    echo "argosy: the commands are not found beside this script: was the folder moved?  Use bash, or put" >&2
    echo "  -> its bin on PATH yourself" >&2
fi
unset -v argosy_dir
"""


def render_activate_fish(name: str) -> str:
    """Render the script that fish sources; its prompt is a function of the user's, and stays as it is."""
    return f"""\
# Read this by fish: source {_told(name, ACTIVATE_FISH)}      It puts the commands of this folder first on PATH.
# Back again: deactivate      Made by Argosy {ARGOSY}, which need not be here.
set -q ARGOSY_ACTIVE; and functions -q deactivate; and deactivate
set -gx ARGOSY_ACTIVE (realpath (dirname (status filename)))
set -gx PATH $ARGOSY_ACTIVE/bin $PATH
function deactivate
    set -l argosy_place (contains -i -- $ARGOSY_ACTIVE/bin $PATH); and set -e PATH[$argosy_place]
    set -e ARGOSY_ACTIVE
    functions -e deactivate
end
"""


def render_lua(prefix: str, name: str, what: str) -> str:
    """Render the modulefile of Lmod."""
    return f"""\
-- Lmod: module use {_told(name, MODULES)}; module load {module_name(name)}      Made by Argosy {ARGOSY}.
local prefix = string.match(myFileName(), "^(/.*)/{MODULES}/[^/]+$") or {_lua(prefix)}
whatis("Name: " .. {_lua(name)})
whatis("Description: " .. {_lua(what)})
help("Commands of " .. {_lua(what)} .. ", each in its container: " .. pathJoin(prefix, "bin"))
prepend_path("PATH", pathJoin(prefix, "bin"))
setenv("ARGOSY_ACTIVE", prefix)
"""


def render_tcl(name: str, what: str) -> str:
    """Render the modulefile of Environment Modules, which Lmod reads as well."""
    return f"""\
#%Module1.0
# module use {_told(name, MODULES)}; module load {module_name(name)}      Made by Argosy {ARGOSY}.
set prefix [file dirname [file dirname $ModulesCurrentModulefile]]
module-whatis {_tcl(what)}
proc ModulesHelp {{ }} {{
    global prefix
    puts stderr "Commands, each in its container: $prefix/bin"
}}
prepend-path PATH $prefix/bin
setenv ARGOSY_ACTIVE $prefix
"""


def render_kernel(python: str, title: str) -> str:
    """Render a kernel specification of Jupyter: interrupts come as signals, which reach the program itself."""
    words = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": title, "language": "python", "metadata": {"debugger": True}}
    return json.dumps(spec, indent=1) + "\n"


def _told(name: str, file: str) -> str:
    return as_comment(quote(f"{name}/{file}"))


def _lua(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _tcl(text: str) -> str:
    return '"' + re.sub(r'([\\"$\[\]])', r"\\\1", text.replace("\n", " ")) + '"'
