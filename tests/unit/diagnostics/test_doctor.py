"""A machine is judged by what was seen of it: each fault with what to do, and a code for what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.diagnostics.doctor.collect import TIMEOUT, Folder, MachineFacts, collect_facts
from argosy.diagnostics.doctor.rules import Here, check_machine, check_this_machine, is_here
from argosy.host.quota import Quota
from argosy.sites.profile import Site
from argosy.sites.read import read_site
from tests.unit.machines import make_host, make_session

HOST = make_host("apptainer", "mksquashfs", "unsquashfs", "sbatch", hostname="login1", memory=1 << 34)
CACHE = Folder("cache", "/home/ada/.cache/argosy", writable=True, kind="ext4", free=10**12, inodes=10**7)
SEEN = MachineFacts(
    host=HOST,
    versions={"apptainer": "1.4.5", "mksquashfs": "4.6", "sbatch": "24.11.5"},
    namespaces=True,
    subuid=True,
    folders=(CACHE,),
    slurm="Slurmctld(primary) at ctl is UP",
    slurm_up=True,
    driver="",
)
SLURM = Site(name="desk", title="a desk", scheduler="slurm")


def states(seen: MachineFacts, site: Site | None = None) -> dict[str, str]:
    return {each.what: each.state for each in check_machine(seen, site) if each.state != "ok"}


@pytest.mark.parametrize(
    ("said", "shown", "up"),
    [
        ("Slurmctld(primary) at c1 is DOWN\nSlurmctld(backup) at c2 is UP", "Slurmctld(backup) at c2 is UP", True),
        (
            "Slurmctld(primary) at c1 is DOWN\nSlurmctld(backup) at c2 is DOWN",
            "Slurmctld(primary) at c1 is DOWN",
            False,
        ),
        ("", "", False),
    ],
)
def test_the_controller_that_answers_is_shown(tmp_path: Path, said: str, shown: str, *, up: bool) -> None:
    runner = FakeRunner([((*TIMEOUT, "scontrol", "ping"), Reply(0, said, ""))])
    facts = collect_facts(make_session(tmp_path, HOST, runner))
    assert (facts.slurm, facts.slurm_up) == (shown, up)


def with_programs(*names: str) -> MachineFacts:
    return replace(SEEN, host=replace(HOST, programs={name: f"/usr/bin/{name}" for name in names}))


@pytest.mark.parametrize(
    ("seen", "site", "name", "state"),
    [
        (with_programs("mksquashfs"), None, "container runtime", "fail"),
        (with_programs("mksquashfs", "sbatch"), read_site("mn5-acc"), "site runtime", "warn"),
        (with_programs("apptainer"), None, "mksquashfs", "fail"),
        (with_programs("apptainer"), SLURM, "Slurm", "fail"),
        (replace(with_programs("bwrap"), namespaces=False), None, "user namespaces", "fail"),
        (replace(SEEN, namespaces=False), None, "user namespaces", "warn"),
        (replace(SEEN, host=replace(HOST, fuse=False)), None, "fuse", "warn"),
        (replace(with_programs("bwrap", "mmdebstrap"), subuid=False), None, "subordinate ids", "warn"),
        (replace(SEEN, slurm_up=False), SLURM, "Slurm", "fail"),
        (replace(SEEN, slurm_up=False), None, "Slurm", "warn"),
        (replace(SEEN, folders=(replace(CACHE, writable=False),)), None, "cache", "fail"),
        (replace(SEEN, folders=(replace(CACHE, kind="tmpfs"),)), None, "cache", "warn"),
        (replace(SEEN, folders=(replace(CACHE, free=10**9),)), None, "cache", "warn"),
        (replace(SEEN, folders=(replace(CACHE, inodes=1000),)), None, "cache", "warn"),
        (replace(SEEN, folders=(replace(CACHE, what="work files", kind="lustre"),)), None, "work files", "warn"),
        (replace(SEEN, quotas=(Quota("/home", 95, 100, 1, 0),)), None, "quota", "warn"),
        (replace(SEEN, quotas=(Quota("/home", 1, 100, 99, 100),)), None, "quota", "warn"),
        (replace(SEEN, host=replace(HOST, environment={"PYTHONPATH": "/x"})), None, "variables", "warn"),
        (replace(SEEN, host=replace(HOST, environment={"PIP_TARGET": "/x"})), None, "variables", "warn"),
        (
            replace(SEEN, host=replace(HOST, environment={"SINGULARITY_BIND": "/x"})),
            None,
            "runtime variables",
            "warn",
        ),
        (replace(SEEN, host=replace(HOST, arch="aarch64")), read_site("lumi-g"), "architecture", "warn"),
        (with_programs("apptainer", "sbatch"), read_site("lumi-g"), "site runtime", "fail"),
        (with_programs("singularity", "sbatch"), read_site("lumi-g"), "proot", "warn"),
    ],
)
def test_each_fault_is_found_with_a_next_step(seen: MachineFacts, site: Site | None, name: str, state: str) -> None:
    assert states(seen, site)[name] == state
    assert all(each.hint for each in check_machine(seen, site) if each.state != "ok")


def test_the_base_for_a_user_without_subordinate_ids_has_python() -> None:
    seen = replace(with_programs("bwrap", "mmdebstrap"), subuid=False)
    found = {each.what: each for each in check_machine(seen, None)}
    assert "--base docker://python:" in found["subordinate ids"].hint


def test_a_machine_that_does_not_belong_to_the_site_is_a_warning() -> None:
    found = {each.what: each for each in check_machine(SEEN, SLURM, here=Here.NO)}
    assert (found["site"].state, "does not belong to desk" in found["site"].evidence) == ("warn", True)


def test_a_user_without_namespaces_builds_with_proot() -> None:
    without = replace(SEEN, namespaces=False)
    assert states(without)["proot"] == "warn"
    assert "proot" not in states(replace(without, host=replace(HOST, programs={**HOST.programs, "proot": "/x"})))


def test_a_laptop_is_not_the_site_and_lacks_the_sites_programs() -> None:
    laptop, lumi = with_programs("mksquashfs", "bwrap"), read_site("lumi-g")
    here = is_here(lumi, (), laptop.host)
    found = {each.what: each for each in check_machine(laptop, lumi, here=here)}
    assert {found[name].state for name in ("site", "site runtime", "proot")} == {"warn"}
    assert "module load LUMI systools" in found["proot"].hint
    assert "user namespaces" in found
    assert is_here(read_site("frontier"), (), HOST) is Here.UNKNOWN
    assert is_here(read_site("frontier"), (), laptop.host) is Here.NO


def test_at_a_site_without_user_namespaces_their_absence_is_not_a_problem() -> None:
    seen = replace(with_programs("singularity", "proot", "mksquashfs", "unsquashfs", "sbatch"), namespaces=False)
    found = check_machine(seen, read_site("lumi-g"), here=Here.UNKNOWN)
    assert {each.what: each.state for each in found if each.state != "ok"} == {"site": "unknown", "skopeo": "warn"}


@pytest.mark.parametrize("site", ["", "frontier"])
def test_profiles_that_are_skipped_are_one_warning(tmp_path: Path, site: str) -> None:
    folder = tmp_path / "argosy-sites"
    folder.mkdir()
    session = make_session(tmp_path, replace(HOST, cwd=str(tmp_path)))
    assert "profiles" not in {each.what for each in check_this_machine(session, site)}
    (folder / "mine.toml").write_text('name = "other"\ntitle = "Mine"\n')
    (folder / "broken.toml").write_text("name = 3\n")
    (found,) = [each for each in check_this_machine(session, site) if each.what == "profiles"]
    assert found.state == "warn"
    assert "mine.toml" in found.evidence
    assert "broken.toml" in found.evidence
    assert found.hint == "correct or move them; details: argosy sites ls"


def test_a_site_is_unknown_if_no_profile_matches(tmp_path: Path) -> None:
    session = make_session(tmp_path, replace(HOST, cwd=str(tmp_path)))
    (found,) = [each for each in check_this_machine(session) if each.what == "site"]
    assert (found.state, found.evidence) == ("unknown", "no profile matches this machine")
    assert found.hint.endswith("argosy sites new NAME --on-node")


def test_a_complete_machine_passes_all_checks() -> None:
    whole = replace(HOST, programs={**HOST.programs, **dict.fromkeys(("mmdebstrap", "skopeo", "squashfuse"), "/x")})
    assert states(replace(SEEN, host=whole), SLURM) == {}


def test_the_command_looks_at_this_machine_and_programs_can_read_it() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    told = json.loads(done.output)
    assert {"cache", "container runtime", "site"} <= {each["what"] for each in told["findings"]}
    assert done.exit_code == (0 if told["ok"] else 7)


def test_the_variables_of_the_module_command_are_fine() -> None:
    own = replace(SEEN, host=replace(HOST, environment={"BASH_ENV": "/usr/share/lmod/lmod/init/bash"}))
    other = replace(SEEN, host=replace(HOST, environment={"BASH_ENV": "/home/ada/.env"}))
    assert "variables" not in states(own)
    assert states(other)["variables"] == "warn"


def test_the_virtual_environment_of_argosy_itself_is_fine() -> None:
    own = replace(SEEN, host=replace(HOST, environment={"VIRTUAL_ENV": sys.prefix}))
    other = replace(SEEN, host=replace(HOST, environment={"VIRTUAL_ENV": "/some/other"}))
    assert "variables" not in states(own)
    assert states(other)["variables"] == "warn"
