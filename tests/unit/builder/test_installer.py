"""uv's cache: downloads are shared by all builds, and packages that were built from source by those over one base."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from argosy.builder.python.base_python import BasePython
from argosy.builder.python.installer import Installer, separate_builds, sweeping_if_it_fails
from argosy.builder.python.pins import Pin
from argosy.core.errors import Stopped
from argosy.core.locks import owner_of, write_owner
from argosy.core.records import replace
from argosy.core.store import remove_path
from argosy.recipes.lock import LockedPackage
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_session

if TYPE_CHECKING:
    from argosy.builder.backends.container import BuildContainer


def use(cache: Path, base: str) -> Path:
    """Return the folder for the builds over a base, after uv has downloaded and built a package there."""
    folder = cache / separate_builds(cache, base, UvSettings())
    for name in ("archive-v0/download", "archive-v0/built", "wheels-v8", "sdists-v11"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for link, target in (("wheels-v8/download", "archive-v0/download"), ("sdists-v11/built", "archive-v0/built")):
        if not (folder / link).is_symlink():
            (folder / link).symlink_to(Path("..", target))
    return folder


def test_builds_of_the_first_use_of_the_cache_are_found_by_later_ones(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    first = use(cache, "sha256:1")
    assert first.parent == cache / "by-base"
    assert cache / separate_builds(cache, "sha256:1", UvSettings()) == first
    assert (first / "sdists-v11/built").is_dir()


def test_builds_over_another_base_share_the_downloads_alone(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    first, other = use(cache, "sha256:1"), cache / separate_builds(cache, "sha256:2", UvSettings())
    assert other != first
    assert (other / "wheels-v8/download").resolve() == first / "archive-v0/download"
    assert not (other / "sdists-v11").exists()
    assert (use(cache, "sha256:2") / "sdists-v11/built").is_dir()
    assert (cache / "wheels-v8/download").is_dir()


def test_a_cache_of_downloads_keeps_its_folders(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    (cache / "archive-v0/download").mkdir(parents=True)
    first = use(cache, "sha256:1")
    assert (first / "archive-v0").readlink() == Path("../../archive-v0")
    assert not (cache / "archive-v0").is_symlink()


def test_folders_that_were_removed_are_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    first, other = use(cache, "sha256:1"), use(cache, "sha256:2")
    remove_path(first)
    assert use(cache, "sha256:2") == other
    assert (other / "archive-v0").is_dir()
    assert (use(cache, "sha256:3") / "wheels-v8/download").resolve() == other / "archive-v0/download"


def test_old_environments_of_ended_builds_are_removed(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    builds = use(cache, "sha256:1") / "builds-v0"
    for name in (".tmpOld", ".tmpNew", "kept"):
        (builds / name / "lib").mkdir(parents=True)
    for name in (".tmpOld", "kept"):
        os.utime(builds / name, (1, 1))
    separate_builds(cache, "sha256:2", UvSettings())
    assert sorted(path.name for path in builds.iterdir()) == [".tmpNew", "kept"]


def test_packages_that_are_built_last_need_no_vendors_build_that_uv_does_not_see(tmp_path: Path) -> None:
    python = BasePython("3.11.2", "/usr/bin/python3", (("torch", "2.9.0a0+nv25"), ("numpy", "1.26.4")), ())
    installer = Installer(cast("BuildContainer", None), python, UvSettings(), tmp_path, tmp_path)
    pins = (Pin(LockedPackage("triton", "3.5.0+git1"), "triton==3.5.0+git1"),)
    second = installer.after(pins, "/opt/argosy/env/bin/python")
    assert (second.unseen, second.fresh, second.python.executable) == (("torch",), True, "/opt/argosy/env/bin/python")
    assert second.python.packages == (*python.packages, ("triton", "3.5.0+git1"))
    assert installer.after(pins).unseen == ()


def test_what_ended_builds_were_downloading_is_removed_unless_another_build_runs(tmp_path: Path) -> None:
    """uv downloads and unpacks in folders of random names, so only the absence of others tells that they are unused."""
    cache = tmp_path / "uv"
    folder = use(cache, "sha256:1")
    there = [folder / ".tmpNew", folder / "builds-v0/.tmpNew", cache / ".tmpNew"]
    for path in there:
        path.mkdir(parents=True)
    uses = tmp_path / "uses"
    uses.mkdir()
    other = uses / f"{os.uname().nodename}.{os.getppid()}.uv"
    write_owner(other, owner_of(os.getppid(), "uv"))
    write_owner(uses / f"{os.uname().nodename}.{os.getpid()}.uv", owner_of(os.getpid(), "uv"))
    use(cache, "sha256:2")
    assert all(path.is_dir() for path in there)
    write_owner(other, replace(owner_of(os.getppid(), "uv"), started="0"))
    with pytest.raises(Stopped), sweeping_if_it_fails(make_session(tmp_path)):
        raise Stopped(15)
    assert not any(path.exists() for path in there)
