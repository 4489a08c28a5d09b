"""Each build backend works alone, as root and as an ordinary user, and a build falls back to the next one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.builder.backends.plan import WITHOUT_NEW_CALLS
from tests.patience import PATIENCE_S
from tests.real.channel import Channel, CondaPackage, File

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

ALICE = 2001


def build(shop: Shop, *more: str, **env: str) -> Ended:
    recipe = shop.write("r.txt", "tinypkg\n")
    words = ("build", str(recipe), "--base", str(shop.base), "-o", str(shop.folder / "x.sif"), "--json", *more)
    done = shop.argosy(*words, **env)
    shop.nothing_left()
    return done


def check(shop: Shop, done: Ended, backend: str, digests: set[str]) -> None:
    """Check that the build backend was used, and that its image runs and equals those of the other backends."""
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["backend"] == backend
    digests.add(report["digest"])
    assert len(digests) == 1
    shop.sif(shop.folder / "x.sif")
    ran = shop.run(shop.folder / "x.sif", "tinypkg")
    assert ran.out == "tinypkg 2.0\n", ran.err


@pytest.fixture(scope="module")
def digests() -> set[str]:
    """Collect the content digests of one recipe, built with any build backend."""
    return set()


def need(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here")


@pytest.mark.parametrize("backend", ["root", "userns", "proot"])
def test_root_builds_by_each_build_backend_alone(shop: Shop, backend: str, digests: set[str]) -> None:
    need("proot" if backend == "proot" else "bwrap")
    check(shop, build(shop, "--build-backend", backend), backend, digests)


@pytest.mark.parametrize("backend", ["userns", "proot"])
def test_an_ordinary_user_builds_by_each_build_backend_alone(alices: Shop, backend: str, digests: set[str]) -> None:
    need("proot" if backend == "proot" else "bwrap")
    check(alices, build(alices, "--build-backend", backend), backend, digests)


def test_a_missing_build_backend_is_named_with_what_it_needs(shop: Shop) -> None:
    if shutil.which("singularity"):
        pytest.skip("singularity is installed here")
    done = build(shop, "--build-backend", "singularity")
    assert done.code == 4
    assert "singularity: not found" in done.err


def without(shop: Shop, *left_out: str) -> str:
    """Give a PATH on which everything is but some programs."""
    folder = shop.folder / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            link.unlink(missing_ok=True)
            if program.name not in left_out:
                link.symlink_to(program)
    return str(folder)


def test_without_any_build_backend_one_error_names_missing_programs_and_a_hint(shop: Shop) -> None:
    done = build(shop, PATH=without(shop, "bwrap", "proot", "apptainer", "singularity"))
    assert done.code == 4
    for text in ("bwrap: not found", "apptainer: not found", "proot: not found", "-> install bubblewrap"):
        assert text in done.err


def test_without_user_namespaces_the_next_build_backend_is_used_and_the_reason_is_printed(alices: Shop) -> None:
    need("proot")
    done = blocked(alices)
    assert done.code == 0, done.err
    assert "proot" in done.err
    assert "not userns: exit code" in done.err


def test_without_user_namespaces_and_proot_the_error_shows_each_backends_reason(alices: Shop) -> None:
    done = blocked(alices, "--build-backend", "userns")
    assert done.code == 5
    assert "no build backend works on this machine" in done.err
    assert "userns: exit code" in done.err
    assert "unshare" in done.err


def blocked(shop: Shop, *more: str) -> Ended:
    """Build where the kernel refuses namespaces though its switches allow them, as AppArmor and seccomp do."""
    folder = shop.folder / "blocked"
    folder.mkdir()
    for name in ("unshare", "bwrap"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name}: unshare failed: Operation not permitted' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    recipe = shop.write("r.txt", "tinypkg\n")
    words = ("build", str(recipe), "--base", str(shop.base), "-o", str(shop.folder / "x.sif"), *more)
    done = shop.argosy(*words, PATH=f"{folder}:{shop.environment()['PATH']}")
    shop.nothing_left()
    return done


LEFTOVERS = {
    "SINGULARITY_BIND": "/not/there",
    "APPTAINER_BIND": "/not/there",
    "APPTAINERENV_PYTHONPATH": "/not/there",
    "LD_LIBRARY_PATH": "/not/there",
    "PYTHONPATH": "/not/there",
    "PIP_TARGET": "/not/there",
    "CONDA_PREFIX": "/not/there",
    "CONDA_CHANNELS": "not-there",
    "LOADEDMODULES": "apptainer-enable-mpi",
}
"""What modules and shells leave in an environment: none of it may reach a build."""


@pytest.mark.lab
@pytest.mark.parametrize("backend", ["userns", "apptainer"])
def test_a_user_of_a_cluster_builds_by_each_build_backend_alone(shop: Shop, backend: str, digests: set[str]) -> None:
    mine = replace(shop, cache=shop.folder / "cache")
    mine.cache.mkdir()
    shutil.copytree(shop.cache / "tools", mine.cache / "tools")
    recipe = mine.write("r.txt", "tinypkg\n")
    for path in (mine.folder, *mine.cache.rglob("*"), mine.cache):
        os.chown(path, ALICE, ALICE)
    names = ("ARGOSY_CACHE", "PIP_CONFIG_FILE", "PIP_NO_INDEX", "PIP_FIND_LINKS")
    env = {name: mine.environment()[name] for name in names} | LEFTOVERS
    words = ("build", recipe, "--base", mine.base, "-o", mine.folder / "x.sif", "--json", "--build-backend", backend)
    done = mine.lab("argosy", *words, **env)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["backend"] == backend
    digests.add(report["digest"])
    assert len(digests) == 1
    mine.nothing_left(mine.folder / "x.sif")
    ran = mine.lab("apptainer", "exec", mine.folder / "x.sif", "tinypkg")
    assert ran.out == "tinypkg 2.0\n", ran.err


GROUP = 3000


def _recipe_of(shop: Shop, kind: str) -> tuple[Path, str]:
    """Write a recipe that installs the command tinypkg; give it, and what the command prints."""
    if kind == "pip":
        recipe, printed = shop.write("r.txt", "tinypkg\n"), "tinypkg 2.0\n"
    else:
        tool = File(b"#!/bin/sh\necho tiny of conda\n", 0o755)
        channel = Channel(shop.folder / "channel").add(CondaPackage("tiny", "1.0", files={"bin/tinypkg": tool}))
        text = f"channels: [{channel.write_index().url}]\ndependencies: [tiny]\n"
        recipe, printed = shop.write("environment.yml", text), "tiny of conda\n"
    recipe.chmod(0o644)
    return recipe, printed


@pytest.mark.parametrize("kind", ["pip", "conda"])
@pytest.mark.parametrize("umask", ["0022", "0077"])
def test_two_users_build_at_once_with_one_cache_in_their_projects_folder(alices: Shop, umask: str, kind: str) -> None:
    need("bwrap")
    path = without(alices, "squashfuse")  # so that the base is unpacked into the cache
    uv = alices.folder / "bin/uv"
    uv.unlink(missing_ok=True)
    uv.symlink_to(Path(sys.executable).with_name("uv"))
    project = alices.folder / "project"
    project.mkdir()
    os.chown(project, ALICE, GROUP)
    project.chmod(0o2775)
    recipe, printed = _recipe_of(alices, kind)
    shops = []
    for user in (ALICE, ALICE + 1):
        alone = ("setpriv", "--reuid", str(user), "--regid", str(user), "--groups", str(GROUP), "--inh-caps=-all", "--")
        folder = alices.folder / str(user)
        folder.mkdir()
        os.chown(folder, user, user)
        shops.append(replace(alices, folder=folder, cache=project / "cache", user=alone))
    shared = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    words = ("build", str(recipe), "--base", str(alices.base), "-o", "x.sif")
    (project / "cache").mkdir()
    os.chown(project / "cache", ALICE, GROUP)
    (project / "cache").chmod(0o2775)
    (project / "cache/tools").symlink_to(alices.cache / "tools")
    builds = [shop.start(*words, around=shared, PATH=path) for shop in shops]
    for shop, child in zip(shops, builds, strict=True):
        _, said = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0, said
        ran = shop.argosy("run", "x.sif", "--", "tinypkg", around=shared, PATH=path)
        assert ran.out == printed, ran.err
        assert not shop.argosy(
            "run", "x.sif", "--", "find", "/opt", "-perm", "-g=w", "-not", "-type", "l", around=shared, PATH=path
        ).out
    made = [(shop.folder / "x.sif").read_bytes() for shop in shops]
    assert made[0] == made[1]
    freed = shops[1].argosy("cache", "gc", "--older-than", "0d", around=shared, PATH=path)
    assert freed.code == 0, freed.err


def test_a_killed_proot_leaves_no_files_of_its_own() -> None:
    need("proot")
    proot = shutil.which("proot") or ""
    words = (sys.executable, "-I", WITHOUT_NEW_CALLS, "proot", proot, "sh", "-c", "echo started; exec sleep 600")
    with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        number = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().strip()
        own = f"proot*-{number}-*"
        assert list(Path("/tmp").glob(own)) != [], "proot keeps its files elsewhere now: see remove_leftovers"  # noqa: S108
        child.terminate()
    assert list(Path("/tmp").glob(own)) == []  # noqa: S108


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_programs_under_a_killed_proot_never_continue_outside(tmp_path: Path, number: signal.Signals) -> None:
    need("proot")
    need("busybox")
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    inside = tree / str(outside).lstrip("/")
    for folder in (outside, inside, tree / "bin"):
        folder.mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", tree / "bin/busybox")
    work = f"n=0; while :; do n=$((n + 1)); : > {outside}/$((n % 100)); done"
    # The second process has a session of its own, and so a group of its own.
    script = f"/bin/busybox setsid /bin/busybox sh -c '{work}' & echo started; {work}"
    proot = (shutil.which("proot") or "", "-r", str(tree), "-w", "/", "/bin/busybox", "sh", "-c", script)
    for _ in range(20):
        words = (sys.executable, "-I", WITHOUT_NEW_CALLS, "proot", *proot)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, process_group=0) as running:
            assert running.stdout
            assert running.stdout.readline() == b"started\n"
            running.send_signal(number)
            running.communicate(timeout=PATIENCE_S)  # until each program that could write there is gone
    assert [*inside.iterdir()] != []
    assert [*outside.iterdir()] == [], "a program whose proot is gone writes to this machine's own files"


def test_files_of_dead_proots_are_swept_at_the_next_run_and_those_of_living_ones_stay() -> None:
    need("proot")
    with subprocess.Popen((shutil.which("true") or "",)) as dead:
        dead.wait()
    paths = {name: Path(f"/tmp/prooted-{number}-{name}x") for name, number in  # noqa: S108 - where proot puts them
              (("gone0", dead.pid), ("alive", os.getpid()), ("young", dead.pid))}  # fmt: skip
    try:
        for name, place in paths.items():
            place.touch()
            if name != "young":
                os.utime(place, (1, 1))
        if Path(f"/proc/{dead.pid}").exists():
            pytest.skip("its number was given to another process")
        subprocess.run((sys.executable, "-I", WITHOUT_NEW_CALLS, "proot", shutil.which("true") or ""), check=True)
        assert {name for name, place in paths.items() if place.exists()} <= {"alive", "young"}
        assert paths["alive"].exists()
    finally:
        for place in paths.values():
            place.unlink(missing_ok=True)
