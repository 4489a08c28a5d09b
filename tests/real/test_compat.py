"""Other tools' command lines: what they build is what their users' scripts expect."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.real.channel import Channel, CondaPackage, File, python_package

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = pytest.mark.real

PREFIX = "/opt/cotainr/conda/envs/conda_container_env"
ASK = """\
import importlib.metadata as m, json, os, shutil, sys
names = sorted(f"{d.name}=={d.version}" for d in m.distributions())
print(json.dumps([sys.executable, sys.prefix, os.environ["PATH"], os.environ["CONDA_PREFIX"],
                  os.environ["CONDA_DEFAULT_ENV"], shutil.which("tinypkg"), names]))
"""


@pytest.fixture(scope="module")
def channel(pool: Shop) -> Channel:
    python = python_package()
    if python is None or not shutil.which("zstd"):
        pytest.skip("the Python that runs the tests cannot be moved, or there is no zstd")
    info = "site-packages/pip-24.0.dist-info/METADATA"
    files = {info: File(b"Metadata-Version: 2.1\nName: pip\nVersion: 24.0\n")}
    pip = CondaPackage("pip", "24.0", depends=("python",), files=files, noarch="python")
    return Channel(pool.folder / "cotainr-channel").add(python, form="conda").add(pip)


def environment(channel: Channel) -> str:
    """Give an environment as courses begin with: Python and pip of conda, the rest under pip."""
    return (
        f"name: minimal_pytorch\nchannels:\n  - {channel.url}\ndependencies:\n  - python\n  - pip\n"
        "  - pip:\n    - --find-links .\n    - tinypkg==1.0\n"
    )


PIP = "  - pip:\n    - --find-links .\n    - tinypkg==1.0\n"


@pytest.mark.parametrize("packages", ["  - python\n", f"  - python\n  - pip\n{PIP}", PIP])
def test_conda_containerize_brings_condas_python_if_the_file_lists_no_other_conda_package(
    shop: Shop, channel: Channel, packages: str
) -> None:
    file = shop.write("env.yml", f"channels:\n  - {channel.url}\ndependencies:\n{packages}")
    site = shop.write("site.yaml", f"defaults:\n  container_src: {shop.base}\n")
    words = ("new", "--prefix", "env", file)
    done = shop.argosy("compat", "run", "conda-containerize", *words, CW_GLOBAL_YAML=str(site))
    assert done.code == 0, done.err
    assert prefix_of(shop, "env") == "/opt/argosy/env"
    if "tinypkg" in packages:
        more = shop.write("more.txt", "another\n")
        done = shop.argosy("compat", "run", "conda-containerize", "update", "env", "-r", more)
        assert done.code == 0, done.err
        assert prefix_of(shop, "env") == "/opt/argosy/env"


def test_a_prefix_that_shows_the_host_has_condas_python_also_when_it_shows_it_later(
    shop: Shop, channel: Channel
) -> None:
    file = shop.write("env.yml", environment(channel))
    words = ("wrap", file, "--base", shop.base, "--prefix")
    assert shop.argosy(*words, "first", "--host").code == 0
    assert prefix_of(shop, "first") == "/opt/argosy/env"
    assert shop.argosy(*words, "later").code == 0
    assert prefix_of(shop, "later") == "/usr"
    done = shop.argosy("wrap", "update", "later", "--host")
    assert done.code == 0, done.err
    assert prefix_of(shop, "later") == "/opt/argosy/env"


def prefix_of(shop: Shop, prefix: str) -> str:
    """Ask the wrapped Python of a prefix where it is installed."""
    python = shop.folder / prefix / "bin/python"
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cotainr(shop: Shop, umask: str, *words: str) -> Ended:
    """Run the installed command in the place of `argosy`, which is three words."""
    around = ("sh", "-c", f'umask {umask}; shift 3; exec bin/cotainr "$@"', "sh")
    return shop.argosy(*words, around=around)


@pytest.mark.lab
@pytest.mark.parametrize("umask", ["0007", "0022"])
def test_cotainrs_command_builds_as_its_users_expect(shop: Shop, channel: Channel, umask: str) -> None:
    recipe = shop.write("env.yml", environment(channel))
    assert shop.argosy("compat", "install", shop.folder / "bin").code == 0
    words = (
        "build",
        "out.sif",
        f"--base-image={shop.base}",
        f"--conda-env={recipe}",
        "--accept-licenses",
        "--no-color",
    )
    done = cotainr(shop, umask, *words, "--log-to-file")
    assert done.code == 0, done.err
    image = shop.folder / "out.sif"
    shop.nothing_left(image)
    image.chmod(0o644)
    told = shop.lab("apptainer", "exec", "out.sif", "python", "-c", ASK)
    assert told.code == 0, told.err
    executable, prefix, path, conda, name, tool, packages = json.loads(told.out)
    assert executable == f"{PREFIX}/bin/python"
    assert prefix == conda == PREFIX
    assert path.split(":")[0] == f"{PREFIX}/bin"
    assert (name, tool) == ("conda_container_env", f"{PREFIX}/bin/tinypkg")
    assert packages == ["pip==24.0", "tinydep==1.5", "tinypkg==1.0"]
    labels = shop.lab("apptainer", "inspect", "out.sif").out
    assert "cotainr.command: cotainr build out.sif" in labels
    (log,) = shop.folder.glob("cotainr_build_*.log")
    assert "mksquashfs" in log.read_text()


def test_the_lock_of_such_an_image_builds_it_again_to_the_byte(shop: Shop) -> None:
    recipe = shop.write("requirements.txt", "tinypkg==1.0\n")
    done = shop.argosy("build", "out.sif", f"--base-image={shop.base}", f"--conda-env={recipe}")
    assert done.code == 0, done.err
    assert shop.run(shop.folder / "out.sif", "python", "-c", "import sys; print(sys.prefix)").out == f"{PREFIX}\n"
    again = shop.argosy("build", "--locked", "out.sif", "--no-cache", "-o", "again.sif")
    assert again.code == 0, again.err
    assert (shop.folder / "again.sif").read_bytes() == (shop.folder / "out.sif").read_bytes()
