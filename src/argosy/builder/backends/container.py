"""Find a carrier that works here by trying, and run programs of the base with it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.backends.backends import (
    NOT_MOUNTED,
    OWNERS,
    ExecSpec,
    RootfsSpec,
    candidates,
    changes_a_copy,
    needs_tree,
    plan_exec,
)
from argosy.builder.backends.seccomp import plan_owners, render_filter
from argosy.builder.bases.base import Base
from argosy.builder.bases.writable_base import CopiedBase, copy_base
from argosy.core.errors import ArgosyError, ToolFailed
from argosy.core.model import Bind, Choice
from argosy.core.process import LAST_LINES, Command, OnLine, Reply, tool_error
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images.rootfs_cache import unpacked

UV_INSIDE = "/.argosy/uv"
WORK_INSIDE = "/.argosy/work"
MOST_LINKS = 40
"""Links that are followed on the way to one file, as Linux does: path_resolution(7)."""

WITH_IMAGE_ENV = 'for f in /.singularity.d/env/*.sh; do [ ! -e "$f" ] || . "$f"; done; exec "$@"'
"""Sets what the base says of its own environment (PATH, LD_LIBRARY_PATH of a vendor's Python), as runtimes do."""


class BuildContainer(msgspec.Struct, frozen=True):
    """A base's root in which programs can be run.

    Attributes
    ----------
    copy
        Where programs may change the base's system and the carrier has no overlay: the copy that they change.
    """

    backend: Choice
    rootfs_spec: RootfsSpec
    scratch: str
    session: Session
    binds: tuple[Bind, ...] = ()
    copy: CopiedBase | None = None

    def with_mounts(self, *binds: Bind) -> BuildContainer:
        """Give the same room with more bind mounts."""
        return replace(self, binds=(*self.binds, *binds))

    def run(self, *words: str, variables: tuple[tuple[str, str], ...] = (), on_line: OnLine | None = None) -> Reply:
        """Run a program of the base, or one bound in, with the base's own environment."""
        inside = ExecSpec(("/bin/sh", "-c", WITH_IMAGE_ENV, "sh", *words), self.binds, variables)
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
        return tool_error(shown, reply, doing=doing, hint=hint)

    def command(self, inside: ExecSpec) -> Command:
        """Give the command that this room's carrier runs; in a copy the mount points are made first."""
        if self.copy:
            for bind in inside.binds:
                _make_mount_point(self.copy.tree, bind)
        return plan_exec(self.backend.value, self.rootfs_spec, inside, scratch=self.scratch, host=self.session.host)


def find_build_container(
    session: Session, base: Base, uv: Path, work: Path, *, asked: str = "", changing: bool = False
) -> BuildContainer:
    """Find the first carrier that runs a program in the base's root on this machine.

    The program tried is the static uv that the build needs anyway, so a base without a shell fails later, by name.

    Parameters
    ----------
    asked
        The carrier that the user named; empty for any.
    changing
        Whether what programs change in the base's system is kept, in ``changes`` of the work folder.

    Raises
    ------
    ToolMissing, ToolFailed
        When no carrier is there, or none works: each with what it said.
    """
    said: list[str] = []
    rootfs_spec, scratch, changes = (
        RootfsSpec(base.image.path, base.image.base_offset),
        work / "mount",
        work / "changes",
    )
    scratch.mkdir()
    for choice in candidates(session.host, asked):
        build_container = BuildContainer(choice, rootfs_spec, str(scratch), session, (Bind(str(uv), UV_INSIDE, True),))
        if changing and changes_a_copy(choice.value):
            build_container = _in_copy(build_container, changes)
        elif changing:
            build_container = _keeping(build_container, changes)
        elif needs_tree(choice.value):
            build_container = _on_tree(build_container, base.digest)
        reply = _try(build_container)
        if reply.code == NOT_MOUNTED:
            build_container = _on_tree(build_container, base.digest)
            reply = _try(build_container)
        if reply.code == 0:
            return replace(build_container, backend=_reasoned(build_container.backend, said))
        said += [f"{choice.value}: exit code {reply.code}", *(f"  {x}" for x in _last(reply))]
    raise _none_works(said)


def _on_tree(build_container: BuildContainer, key: str) -> BuildContainer:
    """Give the same room over the base unpacked into the cache.

    proot makes places for what is bound in the tree itself, and removes them at its end: one that was killed leaves
    them.  So it has a tree of its own, which no image is run from.
    """
    key = f"{key}-{build_container.backend.value}" if needs_tree(build_container.backend.value) else key
    tree = str(
        unpacked(
            build_container.session,
            Path(build_container.rootfs_spec.image),
            offset=build_container.rootfs_spec.offset,
            key=key,
            what="the base",
        )
    )
    return replace(build_container, rootfs_spec=replace(build_container.rootfs_spec, tree=tree))


def _keeping(build_container: BuildContainer, changes: Path) -> BuildContainer:
    """Give the same room with what its programs change kept as the upper layer of an overlay."""
    for name in ("up", "work"):
        (changes / name).mkdir(parents=True, exist_ok=True)
    (changes / "up").chmod(0o755)
    if build_container.backend.value == "userns" and (steps := plan_owners(build_container.session.host.arch)):
        (changes / OWNERS).write_bytes(render_filter(steps))
    return replace(build_container, rootfs_spec=replace(build_container.rootfs_spec, changes=str(changes)))


def _in_copy(build_container: BuildContainer, changes: Path) -> BuildContainer:
    """Give the same room over a copy of the base that its programs may change."""
    for name in ("up", "tmp"):
        (changes / name).mkdir(parents=True, exist_ok=True)
    (changes / "up").chmod(0o755)
    tree = changes / build_container.backend.value
    copy = copy_base(
        build_container.session,
        Path(build_container.rootfs_spec.image),
        offset=build_container.rootfs_spec.offset,
        tree=tree,
    )
    rootfs_spec = replace(build_container.rootfs_spec, tree=str(copy.tree), changes=str(changes / "tmp"), writable=True)
    backend = replace(build_container.backend, why=f"{build_container.backend.why}, in a copy of the base")
    return replace(build_container, backend=backend, rootfs_spec=rootfs_spec, copy=copy)


def _make_mount_point(tree: Path, bind: Bind) -> None:
    """Make what a bind mount covers in a tree, by the tree's own links; a file for a file, else a folder."""
    place = follow_links(tree, bind.target)
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if Path(bind.source).is_dir():
        place.mkdir()
    else:
        place.touch()


def follow_links(tree: Path, path: str) -> Path:
    """Give where a path of a root file system lies in its unpacked tree; links in it stay below the tree."""
    parts, done, links_left = [part for part in path.split("/") if part], tree, MOST_LINKS
    while parts:
        part = parts.pop(0)
        if part == "..":
            done = done if done == tree else done.parent
        elif part != "." and (done / part).is_symlink() and links_left:
            links_left -= 1
            link = str((done / part).readlink())
            done = tree if link.startswith("/") else done
            parts = [*(each for each in link.split("/") if each), *parts]
        elif part != ".":
            done = done / part
    return done


def find_build_container_in_tree(session: Session, tree: Path, *, scratch: Path) -> BuildContainer:
    """Find the first carrier that runs a shell in an unpacked root file system on this machine.

    Raises
    ------
    ToolMissing, ToolFailed
        When no carrier is there, or none works: each with what it said.
    """
    said: list[str] = []
    scratch.mkdir()
    for choice in candidates(session.host):
        build_container = BuildContainer(choice, RootfsSpec("", 0, str(tree)), str(scratch), session)
        reply = build_container.session.runner.run(build_container.command(ExecSpec(("/bin/sh", "-c", ":"))))
        if reply.code == 0:
            return replace(build_container, backend=_reasoned(choice, said))
        said += [f"{choice.value}: exit code {reply.code}", *(f"  {x}" for x in _last(reply))]
    raise _none_works(said)


def find_build_container_mounted(session: Session, image: Path, *, scratch: Path) -> BuildContainer | None:
    """Find the first carrier that mounts a squashfs and runs a shell in it; None where none does."""
    scratch.mkdir()
    for choice in candidates(session.host):
        build_container = BuildContainer(choice, RootfsSpec(str(image), 0), str(scratch), session)
        if not needs_tree(choice.value) and build_container.run("/bin/sh", "-c", ":").code == 0:
            return build_container
    return None


def _none_works(said: list[str]) -> ToolFailed:
    return ToolFailed(
        "no way to run a program inside the base image works here",
        evidence="\n".join(said),
        hint="ask for user namespaces or Apptainer on this machine, or build on another one",
    )


def _reasoned(choice: Choice, said: list[str]) -> Choice:
    """Say why the better carriers were passed over: a slow one taken without a word would cost hours unseen."""
    return replace(choice, why=f"{choice.why}; not {'; '.join(map(str.strip, said))}") if said else choice


def _try(build_container: BuildContainer) -> Reply:
    return build_container.session.runner.run(
        build_container.command(ExecSpec((UV_INSIDE, "--version"), build_container.binds))
    )


def _last(reply: Reply) -> list[str]:
    return reply.stderr.strip().splitlines()[-LAST_LINES:]
