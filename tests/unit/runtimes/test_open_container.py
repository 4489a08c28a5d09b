"""Names of images in messages."""

from __future__ import annotations

from pathlib import Path

from argosy.runtimes.open_container import name_of_image


def test_an_image_is_named_by_the_file_or_prefix_that_the_user_knows(tmp_path: Path) -> None:
    linked, built = tmp_path / "q/versions/1/image.sif", tmp_path / "own/versions/2/image.sif"
    for file in (linked, built):
        file.parent.mkdir(parents=True)
    (tmp_path / "hello.sif").write_text("")
    built.write_text("")
    linked.symlink_to(tmp_path / "hello.sif")
    assert name_of_image(linked) == "hello.sif"
    assert name_of_image(built) == "own"
    assert name_of_image(tmp_path / "hello.sif") == "hello.sif"
