"""Packing: delta and flat images against packing all anew, and against Apptainer, over the same base and tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from argosy.images.sif.write import whole_of, write_pieces
from argosy.images.squashfs.join import join_squashfs
from bench.inputs import Inputs
from bench.meter import Usage, run_timed
from bench.place import HERE, Place, lab, open_folder, run_task, why_no_lab
from bench.records import Budget, Outcome, Row, many, one
from bench.tasks import CommandTask, PackTask, Way

GIGA, MEGA = 1e9, 1e6
APPTAINER_STEPS = (Way.SANDBOX, Way.COPY, Way.BUILD)

DELTA_TIMES_FASTER = Budget(50, at_least=True)
SHARE_OF_ANEW = Budget(0.25)
DELTA_CPU_PER_GB = Budget(5)
FLAT_SHARE_OF_APPTAINER = Budget(0.125)
PEAK = Budget(1000)
BASE_SIZE = Budget(1, at_least=True)
READ_SHARE = Budget(1.1)
LISTED_FILES = 7000


def run_packing(inputs: Inputs, *, quick: bool) -> Outcome:
    """Measure all ways; Apptainer's, which takes minutes, once."""
    missing = why_no_lab()
    place = HERE if missing else lab()
    delta = [_pack(place, Way.DELTA, inputs) for _ in range(1 if quick else 5)]
    copied = [_pack(place, Way.BASE, inputs) for _ in range(1 if quick else 5)]
    flat = [_pack(place, Way.FLAT, inputs) for _ in range(1 if quick else 3)]
    anew = [_pack(place, Way.ANEW, inputs)]
    rows = [
        *_sizes(inputs),
        *_our_rows(delta, flat, copied, inputs),
        *_anew_rows(delta, flat, anew[0]),
        *_compressor_rows(inputs),
        *_listing_rows(runs=1 if quick else 5),
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


def _pack(place: Place, way: Way, inputs: Inputs) -> Usage:
    with open_folder() as folder:
        work = folder / "work"
        work.mkdir()
        work.chmod(0o777)
        return run_task(place, _task(way, inputs, str(work)), Usage)


def _apptainer(place: Place, inputs: Inputs) -> dict[Way, Usage]:
    with open_folder() as folder:
        return {way: run_task(place, _task(way, inputs, str(folder)), Usage) for way in APPTAINER_STEPS}


def _task(way: Way, inputs: Inputs, work: str) -> PackTask:
    return PackTask(way, str(inputs.base), str(inputs.delta), str(inputs.layer_tree), work)


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
    theirs = "packing.apptainer"
    for name, usages in (("delta", delta), ("flat", flat)):
        rows += [
            many(f"packing.{name}.wall", f"{name}: wall", [u.wall for u in usages], "s", against=f"{theirs}.wall"),
            many(f"packing.{name}.cpu", f"{name}: CPU", [u.cpu for u in usages], "s", against=f"{theirs}.cpu"),
            many(f"packing.{name}.read", f"{name}: read", [u.read / MEGA for u in usages], "MB"),
            many(
                f"packing.{name}.peak",
                f"{name}: peak of one process",
                [u.peak / MEGA for u in usages],
                "MB",
                budget=PEAK,
            ),
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


def _compressor_rows(inputs: Inputs) -> list[Row]:
    """Measure the compressor alone on the same bytes: no packer costs less on this machine."""
    if not shutil.which("zstd"):
        return []
    pipe = 'tar --create --file=- "$1" | zstd --single-thread --quiet -1 --stdout > /dev/null'
    words = ("sh", "-c", pipe, "sh", str(inputs.layer_tree))
    cpu = [run_task(HERE, CommandTask(words), Usage).cpu / inputs.layer_bytes * GIGA for _ in range(3)]
    return [many("packing.zstd.cpu_per_gb", "zstd -1 alone, for comparison: CPU per GB", cpu, "s")]


def _listing_rows(runs: int) -> list[Row]:
    """Time `ls -l` of a large folder on a kernel mount, which reads its index; none if this machine mounts none."""
    if os.geteuid() != 0:
        return []
    with open_folder() as folder:
        tree, base = folder / "tree", folder / "base"
        base.mkdir()
        (tree / "large").mkdir(parents=True)
        for number in range(LISTED_FILES):
            (tree / f"large/operator_{number:05}_native_dispatch.h").write_text(str(number))
        packed = folder / "packed.sqfs"
        _pack_plainly(tree, packed)
        _pack_plainly(base, folder / "base.sqfs")
        joined = folder / "joined.sqfs"
        write_pieces(joined, join_squashfs(whole_of(folder / "base.sqfs"), (whole_of(packed),), time=0))
        try:
            flat = [_list_mounted(joined, folder) for _ in range(runs)]
            theirs = [_list_mounted(packed, folder) for _ in range(runs)]
        except subprocess.CalledProcessError:
            return []
    key, what = "packing.kernel_ls", f"ls -l of {LISTED_FILES} files, kernel mount"
    return [
        many(f"{key}.flat", f"{what}: flat", flat, "s", against=f"{key}.mksquashfs"),
        many(f"{key}.mksquashfs", f"{what}: mksquashfs", theirs, "s"),
    ]


def _pack_plainly(tree: Path, out: Path) -> None:
    words = ("mksquashfs", str(tree), str(out), "-comp", "zstd", "-no-xattrs", "-quiet", "-no-progress")
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _list_mounted(image: Path, folder: Path) -> float:
    """Mount an image anew, so that the kernel knows no name of it; give the seconds of `ls -l`."""
    mounted = folder / "mounted"
    mounted.mkdir(exist_ok=True)
    mount = ("mount", "-t", "squashfs", "-o", "loop,ro", str(image), str(mounted))
    subprocess.run(mount, check=True)
    try:
        return run_timed(("ls", "-l", str(mounted / "large")), os.environ)
    finally:
        umount = ("umount", str(mounted))
        subprocess.run(umount, check=True)


def _apptainer_rows(steps: dict[Way, Usage]) -> list[Row]:
    names = {Way.SANDBOX: "build --sandbox", Way.COPY: "copy packages in", Way.BUILD: "build SIF from it"}
    rows = [one(f"packing.apptainer.{way}", f"apptainer: {names[way]}", u.wall, "s") for way, u in steps.items()]
    return [
        *rows,
        one("packing.apptainer.wall", "apptainer: wall, all three", sum(u.wall for u in steps.values()), "s"),
        one("packing.apptainer.cpu", "apptainer: CPU, all three", sum(u.cpu for u in steps.values()), "s"),
        one("packing.apptainer.read", "apptainer: read", sum(u.read for u in steps.values()) / MEGA, "MB"),
        one(
            "packing.apptainer.peak", "apptainer: peak of one process", max(u.peak for u in steps.values()) / MEGA, "MB"
        ),
    ]


def _proportions(rows: list[Row], steps: dict[Way, Usage]) -> list[Row]:
    by_key = {row.key: row.value for row in rows}
    wall = sum(u.wall for u in steps.values())
    faster = wall / by_key["packing.delta.wall"]
    share = by_key["packing.flat.cpu"] / steps[Way.BUILD].cpu
    return [
        one(
            "packing.delta.faster", "delta: times faster than apptainer's three", faster, "x", budget=DELTA_TIMES_FASTER
        ),
        one(
            "packing.flat.faster", "flat: times faster than apptainer's three", wall / by_key["packing.flat.wall"], "x"
        ),
        one("packing.flat.share", "flat: share of apptainer build's CPU", share, "", budget=FLAT_SHARE_OF_APPTAINER),
    ]
