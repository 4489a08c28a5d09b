"""The warnings before a submission: what is billed, and files that may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.model import Bind, Choice, ContainerRequest
from argosy.core.records import replace
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch import notes
from argosy.launch.model import LaunchRequest
from argosy.launch.notes import missing_paths, warn_before_submission


def test_a_local_folder_is_warned_of_before_a_job_loses_its_output() -> None:
    plan = LaunchPlan("t", "s", "slurm", "i", "", JobShape(1, 1, 0, 1), "", (), (), output="/run/me/x-%j.out")
    assert [*warn_before_submission(plan, "/run/me")] == [
        "nodes may not see /run/me, which is local to each machine: start from a shared folder"
    ]
    (said,) = warn_before_submission(plan, "/running/me")
    assert said.startswith("the output goes to /run/me/x-%j.out, which may be local to a node")
    shared = replace(plan, output="/home/x.out", choices=(Choice("billed", "8 GPUs", "whole nodes", "site"),))
    assert [*warn_before_submission(shared, "/home")] == ["billed: 8 GPUs; whole nodes"]


def test_an_image_and_a_program_in_a_local_folder_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(notes, "OF_A_NODE", (str(tmp_path),))
    command = ("python", f"{tmp_path}/train.py", f"{tmp_path}/made-by-the-job", "/etc/hostname")
    shape = JobShape(1, 1, 0, 1)
    plan = LaunchPlan("t", "s", "slurm", f"{tmp_path}/x.sif", "", shape, "", (), (), command, output="/home/x.out")
    assert [*warn_before_submission(plan, "/home")] == [
        f"nodes may not see {path}, which is local to each machine: use a shared folder"
        for path in (f"{tmp_path}/x.sif", f"{tmp_path}/train.py")
    ]
    (warned,) = warn_before_submission(plan, str(tmp_path))
    assert warned.startswith(f"nodes may not see {tmp_path},")


@pytest.mark.parametrize(
    ("image", "binds", "workdir", "told"),
    [
        ("x.sif", ("/nope", "here"), "", ["--bind /nope"]),
        ("x.sif", (), "/nope", []),  # the image may have it
        ("x.sif", (), "out", ["--workdir out"]),
        ("x.sif", (), "here", []),
        ("bare:", ("/nope",), "/nope", ["--workdir /nope"]),  # nothing is mounted without a container
    ],
)
def test_paths_that_this_machine_does_not_have_are_named_before_the_queue(
    tmp_path: Path, image: str, binds: tuple[str, ...], workdir: str, told: list[str]
) -> None:
    (tmp_path / "here").mkdir()
    container = ContainerRequest(binds=tuple(Bind(path, "/data") for path in binds), workdir=workdir)
    request = LaunchRequest(image, ("true",), container=container)
    ends = "does not exist on this machine: the job fails if its nodes lack it, too"
    assert [*missing_paths(request, str(tmp_path))] == [f"{each} {ends}" for each in told]
