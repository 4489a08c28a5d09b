"""The story of `argosy run` and `argosy shell`: a command in an image, here and now."""

from __future__ import annotations

from dataclasses import dataclass, field

from argosy.containers import ContainerPlan
from argosy.entering import enter, outer_environment, refuse_missing_binds, with_shell
from argosy.model import ContainerRequest
from argosy.process import Command
from argosy.session import Session
from argosy.shell import plain_words

SHELL = ("/bin/sh", "-c", '[ ! -x /bin/bash ] || exec /bin/bash --norc "$@"; exec /bin/sh "$@"', "sh")
"""bash where the image has it.  --norc: the host's ~/.bashrc, visible through the home, would reset PATH."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asks of `argosy run`; no command is a shell."""

    image: str
    command: tuple[str, ...]
    container: ContainerRequest = field(default_factory=ContainerRequest)


def plan_run(request: RunRequest, session: Session, *, dry: bool = False) -> tuple[ContainerPlan, Command]:
    """Plan a run: the container, and the very command that will be started."""
    refuse_missing_binds(request.container)
    plan = enter(request.container, request.image, session, command=request.command, dry=dry)
    if not request.command:
        plan = with_shell(plan)
    words = plain_words(plan.words(request.command or SHELL))
    return plan, Command(words, env=outer_environment(plan, session.host.environment))


def run(request: RunRequest, session: Session) -> int:
    """Run a command in an image; it takes this process's place."""
    _, command = plan_run(request, session)
    return session.runner.become(command)
