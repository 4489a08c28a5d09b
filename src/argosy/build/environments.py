"""Ask an image for its environment, for forms that keep it as plain variables: OCI images, enroot's squashfs."""

from __future__ import annotations

from pathlib import Path

from argosy.build.rooms import find_room_in_tree
from argosy.layout import DEFAULT_PATH
from argosy.session import Session
from argosy.shell import NAME

DRIVER_FOLDER = "/.singularity.d/libs"
OF_THE_START = frozenset({"HOME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "USER", "LOGNAME", "HOSTNAME", "PS1"})
OF_RUNTIMES = ("APPTAINER", "SINGULARITY", "ARGOSY_WORK", "PROOT")

RC = """\
#!/bin/sh
# The container's start for enroot and pyxis: the command that was given, or a shell.
[ "$#" -gt 0 ] || set -- /bin/sh
exec "$@"
"""


def ask_environment(tree: Path, work: Path, session: Session) -> tuple[tuple[str, str], ...]:
    """Give the variables that the image's own scripts set, by running them inside its tree.

    Raises
    ------
    ToolMissing, ToolFailed
        When nothing here can run a program in the tree.
    """
    room = find_room_in_tree(session, tree, scratch=work / "ask")
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
    libraries = [part for part in kept.pop("LD_LIBRARY_PATH", "").split(":") if part and part != DRIVER_FOLDER]
    if libraries:
        kept["LD_LIBRARY_PATH"] = ":".join(libraries)
    return (("PATH", kept.pop("PATH", DEFAULT_PATH)), *sorted(kept.items()))


def write_enroot_files(tree: Path, variables: tuple[tuple[str, str], ...]) -> None:
    """Write what enroot reads of an image: ``/etc/environment`` and ``/etc/rc`` (enroot, doc/image-format.md).

    A value that holds ``${`` is left out: enroot would put a variable of the host there.
    """
    etc = tree / "etc"
    if etc.is_symlink() or not etc.is_dir():
        return
    lines = [f"{name}={value}\n" for name, value in variables if "${" not in value]
    for name, text, mode in (("environment", "".join(lines), 0o644), ("rc", RC, 0o755)):
        (etc / name).unlink(missing_ok=True)
        (etc / name).write_text(text)
        (etc / name).chmod(mode)
