"""Ask an image for its environment, for forms that keep it as plain variables: OCI images, enroot's squashfs."""

from __future__ import annotations

from pathlib import Path

from argosy.build.rooms import Room, find_room_in_tree
from argosy.layout import DEFAULT_PATH, GPU_LIBRARIES
from argosy.session import Session
from argosy.shell import NAME

OF_THE_START = frozenset({"HOME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "USER", "LOGNAME", "HOSTNAME", "PS1"})
OF_RUNTIMES = ("APPTAINER", "SINGULARITY", "ARGOSY_WORK", "PROOT")


def ask_environment(tree: Path, work: Path, session: Session) -> tuple[tuple[str, str], ...]:
    """Give the variables that the image's own scripts set, by running them inside its tree.

    Raises
    ------
    ToolMissing, ToolFailed
        When nothing here can run a program in the tree.
    """
    return ask_room(find_room_in_tree(session, tree, scratch=work / "ask"))


def ask_room(room: Room) -> tuple[tuple[str, str], ...]:
    """Give the variables that the scripts of a room's image set.

    Raises
    ------
    ToolFailed
        When one of them fails.
    """
    # LANG is empty, so that one which the image sets only where there is none is seen.
    reply = room.run_checked(
        "/bin/cat", "/proc/self/environ", variables=(("LANG", ""),), doing="asking the image for its environment"
    )
    return parse_environment(reply.stdout)


def parse_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``/proc/PID/environ``, and leave out what belongs to the start of a program and not to the image."""
    rows = (row.partition("=") for row in text.split("\0"))
    found = {name: value for name, _, value in rows if NAME.match(name) and value}
    kept = {
        name: value
        for name, value in found.items()
        if name not in OF_THE_START and not name.startswith(OF_RUNTIMES) and "\n" not in value
    }
    libraries = [part for part in kept.pop("LD_LIBRARY_PATH", "").split(":") if part and part != GPU_LIBRARIES]
    if libraries:
        kept["LD_LIBRARY_PATH"] = ":".join(libraries)
    return (("PATH", kept.pop("PATH", DEFAULT_PATH)), *sorted(kept.items()))
