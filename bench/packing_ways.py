"""Carry out one way of packing and tell its cost; runs in a fresh process, so that peak memory is its own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.choose import PYTHON_PACKAGES
from argosy.builder.output.assemble import content_over, pack_whole, plan_metadata, write_delta, write_flat
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.open import open_image
from argosy.images.sif.write import FileSlice, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.pack import normalise_tree, run_pack
from argosy.images.tree_digests import describe_with_notes, digest_entries
from argosy.recipes.lock import Lock
from bench.inputs import open_session
from bench.meter import Usage, run_metered
from bench.tasks import CommandTask, PackTask, Way


def run_pack_task(task: PackTask) -> Usage:
    """Pack in the way that `task` names; what must stand before it begins is made unmetered."""
    return WAYS[task.way](task)


def _delta(task: PackTask) -> Usage:
    """All that `argosy build` does between the installed tree and the finished file, flushed to disk."""
    return _ours(task, _pack_delta)


def _base(task: PackTask) -> Usage:
    """Copy the base into an image of its own: the part of a delta build that is no new data."""
    work = Path(task.work)
    base = open_base(task.base, open_session(work / "cache"), work, needs=PYTHON_PACKAGES).image
    part = plan_system_part(FileSlice(Path(base.path), base.base_offset, base.base_size), arch=base.arch)

    def copy() -> None:
        with atomic_file(work / "out.sif", force=True) as beside:
            write_sif(beside, [part], uuid=uuid.UUID(int=0), time=0, arch=base.arch)

    return run_metered(copy)


def _flat(task: PackTask) -> Usage:
    return _ours(task, _pack_flat)


def _anew(task: PackTask) -> Usage:
    """Unpack all and pack all by the same tools, as one partition was made before tables were joined."""
    return _ours(task, _pack_all)


def _pack_all(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
    whole = pack_whole(content_over(base, tree, lock, name="anew"), session, tree.parent)
    write_sif(
        path, [plan_system_part(whole, arch=base.image.arch)], uuid=uuid.UUID(int=0), time=0, arch=base.image.arch
    )


def _pack_flat(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
    metadata = plan_metadata(base.opened.sif, lock)
    write_flat(path, content_over(base, tree, lock, name="flat"), metadata, session, tree.parent)


def _pack_delta(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
    layer = tree.with_suffix(".sqfs")
    run_pack(session, tree, layer, time=lock.time)
    write_delta(path, base, lock, (whole_of(layer),), plan_metadata(base.opened.sif, lock))


def _ours(task: PackTask, pack: Callable[[Path, Base, Lock, Path, Session], object]) -> Usage:
    work = Path(task.work)
    session = open_session(work / "cache")
    tree = work / "layer"
    _run("cp", "-a", "--no-preserve=ownership", task.layer_tree, str(tree))
    base = open_base(task.base, session, work, needs=PYTHON_PACKAGES)
    base.digesting()  # taken while packages are installed, before what is measured
    lock = open_image(Path(task.delta)).lock
    if lock is None:
        raise RuntimeError(f"{task.delta} has no lock")

    def finish() -> None:
        normalise_tree(tree)
        digest_entries(describe_with_notes(tree))
        with atomic_file(work / "out.sif", force=True) as beside:
            pack(beside, base, lock, tree, session)

    return run_metered(finish)


def run_command_task(task: CommandTask) -> Usage:
    """Run a command that must succeed."""
    return run_metered(partial(_run, *task.words))


def _sandbox(task: PackTask) -> Usage:
    return run_metered(partial(_run, "apptainer", "--quiet", "build", "--sandbox", f"{task.work}/root", task.base))


def _copy(task: PackTask) -> Usage:
    return run_metered(
        partial(_run, "cp", "-a", "--no-preserve=ownership", f"{task.layer_tree}/.", f"{task.work}/root/")
    )


def _build(task: PackTask) -> Usage:
    return run_metered(partial(_run, "apptainer", "--quiet", "build", f"{task.work}/out.sif", f"{task.work}/root"))


def _run(*words: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")


WAYS: Mapping[Way, Callable[[PackTask], Usage]] = {
    Way.DELTA: _delta,
    Way.BASE: _base,
    Way.FLAT: _flat,
    Way.ANEW: _anew,
    Way.SANDBOX: _sandbox,
    Way.COPY: _copy,
    Way.BUILD: _build,
}
