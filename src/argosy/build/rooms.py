"""Find a carrier that works here by trying, and run programs of the base with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from argosy.carriers import NOT_MOUNTED, Ground, Inside, candidates, keeps_changes, needs_tree, plan_inside
from argosy.errors import ArgosyError, ToolFailed, ToolMissing
from argosy.model import Bind, Choice
from argosy.process import LAST_LINES, Command, OnLine, Reply, failed
from argosy.session import Session
from argosy.trees import unpacked

UV_INSIDE = "/.argosy/uv"

WITH_IMAGE_ENV = 'for f in /.singularity.d/env/*.sh; do [ ! -e "$f" ] || . "$f"; done; exec "$@"'
"""Sets what the base says of its own environment (PATH, LD_LIBRARY_PATH of a vendor's Python), as runtimes do."""


@dataclass(frozen=True, slots=True)
class Room:
    """A base's root in which programs can be run."""

    carrier: Choice
    ground: Ground
    scratch: str
    session: Session
    binds: tuple[Bind, ...] = ()

    def furnished(self, *binds: Bind) -> Room:
        """Give the same room with more bind mounts."""
        return replace(self, binds=(*self.binds, *binds))

    def keeping(self, changes: Path) -> Room:
        """Give the same room with what its programs change kept in a folder, which is made.

        Raises
        ------
        ToolMissing
            When the carrier can only throw changes away.
        """
        if not keeps_changes(self.carrier.value):
            raise ToolMissing(
                "steps and stages change the base's system, and nothing here can keep such changes",
                evidence=f"programs of the base run by {self.carrier.value}: {self.carrier.why}",
                hint="ask for user namespaces and bubblewrap on this machine, or build on another one; a definition "
                "file (NAME.def) does the same by apptainer",
            )
        for name in ("up", "work"):
            (changes / name).mkdir(parents=True)
        (changes / "up").chmod(0o755)
        return replace(self, ground=replace(self.ground, changes=str(changes)))

    def run(self, *words: str, variables: tuple[tuple[str, str], ...] = (), on_line: OnLine | None = None) -> Reply:
        """Run a program of the base, or one bound in, with the base's own environment."""
        inside = Inside(("/bin/sh", "-c", WITH_IMAGE_ENV, "sh", *words), self.binds, variables)
        return self.session.runner.run(self.command(inside), on_line)

    def run_checked(
        self, *words: str, doing: str, variables: tuple[tuple[str, str], ...] = (), on_line: OnLine | None = None
    ) -> Reply:
        """Run a program that must succeed."""
        reply = self.run(*words, variables=variables, on_line=on_line)
        if reply.code != 0:
            raise self.failure(words, reply, doing=doing)
        return reply

    def failure(self, words: tuple[str, ...], reply: Reply, *, doing: str, hint: str = "") -> ArgosyError:
        """Make the error for a program that failed in here; the carrier's own words are left out of the message."""
        shown = Command(tuple(Path(w).name if w == UV_INSIDE else w for w in words))
        return failed(shown, reply, doing=doing, hint=hint)

    def command(self, inside: Inside) -> Command:
        """Give the command that this room's carrier runs."""
        return plan_inside(self.carrier.value, self.ground, inside, scratch=self.scratch, host=self.session.host)


def find_room(session: Session, image: Path, *, offset: int, key: str, uv: Path, scratch: Path, asked: str) -> Room:
    """Find the first carrier that runs a program in the base's root on this machine.

    The program tried is the static uv that the build needs anyway, so a base without a shell fails later, by name.

    Raises
    ------
    ToolMissing, ToolFailed
        When no carrier is there, or none works: each with what it said.
    """
    said: list[str] = []
    scratch.mkdir()
    for choice in candidates(session.host, asked):
        tree = str(unpacked(session, image, offset=offset, key=key)) if needs_tree(choice.value) else ""
        room = Room(choice, Ground(str(image), offset, tree), str(scratch), session, (Bind(str(uv), UV_INSIDE, True),))
        reply = _try(room)
        if reply.code == NOT_MOUNTED:
            tree = str(unpacked(session, image, offset=offset, key=key))
            room = replace(room, ground=replace(room.ground, tree=tree))
            reply = _try(room)
        if reply.code == 0:
            return replace(room, carrier=_reasoned(choice, said))
        said += [f"{choice.value}: exit code {reply.code}", *(f"  {x}" for x in _last(reply))]
    raise _none_works(said)


def find_room_in_tree(session: Session, tree: Path, *, scratch: Path) -> Room:
    """Find the first carrier that runs a shell in an unpacked root file system on this machine.

    Raises
    ------
    ToolMissing, ToolFailed
        When no carrier is there, or none works: each with what it said.
    """
    said: list[str] = []
    scratch.mkdir()
    for choice in candidates(session.host):
        room = Room(choice, Ground("", 0, str(tree)), str(scratch), session)
        reply = room.session.runner.run(room.command(Inside(("/bin/sh", "-c", ":"))))
        if reply.code == 0:
            return replace(room, carrier=_reasoned(choice, said))
        said += [f"{choice.value}: exit code {reply.code}", *(f"  {x}" for x in _last(reply))]
    raise _none_works(said)


def _none_works(said: list[str]) -> ToolFailed:
    return ToolFailed(
        "no way to run a program inside the base image works here",
        evidence="\n".join(said),
        hint="ask for user namespaces or Apptainer on this machine, or build on another one",
    )


def _reasoned(choice: Choice, said: list[str]) -> Choice:
    """Say of a second choice why it is not the first: a slow carrier that is taken without a word costs hours."""
    return replace(choice, why=f"{choice.why}; not {'; '.join(map(str.strip, said))}") if said else choice


def _try(room: Room) -> Reply:
    return room.session.runner.run(room.command(Inside((UV_INSIDE, "--version"), room.binds)))


def _last(reply: Reply) -> list[str]:
    return reply.stderr.strip().splitlines()[-LAST_LINES:]
