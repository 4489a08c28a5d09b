"""Packing: delta and flat images against packing all anew, and against Apptainer, over the same base and tree."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.choose import PYTHON_PACKAGES
from argosy.builder.output.assemble import content_over, make_whole, pack_whole, plan_metadata, write_delta, write_whole
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.open import open_image
from argosy.images.sif.write import FileSlice, plan_system_part, whole_of, write_sif
from argosy.images.squashfs.pack import normalise_tree, run_pack
from argosy.images.tree_digests import describe_remembering, digest_entries
from argosy.recipes.lock import Lock
from bench.inputs import Inputs, open_session
from bench.meter import Usage, run, run_command, run_metered
from bench.place import HERE, Place, call_apart, lab, open_folder, why_no_lab
from bench.records import Budget, Outcome, Row, many, one

GIGA, MEGA = 1e9, 1e6

DELTA_TIMES_FASTER = Budget(50, at_least=True)
SHARE_OF_ANEW = Budget(0.25)
DELTA_CPU_PER_GB = Budget(5)
FLAT_SHARE_OF_APPTAINER = Budget(0.125)
PEAK = Budget(1000)
BASE_SIZE = Budget(1, at_least=True)
READ_SHARE = Budget(1.1)


def run_packing(inputs: Inputs, *, quick: bool) -> Outcome:
    """Measure all ways; Apptainer's, which takes minutes, once."""
    missing = why_no_lab()
    place = HERE if missing else lab()
    delta = [_pack(place, pack_delta, inputs) for _ in range(1 if quick else 5)]
    copied = [_pack(place, copy_base, inputs) for _ in range(1 if quick else 5)]
    flat = [_pack(place, pack_flat, inputs) for _ in range(1 if quick else 3)]
    anew = _pack(place, pack_anew, inputs)
    rows = [
        *_sizes(inputs),
        *_our_rows(delta, flat, copied, inputs),
        *_anew_rows(delta, flat, anew),
    ]
    if missing:
        return Outcome(tuple(rows), (f"packing: no comparison with apptainer build: {missing}",))
    steps = _apptainer(place, inputs)
    rows += [*_apptainer_rows(steps), *_proportions(rows, steps)]
    if quick:
        rows = [replace(row, budget=None) for row in rows]
    remark = (
        "packing: the same user, tools and file system for all ways, files in the page cache; "
        "ours end with an fsync, Apptainer's do not"
    )
    return Outcome(tuple(rows), (remark,))


def _pack(place: Place, way: Callable[..., Usage], inputs: Inputs) -> Usage:
    """Pack in one way in a fresh process, so that peak memory is its own."""
    with open_folder() as folder:
        work = folder / "work"
        work.mkdir()
        work.chmod(0o777)
        return call_apart(place, way, inputs.base, inputs.delta, inputs.layer_tree, work)


def pack_delta(base: Path, delta: Path, tree: Path, work: Path) -> Usage:
    """Do all that `argosy build` does between the installed tree and the finished file, flushed to disk."""

    def write(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
        layer = tree.with_suffix(".sqfs")
        run_pack(session, tree, layer, time=lock.time)
        write_delta(path, base, lock, (whole_of(layer),), plan_metadata(base.opened.sif, lock))

    return _write_metered(base, delta, tree, work, write)


def pack_flat(base: Path, delta: Path, tree: Path, work: Path) -> Usage:
    """Do the same with --flatten."""

    def write(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
        metadata = plan_metadata(base.opened.sif, lock)
        content = content_over(base, tree, lock, name="flat")
        write_whole(path, make_whole(content, session, tree.parent), content, metadata)

    return _write_metered(base, delta, tree, work, write)


def pack_anew(base: Path, delta: Path, tree: Path, work: Path) -> Usage:
    """Unpack all and pack all by the same tools, as one partition was made before tables were joined."""

    def write(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> None:
        whole = pack_whole(content_over(base, tree, lock, name="anew"), session, tree.parent)
        part, arch = plan_system_part(whole, arch=base.image.arch), base.image.arch
        write_sif(path, [part], uuid=uuid.UUID(int=0), time=0, arch=arch)

    return _write_metered(base, delta, tree, work, write)


def copy_base(base: Path, _delta: Path, _tree: Path, work: Path) -> Usage:
    """Copy the base into an image of its own: the part of a delta build that is no new data."""
    image = open_base(str(base), open_session(work / "cache"), work, needs=PYTHON_PACKAGES).image
    part = plan_system_part(FileSlice(Path(image.path), image.base_offset, image.base_size), arch=image.arch)

    def copy() -> None:
        with atomic_file(work / "out.sif", force=True) as beside:
            write_sif(beside, [part], uuid=uuid.UUID(int=0), time=0, arch=image.arch)

    return run_metered(copy)


def _write_metered(
    base: Path, delta: Path, tree: Path, work: Path, write: Callable[[Path, Base, Lock, Path, Session], None]
) -> Usage:
    """Write an image of a base and a tree with the lock of `delta`; what a build has done before is not measured."""
    session, layer = open_session(work / "cache"), work / "layer"
    run("cp", "-a", "--no-preserve=ownership", str(tree), str(layer))
    opened = open_base(str(base), session, work, needs=PYTHON_PACKAGES)
    opened.digesting()
    lock = open_image(delta).lock
    if lock is None:
        raise RuntimeError(f"{delta} has no lock")

    def finish() -> None:
        normalise_tree(layer)
        digest_entries(describe_remembering(layer))
        with atomic_file(work / "out.sif", force=True) as beside:
            write(beside, opened, lock, layer, session)

    return run_metered(finish)


def _apptainer(place: Place, inputs: Inputs) -> dict[str, Usage]:
    with open_folder() as folder:
        steps = {
            "sandbox": ("apptainer", "--quiet", "build", "--sandbox", f"{folder}/root", str(inputs.base)),
            "copy": ("cp", "-a", "--no-preserve=ownership", f"{inputs.layer_tree}/.", f"{folder}/root/"),
            "build": ("apptainer", "--quiet", "build", f"{folder}/out.sif", f"{folder}/root"),
        }
        return {step: call_apart(place, run_command, words) for step, words in steps.items()}


def _sizes(inputs: Inputs) -> list[Row]:
    return [
        one("packing.size.base", "base, unpacked", inputs.base_bytes / GIGA, "GB", budget=BASE_SIZE),
        one("packing.size.base_file", "base, file", inputs.base.stat().st_size / MEGA, "MB"),
        one("packing.size.layer", "new packages, unpacked", inputs.layer_bytes / MEGA, "MB"),
        one("packing.size.delta_file", "delta image, file", inputs.delta.stat().st_size / MEGA, "MB"),
        one("packing.size.flat_file", "flat image, file", inputs.flat.stat().st_size / MEGA, "MB"),
    ]


def _our_rows(delta: list[Usage], flat: list[Usage], copied: list[Usage], inputs: Inputs) -> list[Row]:
    rows: list[Row] = []
    for name, usages in (("delta", delta), ("flat", flat)):
        rows += [
            many(f"packing.{name}.{each}", f"{name}: {what}", values, "s", against=f"packing.apptainer.{each}")
            for each, what, values in (
                ("wall", "wall", [usage.wall for usage in usages]),
                ("cpu", "CPU", [usage.cpu for usage in usages]),
            )
        ]
        peaks = [usage.peak / MEGA for usage in usages]
        rows += [
            many(f"packing.{name}.read", f"{name}: read", [usage.read / MEGA for usage in usages], "MB"),
            many(f"packing.{name}.peak", f"{name}: peak of one process", peaks, "MB", budget=PEAK),
        ]
    # The tree is read twice, for its digest and by the packer; what that packs, and the base, once.
    packed = inputs.delta.stat().st_size
    due = packed + 2 * inputs.layer_bytes
    read = [u.read / due for u in delta]
    # The base is copied as it is, and is no new data; its copy is measured alone, and shown.
    base_cpu = sorted(u.cpu for u in copied)[len(copied) // 2]
    new = [(u.cpu - base_cpu) / inputs.layer_bytes * GIGA for u in delta]
    whole = [u.cpu / inputs.layer_bytes * GIGA for u in delta]
    return [
        *rows,
        many("packing.delta.reads", "delta: read / (base + 2 x tree + layer)", read, "", budget=READ_SHARE),
        many("packing.base.cpu", "base alone, copied: CPU", [u.cpu for u in copied], "s"),
        many("packing.delta.all_cpu_per_gb", "delta: CPU per GB of new data, the base's copy with it", whole, "s"),
        many("packing.delta.cpu_per_gb", "delta: CPU per GB of new data", new, "s", budget=DELTA_CPU_PER_GB),
    ]


def _anew_rows(delta: list[Usage], flat: list[Usage], anew: Usage) -> list[Row]:
    """Set both beside the same tools that unpack base and layer and pack all of it."""
    what = "unpack base and layer, pack all"
    rows = [one("packing.anew.wall", f"{what}: wall", anew.wall, "s", against="packing.apptainer.wall"),
            one("packing.anew.cpu", f"{what}: CPU", anew.cpu, "s", against="packing.apptainer.cpu")]  # fmt: skip
    for name, usages in (("delta", delta), ("flat", flat)):
        share = [usage.wall / anew.wall for usage in usages]
        rows.append(many(f"packing.{name}.of_anew", f"{name}: share of that wall", share, "", budget=SHARE_OF_ANEW))
    return rows


def _apptainer_rows(steps: dict[str, Usage]) -> list[Row]:
    key, usages = "packing.apptainer", steps.values()
    names = {"sandbox": "build --sandbox", "copy": "copy packages in", "build": "build SIF from it"}
    peak = max(usage.peak for usage in usages) / MEGA
    return [
        *(one(f"{key}.{step}", f"apptainer: {names[step]}", usage.wall, "s") for step, usage in steps.items()),
        one(f"{key}.wall", "apptainer: wall, all three", sum(usage.wall for usage in usages), "s"),
        one(f"{key}.cpu", "apptainer: CPU, all three", sum(usage.cpu for usage in usages), "s"),
        one(f"{key}.read", "apptainer: read", sum(usage.read for usage in usages) / MEGA, "MB"),
        one(f"{key}.peak", "apptainer: peak of one process", peak, "MB"),
    ]


def _proportions(rows: list[Row], steps: dict[str, Usage]) -> list[Row]:
    by_key = {row.key: row.value for row in rows}
    wall = sum(usage.wall for usage in steps.values())
    delta, flat = (wall / by_key[f"packing.{name}.wall"] for name in ("delta", "flat"))
    share = by_key["packing.flat.cpu"] / steps["build"].cpu
    faster = "times faster than apptainer's three"
    return [
        one("packing.delta.faster", f"delta: {faster}", delta, "x", budget=DELTA_TIMES_FASTER),
        one("packing.flat.faster", f"flat: {faster}", flat, "x"),
        one("packing.flat.share", "flat: share of apptainer build's CPU", share, "", budget=FLAT_SHARE_OF_APPTAINER),
    ]
