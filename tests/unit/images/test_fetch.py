"""Images of the local Docker, with the errors of docker 20.10 and 28, and of archives and layouts."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from argosy.core.errors import ArgosyError, ToolFailed, ToolMissing, UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import QuietReporter, Session
from argosy.host.probe import open_session
from argosy.images.part_digest import describe_part
from argosy.images.registry.fetch import _build_by_runtime, ask_image_id, fetch_image, local_image
from argosy.images.registry.references import parse_reference
from tests.unit.machines import make_host, make_session, real_session

LISTED = Reply(0, "mine:latest\nlab/train:cu12\n<none>:<none>\n", "")
NO_ENTRY = (
    'permission denied while trying to connect to the Docker daemon socket at unix:///x: Get "http://x": dial unix'
)
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"


def machine(reply: Reply, *programs: str) -> Session:
    session = open_session(reporter=QuietReporter())
    replies = [(("docker", "image", "inspect"), reply), (("docker", "images"), LISTED)]
    host = replace(session.host, programs=dict.fromkeys(programs, "/x"))
    return replace(session, host=host, runner=FakeRunner(replies))


def test_an_image_is_identified_by_its_id() -> None:
    session = machine(Reply(0, "sha256:abc\n", ""), "docker")
    assert ask_image_id(parse_reference("docker-daemon:mine"), session) == "sha256:abc"


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        ("Error: No such image: lab/trian:cu12", UsageError, "did you mean docker-daemon:lab/train:cu12?"),
        ("Error response from daemon: No such image: lab/trian:cu12", UsageError, "docker-daemon:lab/train:cu12"),
        (NO_ENTRY, ToolFailed, "group docker"),
        (NO_DAEMON, ToolFailed, "DOCKER_HOST"),
        ("error during connect: something new", ToolFailed, ""),
    ],
)
def test_errors_of_docker_are_explained(said: str, kind: type[ArgosyError], hint: str) -> None:
    with pytest.raises(kind) as caught:
        ask_image_id(parse_reference("docker-daemon:lab/trian:cu12"), machine(Reply(1, "", said), "docker"))
    assert said in caught.value.evidence
    assert hint in caught.value.hint


def test_without_docker_the_way_to_transfer_the_image_is_named() -> None:
    with pytest.raises(ToolMissing) as caught:
        ask_image_id(parse_reference("docker-daemon:mine"), machine(Reply(0, "", ""), "podman"))
    assert "docker save" in caught.value.hint


def test_only_programs_that_are_missing_are_named(tmp_path: Path) -> None:
    session = make_session(tmp_path, make_host("mksquashfs", "skopeo"))
    with pytest.raises(ToolMissing) as error:
        _build_by_runtime(
            parse_reference("docker://x/y"), tmp_path / "o", session, tmp_path, missing="umoci and mksquashfs"
        )
    assert error.value.evidence.startswith("not found: ")
    assert "umoci" in error.value.evidence
    assert "mksquashfs" not in error.value.evidence + error.value.hint


@pytest.mark.parametrize("special", ["layout/index.json", "layout/blobs/sha256/ab", "image.tar"])
def test_a_pipe_in_an_archive_or_a_layout_is_refused_before_skopeo_waits_for_it(special: str, tmp_path: Path) -> None:
    file = tmp_path / special
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)
    runner = FakeRunner()
    session = make_session(tmp_path, make_host("skopeo"), runner)
    name = f"oci:{tmp_path / 'layout'}" if "layout" in special else f"oci-archive:{file}"
    with pytest.raises(UsageError, match=f"{special} is a device or a pipe"):
        fetch_image(parse_reference(name), session)
    assert not runner.seen


def write_root_tar(path: Path, data: bytes) -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("bin/tool")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


@pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed")
def test_a_tar_file_whose_bytes_changed_under_the_same_times_is_packed_again(tmp_path: Path) -> None:
    session, path = real_session(tmp_path), tmp_path / "root.tar"
    write_root_tar(path, b"one")
    first, before, status = local_image(path, session), describe_part(path, 0, 0), path.stat()
    assert local_image(path, session) == first
    while describe_part(path, 0, 0) == before:  # the clock of the file system has ticks
        write_root_tar(path, b"two")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert local_image(path, session) != first
