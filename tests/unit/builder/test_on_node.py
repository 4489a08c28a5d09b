"""Builds on compute nodes: what the job asks for, and what the node is told."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from argosy.builder import on_node
from argosy.builder.on_node import (
    NodeOptions,
    plan_node_arguments,
    plan_node_options,
    plan_step,
    render_node_script,
    submit_build,
)
from argosy.builder.records import BuildRequest
from argosy.core.errors import ArgosyError, SiteError, UsageError
from argosy.core.records import replace
from argosy.sites.load import load_profile
from argosy.sites.profile import Site, Slurm
from argosy.sites.software import Build, Modules
from tests.unit.machines import make_host, real_session

PLACE = Build(partition="debug", qos="short", mem="64G", cpus=32, time="00:30:00")
SITE = Site(name="big", title="t", scheduler="slurm", build=PLACE)


def test_the_profile_decides_where_builds_run() -> None:
    assert plan_node_options(NodeOptions(), SITE, {}) == (
        *("--job-name=argosy-build", "--nodes=1", "--ntasks=1", "--cpus-per-task=32"),
        *("--partition=debug", "--qos=short", "--time=00:30:00", "--mem=64G"),
    )


def test_options_win_over_the_users_variables_and_those_over_the_profile() -> None:
    said = plan_node_options(NodeOptions(time="5", cpus=2), SITE, {"SBATCH_TIMELIMIT": "9", "SBATCH_ACCOUNT": "me"})
    assert {"--time=5", "--account=me", "--cpus-per-task=2", "--partition=debug"} <= set(said)


def test_the_profiles_qos_is_dropped_on_another_partition() -> None:
    said = plan_node_options(NodeOptions(partition="mine"), SITE, {})
    assert "--partition=mine" in said
    assert not any(option.startswith("--qos") for option in said)


@pytest.mark.parametrize(("form", "option"), [("gres", "--gres=gpu:1"), ("gpus-per-node", "--gpus-per-node=1")])
def test_a_build_with_a_gpu_requests_it_in_the_sites_syntax(form: str, option: str) -> None:
    slurm = Slurm(gpu_option=form)  # type: ignore[arg-type]
    site = Site(name="big", title="t", scheduler="slurm", slurm=slurm, build=Build(gpus=1))
    assert option in plan_node_options(NodeOptions(), site, {})


def test_a_build_with_gpus_runs_in_the_partition_that_a_launch_would_choose() -> None:
    dawn = load_profile("dawn", make_host()).site
    assert "--partition=pvc9" in plan_node_options(NodeOptions(account="p"), dawn, {})
    assert "--partition=mine" in plan_node_options(NodeOptions(account="p", partition="mine"), dawn, {})


def test_a_required_account_is_checked_before_anything_starts() -> None:
    site = Site(name="big", title="t", scheduler="slurm", slurm=Slurm(required=("account",)))
    with pytest.raises(SiteError, match="--account"):
        plan_node_options(NodeOptions(), site, {})


def test_a_site_without_slurm_cannot_build_on_a_node() -> None:
    with pytest.raises(UsageError, match="has no Slurm"):
        plan_node_options(NodeOptions(), Site(name="here", title="t"), {})


TYPED = ("env.yml", "--base", "b.sif", "-o", "out.sif", "--on-node", "--time=5", "--mem", "1G", "--site", "big", "-v")


def test_the_node_gets_the_typed_arguments_without_those_of_the_job() -> None:
    assert plan_node_arguments(TYPED, work_dir="/local") == (
        *("env.yml", "--base", "b.sif", "-o", "out.sif", "--site", "big", "-v", "--work-dir", "/local"),
    )


def test_with_a_bundle_the_node_gets_neither_sources_nor_base() -> None:
    assert plan_node_arguments((*TYPED, "--force"), bundle="x.tar") == (
        "-o",
        "out.sif",
        "-v",
        "--force",
        "--bundle",
        "x.tar",
    )


@pytest.mark.parametrize(("line", "code"), [("exit 7", 7), ("kill $PPID; exit 1", 143)])
def test_the_job_removes_its_bundle_and_ends_with_the_builds_code(tmp_path: Path, line: str, code: int) -> None:
    bundle = tmp_path / "it's a bundle"
    bundle.touch()
    script = render_node_script(("--nodes=1",), ("sh", "-c", line), SITE, output="o-%j", title="t", bundle=str(bundle))
    assert script.startswith("#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --output=o-%j\n#SBATCH --no-requeue\n")
    assert subprocess.run(("/bin/sh", "-c", script), stdout=subprocess.DEVNULL, check=False).returncode == code
    assert not bundle.exists()


def test_the_job_removes_its_bundle_if_a_module_cannot_be_loaded(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.touch()
    site = replace(SITE, modules=Modules(load=("no-such-module",)))
    script = render_node_script((), ("true",), site, output="o-%j", title="t", bundle=str(bundle))
    shell = ("/bin/sh", "-c", "module() { return 1; }\n" + script)
    assert subprocess.run(shell, stdout=subprocess.DEVNULL, check=False).returncode == 4
    assert not bundle.exists()


QUEUED, GONE = "20260101-120000-123456-00aa", "20260101-120000-123456-00bb"
SQUEUE = f"echo '5|/elsewhere/job.sh'; echo \"6|$STATE/runs/{QUEUED}/job.sh\""
SILENT = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
ACCEPTED = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Give a function that submits a build with a bundle, to scripts instead of Slurm, and returns its folder."""
    site = tmp_path / "site.toml"
    site.write_text('name = "big"\ntitle = "t"\nscheduler = "slurm"\n[build]\nnetwork = false\n')
    for name in ("bin", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    monkeypatch.setattr(on_node, "bundle", lambda request, _: request.output.write_bytes(b"gigabytes"))

    def submit(profile: str = str(site), **programs: str) -> Path:
        for name, text in programs.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        (tmp_path / "bin/timeout").symlink_to(str(shutil.which("timeout")))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        request = BuildRequest((), "b", tmp_path / "work/x.sif", site=profile)
        with suppress(ArgosyError):
            submit_build(("-o", "x.sif"), NodeOptions(), request, real_session(tmp_path))
        return tmp_path / "work"

    return submit


@pytest.mark.parametrize(
    ("programs", "kept"),
    [
        ({"sbatch": "echo 4711", "squeue": "exit 1"}, 1),
        ({"sbatch": "echo no such account >&2; exit 1", "squeue": SQUEUE}, 0),
        (
            {
                "sbatch": ACCEPTED,
                "squeue": "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            },
            1,
        ),
        ({"sbatch": ACCEPTED, "squeue": "echo 'slurm_load_jobs error: Invalid user id' >&2; exit 1"}, 1),
        ({}, 0),
    ],
    ids=["submitted", "refused", "no answer", "unknown failure", "no Slurm"],
)
def test_a_bundle_stays_only_for_a_job(submission: Callable[..., Path], programs: dict[str, str], kept: int) -> None:
    assert len(list(submission(**programs).iterdir())) == kept


@pytest.mark.parametrize(("sbatch", "kept"), [("echo 4711", 1), ("echo no such account >&2; exit 1", 0), ("", 1)])
def test_the_record_of_a_refused_build_is_removed(
    submission: Callable[..., Path], tmp_path: Path, sbatch: str, kept: int
) -> None:
    submission(sbatch=sbatch, squeue=SQUEUE)
    assert len(list((tmp_path / "state/runs").iterdir())) == kept


def test_the_bundle_of_a_job_that_was_cancelled_in_the_queue_is_removed_by_the_next_build(
    submission: Callable[..., Path], tmp_path: Path
) -> None:
    for record in (QUEUED, GONE):
        (tmp_path / f"work/.x.sif.{record}.bundle").touch()
    folder = submission(sbatch="exit 1", squeue=SQUEUE)
    assert [path.name for path in folder.iterdir()] == [f".x.sif.{QUEUED}.bundle"]


def test_the_record_of_a_build_has_a_profile_that_is_found_from_other_folders(
    submission: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submission("site.toml", sbatch="echo 4711")
    (record,) = (tmp_path / "state/runs").iterdir()
    assert json.loads((record / "submitted.json").read_text())["profile"] == str(tmp_path / "site.toml")


def test_modules_that_break_builds_are_unloaded_if_there_are_modules() -> None:
    words = ("sh", "-c", 'echo "built with $LOADED"')
    site = replace(SITE, build=Build(unload=("apptainer-enable-mpi", "other")))
    script = render_node_script((), words, site, output="o-%j", title="t")
    with_modules = 'LOADED="apptainer-enable-mpi"; module() { LOADED="after $*"; export LOADED; }\n'
    for before, seen in ((with_modules, "after unload apptainer-enable-mpi other"), ("", "")):
        done = subprocess.run(("/bin/sh", "-c", before + script), capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"built with {seen}"


def test_a_build_job_loads_the_modules_of_its_site_and_purges_none() -> None:
    site = replace(SITE, modules=Modules(purge=True, use=("/m",), load=("singularity",)))
    script = render_node_script((), ("sh", "-c", 'echo "built with $SEEN"'), site, output="o-%j", title="t")
    module = 'SEEN=; module() { SEEN="$SEEN$*;"; export SEEN; }\n'
    done = subprocess.run(("/bin/sh", "-c", module + script), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "built with use /m;load singularity;"


def test_a_build_that_runs_now_loads_the_same_modules() -> None:
    assert plan_step(("--nodes=1",), ("argosy", "build"), SITE) == ("srun", "--nodes=1", "argosy", "build")
    site = replace(SITE, modules=Modules(load=("singularity",)), build=Build(unload=("other",)))
    step = plan_step((), ("sh", "-c", 'echo "$SEEN" "$@"', "sh", "a  b"), site)
    module = 'SEEN=; module() { SEEN="$SEEN$*;"; export SEEN; }\n'
    words = ("sh", "-c", module + step[3], *step[4:])
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "load singularity;unload other; a  b\n"


@pytest.mark.parametrize("option", ["--no-build-isolation", "--allow-replace"])
def test_with_a_bundle_the_node_gets_no_package_options(option: str) -> None:
    assert plan_node_arguments(("env.yml", option, "apex", "-o", "x"), bundle="b") == ("-o", "x", "--bundle", "b")


def test_an_option_after_locked_is_not_taken_as_the_lock() -> None:
    typed = ("--locked", "--on-node", "-o", "x", "--locked", "my.lock", "--submit")
    assert plan_node_arguments(typed) == ("--locked", "-o", "x", "--locked", "my.lock")
    assert plan_node_arguments(typed, bundle="b") == ("-o", "x", "--bundle", "b")


def test_an_invalid_time_is_refused_before_the_queue() -> None:
    with pytest.raises(UsageError, match="invalid time"):
        plan_node_options(NodeOptions(account="p", time="mine"), SITE, {})
