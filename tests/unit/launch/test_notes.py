"""The warnings before a submission: what is billed, and files that may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.errors import SiteError
from argosy.core.model import Bind, Choice, ContainerRequest
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch import notes
from argosy.launch.model import LaunchRequest
from argosy.launch.notes import answering_site, missing_paths, note_other_site, warn_before_submission
from argosy.launch.submit import launch
from argosy.sites.load import load_site
from tests.unit.machines import Hearing, make_host, make_session


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
    assert [*missing_paths(request, make_host(cwd=str(tmp_path)))] == [f"{each} {ends}" for each in told]


def test_a_mount_of_a_variable_that_this_machine_does_not_have_is_named_before_the_queue(tmp_path: Path) -> None:
    host = make_host(cwd=str(tmp_path), environment={"APPTAINER_BIND": f"{tmp_path},/pfs:/pfs"})
    request = LaunchRequest("x.sif", ("true",))
    (told,) = missing_paths(request, host)
    assert told == "APPTAINER_BIND: /pfs does not exist on this machine: the job fails if its nodes lack it, too"
    assert not [*missing_paths(replace(request, image="bare:"), host)]
    assert not [*missing_paths(replace(request, container=ContainerRequest(contain=True)), host)]


@pytest.mark.parametrize(
    ("given", "site", "said"),
    [
        ({"site": ("there", "ARGOSY_SITE")}, "there", "ARGOSY_SITE says there"),
        ({"site": ("there", "/home/alice/config.toml:2")}, "there", "/home/alice/config.toml:2 says there"),
        ({}, "there", "--site says there"),
        ({}, "here", ""),
        ({}, "local", ""),
    ],
)
def test_a_job_of_another_site_is_noted_with_what_chose_the_site(
    tmp_path: Path, given: dict[str, tuple[str, str]], site: str, said: str
) -> None:
    write_sites(tmp_path)
    heard: list[str] = []
    host = make_host("sbatch", cwd=str(tmp_path), environment={"SLURM_CLUSTER_NAME": "here"})
    session = replace(make_session(tmp_path, host), reporter=Hearing(heard))
    note_other_site(session, load_site(site, host), given)
    assert heard == ([f"this machine is here, but {said}: use --site here for its settings"] if said else [])
    assert answering_site("there", host) == "here"
    assert answering_site("here", host) == "here"
    assert answering_site("there", make_host(cwd=str(tmp_path))) == "there"


def write_sites(folder: Path) -> None:
    """Write the profiles of two clusters, `here` and `there`."""
    (folder / "argosy-sites").mkdir()
    for name in ("here", "there"):
        text = f'name = "{name}"\ntitle = "T"\nscheduler = "slurm"\n[identity]\nclusters = ["{name}"]\n'
        (folder / f"argosy-sites/{name}.toml").write_text(text)


def test_a_refused_job_is_blamed_on_the_cluster_that_refused_it(tmp_path: Path) -> None:
    write_sites(tmp_path)
    heard: list[str] = []
    host = make_host("sbatch", cwd=str(tmp_path), environment={"SLURM_CLUSTER_NAME": "here"})
    refusal = Reply(1, "", "sbatch: error: Batch job submission failed: Invalid account")
    session = replace(make_session(tmp_path, host, FakeRunner([(("sbatch",), refusal)])), reporter=Hearing(heard))
    request = LaunchRequest("bare:", ("true",), "there", sources={"site": ("there", "ARGOSY_SITE")})
    with pytest.raises(SiteError, match=r"^here rejects this job"):
        launch(request, session)
    assert "this machine is here, but ARGOSY_SITE says there: use --site here for its settings" in heard
