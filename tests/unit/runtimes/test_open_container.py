"""Names of images in messages, and the mounts of a container on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.model import Bind, ContainerRequest
from argosy.core.records import replace
from argosy.runtimes.open_container import name_of_image, open_container
from tests.unit.machines import real_session


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


@pytest.mark.parametrize(("home", "mounted"), [("/nonexistent", False), ("/dev/null", False), ("/usr", True)])
def test_a_home_that_is_no_folder_is_not_mounted(tmp_path: Path, home: str, mounted: bool) -> None:  # noqa: FBT001
    real = real_session(tmp_path)
    host = replace(real.host, person=replace(real.host.person, home=home), programs={"bwrap": "/usr/bin/bwrap"})
    tree = tmp_path / "image"
    for name in ("bin", "etc", "usr", "proc"):
        (tree / name).mkdir(parents=True)
    plan = open_container(ContainerRequest(runtime="bwrap"), str(tree), replace(real, host=host), dry=True)
    assert (Bind(home, home) in plan.entry.binds) is mounted
    assert "/dev/null" not in plan.runtime.argv(plan.entry, ("true",))
