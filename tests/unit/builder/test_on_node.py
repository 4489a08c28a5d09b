"""Builds on compute nodes: what the job asks for, and what the node is told."""

from __future__ import annotations

import subprocess

import pytest

from argosy.builder.on_node import NodeOptions, plan_node_arguments, plan_node_options, plan_step, render_node_script
from argosy.core.errors import SiteError, UsageError
from argosy.core.records import replace
from argosy.sites.load import load_profile
from argosy.sites.profile import Site, Slurm
from argosy.sites.software import Build, Modules
from tests.unit.machines import make_host

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


def test_the_job_removes_its_bundle_and_ends_with_the_builds_code() -> None:
    words = ("argosy", "build", "-o", "a b.sif")
    script = render_node_script(("--nodes=1",), words, SITE, output="o-%j", title="t", bundle="x y")
    assert script.startswith("#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --output=o-%j\n")
    assert script.endswith("code=0; argosy build -o 'a b.sif' || code=$?\nrm -f 'x y'\nexit \"$code\"\n")


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
