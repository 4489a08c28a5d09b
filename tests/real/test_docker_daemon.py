"""A real Docker, where one can be started: it builds Dockerfiles, gives images, and starts those that we made."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import dockerd
from tests.patience import PATIENCE_S
from tests.real.conftest import ALICE, BUSYBOX, make_root

if TYPE_CHECKING:
    from tests.real.conftest import Shop

pytestmark = [pytest.mark.real, pytest.mark.soak]

DOCKERFILE = """\
FROM tiny AS compile
COPY word.txt /src/
RUN tr a-z A-Z < /src/word.txt > /made

FROM tiny
ARG COLOUR=none
COPY --from=compile /made /opt/made
RUN echo "$COLOUR" > /opt/colour
ENV SHADE="deep $COLOUR"
ENTRYPOINT ["/bin/false"]
"""
SHOW = ("sh", "-c", 'cat /opt/made /opt/colour; echo "$SHADE"')
SHOWN = "WORD\nblue\ndeep blue\n"


@pytest.fixture(scope="module")
def daemon(pool: Shop) -> Iterator[dockerd.Daemon]:
    """Give a Docker that has the image ``tiny``, which no registry does."""
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    with dockerd.running(pool.folder / "docker", ALICE) as it:
        tree = pool.folder / "tiny-of-docker"
        make_root(tree, BUSYBOX)
        for place in ("tmp", "var/tmp"):
            (tree / place).chmod(0o1777)
        pack = ("tar", "-C", str(tree), "-c", ".")
        it.docker("import", "-", "tiny", stdin=subprocess.run(pack, capture_output=True, check=True).stdout)
        yield it


@pytest.fixture(scope="module")
def programs(pool: Shop) -> Path:
    """Give a folder with all programs of this machine but the other engines."""
    folder = pool.folder / "programs"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if file.name not in {"buildah", "podman"} and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture
def docker_env(daemon: dockerd.Daemon, programs: Path) -> dict[str, str]:
    return {"DOCKER_HOST": daemon.address, "PATH": str(programs)}


@pytest.fixture
def context(shop: Shop) -> Path:
    folder = shop.folder / "context"
    folder.mkdir()
    (folder / "word.txt").write_text("word\n")
    (folder / "gpu.Dockerfile").write_text(DOCKERFILE)
    return folder


@pytest.fixture(params=["0", "1"])
def buildkit(request: pytest.FixtureRequest, daemon: dockerd.Daemon) -> str:
    """Give the values of DOCKER_BUILDKIT; since Docker 23, BuildKit is a component of its own, which may be missing."""
    words = ("docker", "--host", daemon.address, "build", "-")
    environment = {**os.environ, "DOCKER_BUILDKIT": request.param}
    tried = subprocess.run(words, env=environment, input=b"FROM tiny\n", capture_output=True, check=False)
    if b"the buildx component is missing" in tried.stderr:
        pytest.skip("BuildKit needs docker-buildx")
    return str(request.param)


def test_docker_builds_a_dockerfile_of_two_stages(
    shop: Shop, context: Path, docker_env: dict[str, str], buildkit: str
) -> None:
    words = ("build", context, "-f", context / "gpu.Dockerfile", "--build-arg", "COLOUR=blue", "--no-cache")
    done = shop.argosy(*words, "-o", shop.folder / "x.sif", **docker_env, DOCKER_BUILDKIT=buildkit)
    assert done.code == 0, done.err
    assert "built with docker as root (no buildah, no podman)" in done.err
    assert shop.run(shop.folder / "x.sif", *SHOW).out == SHOWN


def test_a_failed_instruction_is_shown_with_its_output_and_leaves_no_container(
    shop: Shop, context: Path, daemon: dockerd.Daemon, docker_env: dict[str, str], buildkit: str
) -> None:
    (context / "Dockerfile").write_text("FROM tiny\nRUN echo nearly there; cat /nothing/here\n")
    done = shop.argosy("build", context, "-o", shop.folder / "x.sif", **docker_env, DOCKER_BUILDKIT=buildkit)
    assert done.code == 5
    for said in ("nearly there\n", ": No such file or directory", "show the instruction that failed"):
        assert said in done.err
    assert daemon.docker("ps", "--all", "--quiet") == ""
    assert not (shop.folder / "x.sif").exists()


def test_a_build_that_is_interrupted_leaves_no_container(
    shop: Shop, context: Path, daemon: dockerd.Daemon, docker_env: dict[str, str]
) -> None:
    (context / "Dockerfile").write_text("FROM tiny\nRUN echo begun; while :; do :; done\n")
    words = ("events", "--filter", "type=container", "--filter", "event=start", "--format", "{{.ID}}")
    watch = ("docker", "--host", daemon.address, *words)
    with (
        subprocess.Popen(watch, stdout=subprocess.PIPE) as events,
        shop.start("build", context, "-o", shop.folder / "x.sif", **docker_env, DOCKER_BUILDKIT="0") as child,
    ):
        assert events.stdout is not None
        made = events.stdout.readline().decode().strip()
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE_S)
        events.terminate()
    assert (child.returncode, "stopped" in err) == (130, True)
    # It is there no more, or ends within this.
    wait = ("docker", "--host", daemon.address, "wait", made)
    subprocess.run(wait, capture_output=True, check=False, timeout=PATIENCE_S)
    assert daemon.docker("ps", "--quiet") == ""


def test_an_image_of_docker_is_taken_once_and_a_misspelt_one_is_guessed(
    shop: Shop, daemon: dockerd.Daemon, docker_env: dict[str, str]
) -> None:
    daemon.docker("tag", "tiny", "lab/train:cu12")
    done = shop.argosy("run", "docker-daemon:lab/train:cu12", "--", "cat", "/etc/old", **docker_env)
    assert (done.out, done.code) == ("old\n", 0), done.err
    again = shop.argosy("build", "docker-daemon:lab/train:cu12", "-o", shop.folder / "x.sif", **docker_env)
    assert again.code == 0, again.err
    assert "save " not in again.err
    wrong = shop.argosy("build", "docker-daemon:lab/trian:cu12", "-o", shop.folder / "y.sif", **docker_env)
    assert wrong.code == 2
    assert "did you mean docker-daemon:lab/train:cu12?" in wrong.err


def test_a_user_without_access_to_docker_learns_how_to_get_it(alices: Shop, docker_env: dict[str, str]) -> None:
    stranger = ("setpriv", "--reuid", str(ALICE + 1), "--regid", str(ALICE + 1), "--clear-groups", "--")
    folder = alices.folder / "stranger"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    other = replace(alices, user=stranger, cache=folder / "cache")
    for words in (("docker-daemon:tiny",), (_dockerfile(alices),)):
        done = other.argosy("build", *words, "-o", folder / "x.sif", **docker_env, HOME=str(folder))
        assert done.code == 5, done.err
        assert "group docker" in done.err


def _dockerfile(shop: Shop) -> Path:
    path = shop.write("Dockerfile", "FROM tiny\n")
    path.chmod(0o644)
    return path


def test_an_argosy_image_runs_in_docker_as_the_user(
    shop: Shop, alices: Shop, tiny: Path, daemon: dockerd.Daemon, docker_env: dict[str, str]
) -> None:
    script = shop.write("write.sh", 'id -un; pwd; echo "$GREETING"; cat; echo x > made; exit 7\n')
    recipe = shop.write("environment.yml", "name: it\ndependencies: []\nvariables:\n  GREETING: a `b` $c\n")
    words = ("--base", tiny, "--format", "docker-archive", "-o", shop.folder / "it.tar")
    done = shop.argosy("build", recipe, *words)
    assert done.code == 0, done.err
    assert "Loaded image: it:latest" in daemon.docker("load", "-i", shop.folder / "it.tar")
    assert daemon.docker("run", "--rm", "it", "sh", "-c", 'echo "$GREETING"') == "a `b` $c"
    image = ("--runtime", "docker", "docker-daemon:it", "--", "sh", script)
    for start, out in (("run", "alice"), ("launch", "alice")):
        site = ("--site", "local") if start == "launch" else ()
        ran = alices.argosy(start, *site, *image, **docker_env)
        assert (ran.out, ran.code) == (f"{out}\n{alices.folder}\na `b` $c\n", 7), ran.err
        made = alices.folder / "made"
        assert (made.stat().st_uid, made.read_text()) == (ALICE, "x\n")
        made.unlink()
