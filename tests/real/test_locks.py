"""Locks: what was locked is built again to the byte, with and without a network; no secret ends in one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.channel import Channel, CondaPackage, File, python_package
from tests.real.indexes import pip_wheels
from tests.real.test_conda import PACKAGES, environment

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real


BUNDLED_PIP = pip_wheels()


def real_pip() -> CondaPackage:
    """Make a conda package of the pip that came with the Python that runs the tests."""
    with zipfile.ZipFile(BUNDLED_PIP[-1]) as wheel:
        files = {f"site-packages/{name}": File(wheel.read(name)) for name in wheel.namelist()}
    version = BUNDLED_PIP[-1].name.split("-")[1]
    return CondaPackage("pip", version, "py_1", ("python",), files=files, noarch="python")


@pytest.fixture(scope="module")
def channel(pool: Shop) -> Channel:
    python = python_package()
    if python is None or not shutil.which("zstd") or not BUNDLED_PIP:
        pytest.skip("the Python that runs the tests cannot be moved, has no pip, or there is no zstd")
    packages = (package for package in PACKAGES if package.name != "pip")
    return Channel(pool.folder / "lock-channel").add(python, form="conda").add(*packages, real_pip())


@pytest.fixture
def index(shop: Shop) -> Iterator[str]:
    """Serve the shop's wheels as an index that wants a login; give its address without the scheme."""
    wanted = f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
                self.end_headers()
                return
            name = self.path.removeprefix("/simple/").strip("/")
            if self.path.endswith(".whl"):
                self.answer("application/octet-stream", (shop.wheels / Path(self.path).name).read_bytes())
            else:
                files = sorted(shop.wheels.glob(f"{name}-*.whl"))
                links = (f"<a href='/{f.name}#sha256={digest_of(f)}'>{f.name}</a>" for f in files)
                self.answer("text/html", "\n".join(links).encode())

        def answer(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{service.server_address[1]}/simple"
        service.shutdown()


def lock_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_lock_gives_the_image_of_its_files_to_the_byte(shop: Shop, channel: Channel) -> None:
    recipe = shop.write("environment.yml", environment(channel.url, "python", "linked", "greet >=1", pip=("tinypkg",)))
    built = shop.argosy("build", recipe, "--base", shop.base, "-o", shop.folder / "a.sif")
    assert built.code == 0, built.err
    locked = shop.argosy("lock", recipe, "--base", shop.base)
    assert locked.code == 0, locked.err
    own = replace(shop, cache=shop.folder / "cache")
    again = own.argosy("build", "--locked", "-o", "b.sif", around=("sh", "-c", 'umask 0077; exec "$0" "$@"'))
    assert again.code == 0, again.err
    third = shop.argosy("build", "--locked", "a.sif", "--no-cache", "-o", "c.sif", around=("taskset", "-c", "0"))
    assert third.code == 0, third.err
    assert digest_of(shop.folder / "a.sif") == digest_of(shop.folder / "b.sif") == digest_of(shop.folder / "c.sif")
    assert "instead of" not in again.out + third.out
    assert shop.run(shop.folder / "b.sif", "greet").out == "greet 2.0 of conda\n"
    assert shop.run(shop.folder / "b.sif", "tinypkg").out == "tinypkg 2.0\n"
    stands = shop.argosy("build", "--locked", "-o", "b.sif")
    assert stands.code == 0
    assert "nothing was done" in stands.out
    assert "already exists" in shop.argosy("build", "--locked", "-o", "b.sif", "--no-cache").err
    assert shop.argosy("build", "--locked", "-o", "b.sif", "--format", "delta").code == 2, (
        "another kind of image stands there"
    )
    copied = shop.argosy("build", "--locked", "-o", "d.sif")
    assert f"copied from {shop.folder}/c.sif, which has the same content" in copied.out, copied.err
    assert digest_of(shop.folder / "d.sif") == digest_of(shop.folder / "a.sif")
    shop.nothing_left()


PYLOCK = """\
lock-version = "1.0"
[[packages]]
name = "tinypkg"
version = "1.0"
wheels = [{{ url = "https://x/tinypkg-1.0-py3-none-any.whl", hashes = {{ sha256 = "{sha256}" }} }}]
[[packages]]
name = "tinydep"
version = "1.5"
wheels = [{{ url = "https://x/tinydep-1.5-py3-none-any.whl", hashes = {{ sha256 = "{other}" }} }}]
"""


@pytest.mark.lab
def test_locks_of_uv_pylock_and_conda_are_built_unchanged(shop: Shop, channel: Channel) -> None:
    wheels = [digest_of(shop.wheels / f"{name}-py3-none-any.whl") for name in ("tinypkg-1.0", "tinydep-1.5")]
    pylock = shop.write("pylock.toml", PYLOCK.format(sha256=wheels[0], other=wheels[1]))
    rows = {f"{folder}/{name}": row for folder, rows in channel.rows.items() for name, row in rows.items()}
    chosen = [path for path in rows if path.rpartition("/")[2].startswith(("python-", "greet-1.0", "pip-"))]
    lines = [f"{channel.url}/{path}#sha256:{rows[path]['sha256']}" for path in chosen]
    explicit = shop.write("spec.txt", "\n".join(("@EXPLICIT", *lines)) + "\n")
    built = shop.argosy("build", explicit, pylock, "--base", shop.base, "-o", "out.sif")
    assert built.code == 0, built.err
    assert shop.run(shop.folder / "out.sif", "greet").out == "greet 1.0 of conda\n"
    pylock.write_text(PYLOCK.format(sha256="0" * 64, other=wheels[1]))
    changed = shop.argosy("build", pylock, "--base", shop.base, "-o", "no.sif")
    assert changed.code != 0
    assert "Hash mismatch" in changed.err
    (shop.folder / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "tinypkg"\nversion = "1.0"\n'
        'source = { registry = "https://pypi.org/simple" }\n'
    )
    shop.write("pyproject.toml", '[project]\nname = "mine"\nversion = "1"\ndependencies = ["tinypkg"]\n')
    project = shop.argosy("build", "pyproject.toml", "--base", shop.base, "-o", "project.sif")
    assert project.code == 0, project.err
    ran = shop.lab("sh", "-c", "for image in out project; do apptainer exec $image.sif tinypkg; done")
    assert ran.out == "tinypkg 1.0\n" * 2, ran.err


POETRY = """\
[[package]]
name = "tinypkg"
version = "1.0"
groups = ["main"]
files = [{{file = "tinypkg-1.0-py3-none-any.whl", hash = "sha256:{sha256}"}}]
[[package]]
name = "tinydep"
version = "1.5"
groups = ["main"]
files = [{{file = "tinydep-1.5-py3-none-any.whl", hash = "sha256:{other}"}}]
[[package]]
name = "another"
version = "0.3"
groups = ["dev"]
files = []
[metadata]
lock-version = "2.1"
python-versions = "^3.9"
"""


@pytest.mark.lab
def test_locks_of_poetry_and_pipenv_are_built_unchanged(shop: Shop) -> None:
    one, other = (digest_of(shop.wheels / f"{name}-py3-none-any.whl") for name in ("tinypkg-1.0", "tinydep-1.5"))
    shop.write("poetry.lock", POETRY.format(sha256=one, other=other))
    rows = (("tinypkg", "1.0", one), ("tinydep", "1.5", other))
    table = {name: {"version": f"=={version}", "hashes": [f"sha256:{digest}"]} for name, version, digest in rows}
    shop.write("Pipfile.lock", json.dumps({"_meta": {}, "default": table, "develop": {}}, indent=4))
    for name, out in (("poetry.lock", "poetry.sif"), ("Pipfile.lock", "pipenv.sif")):
        built = shop.argosy("build", name, "--base", shop.base, "-o", out)
        assert built.code == 0, built.err
    told = shop.argosy("images", "info", "poetry.sif").out
    assert "tinydep==1.5" in told
    assert "another" not in told
    ran = shop.lab("sh", "-c", "for image in poetry pipenv; do apptainer exec $image.sif tinypkg; done")
    assert ran.out == "tinypkg 1.0\n" * 2, ran.err
    shop.write("poetry.lock", POETRY.format(sha256="0" * 64, other=other))
    changed = shop.argosy("build", "poetry.lock", "--base", shop.base, "-o", "no.sif")
    assert changed.code != 0
    assert "Hash mismatch" in changed.err


MEMBER = """\
[project]
name = "{name}"
version = "1.0"
dependencies = ["{needs}"]
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """\
import os
import zipfile

def build_wheel(folder, settings=None, metadata=None):
    name = os.path.basename(os.getcwd())
    info, needs = f"{name}-1.0.dist-info", {"one": "two", "two": "tinypkg"}[name]
    files = {
        f"{name}/__init__.py": f"import {needs}\\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\nRequires-Dist: {needs}\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\\n" for file in files)
    with zipfile.ZipFile(os.path.join(folder, f"{name}-1.0-py3-none-any.whl"), "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return f"{name}-1.0-py3-none-any.whl"
"""
OTHER = "[tool.uv.sources]\n{needs} = {{ workspace = true }}\n"
ROOT = "[tool.uv.workspace]\nmembers = ['packages/*']\n"


def test_projects_of_a_workspace_are_built_with_its_lock(shop: Shop) -> None:
    for name, needs, more in (("one", "two", OTHER), ("two", "tinypkg", "")):
        folder = shop.folder / "packages" / name
        folder.mkdir(parents=True)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "pyproject.toml").write_text((MEMBER + more).format(name=name, needs=needs))
    root = MEMBER.partition("[build")[0] + OTHER + ROOT
    shop.write("pyproject.toml", root.format(name="app", needs="one"))
    (shop.folder / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "tinypkg"\nversion = "1.0"\n'
        'source = { registry = "https://pypi.org/simple" }\n'
        '[[package]]\nname = "one"\nsource = { editable = "packages/one" }\n'
        '[[package]]\nname = "two"\nsource = { editable = "packages/two" }\n'
    )
    for project in ("pyproject.toml", "packages/one/pyproject.toml"):
        built = shop.argosy("build", project, "--base", shop.base, "-o", "out.sif", "--force")
        assert built.code == 0, built.err
        show = "import two, tinypkg; print(two.__file__, tinypkg.VERSION)"
        there = shop.run(shop.folder / "out.sif", "python", "-c", show)
        assert there.out.endswith("site-packages/two/__init__.py 1.0\n"), there.err
    assert shop.run(shop.folder / "out.sif", "python", "-c", "import one").code == 1


@pytest.mark.soak  # a sample: test_bundles.py
def test_a_bundle_is_built_without_a_network_to_the_byte(shop: Shop, channel: Channel) -> None:
    recipe = shop.write("environment.yml", environment(channel.url, "python", "tool", pip=("tinypkg",)))
    done = shop.argosy("bundle", recipe, "--base", shop.base, "-o", "all.tar")
    assert done.code == 0, done.err
    own = replace(shop, cache=shop.folder / "cache", wheels=shop.folder / "none")
    there = own.argosy("build", "--bundle", "all.tar", "-o", "there.sif", around=("unshare", "--net"))
    assert there.code == 0, there.err
    assert "static uv" not in there.err
    here = shop.argosy("build", "--locked", "there.sif", "-o", "here.sif")
    assert here.code == 0, here.err
    assert digest_of(shop.folder / "here.sif") == digest_of(shop.folder / "there.sif")
    assert shop.run(shop.folder / "there.sif", "tinypkg").out == "tinypkg 2.0\n"
    assert "nothing was done" in shop.argosy("build", "--locked", "here.sif", "-o", "there.sif").out
    (shop.folder / "cut.tar").write_bytes((shop.folder / "all.tar").read_bytes()[:100_000])
    cut = own.argosy("build", "--bundle", "cut.tar", "-o", "x.sif")
    assert (cut.code, "cut.tar is not an Argosy bundle" in cut.err) == (6, True)
    shop.nothing_left()


SECRET = "planted-for-the-lock"  # noqa: S105 - it opens a server of this test only; others run at the same time


def watch_processes(stop: threading.Event, found: list[str]) -> None:
    """Look at the words of all processes until told to stop."""
    while not stop.wait(0.02):
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if SECRET.encode() in (words := file.read_bytes()):
                    found.append(words.decode(errors="replace"))


def test_no_secret_ends_in_image_lock_bundle_log_or_process_list(shop: Shop, index: str) -> None:
    recipe = shop.write("requirements.txt", f"--index-url http://me:{SECRET}@{index}\ntinypkg\n")
    stop, found = threading.Event(), list[str]()
    watcher = threading.Thread(target=watch_processes, args=(stop, found))
    watcher.start()
    words = (recipe, "--base", shop.base, "--verbose", "-o")
    plain = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": ""}
    done = [shop.argosy(verb, *words, out, **plain) for verb, out in (("build", "x.sif"), ("lock", "x.lock"))]
    (shop.home / ".netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    done.append(shop.argosy("build", "--locked", "x.lock", "--no-cache", "--verbose", "-o", "y.sif", **plain))
    stop.set()
    watcher.join()
    assert [each.code for each in done] == [0, 0, 0], done[-1].err
    assert found == []
    assert not [each for each in done if SECRET in each.out + each.err]
    assert SECRET not in (shop.folder / "x.lock").read_text()
    assert f"index-url http://{index}" in lock_of(shop.folder / "x.lock")["indexes"]
    assert SECRET.encode() not in (shop.folder / "x.sif").read_bytes()
    assert shop.run(shop.folder / "x.sif", "grep", "-rlF", SECRET, "/opt/argosy").out == ""
    assert digest_of(shop.folder / "x.sif") == digest_of(shop.folder / "y.sif")


def test_diff_shows_what_steps_change_in_the_base(shop: Shop) -> None:
    step = "rm /etc/passwd; echo x >> /etc/group; mkdir /data; touch /data/a /usr/lib/c"
    for name, run in (("one", "true"), ("two", step)):
        shop.write("argosy.toml", f'[image]\nbase = "{shop.base}"\nformat = "delta"\n[[step]]\nrun = "{run}"\n')
        done = shop.argosy("build", "-o", f"{name}.sif")
        assert done.code == 0, done.err
    files = ["+ data", "~ etc/group", "- etc/passwd", "+ usr/lib/c"]
    shown = shop.argosy("images", "diff", "one.sif", "two.sif").out.splitlines()
    assert [line for line in shown if "argosy" not in line and "content" not in line] == files


def test_diff_shows_the_packages_that_differ_between_two_images(shop: Shop) -> None:
    one = shop.build("tinypkg==1.0\n", out="one.sif")
    two = shop.build("tinypkg\nanother\n", out="two.sif")
    told = json.loads(shop.argosy("images", "diff", one, two, "--json").out)
    changes = {change["name"]: (change["before"], change["after"]) for change in told["changes"]}
    assert changes["tinypkg (pypi)"] == ("1.0", "2.0")
    assert changes["another (pypi)"] == ("", "0.3")
    site = "opt/argosy/env/lib/python3.11/site-packages"
    files = {(change["sign"], change["path"]) for change in told["files"]}
    assert ("+", f"{site}/another") in files
    assert ("~", f"{site}/tinypkg/__init__.py") in files
    assert ("+", f"{site}/another/__init__.py") not in files
    damaged = bytearray(one.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    two.write_bytes(damaged)
    assert (
        shop.argosy("images", "diff", one, two).out == "the same contents over the same base, as both images record\n"
    )
    frozen = json.loads(shop.argosy("images", "freeze", shop.base).out)
    kinds = {package["name"]: package["kind"] for package in frozen["packages"]}
    assert kinds["libc6"] == "deb"
    assert frozen["base"]["digest"] == json.loads(shop.argosy("images", "freeze", one).out)["base"]["digest"]
    assert (
        shop.argosy("images", "freeze", one, "--format", "requirements").out
        == "pip==24.0\ntinydep==1.5\ntinypkg==1.0\n"
    )
    bill = json.loads(shop.argosy("images", "sbom", shop.base).out)
    assert bill["specVersion"] == "1.6"
    assert any(part.get("purl", "").startswith("pkg:deb/") for part in bill["components"])


def test_a_lock_keeps_its_versions_until_one_is_upgraded(shop: Shop) -> None:
    recipe = shop.write("requirements.txt", "tinypkg==1.0\nanother\n")
    assert shop.argosy("lock", recipe, "--base", shop.base).code == 0
    recipe.write_text("tinypkg\nanother\n")
    stale = shop.argosy("lock", recipe, "--base", shop.base, "--check")
    assert (stale.code, "requirements.txt has changed" in stale.err) == (7, True)
    kept = shop.argosy("lock", recipe, "--base", shop.base, "--upgrade", "another", "--json")
    assert json.loads(kept.out)["changes"] == []
    assert shop.argosy("lock", recipe, "--check").code == 0
    changed = json.loads(shop.argosy("lock", recipe, "--base", shop.base, "--upgrade", "tinypkg", "--json").out)
    versions = {change["name"]: (change["before"], change["after"]) for change in changed["changes"]}
    assert versions["tinypkg (pypi)"] == ("1.0", "2.0")
    unknown = shop.argosy("lock", recipe, "--base", shop.base, "--upgrade", "anothr")
    assert (unknown.code, "did you mean another?" in unknown.err) == (2, True)


def test_a_lock_refuses_another_base_and_a_changed_wheel(shop: Shop) -> None:
    wheels = shop.folder / "wheels"
    shutil.copytree(shop.wheels, wheels)
    recipe = shop.write("requirements.txt", "another\n")
    assert shop.argosy("lock", recipe, "--base", shop.base).code == 0
    lock = lock_of(shop.folder / "argosy.lock")
    lock["base"]["digest"] = "sha256:" + "0" * 64
    (shop.folder / "other.lock").write_text(json.dumps(lock))
    refused = shop.argosy("build", "--locked", "other.lock", "-o", "x.sif")
    assert (refused.code, "is not the one that was locked" in refused.err) == (7, True)
    (wheel,) = wheels.glob("another-*")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    cache = shop.folder / "cache"
    cache.mkdir()
    (cache / "tools").symlink_to(shop.cache / "tools")
    own = replace(shop, wheels=wheels, cache=cache)
    changed = own.argosy("build", "--locked", "-o", "x.sif")
    assert changed.code != 0
    assert "Hash mismatch" in changed.err
    assert not (shop.folder / "x.sif").exists()
