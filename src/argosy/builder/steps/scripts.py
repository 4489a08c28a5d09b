"""Run the user's scripts in the base during the installation; what they write below /opt/argosy stays in the layer."""

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
CALLER_FOLDER = "/.argosy/here"
PASSED_ON = ("PIP_", "UV_", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the caller that affect downloads."""

TYKKY_VARIABLES = (("CW_INSTALLATION_PATH", ROOT), ("env_root", ENV_PREFIX))
"""Variables that scripts written for tykky use."""

RUN_SCRIPT = Path(__file__).with_name("run-script.sh").read_text(encoding="utf-8")

ADVICE = (
    (re.compile(r"\b(?:conda|mamba): (?:command )?not found"),
     "images do not contain conda: list the packages in environment.yml, and build or update with it"),
    (re.compile(r"\bgit: (?:command )?not found"),
     "the base has no git: use one that has, for example --base debian:bookworm+git"),
)  # fmt: skip


def run_scripts(scripts: Iterable[Path], build_container: BuildContainer, layer: Path, step: Step) -> None:
    """Run scripts in order, with the environment's programs first on the PATH, in the caller's current folder.

    Raises
    ------
    UsageError
        If a script does not exist.
    ToolFailed
        If a script fails; its last lines are the evidence.
    """
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}", hint="check the path")
        (layer / ROOT.lstrip("/")).mkdir(parents=True, exist_ok=True)
        inside = f"{FOLDER}/{script.name}"
        cwd = build_container.session.host.cwd
        here = (Bind(cwd, CALLER_FOLDER),) if Path(cwd).is_dir() else ()
        container = build_container.with_mounts(
            Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(script.resolve()), inside, read_only=True), *here
        )
        step.say(f"running {script.name}")
        reply = container.run(
            *("/bin/sh", "-c", RUN_SCRIPT, "sh", CALLER_FOLDER if here else ROOT, inside, hold_line(build_container)),
            variables=_variables(build_container.session.host.environment),
            on_line=lambda line: step.say(line.strip()),
        )
        if reply.code != 0:
            hint = next((advice for pattern, advice in ADVICE if pattern.search(reply.stderr)), "")
            raise container.failure((script.name,), reply, doing=f"running {script}", hint=hint)


def _variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    passed_on = ((name, value) for name, value in environment.items() if name.startswith(PASSED_ON))
    own = (("PATH", f"{ENV_PREFIX}/bin:{DEFAULT_PATH}"), ("ARGOSY_PREFIX", ROOT), ("HOME", "/tmp"))  # noqa: S108 - inside
    return (*passed_on, *own, *TYKKY_VARIABLES)
