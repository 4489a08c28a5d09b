"""Packed wheels: which builds use them, which entry of the cache is which, and what becomes of damaged ones."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
from pathlib import Path
from typing import cast

import pytest

from argosy.builder.backends.container import BuildContainer
from argosy.builder.packed.make import build_options, find_wheels, mixed_packages, split_tree, why_packed_together
from argosy.builder.packed.store import PART, RECORD, PackageRecord, PackedPackage, WheelCache, can_be_stored
from argosy.builder.python.base_python import BasePython
from argosy.builder.python.file_lists import read_file_lists
from argosy.builder.python.installer import Installer
from argosy.builder.python.pins import Pin
from argosy.builder.records import BuildRequest
from argosy.core.layout import ENV_PREFIX
from argosy.core.records import replace
from argosy.core.session import Paths, Step
from argosy.images.cache import collect, list_entries
from argosy.images.formats import OutputFormat
from argosy.images.squashfs.superblock import Superblock
from argosy.images.tree_digests import describe_entries, digest_entries, merge_entries
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, SourceKind, Tools
from argosy.recipes.recipe import PipKind, PipLine, Recipe, Where
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_host, make_session

A, B = "a" * 64, "b" * 64
DIGEST = f"sha256:{A}"
REQUEST = BuildRequest((), "base.sif", Path("new.sif"))
ZSTD = Superblock("zstd", 131072, 0, 1000, 1)
SITE = f"{ENV_PREFIX.lstrip('/')}/lib/python3.11/site-packages"
LOCK = Lock(base=LockedBase("b.sif", DIGEST, 1, "amd64"), tools=Tools("1"), time=0, content=DIGEST)


GZIP, LARGE_BLOCKS = Superblock("gzip", 131072, 0, 1000, 1), Superblock("zstd", 1 << 20, 0, 1000, 1)
TINY = Recipe("", pip=(PipLine("tiny", "tiny", PipKind.INDEX, Where("r.txt", 1)),))


@pytest.mark.parametrize(
    ("request_", "joined", "steps", "why"),
    [
        (REQUEST, None, False, ""),
        (REQUEST, ZSTD, False, ""),
        (REQUEST, GZIP, False, "gzip"),
        (REQUEST, LARGE_BLOCKS, False, "zstd"),
        (replace(REQUEST, form=OutputFormat.SQSH), ZSTD, False, "sqsh"),
        (replace(REQUEST, before=(Path("x"),)), ZSTD, False, "scripts"),
        (replace(REQUEST, after=(Path("x"),)), ZSTD, False, "scripts"),
        (replace(REQUEST, portable=True), ZSTD, False, "bundle"),
        (REQUEST, ZSTD, True, "steps"),
    ],
)
def test_packages_are_packed_one_by_one_unless_something_may_change_them(
    request_: BuildRequest, joined: Superblock | None, *, steps: bool, why: str
) -> None:
    found = why_packed_together(request_, TINY, None, joined, steps=steps)
    assert (why in found) if why else found == ""


def held(*names: str, kind: PackageKind = PackageKind.PYPI) -> Lock:
    """Give the lock of an image with some packages."""
    return replace(LOCK, packages=tuple(LockedPackage(name, "1.0", (A,), kind=kind) for name in names))


@pytest.mark.parametrize(
    ("request_", "recipe", "lock", "joined", "why"),
    [
        (REQUEST, TINY, held("numpy", "torch"), ZSTD, ""),
        (replace(REQUEST, site="here"), TINY, held("numpy"), ZSTD, ""),
        (replace(REQUEST, site="here"), TINY, held("torch"), ZSTD, "torch"),
        (REQUEST, TINY, held("numpy", kind=PackageKind.CONDA), ZSTD, "conda"),
        (REQUEST, TINY, held("numpy"), None, "another form"),
        (REQUEST, TINY, held("numpy"), GZIP, "gzip"),
        (REQUEST, Recipe(""), held("numpy"), ZSTD, "no pip packages"),
        (REQUEST, replace(TINY, replaceable=("numpy",)), held("numpy"), ZSTD, "replaced"),
        (REQUEST, replace(TINY, replaceable=("scipy",)), held("numpy"), ZSTD, ""),
        (REQUEST, replace(TINY, exact=True), held("tiny"), ZSTD, "replaced"),
    ],
)
def test_packages_are_added_to_the_layer_of_a_base_unless_it_must_change(
    request_: BuildRequest, recipe: Recipe, lock: Lock, joined: Superblock | None, why: str
) -> None:
    found = why_packed_together(request_, recipe, lock, joined, steps=False)
    assert (why in found) if why else found == ""


def test_packages_that_are_built_against_others_are_packed_with_them() -> None:
    assert why_packed_together(REQUEST, Recipe("", unisolated=("flash-attn",)), None, ZSTD, steps=False)


def test_only_options_that_change_a_package_count() -> None:
    arguments = ("--default-index", "https://i", "--no-binary", "lxml", "--find-links", "/w", "--only-binary", ":all:")
    assert build_options(arguments) == ("--no-binary lxml", "--only-binary :all:")


def pin(name: str = "tiny", version: str = "1.0", *hashes: str, source: SourceKind = SourceKind.INDEX) -> Pin:
    return Pin(LockedPackage(name, version, hashes or (A,), source), f"{name}=={version}")


def test_only_packages_with_a_hash_are_stored() -> None:
    assert can_be_stored(pin())
    assert not can_be_stored(Pin(LockedPackage("tiny", "1.0"), "tiny==1.0"))
    assert not can_be_stored(pin(source=SourceKind.VCS))
    assert not can_be_stored(pin(source=SourceKind.LOCAL))


@pytest.fixture
def cache(tmp_path: Path) -> WheelCache:
    return WheelCache(tmp_path / "cache", DIGEST, ("0.13.9", "4.5.1"), ())


def test_an_entry_has_a_readable_name_and_depends_on_everything_that_changes_its_bytes(cache: WheelCache) -> None:
    assert cache.entry(pin()).name.startswith("tiny-1.0-")
    others = [
        cache.entry(pin(version="1.1")),
        cache.entry(pin("tiny", "1.0", B)),
        cache.entry(pin("tiny", "1.0", A, B)),
        replace(cache, base=f"sha256:{B}").entry(pin()),
        replace(cache, tools=("0.14.0", "4.5.1")).entry(pin()),
        replace(cache, tools=("0.13.9", "4.6.1")).entry(pin()),
        replace(cache, options=("--no-binary tiny",)).entry(pin()),
    ]
    assert len({cache.entry(pin()), *others}) == len(others) + 1


def make_part(folder: Path, name: str = "tiny", text: str = "packed") -> PackedPackage:
    folder.mkdir(exist_ok=True)
    part = folder / f"{name}.sqfs"
    part.write_text(text)
    tree = folder / f"{name}-tree"
    (tree / "opt").mkdir(parents=True)
    (tree / "opt" / f"{name}.py").write_text(text)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    entries = describe_entries(tree)
    return PackedPackage(PackageRecord(name, "1.0", digest, tuple(entries.values()), 6, ("dep>=1",)), part, entries)


def store(cache: WheelCache, folder: Path, name: str = "tiny") -> PackedPackage:
    return cache.store(pin(name), make_part(folder, name))


def test_a_stored_wheel_is_found_with_its_entries(cache: WheelCache, tmp_path: Path) -> None:
    assert cache.find(pin()) is None
    stored = store(cache, tmp_path / "work")
    found = cache.find(pin())
    assert found == stored
    assert found.part.read_text() == "packed"
    assert list(found.entries) == [".", "opt", "opt/tiny.py"]
    assert found.entries == describe_entries(tmp_path / "work/tiny-tree")
    assert cache.find(pin(version="1.1")) is None
    assert [path.name for path in (tmp_path / "cache/packed").iterdir()] == [cache.entry(pin()).name]


@pytest.mark.parametrize("file", [PART, RECORD])
@pytest.mark.parametrize("damage", ["changed", "short", "gone"])
def test_a_damaged_packed_wheel_is_a_cache_miss_and_is_replaced(
    cache: WheelCache, tmp_path: Path, file: str, damage: str
) -> None:
    store(cache, tmp_path / "work")
    assert cache.find(pin())
    damaged = cache.entry(pin()) / file
    data = bytearray(damaged.read_bytes())
    damaged.unlink()
    if damage != "gone":
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data if damage == "changed" else data[: len(data) // 2])
    assert cache.find(pin()) is None
    again = store(cache, tmp_path / "again")
    assert cache.find(pin()) == again


def _copy_and_die(source: Path, target: Path) -> None:
    shutil.copy(source, target)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_build_leaves_is_counted_replaced_and_collected(
    cache: WheelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = replace(make_session(tmp_path, make_host()), paths=Paths(cache.cache, tmp_path / "state", ()))
    work = make_part(tmp_path / "work")
    killed = os.fork()
    if not killed:
        monkeypatch.setattr(shutil, "move", _copy_and_die)
        cache.store(pin(), work)
    assert os.WTERMSIG(os.waitpid(killed, 0)[1]) == signal.SIGKILL
    (left,) = cache.entry(pin()).iterdir()
    assert left.name.endswith(".part")
    assert [entry.bytes > 0 for entry in list_entries(session) if entry.kind == "packed"] == [True]
    assert cache.find(pin()) is None
    stored = store(cache, tmp_path / "next")
    assert cache.find(pin()) == stored
    collect(session, math.inf)
    assert not left.exists()


def test_a_wheel_that_two_builds_pack_stays_where_the_first_one_reads_it(cache: WheelCache, tmp_path: Path) -> None:
    with store(cache, tmp_path / "one").part.open() as first:
        second = store(cache, tmp_path / "two")
        assert first.read() == second.part.read_text() == "packed"
    assert cache.find(pin()) == second


def test_a_build_uses_the_part_that_another_one_stored_meanwhile(cache: WheelCache, tmp_path: Path) -> None:
    first = store(cache, tmp_path / "one")
    second = cache.store(pin(), make_part(tmp_path / "two", text="built at another time"))
    assert second == first == cache.find(pin())
    assert first.part.read_text() == "packed"


def test_a_part_that_another_one_replaced_is_not_found(cache: WheelCache, tmp_path: Path) -> None:
    store(cache, tmp_path / "one")
    other = cache.store(pin("other"), make_part(tmp_path / "two", "other", "other bytes"))
    (cache.entry(pin()) / PART).write_bytes(other.part.read_bytes())
    assert cache.find(pin()) is None


def test_wheels_are_found_or_missing_and_others_are_neither(cache: WheelCache, tmp_path: Path) -> None:
    stored = store(cache, tmp_path / "work")
    pins = (pin(), pin("more"), pin("own", source=SourceKind.LOCAL))
    wheels = find_wheels(pins, cache)
    assert (wheels.found, wheels.missing) == ((stored,), pins[1:2])
    assert wheels.others == pins[2:]
    assert [str(demand.requirement) for demand in wheels.demands()] == ["dep>=1"]
    assert not wheels.has_torch


def test_torch_is_found_only_for_the_site_that_it_was_checked_for(cache: WheelCache, tmp_path: Path) -> None:
    here, there = replace(cache, site="here"), replace(cache, site="there")
    here.store(pin("torch"), make_part(tmp_path / "torch", "torch"))
    here.store(pin(), make_part(tmp_path / "tiny"))
    assert find_wheels((pin("torch"),), here).has_torch
    assert there.find(pin("torch")) is None
    assert there.find(pin())


def test_packages_with_one_path_and_two_contents_are_mixed() -> None:
    files = {
        "a": {"x/__init__.py": "sha256=1", "x/a.py": "sha256=2"},
        "b": {"x/__init__.py": "sha256=1", "y": "sha256=3"},
        "c": {"y": "sha256=4"},
        "d": {"d": "sha256=5"},
    }
    assert mixed_packages(files) == ["b", "c"]


def test_the_list_of_a_wheel_is_read_below_the_prefix_only(tmp_path: Path) -> None:
    site = tmp_path / ENV_PREFIX.lstrip("/") / "lib/python3.11/site-packages"
    info, script = site / "Tiny.Pkg-1.0.dist-info", site.parents[2] / "bin/tiny"
    for file in (info / "RECORD", site / "tiny/__init__.py", script, tmp_path / "etc/passwd"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    rows = ("tiny/__init__.py,sha256=1,0", "../../../bin/tiny,sha256=2,0", "tiny,,", "tiny/gone.py,sha256=3,0",
            "../../../../../../etc/passwd,sha256=4,0", "/etc/passwd,sha256=5,0",
            "Tiny.Pkg-1.0.dist-info/RECORD,,")  # fmt: skip
    (info / "RECORD").write_text("".join(f"{row}\n" for row in rows))
    prefix, inside = ENV_PREFIX.lstrip("/"), str(site.relative_to(tmp_path))
    assert read_file_lists(tmp_path) == {
        "tiny-pkg": {
            f"{inside}/tiny/__init__.py": "sha256=1",
            f"{prefix}/bin/tiny": "sha256=2",
            f"{inside}/Tiny.Pkg-1.0.dist-info/RECORD": "",
        }
    }


def install_wheel(tree: Path, name: str, *files: str, unlisted: str = "") -> None:
    """Write the files of a wheel, its list of files, and one more file."""
    info = f"{name}-1.0.dist-info/RECORD"
    for file in filter(None, (*files, info, unlisted)):
        path = tree / SITE / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    (tree / SITE / info).write_text("".join(f"{file},sha256={len(file)},\n" for file in (*files, info)))


def test_a_tree_is_split_by_the_lists_of_the_wheels(tmp_path: Path) -> None:
    layer, folder = tmp_path / "layer", tmp_path / "trees"
    install_wheel(layer, "one", "one/a.py", "both/one.py", "both/same.py", unlisted="one/data")
    install_wheel(layer, "two", "both/two.py", "both/same.py", "../../../bin/two")
    (layer / SITE / "venv.pth").touch()
    installer = Installer(cast("BuildContainer", None), cast("BasePython", None), UvSettings(), layer, tmp_path)
    trees = split_tree(
        installer, (pin("one"), pin("two"), pin("elsewhere")), folder, Step("", "", lambda _: None), exact=True
    )
    assert trees == {"one": folder / "one", "two": folder / "two"}
    files = {
        name: sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
        for name, tree in (*trees.items(), ("rest", layer))
    }
    prefix, info = SITE.split("/lib/", maxsplit=1)[0], "1.0.dist-info/RECORD"
    own = [f"{SITE}/{file}" for file in ("both/one.py", "both/same.py", f"one-{info}", "one/a.py", "one/data")]
    assert files["one"] == own
    assert files["two"] == [
        f"{prefix}/bin/two",
        *(f"{SITE}/{file}" for file in ("both/same.py", "both/two.py", f"two-{info}")),
    ]
    assert files["rest"] == [f"{SITE}/venv.pth"]


def test_entries_of_joined_trees_are_those_of_one_tree(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    for number, names in enumerate((("a/x", "b"), ("a/y", "a-b", "b"), ("a.c",))):
        for tree in (whole, tmp_path / str(number)):
            for name in names:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(f"{name} {number}")
    merged = merge_entries(describe_entries(tmp_path / str(number)) for number in range(3))
    assert list(merged.items()) == list(describe_entries(whole).items())
    assert digest_entries(merged) == digest_entries(describe_entries(whole))
