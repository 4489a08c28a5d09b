"""Find a build backend that works on this machine, and run programs of the base with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from argosy.builder.backends.plan import (
    BACKENDS,
    NOT_MOUNTED,
    OWNERS,
    Backend,
    ExecSpec,
    RootfsSpec,
    list_backends,
    plan_exec,
)
from argosy.builder.backends.writable_copy import CopiedBase, copy_base
from argosy.builder.bases.base import Base
from argosy.core.errors import ArgosyError, ToolFailed
from argosy.core.model import Bind, Choice
from argosy.core.process import Command, OnLine, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.tool_errors import LAST_LINES, tool_error
from argosy.host.seccomp import plan_owners, render_filter
from argosy.images.part_digest import remembered
from argosy.images.rootfs import resolve_in_root
from argosy.images.rootfs_cache import unpack_cached

OWN_FOLDER = "/.argosy/"
UV_INSIDE = "/.argosy/uv"
WORK_INSIDE = "/.argosy/work"

WITH_IMAGE_ENV = """
for f in /.singularity.d/env/*.sh; do [ ! -e "$f" ] || . "$f"; done
exec "$@"
"""
"""Reads the base's own environment as runtimes do: PATH, or LD_LIBRARY_PATH of a vendor's Python."""


class BuildContainer(msgspec.Struct, frozen=True):
    """Run programs in the root file system of a base."""

    backend: Choice
    rootfs: RootfsSpec
    scratch: str
    session: Session
    binds: tuple[Bind, ...] = ()
    copy: CopiedBase | None = None
    """The copy of the base that programs may change; None if the backend has an overlay, or changes are not kept."""
    uv: str = ""
    """Version of the uv in the container; empty if there is none, or if it prints no version."""

    @property
    def kind(self) -> Backend:
        """The row of the backend in the table."""
        return BACKENDS[self.backend.value]

    @property
    def shows_only_base(self) -> bool:
        """Whether programs see the unchanged files of the base, and no others but those of `binds`.

        A site can add folders to every container of Apptainer (``bind path`` in apptainer.conf).
        """
        return self.kind.overlay and not self.rootfs.changes

    def with_mounts(self, *binds: Bind) -> BuildContainer:
        """Return the same container with more bind mounts."""
        return replace(self, binds=(*self.binds, *binds))

    def run(self, *argv: str, variables: tuple[tuple[str, str], ...] = (), on_line: OnLine | None = None) -> Reply:
        """Run a program of the base, or a mounted one, in the base's own environment."""
        spec = ExecSpec(("/bin/sh", "-c", WITH_IMAGE_ENV, "sh", *argv), self.binds, variables)
        return self.session.runner.run(self.command(spec), on_line)

    def ask(self, *argv: str) -> Reply:
        """Run a program whose output depends only on the files of the base, unless its output is remembered."""
        cache, rootfs = self.session.paths.cache, self.rootfs
        if not (rootfs.image and self.shows_only_base):
            return self.run(*argv)
        return remembered(cache, rootfs.image, argv, lambda: self.run(*argv), offset=rootfs.offset)

    def run_checked(
        self, *argv: str, doing: str, variables: tuple[tuple[str, str], ...] = (), on_line: OnLine | None = None
    ) -> Reply:
        """Run a program that must succeed."""
        reply = self.run(*argv, variables=variables, on_line=on_line)
        if reply.code != 0:
            raise self.failure(argv, reply, doing=doing)
        return reply

    def failure(self, argv: tuple[str, ...], reply: Reply, *, doing: str, hint: str = "") -> ArgosyError:
        """Return the error for a program that failed, with the folders of this machine.

        The command of the backend itself is not shown.
        """
        shown = Command(tuple(Path(each).name if each == UV_INSIDE else each for each in argv))
        error = tool_error(shown, reply, doing=doing, hint=hint or self.where_all_is(reply))
        for bind in self.binds:
            if bind.target.startswith(OWN_FOLDER):
                here = bind.source.replace("\\", r"\\")
                error.evidence = re.sub(rf"{re.escape(bind.target)}(?![\w-])", here, error.evidence)
        return error

    def where_all_is(self, reply: Reply) -> str:
        """Return how to see the whole output of a program, of which an error shows the last lines."""
        is_cut = len((reply.stderr.strip() or reply.stdout.strip()).splitlines()) > LAST_LINES
        return f"{self.session.show_all} to see its whole output" if is_cut else "these lines are its whole output"

    def command(self, spec: ExecSpec) -> Command:
        """Return the command that the backend runs; in a writable copy, create the mount points first."""
        if self.copy:
            for bind in spec.binds:
                _make_mount_point(self.copy.tree, bind)
        return plan_exec(self.kind, self.rootfs, spec, scratch=self.scratch, host=self.session.host)


def find_build_container(
    session: Session, base: Base, uv: Path, work: Path, backends: Iterable[Choice], *, keep_changes: bool = False
) -> BuildContainer:
    """Find the first build backend that can run a program of the base on this machine.

    The test program is the static uv that the build needs anyway.  A base without a shell therefore fails later, with
    a specific message.

    Parameters
    ----------
    keep_changes
        Whether to keep what programs change in the base's system, in ``changes`` of the work folder.

    Raises
    ------
    ToolFailed
        If no backend works; the output of each is the evidence.
    """
    failures: list[str] = []
    rootfs, scratch = RootfsSpec(base.image.path, base.image.base_offset), work / "mount"
    scratch.mkdir()
    for choice in backends:
        container = BuildContainer(choice, rootfs, str(scratch), session, (Bind(str(uv), UV_INSIDE, read_only=True),))
        if keep_changes and not container.kind.overlay:
            container = _over_writable_copy(container, work / "changes")
        elif keep_changes:
            container = _with_kept_changes(container, work / "changes")
        elif container.kind.needs_tree:
            container = _over_unpacked_base(container, base)
        reply = _try(container)
        if reply.code == NOT_MOUNTED:
            container = _over_unpacked_base(container, base)
            reply = _try(container)
        if reply.code == 0:
            version = next(iter(reply.stdout.split()[1:]), "")  # uv 0.13.9 (…)
            return replace(container, backend=_explain_rejected(container.backend, failures), uv=version)
        failures += _describe_failure(choice, reply)
    raise _no_backend_works(failures)


def _over_unpacked_base(container: BuildContainer, base: Base) -> BuildContainer:
    """Return the same container over the base unpacked into the cache.

    proot creates mount points in the tree itself and removes them when it ends; a killed proot leaves them behind.
    Therefore it gets a separate tree, from which no image is run.
    """
    session, rootfs, backend = container.session, container.rootfs, container.kind
    key = f"{base.digest}-{backend.name}" if backend.needs_tree else base.digest
    tree = unpack_cached(session, base.source, key=key, what="the base")
    return replace(container, rootfs=replace(rootfs, tree=str(tree)))


def _with_kept_changes(container: BuildContainer, changes: Path) -> BuildContainer:
    """Return the same container with the changes of its programs kept in the upper layer of an overlay."""
    for name in ("up", "work"):
        (changes / name).mkdir(parents=True, exist_ok=True)
    (changes / "up").chmod(0o755)
    if container.kind.user_namespace and (steps := plan_owners(container.session.host.arch)):
        (changes / OWNERS).write_bytes(render_filter(steps))
    return replace(container, rootfs=replace(container.rootfs, changes=str(changes)))


def _over_writable_copy(container: BuildContainer, changes: Path) -> BuildContainer:
    """Return the same container over a copy of the base that its programs may change."""
    for name in ("up", "tmp"):
        (changes / name).mkdir(parents=True, exist_ok=True)
    (changes / "up").chmod(0o755)
    session, rootfs, backend = container.session, container.rootfs, container.backend
    copy = copy_base(session, Path(rootfs.image), offset=rootfs.offset, tree=changes / backend.value)
    rootfs = replace(rootfs, tree=str(copy.tree), changes=str(changes / "tmp"), writable=True)
    backend = replace(backend, why=f"{backend.why}, in a copy of the base")
    return replace(container, backend=backend, rootfs=rootfs, copy=copy)


def _make_mount_point(tree: Path, bind: Bind) -> None:
    """Create the file or folder that a bind mount covers, following the links of the tree."""
    target = resolve_in_root(tree, bind.target)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(bind.source).is_dir():
        target.mkdir()
    else:
        target.touch()


def find_shell_container(session: Session, rootfs: RootfsSpec, *, scratch: Path) -> BuildContainer:
    """Find the first build backend that runs a shell in an unpacked root file system, or in one that it mounts.

    Raises
    ------
    ToolMissing, ToolFailed
        If there is no backend, or none works; the output of each is the evidence.
    """
    failures: list[str] = []
    scratch.mkdir()
    for choice in list_backends(session.host):
        container = BuildContainer(choice, rootfs, str(scratch), session)
        if container.kind.needs_tree and not rootfs.tree:
            continue
        reply = session.runner.run(container.command(ExecSpec(("/bin/sh", "-c", ":"))))
        if reply.code == 0:
            return replace(container, backend=_explain_rejected(choice, failures))
        failures += _describe_failure(choice, reply)
    raise _no_backend_works(failures)


def _no_backend_works(failures: list[str]) -> ToolFailed:
    return ToolFailed(
        "cannot run programs in the base image: no build backend works on this machine",
        evidence="\n".join(failures),
        hint="ask for user namespaces or Apptainer on this machine, or build on another one",
    )


def _explain_rejected(choice: Choice, failures: list[str]) -> Choice:
    """Record why faster backends were rejected; a silent slow fallback can cost hours."""
    return replace(choice, why=f"{choice.why}; not {'; '.join(map(str.strip, failures))}") if failures else choice


def _try(container: BuildContainer) -> Reply:
    return container.session.runner.run(container.command(ExecSpec((UV_INSIDE, "--version"), container.binds)))


def _describe_failure(choice: Choice, reply: Reply) -> list[str]:
    lines = reply.stderr.strip().splitlines()[-LAST_LINES:]
    return [f"{choice.value}: exit code {reply.code}", *(f"  {line}" for line in lines)]
