"""Run a user's own scripts inside the base while its layer is made: what they leave below /opt/argosy stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.python.protecting import hold_line
from argosy.core.errors import UsageError
from argosy.core.layout import DEFAULT_PATH, ENV_PREFIX, ROOT
from argosy.core.model import Bind
from argosy.core.session import Step

FOLDER = "/.argosy/scripts"
HERE = "/.argosy/here"
HANDED_ON = ("PIP_", "UV_", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the caller that say how packages are reached."""

OF_TYKKY = (("CW_INSTALLATION_PATH", ROOT), ("env_root", ENV_PREFIX))
"""What scripts that were written for tykky go by."""

START = """\
eval "$3"
cd "$1" && IFS= read -r argosy_first < "$2"
case $argosy_first in
"#!"*) [ ! -x "$2" ] || exec "$2"; set -f; exec ${argosy_first#??} "$2" ;;
esac
! command -v bash > /dev/null || exec bash -e "$2"
exec /bin/sh -e "$2"
"""
"""Starts a script by its first line, executable or not; one without ends at the first command that fails."""

ADVICE = (
    (re.compile(r"\b(?:conda|mamba): (?:command )?not found"),
     "no conda is in an image: name the packages in environment.yml, and build or update with it"),
    (re.compile(r"\bgit: (?:command )?not found"),
     "the base has no git: take one that has, as --base debian:bookworm+git"),
)  # fmt: skip


def run_scripts(scripts: Iterable[Path], build_container: BuildContainer, layer: Path, step: Step) -> None:
    """Run scripts in order, with the environment's programs first on the PATH, in the caller's current folder.

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
        cwd = build_container.session.host.cwd
        here = (Bind(cwd, HERE),) if Path(cwd).is_dir() else ()
        place = build_container.with_mounts(
            Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(script.resolve()), inside, read_only=True), *here
        )
        step.say(f"running {script.name}")
        reply = place.run(
            *("/bin/sh", "-c", START, "sh", HERE if here else ROOT, inside, hold_line(build_container)),
            variables=_variables(build_container.session.host.environment),
            on_line=lambda line: step.say(line.strip()),
        )
        if reply.code != 0:
            hint = next((advice for pattern, advice in ADVICE if pattern.search(reply.stderr)), "")
            raise place.failure((script.name,), reply, doing=f"running {script}", hint=hint)


def _variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    handed_on = ((name, value) for name, value in environment.items() if name.startswith(HANDED_ON))
    own = (("PATH", f"{ENV_PREFIX}/bin:{DEFAULT_PATH}"), ("ARGOSY_PREFIX", ROOT), ("HOME", "/tmp"))  # noqa: S108 - inside
    return (*handed_on, *own, *OF_TYKKY)
