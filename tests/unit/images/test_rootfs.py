"""Paths in the tree of an image: a link of the tree never leads to a file of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import ImageError
from argosy.images.rootfs import MAX_LINKS, find_link, locate_in_root, resolve_in_root, write_in_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "usr/opt").mkdir(parents=True)
    return folder


def chain(root: Path, start: str, links: int, target: Path) -> None:
    """Make `links` symbolic links, each to the next one, and the last one to `target`."""
    names = [start, *(f"l{number}" for number in range(1, links))]
    for name, after in zip(names, [*(f"/{each}" for each in names[1:]), str(target)], strict=True):
        (root / name).symlink_to(after)


def test_links_are_followed_as_a_program_in_the_image_follows_them(root: Path) -> None:
    (root / "opt").symlink_to("/usr/opt")
    (root / "up").symlink_to("../../../etc")
    assert resolve_in_root(root, "/opt/argosy") == root / "usr/opt/argosy"
    assert resolve_in_root(root, "/up/x") == root / "etc/x"
    assert resolve_in_root(root, "../../opt/./..") == root / "usr"
    assert resolve_in_root(root, "/") == root


def test_as_many_links_as_the_kernel_follows_are_followed_and_no_more(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    chain(root, "inside", MAX_LINKS, Path("/usr/opt"))
    assert resolve_in_root(root, "/inside/file") == root / "usr/opt/file"
    (root / "one-more").symlink_to("inside")
    for path in ("/one-more", "/one-more/file"):
        with pytest.raises(ImageError, match="more than 40 symbolic links"):
            resolve_in_root(root, path)


def test_a_link_to_itself_is_an_error(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises(ImageError, match="cannot find /loop/x in the image"):
        resolve_in_root(root, "/loop/x")


def test_an_entry_is_located_without_following_it(root: Path) -> None:
    (root / "opt").symlink_to("usr/opt")
    (root / "usr/opt/python").symlink_to("/usr/bin/python")
    assert locate_in_root(root, "/opt/python") == root / "usr/opt/python"
    assert locate_in_root(root, "/opt/") == root / "opt"
    assert locate_in_root(root, "/opt/..") == root / "usr"


@pytest.mark.parametrize("path", ["/opt/file", "/file"])
def test_a_file_is_written_into_the_tree_whatever_links_it_has(root: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    (root / "opt").symlink_to(outside)
    (root / "file").symlink_to(outside / "file")
    write_in_root(root, path, "new", mode=0o755)
    assert (outside / "file").read_text() == "untouched"
    written = locate_in_root(root, path)
    assert written.resolve().is_relative_to(root)
    assert (written.read_text(), written.stat().st_mode & 0o777) == ("new", 0o755)


def test_the_first_link_of_a_path_is_found(root: Path) -> None:
    (root / "usr/opt/a").symlink_to("/elsewhere")
    assert find_link(root, "/usr/opt/a/b") == Path("usr/opt/a")
    assert find_link(root, "usr/opt") is None
