"""Where things lie in an image's layer, and the text of its few shell files; it never touches a disk.

::

    /opt/argosy/                      the layer, self-contained: overlay, bind and flat give the same tree
        enter                         sets the environment, then becomes its arguments
        env.sh                        the environment, computed once at build: plain exports
        argosy.lock                   what is in the image
        env/                          the environment: a venv of the base's Python, or a prefix of its own
            lib/pythonX/site-packages/argosy_prefix.pth    a venv's packages have one path, also behind a wrapped prefix
    /.singularity.d/env/98-argosy.sh  the same environment for a plain `apptainer exec IMAGE python`
    /etc/profile.d/zz-argosy.sh       and for `bash -l`, which resets PATH in /etc/profile
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

import msgspec

from argosy.core.shell import ShellFunction, Word, in_double_quotes, quote

ROOT = "/opt/argosy"
ENTER = f"{ROOT}/enter"
ENV_SCRIPT = f"{ROOT}/env.sh"
ENV_PREFIX = f"{ROOT}/env"
LOCK = f"{ROOT}/argosy.lock"
CONSTRAINTS = f"{ROOT}/constraints.txt"
"""The image's packages, for pip and uv in an image that can be written into (``--dev``); no image has it itself."""

CONSTRAINT_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
"""Variables that name constraint files to pip and to uv."""

APPTAINER_ENV = "/.singularity.d/env/98-argosy.sh"
APPTAINER_BASE = "/.singularity.d/env/99-base.sh"
"""Apptainer forces APPTAINERENV_X right after sourcing this file, and drops them without a word where the folder is
there without it (actions.go, action script of 1.4): so a layer brings one where the base has none."""

PROFILE = "/etc/profile.d/zz-argosy.sh"

GPU_LIBRARIES = "/.singularity.d/libs"
"""Where the driver's libraries go, as under Apptainer: images made for it have the folder on their path already."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NAME = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
PREPENDED = rf"(?s)    \*\) {_NAME}=(?P<first>.*)\"[:$][^\"]*\" ;;"
DEFAULTED = rf"(?s)\[ -n \"\$\{{{_NAME}\+set\}}\" \] \|\| export (?P=name)=(?P<value>.*)"
EXPORTED = rf"(?s)export {_NAME}=(?P<value>.*)"
"""The three forms of a statement in ``env.sh``, which few commands read."""

NOT_FROM_CALLER = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)
"""Variables that name software of the host: inside they would load the wrong one."""


class Activation(msgspec.Struct, frozen=True):
    """The environment of a layer, as it was computed at build.

    Attributes
    ----------
    prepend
        PATH-like variables and what stands first in them.
    identity
        Variables that say what this environment is: set always.
    default
        All others: set only where the caller or the image set nothing.
    """

    prepend: tuple[tuple[str, str], ...]
    identity: tuple[tuple[str, str], ...]
    default: tuple[tuple[str, str], ...] = ()


class PrefixLayout(msgspec.Struct, frozen=True):
    """What makes an image look as another tool would have made it.

    Attributes
    ----------
    prefix
        Folder under which the environment is found, too, and which its variables name; empty: only ``/opt/argosy/env``.
    labels
        Added to those of the base, for ``apptainer inspect``.
    own_python
        Whether the Python that an environment file names is conda's, even where conda brings nothing else.
    """

    prefix: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    own_python: bool = False


NO_PREFIX_LAYOUT = PrefixLayout()


def plan_activation(*, extra: Iterable[tuple[str, str]] = ()) -> Activation:
    """Give the environment of a layer whose programs lie in ``/opt/argosy/env/bin``.

    `extra` are the variables that an environment file asks for; they are set only if unset, so a job can change them.
    """
    return Activation(
        prepend=(("PATH", f"{ENV_PREFIX}/bin"),),
        identity=(("ARGOSY_PREFIX", ROOT), ("VIRTUAL_ENV", ENV_PREFIX), ("PYTHONNOUSERSITE", "1")),
        default=tuple(extra),
    )


def render_env_script(activation: Activation) -> str:
    """Render ``env.sh``: plain exports, safe to source twice and under ``set -eu``."""
    lines = ["# The environment of this image, computed when it was built.  Sourcing it twice changes nothing."]
    for name, first in activation.prepend:
        # No colon at the end of a list that was empty: it would mean the current directory.
        rest = f":${{{name}:-{DEFAULT_PATH}}}" if name == "PATH" else f"${{{name}:+:${name}}}"
        lines += [
            f'case "${{{name}:-}}" in',
            f"    {quote(first)} | {quote(first)}:*) ;;",
            f'    *) {name}={quote(first)}"{rest}" ;;',
            "esac",
            f"export {name}",
        ]
    lines += [f"export {name}={quote(value)}" for name, value in activation.identity]
    for name, value in activation.default:
        lines.append(f'[ -n "${{{name}+set}}" ] || export {name}={quote(value)}')
    return "\n".join(lines) + "\n"


def parse_env_script(text: str) -> Activation:
    """Read an ``env.sh`` that `render_env_script` wrote; lines of any other form are passed over."""
    prepend: list[tuple[str, str]] = []
    identity: list[tuple[str, str]] = []
    default: list[tuple[str, str]] = []
    for statement in _statements(text):
        if found := re.match(PREPENDED, statement):
            prepend.append((found["name"], _unquote(found["first"])))
        elif found := re.match(DEFAULTED, statement):
            default.append((found["name"], _unquote(found["value"])))
        elif found := re.match(EXPORTED, statement):
            identity.append((found["name"], _unquote(found["value"])))
    return Activation(tuple(prepend), tuple(identity), tuple(default))


def _statements(text: str) -> Iterator[str]:
    """Give whole statements: a quoted value may hold newlines."""
    statement = ""
    for line in text.split("\n"):
        statement += line
        if statement.replace("'\"'\"'", "").count("'") % 2:
            statement += "\n"
            continue
        yield statement
        statement = ""


def _unquote(word: str) -> str:
    return "".join(shlex.split(word))


def render_enter() -> str:
    """Render ``enter``, which starts whatever Argosy starts: its absence shows that the layer was not attached.

    A shell that is there reads it, and becomes the command: a start of one more takes milliseconds in an image that is
    mounted by FUSE.
    """
    return f"""\
#!/bin/sh
# Set the environment of this image, then become the command.
. {ENV_SCRIPT}
command -v -- "$1" >/dev/null || {{ echo "argosy: the image has no program $1" >&2; exit 127; }}
exec "$@"
"""


def render_apptainer_base() -> str:
    """Render the file that Apptainer waits for before it forces variables."""
    return "# Apptainer forces the variables of a start right after this file, and only where it is there.\n"


def render_source_line() -> str:
    """Render the scripts in other people's folders: they only source ours, where it is."""
    return f"[ ! -r {ENV_SCRIPT} ] || . {ENV_SCRIPT}\n"


def require_layer(image: str, command: tuple[Word, ...], *, hint: str) -> tuple[Word, ...]:
    """Give the words that start `command` in the layer's environment, or end with code 6 where the layer is missing.

    Runtimes skip an overlay partition without a word in several cases (``enable overlay = no``, ``--underlay``,
    ``--unsquash``): the base's own programs would run by mistake.  A command that is one of our sh programs checks
    this itself, since one more shell costs each rank milliseconds.
    """
    message = f"argosy: the runtime did not attach the layer of {image}, so nothing was started\n  -> {hint}"
    if command[:2] == ("/bin/sh", "-c") and isinstance(program := command[2], ShellFunction):
        stop = f'printf "%s\\n" "{in_double_quotes(message)}" >&2; exit 6'
        look = f"# The environment of the image.\n[ -r {ENV_SCRIPT} ] || {{ {stop}; }}\n. {ENV_SCRIPT}\n"
        return ("/bin/sh", "-c", ShellFunction(program.name, look + program), *command[3:])
    script = ShellFunction("enter", f'[ -x {ENTER} ] || {{ printf "%s\\n" "$1" >&2; exit 6; }}; shift; . {ENTER}')
    return ("/bin/sh", "-c", script, "argosy", message, *command)


def enter_if_present(first: str = "") -> tuple[str, ...]:
    """Give the words that start a command through ``enter`` if the image has it: it may be somebody else's.

    Parameters
    ----------
    first
        What the shell does before, in sh: commands, each with its semicolon.
    """
    script = ShellFunction("enter", f'{first}[ ! -x {ENTER} ] || . {ENTER}; exec "$@"')
    return ("/bin/sh", "-c", script, "argosy-enter")
