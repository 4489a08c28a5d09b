"""The job that tries a site is one plain script, and what it found becomes evidence; contradictions are told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
import tomlkit
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from argosy.cli.app import app
from argosy.core.errors import UsageError
from argosy.core.model import ContainerRequest, Image, ImageKind
from argosy.diagnostics.validate.merge import Fact, ValidationResult, merge_result, read_result, set_table
from argosy.launch.resolve import with_validated_overlay
from argosy.launch.site_settings import explain_container
from argosy.runtimes.container_plan import plan_container
from argosy.sites.job_settings import evident_choice
from argosy.sites.profile import Site
from argosy.sites.read import read_site
from argosy.sites.show import rows_of
from tests.unit.machines import make_host

PROFILE = """\
name = "desk"  # ours
title = "a desk"
scheduler = "slurm"
checked = "2026-01-01"
[node]
cores = 8
gpus = 4 # as documented
gpu_vendor = "nvidia"
[runtime]
name = "apptainer"
version = "1.4"
[slurm]
master_suffix = "i"
[[settings]]
name = "A"
value = "1"
"""

HOST = make_host("apptainer")
VALIDATE = Path(__file__).parents[3] / "src/argosy/diagnostics/validate/data/validate.sh"
RESULT = ValidationResult(
    argosy_validate=1,
    site="desk",
    job="7",
    date="2026-11-21",
    partition="gpu",
    nodes="node[1-2]",
    runtime="apptainer",
    image="",
    facts=(
        Fact("slurm.version", "slurm 24.11.5"),
        Fact("node.cores", "8"),
        Fact("node.gpus", "2"),
        Fact("node.arch", "x86_64"),
        Fact("node.numa", "1|2"),
        Fact("node.tmp", "tmpfs"),
        Fact("runtime.version", "1.4.5"),
        Fact("attach.overlay", "not tried", "no image"),
        Fact("master.resolves", "no"),
    ),
)


def parse(text: str) -> Site:
    return msgspec.convert(tomllib.loads(text), Site)


SRUN = """\
#!/bin/sh
[ "$1" = --gres=none ] || exit 1
while [ "$1" != sh ]; do shift; done
echo '*** welcome to node 1 ***'
"$@" || code=$?
echo 'slurmstepd: epilog of the task' >&2
exit "${code:-0}"
"""
"""A site whose prologs and epilogs of tasks print lines, and whose steps get no GPUs."""


def test_lines_of_prologs_and_epilogs_are_no_results(tmp_path: Path) -> None:
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_PROCID": "1"}
    variables |= {"SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1"}
    head = "set -u; site=desk runtime=none image= program= first=node1 hosts=node1 suffix= masks= "
    head += "step_options=--gres=none argosy_helpers=:\n"
    script = head + VALIDATE.read_text().partition("# ---- Signals")[0]
    subprocess.run(("/bin/sh", "-c", script), env=variables, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    facts = {each.name: each.value for each in read_result(tmp_path / "argosy-validate-7.json").facts}
    assert re.fullmatch(r"[\d,-]+", facts["cores.of_two"])
    assert re.fullmatch(r"[\d,-]+", facts.get("mask.read_back", "0"))
    assert (facts["arguments.one"], facts["arguments.all"]) == ("131000", "524000")
    assert facts["exit.own"] == facts["exit.first_of_several"] == "3"


def test_values_that_a_run_shows_become_proved_with_date_and_versions() -> None:
    merged = merge_result(PROFILE, parse(PROFILE), RESULT)
    site = parse(merged.text)
    assert [row.key for row in merged.confirmed] == ["node.cores", "runtime.version"]
    assert [row.key for row in merged.added] == ["node.arch", "node.tmp_in_memory"]
    assert (site.node.arch, site.node.tmp_in_memory, site.node.numa) == ("x86_64", True, 0)
    assert site.node.proofs["cores"] == "2026-11-21, job 7, slurm 24.11.5, apptainer 1.4.5"
    choice = evident_choice(site, site.node, "cores", "8", field="cores")
    assert (choice.proof, choice.checked) == ("validated", "2026-11-21")
    rows = {row.key: row for row in rows_of(site)}
    assert (rows["node.cores"].proof, rows["node.gpus"].proof) == ("validated", "documented")
    assert rows["validated.master.resolves"].value == "no"
    edited = parse(merged.text.replace("cores = 8", "cores = 16", 1))
    assert edited.node.cores == 16
    assert {row.key: row for row in rows_of(edited)}["node.cores"].proof == "documented"
    assert evident_choice(edited, edited.node, "cores", "16", field="cores").proof != "validated"
    assert "validated.attach.overlay" not in rows


@pytest.mark.parametrize(
    ("overlay", "bind", "attached", "proof"),
    [("no", "yes", "bind", "validated"), ("yes", "yes", "overlay", "validated"), ("no", "no", "overlay", "")],
)
def test_the_overlays_of_a_run_decide_how_a_layer_attaches_and_explain_shows_it(
    overlay: str, bind: str, attached: str, proof: str
) -> None:
    facts = {"attach.overlay": overlay, "attach.bind": bind}
    result = msgspec.structs.replace(RESULT, facts=(*RESULT.facts[-3:-2], *(Fact(*pair) for pair in facts.items())))
    site = parse(merge_result(PROFILE, parse(PROFILE), result).text)
    image = Image("/x.sif", ImageKind.SIF, "", "amd64", layer_offset=1, layer_part=2, argosy=True)
    request = ContainerRequest(runtime="apptainer")
    plan = plan_container(request, image, with_validated_overlay(site, HOST, "apptainer"))
    told = {choice.key: choice for choice in explain_container(plan.choices, request, site, has_gpus=True)}["layer"]
    assert (plan.entry.attach.value, told.proof) == (attached, proof)
    assert told.checked == ("2026-11-21" if proof else "")
    assert ("apptainer 1.4.5" in told.evidence) == bool(proof)


def test_a_contradiction_to_a_documented_value_is_reported_and_not_written() -> None:
    merged = merge_result(PROFILE, parse(PROFILE), RESULT)
    assert [(row.key, row.documented, row.found) for row in merged.against] == [
        ("node.gpus", 4, 2),
        ("slurm.master_suffix", "i", "names with this suffix do not resolve"),
    ]
    assert parse(merged.text).node.gpus == 4
    assert "gpus = 4 # as documented" in merged.text


def test_a_contradicting_plain_value_is_written_only_on_request() -> None:
    site = parse(merge_result(PROFILE, parse(PROFILE), RESULT, accept=True).text)
    assert (site.node.gpus, site.slurm.master_suffix) == (2, "i")
    assert "gpus" in site.node.proofs


def test_merging_twice_gives_the_same_text_and_a_later_denial_takes_a_proof_away() -> None:
    once = merge_result(PROFILE, parse(PROFILE), RESULT).text
    assert merge_result(once, parse(once), RESULT).text == once
    denied = msgspec.structs.replace(RESULT, facts=(Fact("node.cores", "16"),))
    after = parse(merge_result(once, parse(once), denied).text)
    assert (after.node.cores, "cores" in after.node.proofs) == (8, False)


def test_all_other_lines_of_a_profile_stay_unchanged() -> None:
    merged = merge_result(PROFILE, parse(PROFILE), RESULT)
    assert set(PROFILE.splitlines()) <= set(merged.text.splitlines())


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT, TEXT)
def test_any_text_of_a_fact_arrives_in_the_profile_as_data(value: str, name: str) -> None:
    document = tomlkit.parse("a = 1\n")
    set_table(document, "validated.facts", {name: value})
    assert tomllib.loads(tomlkit.dumps(document))["validated"]["facts"] == {name: value}


@pytest.mark.parametrize(
    "written",
    [
        "node = { cores = 8, gpus = 4 }\n",
        '["node"]\ncores = 8 # twice four\ngpus = 4\n',
        '[node]\nproofs = { gpus = "before" }\ngpus = 4\n',
    ],
)
def test_a_profile_may_be_written_in_any_form_of_toml(written: str) -> None:
    text = PROFILE[: PROFILE.index("[node]")] + written + PROFILE[PROFILE.index("[runtime]") :]
    merged = merge_result(text, parse(text), RESULT, accept=True)
    site = parse(merged.text)
    assert (site.node.gpus, site.node.proofs["gpus"]) == (2, "2026-11-21, job 7, slurm 24.11.5, apptainer 1.4.5")
    assert "twice four" in merged.text or "twice four" not in written


def test_a_run_in_which_everything_failed_is_not_merged() -> None:
    failed = msgspec.structs.replace(RESULT, facts=(Fact("node.cores", "not tried", "srun failed"),))
    with pytest.raises(UsageError, match="job 7 found no value of the profile") as caught:
        merge_result(PROFILE, parse(PROFILE), failed)
    assert caught.value.evidence == "node.cores was not tried: srun failed"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"argosy_validate": 1}', "\xff"])
def test_an_invalid_result_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="not a result of argosy sites validate"):
        read_result(path)


@pytest.mark.parametrize("site", ["lumi-g", "mn5-acc", "nvidia-pyxis", "alps-daint", "dawn"])
def test_the_job_is_one_plain_script_for_each_site(site: str, tmp_path: Path) -> None:
    script = tmp_path / "validate.sh"
    image = "docker://nvcr.io/nvidia/pytorch:25.10-py3" if site == "alps-daint" else "my.sqsh"
    words = ["sites", "validate", site, "--image", image, "--account", "x", "--qos", "debug", "--script", str(script)]
    words += ["--time", "5m"] if site == "dawn" else []
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    text = script.read_text()
    assert "#SBATCH --nodes=2\n" in text
    assert f"#SBATCH --time={'0:05:00' if site == 'dawn' else '00:05:00'}\n" in text
    assert "inside() {" in text
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=False).returncode == 0


def test_the_masks_are_tried_if_the_site_has_a_map(tmp_path: Path) -> None:
    script = tmp_path / "validate.sh"
    done = CliRunner().invoke(app, ["sites", "validate", "lumi-g", "--account", "x", "--script", str(script)])
    assert done.exit_code == 0, done.output
    assert "planned='49-55 57-63 17-23 25-31 1-7 9-15 33-39 41-47'" in script.read_text()
    if found := shutil.which("shellcheck"):
        checked = subprocess.run([found, str(script)], check=False, capture_output=True, encoding="utf-8")
        assert not checked.stdout


def test_a_site_without_slurm_cannot_be_validated_by_a_job() -> None:
    done = CliRunner().invoke(app, ["sites", "validate", "local", "--script", "x.sh"])
    assert isinstance(done.exception, UsageError)


def test_a_shipped_profile_is_copied_to_the_users_own_before_evidence_goes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shipped = read_site("lumi-g")
    facts = (Fact("node.cores", str(shipped.node.cores)), Fact("node.gpus", "8"))
    result = msgspec.structs.replace(RESULT, site="lumi-g", runtime="singularity", facts=facts)
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(result))
    done = CliRunner().invoke(app, ["sites", "merge", "r.json", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["profile"] == str(tmp_path / "argosy/sites/lumi-g.toml")
    shown = CliRunner().invoke(app, ["sites", "show", "lumi-g", "--json"])
    rows = {row["key"]: row for row in json.loads(shown.output)["values"]}
    assert (rows["node.cores"]["proof"], rows["node.cores"]["checked"]) == ("validated", "2026-11-21")
    assert rows["node.gpu_vendor"]["proof"] == "documented"


def test_comments_after_the_facts_of_a_run_are_kept() -> None:
    once = merge_result(PROFILE, parse(PROFILE), RESULT).text
    text = once.rstrip("\n") + "\n\n# kept by the administrators\n"
    assert "# kept by the administrators" in merge_result(text, parse(text), RESULT).text


def test_a_merge_keeps_a_link_to_its_file(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "desk.toml"
    real.write_text(PROFILE)
    link.symlink_to(real)
    (tmp_path / "result.json").write_text(msgspec.json.encode(RESULT).decode())
    done = CliRunner().invoke(app, ["sites", "merge", str(tmp_path / "result.json"), "--into", str(link)])
    assert done.exit_code in {0, 7}, done.output
    assert link.is_symlink()
    assert "[validated.facts]" in real.read_text()
