"""A writable image: an ordinary user installs packages of the system, and the changes become a recipe that builds."""

from __future__ import annotations

import shutil
import tomllib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

CONTROL = "Package: tinytool\nVersion: 1.0\nArchitecture: all\nMaintainer: Ada <ada@example.org>\nDescription: A tool\n"
POSTINST = "#!/bin/sh\nset -e\nchown root:mail /usr/bin/tinytool\nid -u > /etc/tinytool\n"


def make_deb(shop: Shop) -> Path:
    """Make a Debian package whose script changes an owner, as those of many packages do."""
    tree = shop.folder / "deb"
    for name, text in (("DEBIAN/control", CONTROL), ("DEBIAN/postinst", POSTINST), ("usr/bin/tinytool", "#!/bin/sh\n")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    shop.tool("dpkg-deb", "--root-owner-group", "-b", tree, shop.folder / "tinytool.deb")
    shutil.rmtree(tree)
    return shop.folder / "tinytool.deb"


def test_an_ordinary_user_installs_packages_of_the_system_and_saves_a_recipe(alices: Shop) -> None:
    image = alices.build("tinypkg==1.0\n")
    make_deb(alices)
    dev = ("run", "--dev", "--runtime", "bwrap")
    refused = alices.argosy(*dev, image, "apt-get", "install", "-y", "./tinytool.deb")
    assert refused.code != 0
    assert "add --fakeroot" in refused.err
    uv = next((alices.cache / "tools").glob("*/bin/uv"))
    packages = f"{uv} pip install --no-index --find-links {alices.wheels} --python /opt/argosy/env another"
    install = f"apt-get install -y ./tinytool.deb && {packages} && id -un && cat /etc/tinytool"
    mounts = ("-B", uv.parent, "-B", alices.wheels)
    done = alices.argosy(*dev, *mounts, "--fakeroot", "--save-recipe", "recipe", image, "sh", "-c", install)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-2:] == ["root", "0"], done.out
    project = tomllib.loads((alices.folder / "recipe/argosy.toml").read_text())
    assert project["image"]["base"] == "../out.sif"
    assert project["step"][0]["run"].endswith(" tinytool")
    assert (alices.folder / "recipe/requirements.txt").read_text() == "another==0.3\n"
    again = alices.argosy(*dev, image, "sh", "-c", "tinytool && another && id -u")
    assert again.out == "another 0.3\n2001\n", again.err
    second = alices.argosy(*dev, "--save-recipe", "recipe", image, "true")
    assert "argosy.toml already exists" in second.err
    assert second.code != 0


@pytest.mark.soak
def test_with_apptainer_an_ordinary_user_installs_packages_of_the_system(alices: Shop) -> None:
    image = alices.build("tinypkg==1.0\n")
    make_deb(alices)
    dev = ("argosy", "run", "--runtime", "apptainer", "--dev", "--fakeroot", "--save-recipe", "recipe", image)
    done = alices.lab(*dev, "sh", "-c", "apt-get install -y ./tinytool.deb && id -un && cat /etc/tinytool")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-2:] == ["root", "0"], done.out
    assert "tinytool" in (alices.folder / "recipe/argosy.toml").read_text()
