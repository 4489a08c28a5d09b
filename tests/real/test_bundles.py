"""A bundle holds all that a build needs: what has no wheel, what steps copy and fetch, the bases of stages."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real.indexes import pip_wheels

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

REPO = Path(__file__).parents[2]
GIT = Path("/usr/lib/git-core")
PARTS_OF_GIT = ("git", "git-submodule", "git-submodule--helper", "git-sh-setup", "git-sh-i18n", "git-upload-pack")
BACKEND = """\
import os, zipfile
NAME = "{name}"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    file = NAME + "-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as wheel:
        info = NAME + "-1.0.dist-info/"
        # No two builds of it are equal: the image has to have the one that is taken along.
        wheel.writestr(NAME + ".py", "WHO = %r, %r\\n" % (NAME, os.urandom(8).hex()))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: %s\\nVersion: 1.0\\n" % NAME)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return file
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
PROJECT = """\
[image]
base = "{base}"
pip = "requirements.txt"
output = "mine.sif"

[[step]]
before = "packages"
copy = "git-core"
to = "/usr/lib/"

[[step]]
before = "packages"
run = "ln -s ../lib/git-core/git ../lib/git-core/git-upload-pack /usr/bin/"

[[step]]
copy = "data"
to = "/opt/"

[[step]]
fetch = {{ url = "{url}/model.bin", sha256 = "{sha256}" }}
to = "/opt/models/"

[[stage]]
name = "make"
base = "stage.sqfs"
copy = "word.txt"
run = "cat word.txt word.txt > twice"
results = {{ twice = "/opt/twice" }}
"""


def write_source(folder: Path, name: str) -> Path:
    """Write a package that no wheel is there of; a program of its own builds it, without a network."""
    source = folder / f"{name}-1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "backend.py").write_text(BACKEND.format(name=name))
    (source / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    return source


@pytest.fixture
def own(shop: Shop) -> Shop:
    """Give a shop whose index has a real pip, which fetches wheels, and a package that is source only."""
    wheels = shop.folder / "wheels"
    shutil.copytree(shop.wheels, wheels, ignore=shutil.ignore_patterns("pip-*"))
    for pip in pip_wheels():
        shutil.copy(pip, wheels)
    source = write_source(shop.folder, "onlysource")
    shop.tool("tar", "-C", shop.folder, "-czf", wheels / "onlysource-1.0.tar.gz", source.name)
    shutil.rmtree(source)
    return replace(shop, wheels=wheels)


@pytest.fixture
def address(own: Shop) -> Iterator[str]:
    """Serve a folder of the shop by HTTP."""
    served = own.folder / "served"
    served.mkdir()
    (served / "model.bin").write_bytes(b"weights\n")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=served)) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{service.server_address[1]}"
        service.shutdown()


def write_project(own: Shop, tiny: Path, address: str) -> None:
    """Write a project that needs a repository, a folder, a source, a served file, its own files and a stage."""
    repository = write_source(own.folder, "fromgit")
    git = ("git", "-C", repository, "-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        own.tool(*git, *words)
    folder = write_source(own.folder, "folder")
    own.write("requirements.txt", f"tinypkg\nonlysource\nfromgit @ git+file://{repository}\n./{folder.name}\n")
    shutil.copy(tiny, own.folder / "stage.sqfs")
    for name in ("data", "git-core"):
        (own.folder / name).mkdir()
    for name in PARTS_OF_GIT:  # the base has none, and uv fetches with it
        shutil.copy2(GIT / name, own.folder / "git-core", follow_symlinks=False)
    own.write("data/inner", "inner\n")
    own.write("word.txt", "word\n")
    digest = hashlib.sha256(b"weights\n").hexdigest()
    own.write("argosy.toml", PROJECT.format(base=own.base, url=address, sha256=digest))


def test_a_project_with_sources_files_and_a_stage_is_built_from_its_bundle_alone(
    own: Shop, tiny: Path, address: str
) -> None:
    write_project(own, tiny, address)
    done = own.argosy("bundle", "-o", "all.tar", "--json")
    assert done.code == 0, done.err
    digest = json.loads(done.out)["digest"]
    elsewhere = own.folder / "elsewhere"
    elsewhere.mkdir()
    (own.folder / "all.tar").rename(elsewhere / "all.tar")
    there = replace(own, folder=elsewhere, cache=elsewhere / "cache", wheels=elsewhere / "none")
    built = there.argosy("build", "--bundle", "all.tar", "-o", "mine.sif", "--json", around=("unshare", "--net"))
    assert built.code == 0, built.err
    assert json.loads(built.out)["digest"] == digest
    assert "instead of" not in built.out + built.err
    names = "import onlysource, fromgit, folder, tinypkg; print(onlysource.WHO[0], fromgit.WHO[0], folder.WHO[0])"
    assert there.run(elsewhere / "mine.sif", "python", "-c", names).out == "onlysource fromgit folder\n"
    shown = there.run(elsewhere / "mine.sif", "cat", "/opt/data/inner", "/opt/models/model.bin", "/opt/twice")
    assert shown.out == "inner\nweights\nword\nword\n"
    lock = json.loads(there.run(elsewhere / "mine.sif", "cat", "/opt/argosy/argosy.lock").out)
    packages = {package["name"]: package for package in lock["packages"]}
    assert packages["fromgit"]["url"].startswith("git+file://")
    assert [len(packages[name]["sha256"]) for name in ("onlysource", "fromgit", "folder")] == [2, 1, 1]
    there.nothing_left(elsewhere / "mine.sif")


def test_a_package_that_cannot_be_bundled_is_named_and_no_bundle_is_left(own: Shop) -> None:
    source = write_source(own.folder, "broken")
    (source / "backend.py").write_text("def build_wheel(*_, **__):\n    raise SystemExit('no compiler here')\n")
    own.write("requirements.txt", f"./{source.name}\n")
    done = own.argosy("bundle", "requirements.txt", "--base", own.base, "-o", "x.tar")
    assert (done.code, "broken" in done.err, "no compiler here" in done.err) == (5, True, True), done.err
    own.write("outside.toml", "")
    own.write("argosy.toml", f'[image]\nbase = "{own.base}"\n[[step]]\ncopy = "../x"\nto = "/opt/"\n')
    refused = own.argosy("bundle", "-o", "x.tar")
    assert (refused.code, "argosy.toml:4" in refused.err, "../x" in refused.err) == (2, True, True), refused.err
    assert not (own.folder / "x.tar").exists()


SSH = """\
#!/bin/sh
[ -S "$SSH_AUTH_SOCK" ] || { echo "Permission denied (publickey)." >&2; exit 255; }
for last do :; done
exec sh -c "$last"
"""
PRIVATE = """\
[image]
base = "{base}"
pip = "requirements.txt"
output = "mine.sif"

[[step]]
before = "packages"
copy = "srv"
to = "/opt/"

[[step]]
before = "packages"
run = "ln -s /opt/srv/git-core /usr/lib/git-core && ln -s /opt/srv/git-core/* /opt/srv/ssh /usr/bin/"
"""


def test_a_private_repository_is_fetched_over_ssh_with_the_users_agent(own: Shop) -> None:
    served = own.folder / "srv"
    (served / "git-core").mkdir(parents=True)
    repository = write_source(served, "private")
    git = ("git", "-C", repository, "-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        own.tool(*git, *words)
    for name in PARTS_OF_GIT:
        shutil.copy2(GIT / name, served / "git-core", follow_symlinks=False)
    own.write("srv/ssh", SSH).chmod(0o755)  # it stands for a server that lets in who has an agent
    own.write("requirements.txt", f"git+ssh://git@example.org/opt/srv/{repository.name}#egg=private\n")
    own.write("argosy.toml", PRIVATE.format(base=own.base))
    refused = own.argosy("build")
    assert refused.code != 0
    assert "start an ssh agent" in refused.err, refused.err
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(own.home / "agent"))
        done = own.argosy("build", SSH_AUTH_SOCK=str(own.home / "agent"))
    assert done.code == 0, done.err
    assert own.run(own.folder / "mine.sif", "python", "-c", "import private; print(private.WHO[0])").out == "private\n"


def test_a_git_source_over_a_base_without_git_names_where_git_can_come_from(own: Shop) -> None:
    for line in ("git+https://example.org/x.git@v1", "x @ git+https://example.org/x.git"):
        recipe = own.write("r.txt", f"{line}\n")
        done = own.argosy("build", recipe, "--base", own.base, "-o", own.folder / "no.sif")
        assert done.code != 0
        assert "the base has no git" in done.err, done.err
