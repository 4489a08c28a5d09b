"""Take an image out of this machine's Docker, by docker itself: it knows where its daemon is, as skopeo does not.

DOCKER_HOST, docker's contexts and a daemon without root are docker's own affair; and the skopeo of Debian 12 speaks a
version of the interface that Docker 25 and later no longer answer (docs.docker.com, release notes of 25.0).
"""

from __future__ import annotations

import re
from pathlib import Path

from argosy.core.errors import ArgosyError, ToolMissing, UsageError
from argosy.core.process import Command, run_checked, tool_error
from argosy.core.session import Session
from argosy.core.suggest import suggest_word
from argosy.images.registry.references import Reference

NO_ENTRY = re.compile(r"(?i)permission denied while trying to connect to the docker|dial unix .*permission denied")
NO_DAEMON = re.compile(r"(?i)cannot connect to the docker daemon|failed to connect to the docker api")
"""As docker 20.10 and 28 say it."""


def ask_image_id(reference: Reference, session: Session) -> str:
    """Give the id that docker knows an image by: the same content, the same id.

    Raises
    ------
    ToolMissing, UsageError, ToolFailed
        When docker is not here, has no such image, or its daemon does not answer.
    """
    name = _image_name(reference)
    if "docker" not in session.host.programs:
        raise ToolMissing(
            f"{reference} is an image of Docker, and docker is not here",
            hint="where Docker runs: docker save -o image.tar NAME; then give the file",
        )
    command = Command(("docker", "image", "inspect", "--format", "{{.Id}}", name))
    reply = session.runner.run(command)
    if reply.code == 0:
        return reply.stdout.strip()
    error = tool_error(command, reply, doing=f"asking docker for {name}", hint=daemon_hint(reply.stderr))
    if error.hint or "no such image" not in reply.stderr.lower():
        raise error
    raise _no_image(name, error, session)


def save_image(reference: Reference, session: Session, out: Path) -> None:
    """Let docker write an image into an archive.

    Raises
    ------
    ToolFailed, CheckFailed
        When it cannot; the disk is full.
    """
    command = Command(("docker", "save", "-o", str(out), _image_name(reference)))
    run_checked(session.runner, command, doing=f"taking {reference} out of docker")


def _image_name(reference: Reference) -> str:
    """Give the name by which docker knows the image."""
    return f"{reference.name}:{reference.tag}"


def daemon_hint(said: str) -> str:
    """Give the way out where docker's daemon does not answer or lets nobody in; empty where it said something else."""
    if NO_ENTRY.search(said):
        return (
            "ask to be put into the group docker and log in anew (id shows your groups); or build without Docker: "
            "install buildah or podman"
        )
    if NO_DAEMON.search(said):
        return "start Docker, or say where it is: DOCKER_HOST, or 'docker context use NAME'"
    return ""


def _no_image(name: str, error: ArgosyError, session: Session) -> UsageError:
    listed = session.runner.run(Command(("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")))
    near = suggest_word(name, listed.stdout.split())
    hint = f"did you mean docker-daemon:{near}?" if near else "'docker images' lists what there is"
    return UsageError(f"docker has no image {name}", evidence=error.evidence, hint=hint)
