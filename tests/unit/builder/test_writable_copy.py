"""What was bound while an image was made leaves no empty place in it."""

from __future__ import annotations

from pathlib import Path

from argosy.builder.backends.writable_copy import drop_mount_points


def test_empty_places_of_what_was_bound_go_and_what_has_something_stays(tmp_path: Path) -> None:
    for folder in ("data/me/wheels", "opt/full", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/me/a.whl").touch()
    (tmp_path / "opt/full/file").write_text("x")
    (tmp_path / "etc/link").symlink_to("nowhere")
    drop_mount_points(tmp_path, ("/data/me/wheels", "/data/me/a.whl", "/opt/full", "/etc/link", "/not/there"))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "etc",
        "etc/link",
        "opt",
        "opt/full",
        "opt/full/file",
    ]
