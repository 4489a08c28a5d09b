"""Images that claim to be others, and files that others could use: what the cache keeps is known by its bytes."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

import pytest

from argosy.builder.bases.base import digest_ahead
from argosy.images.open import open_image
from argosy.images.rootfs_cache import unpack_cached
from argosy.images.sif.format import PartKind
from argosy.images.sif.read import read_sif
from argosy.images.sif.write import plan_copied_part, plan_overlay_part, plan_system_part, whole_of, write_sif
from tests.real.conftest import ALICE, AS_ALICE, BUSYBOX, make_root
from tests.unit.machines import real_session

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

GROUP = 3000

EVIL = {PartKind.PRIMARY_SYSTEM: "etc/EVIL", PartKind.OVERLAY: "opt/argosy/EVIL"}
"""A file that only the forged image has."""


@pytest.fixture
def genuine(shop: Shop) -> Path:
    return shop.build("tinypkg\n", "--format", "delta")


@pytest.fixture
def own(shop: Shop) -> Shop:
    """Give a shop whose cache is empty."""
    cache = shop.folder / "cache"
    cache.mkdir()
    (cache / "tools").symlink_to(shop.cache / "tools")
    return replace(shop, cache=cache)


def forge(shop: Shop, genuine: Path, kind: PartKind, *, linked: Path | None = None) -> Path:
    """Put another file system into a copy of an image, which keeps its lock; its ``/opt`` may be a link."""
    tree, packed, forged = shop.folder / "evil", shop.folder / "evil.sqfs", shop.folder / f"forged-{kind}.sif"
    if kind == PartKind.PRIMARY_SYSTEM:
        make_root(tree, BUSYBOX)
    else:
        offset = str(read_sif(genuine).overlays[0].offset)
        shop.tool("unsquashfs", "-quiet", "-no-progress", "-o", offset, "-d", tree, genuine)
    (tree / EVIL[kind]).write_text("forged\n")
    if linked:
        (tree / "opt").rename(tree / "moved")
        (tree / "opt").symlink_to(linked)
    shop.tool("mksquashfs", tree, packed, "-comp", "zstd", "-quiet", "-no-progress", "-all-root")
    sif, source = read_sif(genuine), whole_of(packed)
    parts = []
    for part in sif.parts:
        if part.partition and part.partition.kind == kind == PartKind.PRIMARY_SYSTEM:
            parts.append(plan_system_part(source, arch="amd64"))
        elif part.partition and part.partition.kind == kind:
            parts.append(plan_overlay_part(source, group=part.group, arch="amd64", name=part.name))
        else:
            parts.append(plan_copied_part(sif, part))
    write_sif(forged, parts, uuid=uuid5(NAMESPACE_URL, "forged"), time=1, arch="amd64")
    return forged


@pytest.mark.parametrize("kind", [PartKind.PRIMARY_SYSTEM, PartKind.OVERLAY], ids=["base", "layer"])
def test_a_genuine_image_never_runs_files_of_one_that_has_its_lock(own: Shop, genuine: Path, kind: PartKind) -> None:
    forged = forge(own, genuine, kind)
    show = ("cat", f"/{EVIL[kind]}")
    assert own.run(forged, *show).out == "forged\n"
    ran = own.run(genuine, *show)
    assert (ran.code, ran.out) == (1, ""), ran.err
    assert own.run(genuine, "tinypkg").out == "tinypkg 2.0\n"
    assert own.run(forged, *show).out == "forged\n"


def test_a_layer_with_a_link_instead_of_its_folder_is_not_mounted(own: Shop, genuine: Path) -> None:
    outside = own.folder / "mine"
    (outside / "argosy").mkdir(parents=True)
    ran = own.run(forge(own, genuine, PartKind.OVERLAY, linked=outside), "true")
    assert (ran.code, f"/opt in it is a link to {outside}" in ran.err) == (125, True), ran.err


def test_a_build_by_proot_never_runs_files_of_an_image_with_a_forged_lock(own: Shop, genuine: Path) -> None:
    forged = forge(own, genuine, PartKind.PRIMARY_SYSTEM)
    assert own.run(forged, "true").code == 0
    session = real_session(own.folder)
    digests = {digest_ahead(open_image(path).image, session)() for path in (forged, genuine)}
    assert len(digests) == 2


def test_two_images_over_one_base_share_its_tree(own: Shop, genuine: Path) -> None:
    other = own.build("another\n", out="other.sif")
    for image in (genuine, other):
        assert own.run(image, "true").code == 0
    trees = [path for path in (own.cache / "trees").iterdir() if path.is_dir()]
    assert len(trees) == 3


def test_files_that_root_unpacks_give_other_users_no_rights(own: Shop) -> None:
    tree, packed = own.folder / "root", own.folder / "root.sqfs"
    make_root(tree, BUSYBOX)
    (tree / "bin/busybox").chmod(0o6755)
    os.mknod(tree / "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
    os.mknod(tree / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
    os.mknod(tree / "removed", stat.S_IFCHR, 0)
    own.tool("mksquashfs", tree, packed, "-quiet", "-no-progress")
    session = real_session(own.folder)
    found = unpack_cached(session, whole_of(packed), key="file:x")
    assert stat.S_IMODE((found / "bin/busybox").stat().st_mode) == 0o755
    assert {path.name for path in found.iterdir()} & {"disk", "memory", "removed"} == {"removed"}
    assert not stat.S_IMODE(found.parent.stat().st_mode) & 0o022


def test_a_tree_that_another_user_put_into_a_shared_cache_is_not_run(own: Shop, genuine: Path) -> None:
    """The stranger knows the key: the same image was run there, and its files were changed since."""
    own.cache.chmod(0o1777)
    alices = replace(own, user=AS_ALICE, python="/usr/bin/python3")
    for path in (own.folder, own.home):
        os.chown(path, ALICE, ALICE)
    ran = alices.run(genuine, "true")
    assert ran.code == 0, ran.err
    for tree in (own.cache / "trees").glob("*/root/etc"):
        (tree / "EVIL").write_text("planted\n")
    (own.cache / "trees").chmod(0o777)
    ran = own.run(genuine, "cat", "/etc/EVIL")
    assert (ran.code, ran.out) == (1, ""), ran.err


@pytest.mark.parametrize("umask", ["0007", "0077"])
def test_a_shared_cache_serves_a_second_user_whatever_the_firsts_umask(own: Shop, genuine: Path, umask: str) -> None:
    shared = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    recipe = own.write("requirements.txt", "tinypkg\n")
    os.chown(own.cache, ALICE, GROUP)
    own.cache.chmod(0o2775)
    steps = []
    for user in (ALICE, ALICE + 1):
        folder = own.folder / str(user)
        folder.mkdir()
        os.chown(folder, user, user)
        alone = ("setpriv", "--reuid", str(user), "--regid", str(user), "--groups", str(GROUP), "--inh-caps=-all", "--")
        shop = replace(own, user=alone, python="/usr/bin/python3")
        with_another = ("run", "--with", "another", genuine, "--", "another")
        others = (("cache", "info"), ("cache", "gc", "--older-than", "1d"))
        for words in (("run", genuine, "--", "tinypkg"), with_another, *others):
            done = shop.argosy(*words, around=shared)
            assert done.code == 0, done.err
        done = replace(shop, folder=folder).argosy("build", recipe, "--base", own.base, "-o", "x.sif", around=shared)
        assert done.code == 0, done.err
        steps.append(done.err)
    packed = list(own.cache.glob("packed/*/part.sqfs"))
    assert {stat.S_IMODE(each.stat().st_mode) & 0o040 for each in packed} == {0o040}
    assert {each.stat().st_uid for each in packed} == {ALICE}
    assert "3 packed before" in steps[1]
