"""A sample of the contract for podman without root, in one start: each of its starts takes a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import Variable

if TYPE_CHECKING:
    from tests.contract.conftest import Stage

pytestmark = pytest.mark.real

SCRIPT = """\
id -u; id -un; pwd; echo "$HOME"; hello
echo "$NCCL_DEBUG $FROM_IMAGE $MINE ${PYTHONPATH-unset}"
for word; do printf "<%s>\\n" "$word"; done
touch /made 2>&1; touch made && ls made
exit 42
"""


def test_podman_keeps_identity_folder_variables_arguments_and_code(stage_called: Callable[[str], Stage]) -> None:
    stage = stage_called("podman, user")
    entry = stage.entry(variables=(Variable("NCCL_DEBUG", "a `b` $(c)"),), drop=NOT_FROM_CALLER)
    words = ("two words", "", "$HOME", "one\ntwo")
    reply = stage.start(entry, ("sh", "-c", SCRIPT, "sh", *words), env={"MINE": "x y", "PYTHONPATH": "/host"})
    assert reply.stdout.splitlines() == [
        "2001",
        "alice",
        str(stage.work),
        stage.person.home,
        "hello from /opt/argosy",
        "a `b` $(c) yes x y unset",
        *("<two words>", "<>", "<$HOME>", "<one", "two>"),
        "touch: /made: Read-only file system",
        "made",
    ], reply.stderr
    assert reply.code == 42
