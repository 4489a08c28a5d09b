"""`argosy build` of conda environments from a channel in a folder: what is inside, that it runs, what goes wrong."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE_S
from tests.real.channel import PLACEHOLDER, Channel, CondaPackage, File, python_package
from tests.real.indexes import serve_busy

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

PREFIX = "/opt/argosy/env"
MARK = PLACEHOLDER.encode()


def module(name: str, version: str, *depends: str, body: str = "") -> CondaPackage:
    """Make a package for any Python whose command of the same name says what it is."""
    info = f"site-packages/{name}-{version}.dist-info"
    text = body or f"VERSION = '{version}'\n\n\ndef main() -> None:\n    print('{name} {version} of conda')\n"
    files = {
        f"site-packages/{name}/__init__.py": File(text.encode()),
        f"{info}/METADATA": File(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()),
        f"{info}/INSTALLER": File(b"conda\n"),
    }
    points = (f"{name} = {name}:main",)
    return CondaPackage(name, version, "py_0", ("python", *depends), files=files, noarch="python", entry_points=points)


TOOL = CondaPackage(
    "tool",
    "1.0",
    "h0",
    files={
        "bin/tool": File(b"#!/bin/sh\necho tool of " + MARK + b"/share\n", 0o775),
        "lib/data.bin": File(b"\x7fDATA\0" + MARK + b"/share\0end"),
        "etc/conda/activate.d/tool.sh": File(
            b'export TOOL_HOME="$CONDA_PREFIX/share"\n'
            b'export XDG_DATA_DIRS="$CONDA_PREFIX/share:${XDG_DATA_DIRS:-/usr/share}"\n'
            b'export PATH="$CONDA_PREFIX/first:$PATH:$CONDA_PREFIX/last"\n'
        ),
    },
)
LINKED = CondaPackage(
    "linked",
    "1.0",
    files={
        "etc/list": File(b"first\n"),
        "bin/.linked-post-link.sh": File(
            b'echo "$PREFIX $PKG_NAME $PKG_VERSION" >> "$PREFIX/etc/list"\n'
            b'echo "read the manual" >> "$PREFIX/.messages.txt"\n',
            0o755,
        ),
    },
)
PACKAGES = (
    TOOL,
    LINKED,
    module("pip", "24.0"),
    module("greet", "1.0"),
    module("greet", "2.0"),
    module("tinydep", "1.0"),
    CondaPackage("gpu-tool", "1.0", depends=("__cuda >=12",)),
    CondaPackage("new-system", "1.0", depends=("__glibc >=2.99",)),
    CondaPackage("old-greet", "1.0", depends=("greet <2",)),
    CondaPackage("changed", "1.0", files={"share/changed": File(b"x")}),
)


@pytest.fixture(scope="module")
def channel(pool: Shop) -> Channel:
    python = python_package()
    if python is None or not shutil.which("zstd"):
        pytest.skip("the Python that runs the tests cannot be moved, or there is no zstd")
    made = Channel(pool.folder / "channel").add(python, form="conda").add(*PACKAGES)
    made.rows["linux-64"]["changed-1.0-0.tar.bz2"]["sha256"] = "0" * 64
    return made.write_index()


def environment(channel: str, *packages: str, pip: tuple[str, ...] = (), name: str = "tiny") -> str:
    lines = [f"name: {name}", f"channels: [{channel}]", "dependencies:", *(f"  - {package}" for package in packages)]
    lines += ["  - pip:", *(f"      - {package}" for package in pip)] if pip else []
    return "\n".join(lines) + "\n"


def attempt(shop: Shop, text: str, *more: str | Path, **env: str) -> Ended:
    """Try a build that shall fail: it leaves nothing."""
    recipe = shop.write("environment.yml", text)
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", shop.folder / "no.sif", *more, **env)
    assert not (shop.folder / "no.sif").exists()
    shop.nothing_left()
    assert "Traceback" not in done.err
    return done


def own_cache(shop: Shop) -> str:
    """Make a cache that no other test has filled, but for the base and uv."""
    cache = shop.folder / "cache"
    cache.mkdir()
    for name in ("bases", "tools"):
        (cache / name).symlink_to(shop.cache / name)
    return str(cache)


def info(shop: Shop, image: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(shop.argosy("images", "info", image, "--json").out)
    return told


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_conda_packages_run_at_a_prefix_of_their_own(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", "tool", "greet >=1"))
    shop.sif(image)
    assert shop.run(image, "python", "-c", "import sys; print(sys.prefix)").out == f"{PREFIX}\n"
    assert shop.run(image, "greet").out == "greet 2.0 of conda\n"
    assert shop.run(image, "head", "-n1", f"{PREFIX}/bin/greet").out.startswith(f"#!{PREFIX}/bin/python3")
    assert [package["name"] for package in info(shop, image)["packages"]] == ["greet", "python", "tool"]


def test_a_python_that_the_base_lacks_comes_from_conda(shop: Shop, channel: Channel) -> None:
    """An environment that names Python and pip packages alone takes the base's Python, where that is the one."""
    [version] = [row["version"] for row in channel.rows["linux-64"].values() if row["name"] == "python"]
    text = environment(channel.url, f"python=={version}", "pip", pip=("another",))
    recipe = shop.write("environment.yml", text)
    foretold = shop.argosy("build", recipe, "--base", shop.base, "-o", "x.sif", "--dry-run")
    assert f"Python {version} comes from the base if it has that version; otherwise from conda" in foretold.out
    image = shop.build(text)
    asked = "import platform, sys, another; print(platform.python_version(), sys.prefix, another.VERSION)"
    assert shop.run(image, "python", "-c", asked).out == f"{version} {PREFIX} 0.3\n"
    told = shop.argosy("images", "freeze", image, "--format", "lock")
    assert told.code == 0, told.err
    assert f'"python=={version}"' in told.out
    own = shop.build(environment(channel.url, "python=3.11", "pip", pip=("another",)), out="own.sif")
    assert shop.run(own, "python", "-c", asked).out.split()[0] != version


def test_the_prefix_is_written_into_text_and_binaries(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "tool"))
    assert shop.run(image, "tool").out == f"tool of {PREFIX}/share\n"
    data = f"\x7fDATA\0{PREFIX}/share".encode().ljust(len(TOOL.files["lib/data.bin"].data) - 4, b"\0") + b"\0end"
    assert shop.run(image, "sha256sum", f"{PREFIX}/lib/data.bin").out.split()[0] == hashlib.sha256(data).hexdigest()
    for folder in (shop.folder, shop.cache, "placehold"):
        assert shop.run(image, "grep", "-rlF", str(folder), f"{PREFIX}/bin", f"{PREFIX}/lib").out == ""


def test_the_activation_is_computed_at_build_and_names_no_venv(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "tool", name="mine") + "variables:\n  COLOUR: 'deep `blue`'\n")
    shown = dict(line.split("=", 1) for line in shop.run(image, "env").out.splitlines())
    assert shown["CONDA_PREFIX"] == PREFIX
    assert shown["CONDA_DEFAULT_ENV"] == "mine"
    assert shown["TOOL_HOME"] == f"{PREFIX}/share"
    assert shown["XDG_DATA_DIRS"].startswith(f"{PREFIX}/share")
    assert shown["PATH"].startswith(f"{PREFIX}/first:{PREFIX}/bin:{PREFIX}/last:")
    assert shown["COLOUR"] == "deep `blue`"
    assert "VIRTUAL_ENV" not in shown


@pytest.mark.soak  # a Debian of its own is made for it
def test_a_base_without_python_stays_without(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", "greet"), base="debian:bookworm")
    assert shop.run(image, "greet").out == "greet 2.0 of conda\n"
    assert shop.run(image, "ls", "/usr/bin/python3").code != 0


def test_pip_packages_come_on_top_and_start_the_environments_python(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", "greet", pip=("tinypkg",)))
    assert shop.run(image, "tinypkg").out == "tinypkg 2.0\n"
    assert shop.run(image, "greet").out == "greet 2.0 of conda\n"
    assert shop.run(image, "head", "-n1", f"{PREFIX}/bin/tinypkg").out.startswith(f"#!{PREFIX}/bin/python")
    packages = {package["name"]: package["version"] for package in info(shop, image)["packages"]}
    assert (packages["tinypkg"], packages["tinydep"], packages["pip"]) == ("2.0", "1.5", "24.0")


def test_pip_keeps_conda_packages_that_satisfy_its_requirements(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", "tinydep", pip=("tinypkg", "tinydep")))
    ask = "import tinydep; print(tinydep.VERSION)"
    assert shop.run(image, "python", "-c", ask).out == "1.0\n"


def test_pip_does_not_replace_conda_packages(shop: Shop, channel: Channel) -> None:
    done = attempt(shop, environment(channel.url, "python", "tinydep", pip=("tinydep==1.5",)))
    assert done.code == 7
    assert "pip would replace the conda package tinydep" in done.err
    assert "environment.yml:7: tinydep==1.5" in done.err
    assert "tinydep 1.0 py_0" in done.err
    done = attempt(shop, environment(channel.url, "python", "tinydep", pip=("needsnine",)))
    assert done.code == 7
    assert "tinydep>=9" in done.err
    assert "tinydep==1.0" in done.err


def test_a_conflict_of_two_lines_for_pip_is_not_one_with_conda(shop: Shop, channel: Channel) -> None:
    twice = attempt(shop, environment(channel.url, "python", "tinydep", pip=("tinypkg==1.0", "tinypkg==2.0")))
    assert "-> change one of these requirements" in twice.err
    conda = attempt(shop, environment(channel.url, "python", "tinydep", pip=("needsnine",)))
    assert "-> conda chose these versions" in conda.err


def test_conflicting_requirements_are_reported_with_their_lines(shop: Shop, channel: Channel) -> None:
    done = attempt(shop, environment(channel.url, "greet>=2", "old-greet"))
    assert done.code == 7
    assert "environment.yml:4: greet>=2" in done.err
    assert "environment.yml:5: old-greet" in done.err
    assert "greet <2" in done.err


def test_a_package_that_no_channel_has_is_named(shop: Shop, channel: Channel) -> None:
    done = attempt(shop, environment(channel.url, "no-such-thing"))
    assert done.code == 7
    assert "no channel has a package 'no-such-thing'" in done.err
    assert "environment.yml:4" in done.err
    assert channel.url in done.err


def test_packages_are_chosen_for_the_base_and_the_gpus_that_are_named(shop: Shop, channel: Channel) -> None:
    done = attempt(shop, environment(channel.url, "new-system"))
    assert done.code == 7
    assert "the base has glibc 2.36" in done.err
    done = attempt(shop, environment(channel.url, "gpu-tool"))
    assert done.code == 7
    assert "--cuda 12.8" in done.err
    shop.build(environment(channel.url, "gpu-tool"), "--cuda", "12.8")


def test_a_lower_channel_does_not_win_by_a_newer_version(shop: Shop, channel: Channel) -> None:
    lower = Channel(shop.folder / "lower").add(module("greet", "3.0"))
    both = f"{channel.url}, {lower.url}"
    done = attempt(shop, environment(both, "python", "greet>=3"))
    assert done.code == 7
    for place in (lower.url, f"{lower.url}/noarch"):
        image = shop.build(environment(both, "python", f"{place}::greet"), "--force")
        assert shop.run(image, "greet").out == "greet 3.0 of conda\n"


def test_a_package_can_be_named_by_its_address(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", f"{channel.url}/noarch/greet-1.0-py_0.tar.bz2"))
    assert shop.run(image, "greet").out == "greet 1.0 of conda\n"


def test_a_package_in_a_folder_that_is_not_the_one_announced_is_refused(shop: Shop, channel: Channel) -> None:
    done = attempt(shop, environment(channel.url, "changed"))
    assert done.code == 7
    assert "hash mismatch" in done.err
    assert "changed-1.0-0.tar.bz2" in done.err


def test_a_missing_channel_is_named_in_the_error(shop: Shop) -> None:
    done = attempt(shop, environment(f"file://{shop.folder}/nothing", "tool"))
    assert done.code == 2
    assert f"no such channel: file://{shop.folder}/nothing" in done.err


def test_a_link_script_runs_at_the_prefix_and_leaves_the_cache_alone(shop: Shop, channel: Channel) -> None:
    for number in (1, 2):
        image = shop.build(environment(channel.url, "linked"), out=f"{number}.sif")
        assert shop.run(image, "cat", f"{PREFIX}/etc/list").out == f"first\n{PREFIX} linked 1.0\n"
        assert shop.run(image, "ls", f"{PREFIX}/.messages.txt").code != 0
    assert {path.read_text() for path in shop.cache.rglob("linked-1.0-0/etc/list")} == {"first\n"}


def test_byte_code_of_everything_is_there_and_is_not_checked_against_times(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "python", "greet", pip=("tinypkg",)))
    ask = "import greet, json, tinypkg, importlib.util as u\n"
    ask += "for m in (greet, json, tinypkg): print(open(u.cache_from_source(m.__file__), 'rb').read(8)[4])"
    assert shop.run(image, "python", "-c", ask).out == "1\n1\n1\n"  # PEP 552: hash-based, unchecked


def test_same_environment_same_bytes_whatever_cache_work_folder_and_umask(shop: Shop, channel: Channel) -> None:
    text = environment(channel.url, "python", "tool", "greet", "linked", pip=("tinypkg",))
    first = shop.build(text, out="first.sif")
    work = shop.folder / "elsewhere"
    words = shop.words("build", shop.folder / "environment.yml", "--base", shop.base, "-o", shop.folder / "second.sif")
    done = subprocess.run(
        ("/bin/sh", "-c", 'umask 0077; exec "$@"', "sh", *words, "--work-dir", str(work)),
        env=shop.environment(ARGOSY_CACHE=own_cache(shop)),
        cwd=shop.folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert digest_of(first) == digest_of(shop.folder / "second.sif")


def test_an_image_with_a_conda_environment_takes_pip_packages(shop: Shop, channel: Channel) -> None:
    first = shop.build(environment(channel.url, "python", "tool", "pip"), out="first.sif")
    second = shop.build("tinypkg\n", base=first, out="second.sif")
    assert shop.run(second, "tinypkg").out == "tinypkg 2.0\n"
    assert shop.run(second, "printenv", "TOOL_HOME").out == f"{PREFIX}/share\n"
    assert {"tool", "tinypkg"} <= {package["name"] for package in info(shop, second)["packages"]}
    recipe = shop.write("environment.yml", environment(channel.url, "greet"))
    refused = shop.argosy("build", recipe, "--base", first, "-o", shop.folder / "no.sif")
    assert refused.code == 2
    assert "already holds an environment" in refused.err


@dataclass(slots=True)
class Server:
    """A channel behind http that counts what it is asked, and can want a login or stay silent."""

    address: str
    login: str = ""
    silent: threading.Event | None = None
    status: int = 0
    cut: str = ""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(channel: Channel) -> Iterator[Server]:
    told = Server("")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            told.asked.append(self.path)
            if told.silent:
                told.silent.wait()
            wanted = f"Basic {base64.b64encode(told.login.encode()).decode()}"
            if told.status or (told.login and self.headers.get("Authorization") != wanted):
                self.send_error(told.status or 401)
            elif told.cut and self.path.endswith(told.cut):
                data = Path(self.translate_path(self.path)).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            else:
                super().do_GET()

        do_HEAD = do_GET  # noqa: N815 - the name is the library's

    handler = functools.partial(Handler, directory=str(channel.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        service.handle_error = lambda *_: None  # type: ignore[method-assign] # rattler hangs up early
        told.address = f"127.0.0.1:{service.server_address[1]}"
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield told
        if told.silent:
            told.silent.set()
        service.shutdown()


def test_a_second_build_downloads_no_package_again(shop: Shop, server: Server) -> None:
    text = environment(f"http://{server.address}", "tool", "linked")
    cache = own_cache(shop)
    shop.build(text, out="first.sif", ARGOSY_CACHE=cache)
    assert any(path.endswith("tool-1.0-h0.tar.bz2") for path in server.asked)
    server.asked.clear()
    shop.build(text, out="second.sif", ARGOSY_CACHE=cache)
    assert not [path for path in server.asked if path.endswith(".tar.bz2")]


def test_a_package_named_by_its_address_is_known_by_its_hash(shop: Shop, server: Server, channel: Channel) -> None:
    address = f"http://{server.address}/linux-64/tool-1.0-h0.tar.bz2"
    image = shop.build(environment(channel.url, address))
    (package,) = json.loads(shop.argosy("images", "freeze", image).out)["packages"]
    assert package["sha256"] == [channel.rows["linux-64"]["tool-1.0-h0.tar.bz2"]["sha256"]]
    done = attempt(shop, environment(channel.url, f"'{address}#sha256:{'0' * 64}'"), ARGOSY_CACHE=own_cache(shop))
    assert done.code == 7
    assert "hash mismatch" in done.err


def test_the_history_records_the_requested_packages(shop: Shop, channel: Channel) -> None:
    image = shop.build(environment(channel.url, "tool >=1", "linked"))
    history = shop.run(image, "cat", f"{PREFIX}/conda-meta/history").out
    assert '# update specs: ["tool>=1", "linked"]' in history
    assert f"+{channel.url}/linux-64::tool-1.0-h0\n" in history
    meta = json.loads(shop.run(image, "cat", f"{PREFIX}/conda-meta/tool-1.0-h0.json").out)
    assert meta["requested_specs"] == ["tool>=1"]


def test_after_a_lost_connection_only_missing_files_are_downloaded(shop: Shop, server: Server) -> None:
    text, cache = environment(f"http://{server.address}", "tool", "linked"), own_cache(shop)
    server.cut = "/linked-1.0-0.tar.bz2"
    done = attempt(shop, text, ARGOSY_CACHE=cache)
    assert done.code == 5
    assert "linked-1.0-0.tar.bz2" in done.err
    assert "only the missing files are downloaded" in done.err
    server.cut = ""
    server.asked.clear()
    image = shop.build(text, ARGOSY_CACHE=cache)
    assert [path for path in server.asked if path.endswith(".tar.bz2")] == ["/linux-64/linked-1.0-0.tar.bz2"]
    assert shop.run(image, "cat", f"{PREFIX}/etc/list").out.startswith("first\n")


def test_a_damaged_file_in_the_cache_is_repaired(shop: Shop, channel: Channel) -> None:
    text = environment(channel.url, "tool")
    cache = own_cache(shop)
    shop.build(text, out="first.sif", ARGOSY_CACHE=cache)
    (spoilt,) = Path(cache, "conda/pkgs").glob("tool-*/bin/tool")
    spoilt.write_text("cut o")
    image = shop.build(text, out="second.sif", ARGOSY_CACHE=cache)
    assert shop.run(image, "tool").out == f"tool of {PREFIX}/share\n"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [(401, 5, "RATTLER_AUTH_FILE"), (403, 5, "403"), (404, 2, "no such channel:"), (429, 5, "wait some minutes")],
)
def test_a_refusing_channel_is_one_message(shop: Shop, server: Server, status: int, code: int, said: str) -> None:
    server.status = status
    done = attempt(shop, environment(f"http://{server.address}", "tool"))
    assert done.code == code
    assert said in done.err
    assert server.address in done.err
    asked_again = len(server.asked) > len(set(server.asked))
    assert asked_again or status != 429


def test_a_rate_limited_channel_is_queried_again(shop: Shop, channel: Channel) -> None:
    with serve_busy(channel.folder) as (address, refused):
        image = shop.build(environment(address, "tool"), ARGOSY_CACHE=own_cache(shop))
    assert {"/linux-64/repodata.json", "/linux-64/tool-1.0-h0.tar.bz2"} <= refused
    assert shop.run(image, "tool").out == f"tool of {PREFIX}/share\n"


def test_an_unreachable_channel_is_reported(shop: Shop) -> None:
    done = attempt(shop, environment("http://127.0.0.1:9/none", "tool"))
    assert done.code == 5
    assert "a channel cannot be reached" in done.err


@pytest.mark.parametrize("missing", ["no channel", "no package"])
def test_channels_and_packages_are_checked_before_a_base_is_made(shop: Shop, channel: Channel, missing: str) -> None:
    url = channel.url if missing == "no package" else "http://127.0.0.1:9/none"
    recipe = environment(url, "no-such-thing")
    done = shop.argosy("build", shop.write("e.yml", recipe), "-o", "x.sif", "--base", "docker://127.0.0.1:9/none")
    assert ("cannot be reached" if missing == "no channel" else "no channel has a package") in done.err
    assert "127.0.0.1:9/none" not in done.err or missing == "no channel"


SECRET = "planted-for-conda"  # noqa: S105 - it opens a server of this test only; others run at the same time
NETRC = f"machine 127.0.0.1 login me password {SECRET}\n"


@pytest.mark.parametrize(
    ("login", "variables", "netrc"),
    [(f"me:{SECRET}@", {}, ""), ("me:${WORD}@", {"WORD": SECRET}, ""), ("", {}, NETRC)],
    ids=["address", "variable", "netrc"],
)
def test_a_login_opens_a_channel_and_stays_out_of_the_image(
    shop: Shop, server: Server, login: str, variables: dict[str, str], netrc: str
) -> None:
    server.login = f"me:{SECRET}"
    if netrc:
        (shop.home / ".netrc").write_text(netrc)
    recipe = shop.write("environment.yml", environment(f'"http://{login}{server.address}"', "tool"))
    image = shop.folder / "out.sif"
    done = shop.argosy("build", recipe, "--base", shop.base, "-o", image, "--verbose", **variables)
    assert done.code == 0, done.err
    assert shop.run(image, "tool").out == f"tool of {PREFIX}/share\n"
    assert SECRET not in done.out + done.err + shop.argosy("images", "info", image, "--json").out
    assert shop.run(image, "grep", "-rlF", SECRET, "/opt/argosy").out == ""


def test_a_killed_worker_is_an_error_and_leaves_nothing(shop: Shop, server: Server) -> None:
    server.silent = threading.Event()
    recipe = shop.write("environment.yml", environment(f"http://{server.address}", "tool"))
    with shop.start("build", recipe, "--base", shop.base, "-o", shop.folder / "no.sif") as build:
        deadline = time.monotonic() + 240
        while not server.asked and time.monotonic() < deadline and build.poll() is None:
            threading.Event().wait(0.05)
        os.kill(worker_of(build.pid), signal.SIGKILL)
        _, err = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 5
    assert "failed without a message" in err
    assert "more memory" in err
    shop.nothing_left()


def worker_of(parent: int) -> int:
    """Find the conda worker that a build started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if above == parent and b"argosy.recipes.conda_worker" in words:
            return int(folder.name)
    raise AssertionError("no worker was started")


BACKEND = """\
import os, shutil, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    if needed := os.environ.get("NEEDS"):
        __import__(needed)
    found = [shutil.which("tool") or "none", os.environ.get("TOOL_HOME", ""), os.environ.get("FROM_FILE", "")]
    open("left-by-the-build", "w").close()
    file = "madehere-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as wheel:
        info = "madehere-1.0.dist-info/"
        wheel.writestr("madehere.py", "SAW = %r\\n" % " ".join(found))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: madehere\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return file
"""
BUILT_HERE = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def write_built_here(shop: Shop) -> None:
    folder = shop.folder / "madehere"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(BUILT_HERE)
    (folder / "backend.py").write_text(BACKEND)


def test_builds_by_pip_see_condas_programs_activation_and_variables(shop: Shop, channel: Channel) -> None:
    write_built_here(shop)
    text = environment(channel.url, "python", "pip", "tool", pip=("./madehere",))
    image = shop.build(text + "variables: {FROM_FILE: '1.10'}\n")
    done = shop.run(image, "python", "-c", "import madehere; print(madehere.SAW)")
    assert done.out == f"{PREFIX}/bin/tool {PREFIX}/share 1.10\n"
    assert sorted(path.name for path in (shop.folder / "madehere").iterdir()) == ["backend.py", "pyproject.toml"]


def test_pip_packages_that_build_against_other_pip_packages_are_built_last(shop: Shop, channel: Channel) -> None:
    write_built_here(shop)
    folder = shop.folder / "madehere"
    text = environment(channel.url, "python", "greet", pip=(f"madehere @ file://{folder}", "another"))
    image = shop.build(text + "variables: {NEEDS: another}\n", "--no-build-isolation", "madehere")
    assert shop.run(image, "python", "-c", "import madehere, another").code == 0
