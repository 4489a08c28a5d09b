"""Sending images by ssh; the remote machine is a folder of this one, and ssh a script that starts a shell."""

from __future__ import annotations

import os
import shlex
import uuid
from pathlib import Path

import pytest

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.core.session import Session
from argosy.images.remote import SMALLEST_SAVED, fetch_bytes, send_image
from argosy.images.sif.write import FileSlice, plan_json_part, plan_system_part, whole_of, write_sif
from tests.unit.machines import real_session

SSH = """\
#!/bin/sh
# The last argument is the remote command.
for program; do :; done
exec sh -c "$program"
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH, encoding="utf-8")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    return real_session(tmp_path)


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    folder.mkdir()
    return folder


def make_image(tmp_path: Path, name: str, note: bytes, byte: bytes = b"a") -> Path:
    """Write a SIF file whose base has SMALLEST_SAVED bytes; they need not be a squashfs until it starts."""
    base = tmp_path / f"{name}.base"
    base.write_bytes(b"hsqs" + byte * (SMALLEST_SAVED - 4))
    path = tmp_path / name
    system = plan_system_part(whole_of(base), arch="amd64")
    write_sif(path, [system, plan_json_part("note", note)], uuid=uuid.UUID(int=1), time=0, arch="amd64")
    return path


def test_a_machine_that_cannot_be_reached_is_a_program_that_failed(tmp_path: Path, session: Session) -> None:
    (tmp_path / "bin/ssh").write_text("#!/bin/sh\necho 'ssh: Could not resolve hostname far' >&2\nexit 255\n")
    with pytest.raises(ToolFailed, match="cannot connect to far by ssh") as caught:
        send_image(str(make_image(tmp_path, "a.sif", b"1")), "far:/x", session)
    assert caught.value.code == 5
    assert "ssh: Could not resolve hostname far" in caught.value.evidence


def test_an_image_is_sent_whole_and_not_again(tmp_path: Path, far: Path, session: Session) -> None:
    image = make_image(tmp_path, "a.sif", b"1")
    first = send_image(str(image), f"far:{far}", session)
    again = send_image(str(image), f"far:{far}/", session)
    assert (first.sent, again.sent) == (image.stat().st_size, 0)
    assert (far / "a.sif").read_bytes() == image.read_bytes()
    assert [path.name for path in far.iterdir()] == ["a.sif"]


def test_a_base_that_is_on_the_machine_is_not_sent(tmp_path: Path, far: Path, session: Session) -> None:
    image = make_image(tmp_path, "new name's.sif", b"2" * 100)
    make_image(far, "old.sif", b"1")
    report = send_image(str(image), f"far:{far}", session)
    assert report.sent == image.stat().st_size - SMALLEST_SAVED
    assert report.base_from == f"{far}/old.sif"
    assert (far / image.name).read_bytes() == image.read_bytes()


def test_a_base_of_the_same_size_that_differs_is_sent(tmp_path: Path, far: Path, session: Session) -> None:
    image = make_image(tmp_path, "a.sif", b"2")
    make_image(far, "old.sif", b"1", b"b")
    report = send_image(str(image), f"far:{far}/b.sif", session)
    assert (report.sent, report.base_from) == (image.stat().st_size, "")
    assert (far / "b.sif").read_bytes() == image.read_bytes()


def test_another_file_is_replaced_only_with_force(tmp_path: Path, far: Path, session: Session) -> None:
    image = make_image(tmp_path, "a.sif", b"2")
    (far / "a.sif").write_bytes(b"other")
    with pytest.raises(UsageError, match="its content differs"):
        send_image(str(image), f"far:{far}", session)
    send_image(str(image), f"far:{far}", session, force=True)
    assert (far / "a.sif").read_bytes() == image.read_bytes()


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_folder_or_a_device_of_that_name_is_never_replaced(
    tmp_path: Path, far: Path, session: Session, kind: str
) -> None:
    image, there = make_image(tmp_path, "a.sif", b"2"), far / "a.sif"
    there.mkdir() if kind == "folder" else os.mkfifo(there)
    with pytest.raises(UsageError, match=r"a\.sif on far: it is a folder or a device") as caught:
        send_image(str(image), f"far:{far}", session, force=True)
    assert caught.value.hint == f"choose another name: far:{far}/NAME.sif"
    assert list(far.rglob("*")) == [there]


@pytest.mark.parametrize("target", ["none/", "none/a.sif"])
def test_a_missing_folder_is_named(tmp_path: Path, far: Path, session: Session, target: str) -> None:
    image = make_image(tmp_path, "a.sif", b"1")
    with pytest.raises(UsageError, match="does not exist on far") as caught:
        send_image(str(image), f"far:{far}/{target}", session)
    assert caught.value.hint.endswith(f"mkdir -p -- {far}/none{'/' if target.endswith('/') else ''}'")


def test_the_command_that_creates_the_folder_is_quoted_for_both_shells(
    tmp_path: Path, far: Path, session: Session
) -> None:
    image = make_image(tmp_path, "a.sif", b"1")
    with pytest.raises(UsageError) as caught:
        send_image(str(image), f"far:{far}/a 'b'/", session)
    _, _, command = caught.value.hint.partition("ssh far ")
    (word,) = shlex.split(command)
    assert shlex.split(word) == ["mkdir", "-p", "--", f"{far}/a 'b'/"]


def test_a_named_donor_must_exist_and_fit(tmp_path: Path, far: Path, session: Session) -> None:
    image = make_image(tmp_path, "a.sif", b"1")
    with pytest.raises(UsageError, match=r"no image none\.sif on the host"):
        send_image(str(image), f"far:{far}", session, base="none.sif")
    write_sif(
        far / "small.sif",
        [plan_system_part(FileSlice(image, 0, 100), arch="amd64")],
        uuid=uuid.UUID(int=1),
        time=0,
        arch="amd64",
    )
    with pytest.raises(UsageError, match="have different bases"):
        send_image(str(image), f"far:{far}", session, base="small.sif")


def test_bytes_of_a_remote_file_are_read(tmp_path: Path, session: Session) -> None:
    file = tmp_path / "some file"
    file.write_bytes(bytes(range(100)))
    assert fetch_bytes(session.runner, str(file), 10, 5) == bytes(range(10, 15))


def test_bytes_that_a_lost_connection_cut_are_reported() -> None:
    runner = FakeRunner([(("sh",), Reply(255, "AAECA", "client_loop: send disconnect: Broken pipe"))])
    with pytest.raises(ToolFailed, match="cannot read /far/image by ssh") as caught:
        fetch_bytes(runner, "/far/image", 0, 5)
    assert "Broken pipe" in caught.value.evidence
