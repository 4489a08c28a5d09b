"""Dockerfiles and definition files end to end: the engine that owns the format builds, and the image runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = pytest.mark.real

BUSYBOX = Path("/bin/busybox")
DOCKERFILE = """\
FROM scratch AS compile
ADD rootfs.tar /
COPY word.txt /src/
RUN tr a-z A-Z < /src/word.txt > /made

FROM scratch
ARG COLOUR=none
ADD rootfs.tar /
COPY --from=compile /made /opt/made
RUN echo "$COLOUR" > /opt/colour
ENV SHADE="deep $COLOUR"
"""
DEFINITION = """\
Bootstrap: localimage
From: {small}
Stage: compile

%files
    word.txt /src/word.txt

%post
    tr a-z A-Z < /src/word.txt > /made

Bootstrap: localimage
From: {small}

%arguments
    COLOUR=none

%files from compile
    /made /opt/made

%post
    echo {{{{ COLOUR }}}} > /opt/colour

%environment
    export SHADE="deep blue"

%labels
    Shade blue
"""
SHELL = """\
FROM scratch
ADD rootfs.tar /
COPY own /bin/own
SHELL ["/bin/own", "-c"]
RUN echo made
"""
OWN = """\
#!/bin/sh
shift
exec /bin/sh -c "$1 > /opt/made; echo by own >> /opt/made"
"""
SHOW = ("sh", "-c", 'cat /opt/made /opt/colour; echo "$SHADE"')
SHOWN = "WORD\nblue\ndeep blue\n"


@pytest.fixture
def root(shop: Shop) -> Path:
    """Make a root file system of busybox."""
    if not BUSYBOX.exists():
        pytest.skip("needs busybox")
    root = shop.folder / "root"
    for name in ("bin", "etc", "opt", "proc", "sys", "dev", "tmp", "root"):
        (root / name).mkdir(parents=True)
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    for name in ("sh", "cat", "echo", "tr", "test", "mkdir", "rm", "env"):
        (root / "bin" / name).symlink_to("busybox")
    return root


@pytest.fixture
def small(shop: Shop, root: Path) -> Path:
    """Pack it."""
    shop.tool("mksquashfs", root, shop.folder / "small.sqfs", "-quiet", "-no-progress", "-all-root")
    return shop.folder / "small.sqfs"


@pytest.fixture
def context(shop: Shop, root: Path) -> Path:
    """Make a folder with a Dockerfile that begins with an archive of busybox: no registry is asked."""
    folder = shop.folder / "context"
    folder.mkdir()
    shop.tool("tar", "-C", root, "-cf", folder / "rootfs.tar", ".")
    (folder / "word.txt").write_text("word\n")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return folder


@pytest.fixture
def store(shop: Shop) -> dict[str, str]:
    """Give buildah and podman a store of the test's own."""
    if not shutil.which("buildah"):
        pytest.skip("needs buildah")
    paths = f'graphroot = "{shop.folder}/store"\nrunroot = "{shop.folder}/run"\n'
    return {"CONTAINERS_STORAGE_CONF": str(shop.write("storage.conf", f'[storage]\ndriver = "vfs"\n{paths}'))}


def test_a_dockerfile_of_two_stages_becomes_an_image_that_runs_and_the_store_serves_as_base(
    shop: Shop, context: Path, store: dict[str, str]
) -> None:
    done = shop.argosy("build", context, "--build-arg", "COLOUR=blue", "-o", shop.folder / "x.sif", **store)
    assert done.code == 0, done.err
    assert "built with buildah as root" in done.err
    assert shop.run(shop.folder / "x.sif", *SHOW).out == SHOWN
    shop.tool("env", *(f"{k}={v}" for k, v in store.items()), "buildah", "pull", "-q", f"docker-archive:{_saved(shop)}")
    done = shop.argosy("build", "containers-storage:localhost/mine", "-o", shop.folder / "y.sif", **store)
    assert done.code == 0, done.err
    assert shop.run(shop.folder / "y.sif", "cat", "/word").out == "saved\n"


def _saved(shop: Shop) -> Path:
    """Write an image as ``docker save`` does."""
    (shop.folder / "root/word").write_text("saved\n")
    shop.tool("tar", "-C", shop.folder / "root", "-cf", shop.folder / "layer.tar", ".")
    layout = shop.folder / "layout"
    shop.tool("umoci", "init", "--layout", layout)
    shop.tool("umoci", "new", "--image", f"{layout}:mine")
    shop.tool("umoci", "raw", "add-layer", "--image", f"{layout}:mine", shop.folder / "layer.tar")
    archive = shop.folder / "mine.tar"
    shop.tool("skopeo", "copy", "-q", f"oci:{layout}:mine", f"docker-archive:{archive}:localhost/mine:latest")
    return archive


def test_a_failed_instruction_is_reported_with_its_last_lines_and_leaves_nothing(
    shop: Shop, context: Path, store: dict[str, str]
) -> None:
    (context / "Dockerfile").write_text(f"{DOCKERFILE}RUN echo nearly there; cat /nothing/here\n")
    done = shop.argosy("build", context / "Dockerfile", "-o", shop.folder / "x.sif", **store)
    assert done.code == 5
    assert "/nothing/here" in done.err
    assert "show the instruction that failed" in done.err
    assert not (shop.folder / "x.sif").exists()
    assert _containers(store) == ""


def _containers(store: dict[str, str]) -> str:
    """Return the containers in a store."""
    words = ("buildah", "containers", "--all", "--quiet")
    return subprocess.run(words, env={**os.environ, **store}, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_instruction_leaves_no_container(
    shop: Shop, context: Path, store: dict[str, str], number: signal.Signals
) -> None:
    (context / "Dockerfile").write_text(f"{DOCKERFILE}RUN echo be'gun'; while true; do test x; done\n")
    with shop.start("build", context, "-o", shop.folder / "x.sif", "--verbose", **store) as child:
        assert child.stderr
        assert any("begun" in line for line in child.stderr)
        child.send_signal(number)
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 128 + number
    assert _containers(store) == ""


@pytest.mark.parametrize("engine", ["buildah", "podman"])
def test_the_shell_of_a_dockerfile_runs_its_instructions(
    shop: Shop, context: Path, store: dict[str, str], engine: str
) -> None:
    if not shutil.which(engine):
        pytest.skip(f"needs {engine}")
    (context / "Dockerfile").write_text(SHELL)
    (context / "own").write_text(OWN)
    (context / "own").chmod(0o755)
    programs = _without(shop, {"buildah", "podman", "docker"} - {engine})
    done = shop.argosy("build", context, "-o", shop.folder / "x.sif", PATH=str(programs), **store)
    assert done.code == 0, done.err
    assert f"built with {engine} as root" in done.err
    assert shop.run(shop.folder / "x.sif", "cat", "/opt/made").out == "made\nby own\n"


def _without(shop: Shop, left_out: set[str]) -> Path:
    """Make a folder with all programs of this machine but some."""
    folder = shop.folder / "programs"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if file.name not in left_out and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    return folder


@pytest.mark.lab
def test_a_definition_of_two_stages_and_an_environment_become_one_image_under_apptainer(
    shop: Shop, small: Path
) -> None:
    shop.write("word.txt", "word\n")
    shop.write("x.def", DEFINITION.format(small=small))
    shop.write("environment.yml", "name: mine\ndependencies: []\nvariables:\n  PLACE: of the environment\n")
    shop.folder.chmod(0o777)
    words = ("argosy", "build", "x.def", "environment.yml", "--build-arg", "COLOUR=blue", "-o", "x.sif")
    done = shop.lab(*words, ARGOSY_CACHE=str(shop.folder / "c"))
    assert done.code == 0, done.err
    assert "built with apptainer without root" in done.err
    ran = shop.lab("apptainer", "exec", "x.sif", *SHOW)
    assert ran.out == SHOWN, ran.err
    assert "Shade: blue" in shop.lab("apptainer", "inspect", "x.sif").out
    told = shop.lab("apptainer", "exec", "x.sif", "sh", "-c", 'echo "$PLACE"')
    assert told.out == "of the environment\n", told.err
