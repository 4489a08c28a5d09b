"""The digest of a base is computed during the build; its layer cannot redirect what the build writes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from argosy.builder.bases.base import digest_ahead, is_copied, open_base, refuse_links
from argosy.core.errors import ImageError
from argosy.core.model import Image, ImageKind
from argosy.core.process import FakeRunner, RealRunner
from argosy.core.records import replace
from argosy.core.session import Session
from tests.unit.machines import make_host, make_session

DATA = os.urandom(3_000_000)  # more than is read at once


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path, make_host())


@pytest.fixture
def image(tmp_path: Path) -> Image:
    file = tmp_path / "base.sif"
    file.write_bytes(b"head" + DATA + b"tail")
    return Image(str(file), ImageKind.SIF, "", "amd64", base_offset=4, base_size=len(DATA))


def test_the_digest_is_that_of_the_bases_bytes_alone(image: Image, session: Session) -> None:
    assert digest_ahead(image, session)() == f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def test_a_file_is_read_once_and_another_one_in_its_place_again(image: Image, session: Session) -> None:
    digest_ahead(image, session)()
    (memo,) = (session.paths.cache / "digests").iterdir()
    memo.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:remembered", memo.read_text()))
    assert digest_ahead(image, session)() == "sha256:remembered"
    Path(image.path).write_bytes(bytes(len(DATA) + 9))
    assert digest_ahead(image, session)() == f"sha256:{hashlib.sha256(bytes(len(DATA))).hexdigest()}"


def test_an_unreadable_base_is_reported_when_its_digest_is_needed(image: Image, session: Session) -> None:
    waiting = digest_ahead(replace(image, base_offset=-1), session)
    for _ in range(2):
        with pytest.raises((OSError, ValueError), match=r"negative|Invalid argument"):
            waiting()
    assert not (session.paths.cache / "digests").exists()


def test_a_folder_is_refused_as_base(image: Image, session: Session) -> None:
    with pytest.raises(ImageError, match="is a folder"):
        digest_ahead(replace(image, kind=ImageKind.TREE), session)


@pytest.mark.parametrize(
    "path", ["opt", "opt/argosy", "etc", "etc/profile.d", ".singularity.d", "opt/argosy/env", "opt/argosy/env/lib"]
)
def test_a_layer_with_a_link_instead_of_a_folder_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).symlink_to("/elsewhere")
    with pytest.raises(ImageError, match=rf"/{path} in its layer is a link to /elsewhere"):
        refuse_links(tmp_path, "base.sif")


def test_an_ordinary_layer_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "opt/argosy/env").mkdir(parents=True)
    (tmp_path / "opt/conda").symlink_to("/opt/argosy/env")
    refuse_links(tmp_path, "base.sif")


def archive_of(folder: Path, name: str, *members: str) -> Path:
    """Create a tar file with small files."""
    (folder / "x").write_text("x")
    with tarfile.open(folder / name, "w:gz") as tar:
        for member in members:
            tar.add(folder / "x", member)
    return folder / name


needs_mksquashfs = pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed")


@needs_mksquashfs
def test_a_tar_file_of_a_root_file_system_is_packed_once_for_all_builds(tmp_path: Path, session: Session) -> None:
    archive = archive_of(tmp_path, "root.tar.gz", "bin/sh", "etc/passwd", "usr/bin/env")
    (tmp_path / "one").mkdir()
    made = open_base(str(archive), replace(session, runner=RealRunner()), tmp_path / "one")
    again = open_base(str(archive), replace(session, runner=FakeRunner([])), tmp_path / "two")
    assert again.digest == made.digest
    assert Path(made.image.path).is_relative_to(session.paths.cache)
    assert made.reference == str(archive)


@needs_mksquashfs
@pytest.mark.parametrize(("changed", "packed"), [(-5, 0), (1 << 33, (1 << 32) - 1)])
def test_a_base_whose_time_squashfs_cannot_record_has_the_nearest(
    tmp_path: Path, session: Session, changed: int, packed: int
) -> None:
    archive = archive_of(tmp_path, "root.tar.gz", "bin/sh", "etc/passwd")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "root", filter="data")
    for path in (archive, tmp_path / "root"):
        os.utime(path, (changed, changed))
        (work := tmp_path / f"work-{path.name}").mkdir()
        assert open_base(str(path), replace(session, runner=RealRunner()), work).time == packed


def test_a_tar_file_without_a_root_file_system_is_refused_before_the_build(tmp_path: Path, session: Session) -> None:
    archive = archive_of(tmp_path, "sources-1.0.tar.gz", "sources-1.0/bin/run", "sources-1.0/setup.py")
    with pytest.raises(ImageError, match="does not contain a root file system"):
        is_copied(archive, session)
    with pytest.raises(ImageError, match="does not contain a root file system"):
        open_base(str(archive), session, tmp_path)
