"""Run a user's own scripts inside the base while its layer is made: what they leave below /opt/argosy stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from argosy.build.rooms import Room
from argosy.errors import UsageError
from argosy.layout import DEFAULT_PATH, ENV_PREFIX, ROOT
from argosy.model import Bind
from argosy.session import Step

FOLDER = "/.argosy/scripts"
HANDED_ON = ("PIP_", "UV_", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the caller that say how packages are reached."""

START = f'cd {ROOT} && if [ -x "$1" ]; then exec "$1"; fi; exec /bin/sh "$1"'


def run_scripts(scripts: Iterable[Path], room: Room, layer: Path, step: Step) -> None:
    """Run scripts in order, with the environment's programs first on the PATH, in the folder of the layer.

    A script that is executable is started by its own first line, any other by the base's ``sh``.

    Raises
    ------
    UsageError
        When there is no such script.
    ToolFailed
        When one ends with another code than 0: its last lines are the evidence.
    """
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}", hint="check the path")
        (layer / ROOT.lstrip("/")).mkdir(parents=True, exist_ok=True)
        inside = f"{FOLDER}/{script.name}"
        place = room.furnished(
            Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(script.resolve()), inside, read_only=True)
        )
        step.say(f"running {script.name}")
        place.run_checked(
            *("/bin/sh", "-c", START, "sh", inside),
            doing=f"running {script}",
            variables=_variables(room.session.host.environment),
            on_line=lambda line: step.say(line.strip()),
        )


def _variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    handed_on = ((name, value) for name, value in environment.items() if name.startswith(HANDED_ON))
    own = (("PATH", f"{ENV_PREFIX}/bin:{DEFAULT_PATH}"), ("ARGOSY_PREFIX", ROOT), ("HOME", "/tmp"))  # noqa: S108 - inside
    return (*handed_on, *own)
