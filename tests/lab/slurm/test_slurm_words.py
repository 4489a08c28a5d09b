"""Hostile arguments, values, paths and names reach every rank on every node as they were typed."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

WORDS = (
    "",
    "a  b",
    "it's",
    'say "x"',
    "$HOME",
    "${SLURM_PROCID}",
    "`id`",
    "$(id)",
    "*",
    "?[a]",
    "~",
    "line\nbreak\n",
    "\ttab",
    "back\\slash\\",
    "--flag=value",
    "-x",
    "é 🚢 日本",
    "#no comment",
    "a;b|c&d>e<f",
    "!history",
    "%j %x {}",
    "'",
    ":",
    "::",
    "dos\r\nlines\r\n",
)
VALUES = {
    "X_TICKS": "`touch ran` $(touch ran)",
    "X_QUOTES": "a'b\"c,d:e=f",
    "X_LINES": "one\ntwo\n",
    "X_EMPTY": "",
    "X_DOLLAR": "$HOME ${PATH}",
    "X_UNICODE": "é 🚢",
    "X_STAR": "*",
}
FOUR = ("--nodes", "2", "--ranks", "4", "--cpus-per-rank", "2")


MANY = """\
word=$(head -c 100000 /dev/zero | tr '\\0' a)
for each in 1 2 3 4 5 6 7 8 9 10 11; do set -- "$@" "$word"; done
exec argosy launch "$IMAGE" --site "$SITE" --dry-run -- true "$@"
"""


def digest(word: str) -> str:
    return hashlib.sha256(os.fsencode(word)).hexdigest()[:8]


def forced() -> list[str]:
    return [word for name, value in VALUES.items() for word in ("--env", f"{name}={value}")]


@pytest.mark.parametrize("launcher", ["srun", "none", "torchrun"])
def test_arguments_and_values_reach_every_rank_unchanged(
    desk: Desk, request: pytest.FixtureRequest, launcher: str
) -> None:
    if launcher == "torchrun":
        desk = desk.with_image(request.getfixturevalue("torch_image"))
    told = desk.tell(*FOUR, "--launcher", launcher, *forced(), words=WORDS)
    assert len(told) == 4
    for row in told:
        assert row["words"] == [digest(word) for word in WORDS]
        assert row["hostile"] == {name: digest(value) for name, value in VALUES.items()}
    assert not (desk.here / "ran").exists()


def test_arguments_of_128_kb_and_512_kb_in_total_arrive(desk: Desk) -> None:
    words = [letter * 128_000 for letter in "abcd"]
    told = desk.tell("--nodes", "2", "--ranks", "2", "--launcher", "srun", words=words)
    assert [row["words"] for row in told] == [[digest(word) for word in words]] * 2


def test_arguments_too_long_for_any_node_are_refused_with_both_numbers(desk: Desk) -> None:
    desk.write("many.sh", MANY)
    done = desk.sh(f"IMAGE={desk.image} SITE={desk.site} sh many.sh", check=False)
    assert done.code == 2
    assert "1,048,448" in done.stderr
    assert "1,1" in done.stderr


def test_paths_and_names_with_blanks_and_quotes_work(desk: Desk) -> None:
    folder = 'it\'s a "folder" of mine'
    (desk.here / folder).mkdir()
    (desk.here / folder).chmod(0o777)
    (desk.here / folder / "my image's.sif").symlink_to(desk.image)
    odd = desk.with_path(f"{desk.folder}/{folder}/my image's.sif")
    told = odd.tell(
        *FOUR, "--launcher", "srun", "--name", "a 'job' # of \"mine\" $HOME", "--output", f"{folder}/%j o.out"
    )
    assert [row["set"]["SLURM_JOB_NAME"] for row in told] == ["a 'job' # of \"mine\" $HOME"] * 4
    (file,) = (desk.here / folder).glob("* o.out")
    assert len(odd.told(file.read_text())) == 4


def test_a_folder_that_is_missing_is_made_for_the_output(desk: Desk) -> None:
    done = desk.follow("--output", "logs/deep/%x-%j.out", command=("echo", "hello"))
    assert done.stdout.startswith("hello\n")
    assert [file.name.startswith("echo-") for file in (desk.here / "logs/deep").iterdir()] == [True]


def test_a_folder_that_only_slurm_could_name_is_refused(desk: Desk) -> None:
    done = desk.argosy(*desk.words("--output", "logs/%j/out", command=("true",)), check=False)
    assert done.code == 125
    assert "use %j in the name of the file only" in done.stderr
    named = desk.follow("--name", "mine", "--output", "%x/%u/%j", command=("echo", "hello"))
    assert named.stdout.startswith("hello\n")
