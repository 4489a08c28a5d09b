"""What only docker has to be told: groups, mounts of what is not there, images that it has or has not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from argosy.core.model import Bind, Image, ImageKind
from argosy.core.process import Reply

if TYPE_CHECKING:
    from tests.contract.conftest import Stage

pytestmark = [pytest.mark.real, pytest.mark.soak]

FIRST = 70_001
"""A group that nobody has."""


@pytest.fixture
def stage(stage_called: Callable[[str], Stage]) -> Stage:
    return stage_called("docker, user")


def test_the_callers_groups_enter_and_written_files_belong_to_the_caller(stage: Stage) -> None:
    words = tuple(f"--groups={FIRST},{FIRST + 1}" if word == "--clear-groups" else word for word in stage.unprivileged)
    mine = replace(stage, unprivileged=words)
    reply = mine.start(mine.entry(), ("sh", "-c", "id -G; touch made"), around='"$@"; stat -c %u:%g made; rm made')
    assert reply.stdout == f"{stage.person.uid} {FIRST} {FIRST + 1}\n{stage.person.uid}:{stage.person.gid}\n", (
        reply.stderr
    )


def test_bytes_pass_unchanged(stage: Stage) -> None:
    around = 'head -c 5000000 /dev/urandom > given; "$@" < given > got; cmp given got && echo same; rm given got'
    assert stage.start(stage.entry(), ("cat",), around=around).stdout == "same\n"


def test_a_missing_bind_source_is_not_created(stage: Stage) -> None:
    missing = stage.work / "missing"
    reply = stage.start(stage.entry(binds=(Bind(str(missing), "/x"),), workdir="/"), ("hello",))
    assert (reply.stdout, reply.code) == ("", 125)
    assert str(missing) in reply.stderr
    assert not missing.exists()


def test_an_image_that_docker_lacks_is_not_pulled(stage: Stage) -> None:
    def start(name: str) -> Reply:
        image = Image(f"docker-daemon:{name}", ImageKind.REGISTRY, "", "")
        return stage.start(stage.entry(image=image), ("hello",))

    missing = start("argosy-missing")
    assert missing.code == 125
    assert "No such image: argosy-missing" in missing.stderr
    assert start("argosy-contract:latest").stdout == "hello from /opt/argosy\n"
