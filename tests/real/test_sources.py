"""Each thing that an image can be made of, built over one static program and run under Apptainer in the lab."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real.channel import PLACEHOLDER, Channel, CondaPackage, File
from tests.real.registry import Registry, do, running

if TYPE_CHECKING:
    from tests.real.conftest import Ended, Shop

pytestmark = [pytest.mark.real, pytest.mark.lab]

SAYS = b"#!/bin/sh\necho tool of " + PLACEHOLDER.encode() + b"\n"
TOOL = CondaPackage("tool", "1.0", "h0", files={"bin/tool": File(SAYS, 0o775)})
SAID = "tool of /opt/argosy/env"

PROJECT = """\
[image]
base = "{base}"
conda = "environment.yml"
[[stage]]
name = "make"
base = "{base}"
run = "echo made > made"
results = {{ made = "/opt/" }}
[[step]]
run = "tool > /etc/late; cat /opt/made >> /etc/late"
"""
CONDA_LOCK = """\
version: 1
metadata: {{channels: []}}
package:
- name: tool
  version: '1.0'
  manager: conda
  platform: linux-64
  url: {url}
  hash: {{md5: {md5}, sha256: {sha256}}}
  category: main
  optional: false
"""
PIXI = """\
version: 6
environments:
  default:
    channels: [{{url: '{channel}/'}}]
    packages: {{linux-64: [{{conda: '{url}'}}]}}
packages:
- {{conda: '{url}', sha256: {sha256}, md5: {md5}}}
"""
EXPLICIT = "# platform: linux-64\n@EXPLICIT\n{url}#sha256:{sha256}\n"
DOCKERFILE = """\
FROM scratch AS one
ADD rootfs.tar /
RUN echo of one > /word

FROM one
RUN cat /word > /etc/late
ENTRYPOINT ["sh", "-c", "echo entry: $0 $*"]
CMD ["of", "CMD"]
"""

BUILDS = {
    "environment.yml": ("environment.yml", "--base", "{tiny}"),
    "pixi.lock": ("pixi.lock", "--base", "{tiny}"),
    "conda-lock.yml": ("conda-lock.yml", "--base", "{tiny}"),
    "explicit list": ("spec.txt", "--base", "{tiny}"),
    "argosy.toml": (),
    "Dockerfile": ("context", "environment.yml"),
    "podman's store": ("environment.yml", "--base", "containers-storage:localhost/mine"),
    "docker-archive": ("environment.yml", "--base", "mine.tar"),
    "OCI layout": ("environment.yml", "--base", "oci:layout:mine"),
    "docker": ("environment.yml", "--base", "docker://{address}/mine"),
    "oras": ("plain.yml", "--base", "oras://{address}/sif:1"),
    "bundle": ("--bundle", "all.tar"),
}
"""How each is asked for; definition files, Python's own files and mixed environments have tests of their own."""


@dataclass(frozen=True)
class Sources:
    """A folder with everything that an image can be made of."""

    shop: Shop
    tiny: Path
    registry: Registry
    variables: dict[str, str]

    def build(self, source: str) -> Ended:
        """Build an image; its name is that of the source."""
        words = [word.format(tiny=self.tiny, address=self.registry.address) for word in BUILDS[source]]
        return self.shop.argosy("build", *words, "-o", f"{source}.sif", **self.variables)


@pytest.fixture(scope="module")
def sources(pool: Shop, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    missing = [name for name in ("docker-registry", "skopeo", "umoci", "buildah") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    folder = pool.folder / "sources"
    folder.mkdir()
    shop = type(pool)(folder, pool.wheels, pool.base, pool.squashfs, pool.cache)
    store = f'graphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
    with running(tmp_path_factory.mktemp("sources") / "registry") as registry:
        variables = {
            "ARGOSY_INSECURE_REGISTRIES": registry.address,
            "CONTAINERS_STORAGE_CONF": str(shop.write("storage.conf", f'[storage]\ndriver = "vfs"\n{store}')),
        }
        it = Sources(shop, tiny, registry, variables)
        write_files(it, Channel(folder / "channel").add(TOOL))
        yield it


def write_files(it: Sources, channel: Channel) -> None:
    """Write every file, fill the stores, and make what others are made of."""
    shop, folder = it.shop, it.shop.folder
    ((name, row),) = channel.rows[TOOL.folder].items()
    named = {"channel": channel.url, "url": f"{channel.url}/{TOOL.folder}/{name}"} | {
        k: row[k] for k in ("md5", "sha256")
    }
    shop.write("environment.yml", f"name: mine\nchannels: [{channel.url}]\ndependencies: [tool]\n")
    shop.write("plain.yml", "name: mine\ndependencies: []\n")
    for file, text in (("pixi.lock", PIXI), ("conda-lock.yml", CONDA_LOCK), ("spec.txt", EXPLICIT)):
        shop.write(file, text.format(**named))
    shop.write("argosy.toml", PROJECT.format(base=it.tiny))
    (folder / "context").mkdir()
    shop.write("context/Dockerfile", DOCKERFILE)
    do("tar", "-C", it.tiny.parent / "tiny-root", "-cf", folder / "context/rootfs.tar", ".")
    do("umoci", "init", "--layout", folder / "layout")
    do("umoci", "new", "--image", f"{folder}/layout:mine")
    do("umoci", "raw", "add-layer", "--image", f"{folder}/layout:mine", folder / "context/rootfs.tar")
    do("skopeo", "copy", "-q", f"oci:{folder}/layout:mine", f"docker-archive:{folder}/mine.tar:localhost/mine:latest")
    do(
        "env",
        f"CONTAINERS_STORAGE_CONF={folder}/storage.conf",
        "buildah",
        "pull",
        "-q",
        f"docker-archive:{folder}/mine.tar",
    )
    it.registry.push(f"oci:{folder}/layout:mine", "mine")


@pytest.fixture(scope="module")
def told(sources: Sources) -> dict[str, str]:
    """Build all of them, and start a program from each under Apptainer: what it said, by source."""
    for number, source in enumerate(BUILDS):
        done = sources.build(source)
        assert done.code == 0, (source, done.err)
        if number == 0:  # an image in a registry, and one made elsewhere, need an image
            place = f"oras://{sources.registry.address}/sif:1"
            pushed = sources.shop.argosy("images", "push", f"{source}.sif", place, **sources.variables)
            assert pushed.code == 0, pushed.err
            words = ("bundle", "environment.yml", "--base", sources.tiny, "-o", "all.tar")
            assert sources.shop.argosy(*words, **sources.variables).code == 0
    loop = 'for image; do echo "$image: $(apptainer exec "$image.sif" tool)"; done; exec apptainer exec'
    loop += " argosy.toml.sif cat /etc/late"
    ran = sources.shop.lab("sh", "-c", loop, "sh", *BUILDS)
    rows = [line.partition(": ") for line in ran.out.splitlines()]
    return {name if mark else "late": said if mark else name for name, mark, said in rows}


@pytest.mark.parametrize("source", BUILDS)
def test_a_program_of_each_source_runs_under_apptainer(told: dict[str, str], source: str) -> None:
    assert told[source] == SAID, told


def test_the_entrypoint_of_a_dockerfile_is_the_start_script(sources: Sources, told: dict[str, str]) -> None:
    assert told
    started = sources.shop.argosy("run", "--enter", "run", "Dockerfile.sif", **sources.variables)
    assert (started.code, started.out) == (0, "entry: of CMD\n"), started.err
    assert sources.shop.lab("apptainer", "--silent", "run", "Dockerfile.sif").out == started.out


def test_results_of_stages_and_steps_are_in_the_image(told: dict[str, str]) -> None:
    assert told["late"] == "made"


def test_the_lock_of_an_image_from_a_registry_pins_its_digest(sources: Sources, told: dict[str, str]) -> None:
    assert told
    for source in ("docker", "oras"):
        lock = json.loads(sources.shop.argosy("images", "freeze", f"{source}.sif").out)
        assert lock["base"]["digest"].startswith("sha256:")
        assert "@sha256:" in lock["base"]["reference"], source
