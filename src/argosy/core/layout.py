"""Paths in the layer of an image, and the text of its shell files; no file is read or written.

::

    /opt/argosy/                      the layer; overlay, bind and flat give the same tree
        enter                         sets the environment, then executes its arguments
        env.sh                        the environment, computed once at build: plain exports
        argosy.lock                   the contents of the image
        env/                          the environment: a venv of the base's Python, or a conda prefix
            lib/pythonX/site-packages/argosy_prefix.pth    gives packages of a venv one path, even in a wrapped prefix
    /.singularity.d/env/98-argosy.sh  the same environment for a plain `apptainer exec IMAGE python`
    /etc/profile.d/zz-argosy.sh       and for `bash -l`, which resets PATH in /etc/profile
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

import msgspec

from argosy.core.shell import SCRIPTS, ShellFunction, ShellHelper, Word, in_double_quotes, load_helper, quote

ROOT = "/opt/argosy"
ENTER = f"{ROOT}/enter"
ENV_SCRIPT = f"{ROOT}/env.sh"
ENV_PREFIX = f"{ROOT}/env"
LOCK = f"{ROOT}/argosy.lock"
CONSTRAINTS = f"{ROOT}/constraints.txt"
"""Constraints file with the image's packages, for pip and uv in a writable image (``--dev``); not part of images."""

CONSTRAINT_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
"""Variables with the paths of constraints files for pip and uv."""

APT_CONFIG = f"{ROOT}/apt.conf"
"""apt's configuration in a writable image in which the user is root (``--fakeroot``); not part of images."""

APT_AS_ROOT = 'APT::Sandbox::User "root";\n'
"""apt switches to another user while it downloads, which a namespace with one user does not allow."""

APPTAINER_ENV = "/.singularity.d/env/98-argosy.sh"
APPTAINER_BASE = "/.singularity.d/env/99-base.sh"
"""Apptainer sets the variables APPTAINERENV_X right after this file. If an image has the folder without this file, it
drops them silently (actions.go, action script of 1.4), so a layer adds the file if the base has none."""

PROFILE_SCRIPT = "/etc/profile.d/zz-argosy.sh"

GPU_LIBRARIES = "/.singularity.d/libs"
"""Folder of the driver's libraries, as with Apptainer: its images have the folder on LD_LIBRARY_PATH."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NAME = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
PREPENDED = rf"(?s)    \*\) {_NAME}=(?P<first>.*)\"[:$][^\"]*\" ;;"
DEFAULTED = rf"(?s)\[ -n \"\$\{{{_NAME}\+set\}}\" \] \|\| export (?P=name)=(?P<value>.*)"
EXPORTED = rf"(?s)export {_NAME}=(?P<value>.*)"
"""Patterns of the three kinds of statement in ``env.sh``."""

NEXT_CASE = ";;"

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
"""Variables that refer to software of the host; in a container they would load the wrong files."""


class Activation(msgspec.Struct, frozen=True):
    """The environment of a layer, computed at build."""

    prepend: tuple[tuple[str, str], ...]
    """PATH-like variables and the text to put first in them."""
    identity: tuple[tuple[str, str], ...]
    """Variables that identify this environment; always set."""
    default: tuple[tuple[str, str], ...] = ()
    """All other variables; set only if neither the caller nor the image sets them."""


class PrefixLayout(msgspec.Struct, frozen=True):
    """Settings that make an image look as if another tool had built it."""

    prefix: str = ""
    """Second path of the environment, which its variables use; empty means only ``/opt/argosy/env``."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels to add to those of the base, for ``apptainer inspect``."""
    own_python: bool = False
    """Whether conda installs the Python of an environment file even if it installs no other package."""


NO_PREFIX_LAYOUT = PrefixLayout()


def plan_activation(*, extra: Iterable[tuple[str, str]] = ()) -> Activation:
    """Return the environment of a layer whose programs are in ``/opt/argosy/env/bin``.

    Parameters
    ----------
    extra
        Variables of the environment file. They are set only if unset, so that a job can change them.
    """
    return Activation(
        prepend=(("PATH", f"{ENV_PREFIX}/bin"),),
        identity=(("ARGOSY_PREFIX", ROOT), ("VIRTUAL_ENV", ENV_PREFIX), ("PYTHONNOUSERSITE", "1")),
        default=tuple(extra),
    )


def render_env_script(activation: Activation) -> str:
    """Render ``env.sh``, which may be sourced twice and with ``set -eu``."""
    lines = ["# The environment of this image, computed when it was built.  Sourcing it twice changes nothing."]
    for name, first in activation.prepend:
        # A colon after an empty list would mean the current directory.
        rest = f":${{{name}:-{DEFAULT_PATH}}}" if name == "PATH" else f"${{{name}:+:${name}}}"
        lines += [
            f'case "${{{name}:-}}" in',
            f"    {quote(first)} | {quote(first)}:*) {NEXT_CASE}",
            f'    *) {name}={quote(first)}"{rest}" {NEXT_CASE}',
            "esac",
            f"export {name}",
        ]
    lines += [f"export {name}={quote(value)}" for name, value in activation.identity]
    for name, value in activation.default:
        lines.append(f'[ -n "${{{name}+set}}" ] || export {name}={quote(value)}')
    return "\n".join(lines) + "\n"


def parse_env_script(text: str) -> Activation:
    """Parse an ``env.sh`` written by `render_env_script`; other statements are ignored."""
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
    """Yield complete statements; a quoted value may contain newlines."""
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
    """Render ``enter``, which starts the command; if it is missing, the runtime did not attach the layer.

    A running shell sources it and replaces itself with the command: another shell would take milliseconds in an image
    that is mounted by FUSE.
    """
    return f"""\
#!/bin/sh
# Set the environment of this image, then become the command.
. {ENV_SCRIPT}
command -v -- "$1" >/dev/null || {{ echo "argosy: the image has no program $1 (PATH=$PATH)" >&2; exit 127; }}
exec "$@"
"""


def render_apptainer_base() -> str:
    """Render the file after which Apptainer sets variables."""
    return "# Apptainer sets the variables of --env right after this file, and skips them if the file is missing.\n"


def render_source_line() -> str:
    """Render the scripts in system folders of the image, which only source ``env.sh`` if it exists."""
    return f"[ ! -r {ENV_SCRIPT} ] || . {ENV_SCRIPT}\n"


def command_in_layer(image: str, command: tuple[Word, ...], *, hint: str) -> tuple[Word, ...]:
    """Return the command that runs `command` in the layer's environment, or exits with code 6 if the layer is missing.

    Runtimes skip an overlay partition silently in several cases (``enable overlay = no``, ``--underlay``,
    ``--unsquash``), and the base's own programs would run. If the command is a `ShellFunction`, the check is added to
    it, because another shell would cost each rank milliseconds.

    Parameters
    ----------
    hint
        Hint of the error message.
    """
    if command[:2] == ("/bin/sh", "-c") and isinstance(program := command[2], ShellHelper):
        (layer,) = _with_hint("with_layer", hint).definitions
        return (
            "/bin/sh",
            "-c",
            ShellHelper("with_layer", (layer, *program.definitions)),
            "with_layer",
            image,
            *command[3:],
        )
    return ("/bin/sh", "-c", _with_hint("enter_layer", hint), "enter_layer", image, *command)


ENTRY_HELPERS = {"run": ("/bin/sh", "with_runscript"), "with-conda": ("/bin/bash", "with_conda")}
"""Mode of ``--enter`` -> the shell and the helper; activation scripts of conda are read with ``source``, as in bash."""


def enter_image(mode: str, command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command that starts `command` by a mode of ``--enter``: ``exec``, ``run`` or ``with-conda``."""
    if mode not in ENTRY_HELPERS:
        return command
    shell, name = ENTRY_HELPERS[mode]
    return (shell, "-c", load_helper(SCRIPTS / f"{name}.sh", name), name, *command)


def _with_hint(name: str, hint: str) -> ShellHelper:
    """Load a helper that says what to do if the layer is missing."""
    (text,) = load_helper(SCRIPTS / f"{name}.sh", name).definitions
    return ShellHelper(name, (text.replace("@HINT@", in_double_quotes(hint)),))


def enter_if_present(first: str = "") -> tuple[str, ...]:
    """Return the command prefix that uses ``enter`` if the image has it; other tools' images do not.

    Parameters
    ----------
    first
        Lines of sh to run before.
    """
    script = ShellFunction("enter_layer_if_present", f'{first}[ ! -x {ENTER} ] || . {ENTER}; exec "$@"')
    return ("/bin/sh", "-c", script, "argosy-enter")
