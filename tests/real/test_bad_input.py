"""What goes wrong ends in one clear error with its exit code, and leaves nothing: no output, part, lease or mount."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from argosy.images.sif.write import FileSlice, plan_system_part, write_sif
from argosy.images.squashfs.superblock import read_superblock
from tests.real.indexes import add_wheel, serve_busy

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

BUSYBOX = Path("/bin/busybox")

SMALL_DISK = """\
mount -t tmpfs -o size=30m small "$0" && chmod 777 "$0" || exit 99
"$@" || code=$?
find "$0" -mindepth 1 ! -name tools ! -type d >&2
exit "${code:-0}"
"""
"""Runs a command with a folder of 30 MB, and tells what it left there."""


def attempt(shop: Shop, requirements: str = "tinypkg\n", *more: str | Path, base: str | Path = "", **env: str) -> Ended:
    """Try a build that must fail: one message, no traceback, nothing left."""
    name = "environment.yml" if "dependencies:" in requirements else "requirements.txt"
    recipe = shop.write(name, requirements)
    words = ("build", recipe, "--base", base or shop.base, "-o", shop.folder / "x.sif", *more)
    done = shop.argosy(*words, **env)
    assert done.code != 0
    assert done.out == ""
    one_error(done)
    assert not (shop.folder / "x.sif").exists()
    shop.nothing_left()
    return done


def one_error(done: Ended) -> None:
    assert done.err.count("argosy: ") == 1, done.err
    assert "Traceback" not in done.err
    assert "defect" not in done.err, done.err


OTHER_PYTHON = "channels: [file:///nowhere]\ndependencies:\n  - python =3.13\n  - pip:\n    - tinypkg\n"


@pytest.mark.parametrize(
    ("requirements", "code", "words"),
    [
        ("tinypgk\n", 7, ("no package 'tinypgk'", "check the spelling")),
        ("-f ./none\nabsent\n", 7, ("1: --find-links ./none is ignored: no such folder", "no package 'absent'")),
        ("tinypkg==9\n", 7, ("tinypkg==9", "the index has no tinypkg==9")),
        ("tinydep==1.5\nneedsnine\n", 7, ("needsnine", "tinydep>=9", "no compatible versions")),
        ("tinypkg\n", 0, ()),
        ("dependencies:\n  - pip\n  - pip: [tinypkg\n", 2, ("environment.yml:3",)),
        (OTHER_PYTHON, 2, ("the base has Python 3.11.2; conda", "file:///nowhere")),
        ("tinypkg @@ 3\n", 2, ("requirements.txt:1",)),
    ],
    ids=[
        "unknown package",
        "missing wheels",
        "unknown version",
        "conflict",
        "control",
        "YAML",
        "python",
        "requirement",
    ],
)
def test_an_impossible_recipe_is_refused_with_the_names_involved(
    shop: Shop, requirements: str, code: int, words: tuple[str, ...]
) -> None:
    if code == 0:
        shop.build(requirements)
        return
    done = attempt(shop, requirements)
    assert done.code == code, done.err
    for word in words:
        assert word in done.err


def text_file(shop: Shop) -> Path:
    return shop.write("base.txt", "this is no image\n" * 1000)


def empty_file(shop: Shop) -> Path:
    return shop.write("empty.sif", "")


def gzip_file(shop: Shop) -> Path:
    path = shop.folder / "base.gz"
    path.write_bytes(gzip.compress(b"no tar at all" * 1000))
    return path


def truncated(shop: Shop) -> Path:
    path = shop.folder / "short.sif"
    with shop.base.open("rb") as file:
        path.write_bytes(file.read(1 << 20))
    return path


def truncated_squashfs(shop: Shop) -> Path:
    path = shop.folder / "short.sqfs"
    with shop.squashfs.open("rb") as file:
        path.write_bytes(file.read(1 << 20))
    return path


def foreign(shop: Shop) -> Path:
    path = shop.folder / "arm.sif"
    part = plan_system_part(FileSlice(shop.squashfs, 0, read_superblock(shop.squashfs).bytes_used), arch="arm64")
    write_sif(path, [part], uuid=UUID(int=1), time=1, arch="arm64")
    return path


def without_layers(shop: Shop) -> Path:
    """Make a layout whose configuration stands for a layer that its manifest has not."""
    layout = shop.folder / "layout"
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)

    def keep(content: dict[str, object]) -> dict[str, object]:
        data = json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    kind = "application/vnd.oci.image"
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]}
    config = keep({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs})
    named = {"mediaType": f"{kind}.config.v1+json", **config}
    manifest = keep({"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": named, "layers": []})
    index = {"schemaVersion": 2, "manifests": [{"mediaType": f"{kind}.manifest.v1+json", **manifest}]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return layout


def nothing(shop: Shop) -> Path:
    return shop.folder / "nowhere.sif"


def ordinary_folder(shop: Shop) -> Path:
    (shop.folder / "notes").mkdir()
    return shop.folder / "notes"


def without_python(shop: Shop) -> Path:
    return small_root(shop, "sh", "echo", "test")


def without_shell(shop: Shop) -> Path:
    return small_root(shop, "true")


def small_root(shop: Shop, *applets: str) -> Path:
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    root = shop.folder / "root"
    for name in ("bin", "etc", "usr/bin", "lib", "opt", "proc", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy2(BUSYBOX, root / "usr/bin/only")
    for name in applets:
        (root / "bin" / name).symlink_to("/usr/bin/only")
    return root


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (nothing, 2, ("there is no base", "nowhere.sif")),
        (text_file, 6, ("base.txt",)),
        (empty_file, 6, ("empty.sif",)),
        (gzip_file, 6, ("base.gz",)),
        (truncated, 6, ("short.sif",)),
        (truncated_squashfs, 6, ("short.sqfs",)),
        (foreign, 6, ("another architecture", "arm64", "amd64")),
        (ordinary_folder, 6, ("notes",)),
        (without_layers, 6, ("is incomplete", "0 layers")),
        (without_python, 7, ("has no Python", "debian:bookworm")),
        (without_shell, 7, ("has no shell",)),
    ],
)
def test_an_invalid_base_is_refused(
    shop: Shop, make: Callable[[Shop], Path], code: int, words: tuple[str, ...]
) -> None:
    done = attempt(shop, base=make(shop))
    assert done.code == code, done.err
    for word in words:
        assert word in done.err


def test_an_unknown_suite_is_refused_with_the_known_ones_and_leaves_no_base(shop: Shop) -> None:
    own = replace(shop, cache=shop.folder / "cache")
    done = attempt(own, base="debian:nosuchsuite")
    assert done.code == 2, done.err
    assert "there is no Debian suite 'nosuchsuite'" in done.err
    assert "bookworm" in done.err
    assert list((own.cache / "bases").iterdir()) == []


SUB_USERS = """\
for name in passwd subuid subgid; do cp /etc/$name "$1/$name"; done
echo "alice:x:$2:$2::/:/bin/sh" >> "$1/passwd"
for name in subuid subgid; do echo "alice:200000:65536" >> "$1/$name"; done
for name in passwd subuid subgid; do mount --bind "$1/$name" /etc/$name; done
shift 2 && exec "$@"
"""


def test_a_user_without_subordinate_ids_learns_what_a_debian_base_needs(alices: Shop) -> None:
    if "alice" in Path("/etc/subuid").read_text() or shutil.which("fakechroot"):
        pytest.skip("this user can make one")
    done = attempt(replace(alices, cache=alices.home / "cache"), base="debian:bookworm")
    one_error(done)
    assert done.code == 4
    assert "/etc/subuid" in done.err


@pytest.mark.soak
def test_an_ordinary_user_with_sub_users_makes_a_debian(alices: Shop) -> None:
    private = ("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", SUB_USERS, "sh")
    recipe = alices.write("r.txt", "tinypkg\n")
    words = ("build", recipe, "--base", "debian:bookworm", "-o", alices.folder / "own.sif")
    done = alices.argosy(*words, around=(*private, str(alices.folder), str(alices.folder.stat().st_uid)))
    assert done.code == 0, done.err
    assert alices.run(alices.folder / "own.sif", "tinypkg").out == "tinypkg 2.0\n"


@pytest.mark.parametrize("reference", ["debian:", "debian:Bookworm!", "debian:bookworm+"])
def test_a_misspelt_debian_base_is_a_usage_error(shop: Shop, reference: str) -> None:
    assert attempt(shop, base=reference).code == 2


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        ("taken", 2, ("it is a folder",)),
        ("no/such/folder/x.sif", 2, ("no such folder",)),
    ],
)
def test_an_output_that_cannot_be_made_is_refused(shop: Shop, output: str, code: int, words: tuple[str, ...]) -> None:
    (shop.folder / "taken").mkdir()
    done = attempt(shop, "tinypkg\n", "-o", shop.folder / output)
    assert done.code == code, done.err
    for word in words:
        assert word in done.err


def test_a_folder_that_may_not_be_written_is_named_before_anything_is_made(alices: Shop) -> None:
    locked = alices.folder / "locked"
    locked.mkdir(mode=0o755)
    done = attempt(alices, "tinypkg\n", "-o", locked / "x.sif")
    assert done.code == 7, done.err
    assert str(locked) in done.err
    assert "packages" not in done.err
    assert list(locked.iterdir()) == []


def test_a_cache_that_may_not_be_written_is_named(alices: Shop) -> None:
    locked = alices.folder / "locked"
    locked.mkdir(mode=0o755)
    done = attempt(replace(alices, cache=locked))
    assert done.code == 7, done.err
    assert str(locked) in done.err


def test_a_read_only_home_matters_only_if_the_cache_is_in_it(alices: Shop) -> None:
    locked = alices.folder / "locked"
    locked.mkdir(mode=0o755)
    done = attempt(alices, HOME=str(locked), ARGOSY_CACHE="")
    assert done.code == 7, done.err
    assert str(locked) in done.err
    alices.build("tinypkg\n", HOME=str(locked))
    assert list(locked.iterdir()) == []


@pytest.mark.parametrize("which", ["output", "work", "cache"])
def test_a_full_disk_is_reported_with_a_next_step_and_left_empty(shop: Shop, which: str) -> None:
    small = shop.folder / "small"
    small.mkdir()
    recipe = shop.write("r.txt", "tinypkg\n")
    output = (small if which == "output" else shop.folder) / f"x.{'sqsh' if which == 'work' else 'sif'}"
    words: list[str | Path] = ["build", recipe, "--base", shop.base, "-o", output]
    own = shop
    if which == "work":
        words += ["--work-dir", small]
    if which == "cache":
        words += ["--build-backend", "proot"]
        own = replace(shop, cache=small)
    around = ("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", SMALL_DISK, str(small))
    done = own.argosy(*words, around=around)
    assert done.code == 7, done.err
    one_error(done)
    assert "no space left" in done.err.lower()
    assert "  -> " in done.err
    left = [line for line in done.err.splitlines() if line.startswith(str(small))]
    kept = ("/uv/", "/digests/", "/answers/", "/uses/")  # downloads, what was read once, and who used an entry last
    assert [line for line in left if not any(folder in line for folder in kept)] == []
    shop.nothing_left()


@pytest.mark.parametrize(
    ("missing", "form", "name"), [("mksquashfs", "sif", "x.sif"), ("unsquashfs", "docker-archive", "x.tar")]
)
def test_a_program_that_is_missing_is_named(shop: Shop, missing: str, form: str, name: str) -> None:
    folder = shop.folder / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            link.unlink(missing_ok=True)
            if program.name != missing:
                link.symlink_to(program)
    done = attempt(shop, "tinypkg\n", "--format", form, "-o", shop.folder / name, PATH=str(folder))
    assert done.code == 4, done.err
    assert f"'{missing}' is not installed on this machine" in done.err


def test_a_failing_program_is_reported_with_its_command_and_last_lines(shop: Shop) -> None:
    folder = shop.folder / "bin"
    folder.mkdir()
    (folder / "mksquashfs").write_text("#!/bin/sh\necho FATAL ERROR: cosmic rays >&2\nexit 1\n")
    (folder / "mksquashfs").chmod(0o755)
    done = attempt(shop, PATH=f"{folder}:{shop.environment()['PATH']}")
    assert done.code == 5, done.err
    assert "cosmic rays" in done.err
    assert "$ mksquashfs" in done.err


def test_a_disk_image_of_the_user_is_not_harmed_by_a_failing_forced_build(shop: Shop) -> None:
    output = shop.write("x.sif", "what was there")
    recipe = shop.write("r.txt", "tinypgk\n")
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", output, "--force")
    assert done.code == 7
    assert output.read_text() == "what was there"
    shop.nothing_left(output)


def test_the_error_of_a_package_that_does_not_build_shows_why(shop: Shop) -> None:
    source = shop.folder / "broken"
    source.mkdir()
    (source / "setup.py").write_text("raise SystemExit('cannot be built here')\n")
    shop.tool("tar", "-C", shop.folder, "-czf", shop.folder / "broken-1.0.tar.gz", "broken")
    done = attempt(shop, f"--find-links {shop.folder}\nbroken==1.0\n")
    assert done.code == 5, done.err
    assert "cannot build broken==1.0, which has no wheel" in done.err
    assert "setuptools" in done.err  # the shop has none: that is the reason here


def test_a_rate_limited_index_is_queried_again(shop: Shop) -> None:
    root = shop.folder / "index"
    add_wheel(root, "simple", shop.make_wheel("slowpkg", "1.0").write(shop.folder))
    with serve_busy(root) as (address, refused):
        image = shop.build("slowpkg\n", PIP_NO_INDEX="", PIP_INDEX_URL=f"{address}/simple")
    assert "/simple/slowpkg/" in refused
    assert "slowpkg" in shop.argosy("images", "info", image).out
