"""What a profile tells of itself, which site a machine is, and why a planned job is as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from argosy.cli.__main__ import run_app
from argosy.cli.cmd_explain import render_explained
from argosy.core.errors import SiteError, UsageError
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, Variable
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.diagnostics.doctor import rules
from argosy.diagnostics.doctor.rules import check_this_machine
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch.explain import GROUPS, ExplainedValue, explain_plan
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.notes import note_site, note_target
from argosy.launch.option_checks import plan_notes
from argosy.launch.resolve import prepare_launch
from argosy.launch.site_settings import parse_torch_version
from argosy.launch.variables import caller_variables
from argosy.sites import read
from argosy.sites.load import Machine, detect_sites, load_profile, machine_here
from argosy.sites.read import DATA, describe_source, describe_unused, read_site, site_names
from argosy.sites.show import diff_sites, explain_site, profile_schema
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import Hearing, make_host, make_session

SITES = [read_site(name) for name in site_names()]


def laptop(**environment: str) -> Session:
    return make_session(host=make_host(arch="aarch64", environment=environment))


def explained_rows(**environment: str) -> tuple[ExplainedValue, ...]:
    request = LaunchRequest(
        "/scratch/x.sif",
        ("python", "train.py"),
        site="lumi-g",
        resources=ResourceRequest(nodes=2, gpus_per_node=8),
        options=JobOptions(account="project_1", time="15"),
    )
    return explain_plan(prepare_launch(request, laptop(**environment), purpose=Purpose.SHOW))


@pytest.mark.parametrize(("workdir", "inside"), [("", "/scratch/a b"), ("/opt", "/opt")])
def test_a_program_runs_in_the_folder_of_its_job_unless_another_one_is_named(workdir: str, inside: str) -> None:
    options = JobOptions(account="project_1", time="10", chdir="/scratch/a b")
    container = ContainerRequest(workdir=workdir)
    request = LaunchRequest("train.sif", ("true",), site="lumi-c", options=options, container=container)
    script = prepare_launch(request, laptop(), purpose=Purpose.SHOW).script
    assert '#SBATCH --chdir="/scratch/a b"' in script
    assert f"--pwd {quote(inside)}" in script
    assert ("/scratch/a b" in script.partition("run_step ")[2]) == (not workdir)


@pytest.mark.parametrize("name", site_names())
def test_each_explained_value_is_on_the_line_that_it_names(name: str) -> None:
    rows = explain_site(name)
    assert rows
    for row in rows:
        path, _, number = row.origin.rpartition(":")
        assert path, row.key
        line = Path(path).read_text().splitlines()[int(number) - 1]
        section, _, key = row.key.partition(".")
        assert (line.startswith("[") and section in line) or line.startswith((key, f"{key} ")), (row.key, line)


def test_a_value_of_a_fragment_names_the_fragments_file() -> None:
    rows = {row.key: row for row in explain_site("lumi-g")}
    assert rows["settings.NCCL_SOCKET_IFNAME"].origin.startswith(f"{DATA}/_slingshot-amd.toml:")
    assert rows["slurm.cpus_per_gpu"].origin.startswith(f"{DATA}/lumi-g.toml:")


def test_a_value_keeps_its_own_source() -> None:
    rows = {row.key: row for row in explain_site("lumi-g")}
    assert rows["node.reserved"].source.endswith("lumig-job.md")
    assert rows["node.cores"].source.endswith("lumig.md")


def test_two_profiles_differ_by_their_values() -> None:
    lumi, frontier = read_site("lumi-g"), read_site("frontier")
    rows = {key: (left, right) for key, left, right in diff_sites(lumi, frontier)}
    assert rows["slurm.gpu_option"] == ("", "none")
    assert rows["runtime.name"] == ("singularity", "apptainer")
    assert "node.cores" not in rows
    assert diff_sites(lumi, lumi) == ()


def test_the_schema_names_every_key_of_the_format() -> None:
    schema = json.dumps(profile_schema())
    for word in ("gpu_cpus", "cpus_with_mask", "if_there", "open_questions", "additionalProperties"):
        assert f'"{word}"' in schema


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine("", "pvc-s-12.data.cluster", {}), ["dawn"]),
        (Machine("", "laptop", {}), []),
        (Machine("", "node7", {"SYSTEMNAME": "juwelsbooster"}), ["juwels-booster"]),
        (Machine("", "login-s-1", {"SYSTEMNAME": "juwels"}), ["dawn", "juwels-booster"]),
        (Machine("", "", {}), []),
        (Machine("", "login04", {"NERSC_HOST": "perlmutter"}), ["perlmutter"]),
        (Machine("", "uan01", {}, frozenset({"/appl/local/laifs/containers"})), ["lumi-c", "lumi-g"]),
    ],
)
def test_detection_gives_every_matching_site(machine: Machine, expected: list[str]) -> None:
    assert [match.site for match in detect_sites(SITES, machine)] == expected


def test_one_identity_that_does_not_match_rejects_the_site() -> None:
    site = msgspec.structs.replace(
        read_site("dawn"), identity=msgspec.convert({"clusters": ["a*"], "hosts": ["pvc-*"]}, type(SITES[0].identity))
    )
    assert detect_sites([site], Machine("b", "pvc-1", {})) == ()
    assert len(detect_sites([site], Machine("a1", "pvc-1", {}))[0].reasons) == 2
    assert len(detect_sites([site], Machine("", "pvc-1", {}))[0].reasons) == 1


def test_every_option_of_the_script_and_every_variable_is_explained() -> None:
    rows = explained_rows()
    what = {row.what for row in rows}
    assert {"--account", "--nodes", "--partition", "--mem-per-gpu", "cores of each rank", "bind", "runtime"} <= what
    assert {"NCCL_SOCKET_IFNAME", "MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR", "OMP_NUM_THREADS"} <= what
    assert [row.group for row in rows] == sorted((row.group for row in rows), key=GROUPS.index)


def test_each_site_value_is_explained_with_source_and_date() -> None:
    rows = [row for row in explained_rows() if row.source.startswith("site ")]
    assert rows
    for row in rows:
        assert re.match(r"https://", row.evidence), row
        assert row.checked == "2026-11-20"
        assert row.proof == "documented"


def test_values_that_are_known_when_planning_are_filled_in() -> None:
    values = {row.what: row.value for row in explained_rows()}
    folder = values["MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR"]
    assert folder.endswith("/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID")


def test_undecided_values_are_explained_last() -> None:
    rows = {row.what: row for row in explained_rows() if row.group == "assumed or not set"}
    assert set(rows) == {"assumed", "home and current folder", "NCCL_NET_GDR_LEVEL"}


def test_a_laptop_keeps_a_script_for_another_site_without_its_image_or_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("")
    image = tmp_path / "code"  # a folder that is there, and no image
    words = ["--site", "lumi-g", "--gpus", "1", "--account", "p", "--", "python", "code/train.py"]
    assert run_app(["launch", "/scratch/x.sif", "--script", "job.sh", *words]) == 0
    script = (tmp_path / "job.sh").read_text()
    assert str(tmp_path) not in script
    assert "sbatch job.sh" in capsys.readouterr().out
    assert run_app(["launch", str(image), "--dry-run", *words]) == 6


def test_the_users_defaults_are_explained_as_environment() -> None:
    rows = {row.what: row for row in explained_rows(SBATCH_QOS="high", OMP_NUM_THREADS="3")}
    assert (rows["--qos"].value, rows["--qos"].source) == ("high", "environment")
    assert (rows["OMP_NUM_THREADS"].value, rows["OMP_NUM_THREADS"].source) == ("3", "environment")


def test_an_explanation_fits_a_screen() -> None:
    rows = explained_rows()
    assert len(rows) <= 40
    for width in (80, 120):
        lines = [line for each in render_explained(rows, width, evidence=False) for line in each]
        assert all(len(line) <= width for line in lines if " " in line.strip() and "/" not in line and ":" not in line)


def test_an_image_that_a_sites_runtime_does_not_start_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "/x/x.sif", "--site", "nvidia-pyxis", "--gpus", "2", "--dry-run", "--", "python", "x.py"]
    assert run_app(words) == 6
    assert "--format sqsh" in capsys.readouterr().err


def test_a_site_with_an_unknown_runtime_requires_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "/x/x.sif", "--site", "karolina", "--gpus", "1", "--dry-run", "--", "python", "x.py"]
    assert run_app(words) == 3
    said = capsys.readouterr().err
    assert "select it with --runtime" in said
    assert 'or for all jobs, set name = "…" in [runtime] of the site\'s profile' in said
    assert run_app([*words[:6], "--runtime", "apptainer", *words[6:]]) == 0


def test_a_site_that_requires_whole_nodes_refuses_a_part_on_several_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "/x/x.sif", "--site", "dawn", "--nodes", "2", "--gpus-per-node", "2", "--account", "p"]
    assert run_app([*words, "--time", "15", "--dry-run", "--", "python", "x.py"]) == 3
    assert "--gpus-per-node 4" in capsys.readouterr().err


def test_a_missing_account_names_the_form_of_the_sites_accounts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "/x/x.sif", "--site", "lumi-g", "--gpus", "1", "--dry-run", "--", "python", "x.py"]
    assert run_app(words) == 3
    assert "add --account project_<number>" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.6.0+rocm6.2.4", {"torch": "2.6.0", "rocm": "6.2.4"}),
        ("2.6.0+cu124", {"torch": "2.6.0", "cuda": "12.4"}),
        ("2.6.0+cpu", {"torch": "2.6.0"}),
        ("2.6.0", {"torch": "2.6.0"}),
        ("", {}),
    ],
)
def test_the_version_of_torch_gives_its_back_end(version: str, expected: dict[str, str]) -> None:
    assert parse_torch_version(version) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["sites", "ls"],
        ["sites", "show", "lumi-g"],
        ["sites", "diff", "lumi-g", "lumi-c"],
        ["sites", "schema"],
        ["explain", "/x/x.sif", "--site", "lumi-g", "--gpus", "8", "--account", "p", "--", "python", "x.py"],
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_each_command_reports_to_people_and_to_programs(
    words: list[str], capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    extra = ["--json"] if as_json and words[1] != "schema" else []
    cut = words.index("--") if "--" in words else len(words)
    assert run_app([*words[:cut], *extra, *words[cut:]]) == 0
    out = capsys.readouterr().out
    assert out
    assert "\x1b" not in out
    if extra:
        assert json.loads(out)


def test_lint_ends_with_its_own_code_on_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nexport MASTER_PORT=29500\n")
    assert run_app(["sites", "lint", str(script)]) == 7
    assert f"{script}:2: fail: every job uses port 29500 [fixed-port]" in capsys.readouterr().out
    script.write_text("#!/bin/sh\n")
    assert run_app(["sites", "lint", str(script)]) == 0


def test_given_versions_of_an_absent_image_decide_conditions(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "/x/x.sif", "--site", "lumi-g", "--nodes", "2", "--gpus-per-node", "8", "--account", "p"]
    more = ["--time", "15", "--dry-run", "--", "python", "x.py"]
    assert run_app([*words, "--image-has", "rocm=6.0", *more]) == 0
    assert "NCCL_NET_GDR_LEVEL=" in capsys.readouterr().out
    assert run_app([*words, "--image-has", "rocm=6.2", *more]) == 0
    assert "NCCL_NET_GDR_LEVEL=" not in capsys.readouterr().out
    assert run_app([*words, "--image-has", "numpy=2", *more]) == 2
    assert "use NAME=VERSION, for example torch=2.7" in capsys.readouterr().err


def test_versions_of_slurm_runtime_and_nccl_decide_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = 'name = "x"\ntitle = "X"\nscheduler = "slurm"\n[slurm]\nversion = "24.11.5"\n'
    rows = "".join(
        f'[[settings]]\nname = "BY_{fact.upper()}"\nvalue = "1"\nwhen = {{ {fact} = "{than}" }}\n'
        for fact, than in (("slurm", ">= 24.11"), ("runtime_version", "< 1.4"), ("nccl", "< 2.20"))
    )
    path = tmp_path / "x.toml"
    words = ["launch", "/x/x.sif", "--site", str(path), "--dry-run", "--", "python", "x.py"]
    path.write_text(f'{head}[runtime]\nname = "apptainer"\nversion = "1.3.6"\n{rows}')
    assert run_app([*words[:2], "--image-has", "nccl=2.18.3", *words[2:]]) == 0
    text = capsys.readouterr().out
    assert [f"ENV_BY_{name}=1" in text for name in ("SLURM", "RUNTIME_VERSION", "NCCL")] == [True] * 3
    validated = '[validated.versions]\nslurm = "23.02.1"\napptainer = "1.4.5"\n'
    path.write_text(f'{head}[runtime]\nname = "apptainer"\nversion = "1.3.6"\n{rows}{validated}')
    assert run_app(words) == 0
    text = capsys.readouterr().out
    assert not [name for name in ("SLURM", "RUNTIME_VERSION", "NCCL") if f"ENV_BY_{name}=1" in text]
    assert "BY_NCCL = not set: only for nccl < 2.20, and nccl is unknown" in text


def test_the_sites_advice_against_a_launcher_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--site", "frontier", "--account", "p", "--time", "5", "--gpus-per-node", "8", "--nodes", "2"]
    assert run_app(["explain", "/x.sif", *words, "--launcher", "torchrun", "--json", "--", "python", "x.py"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["what"] == "launcher"]
    assert "frontier advises against it: " in row["why"]
    assert row["evidence"].startswith("https://")


def test_an_unknown_key_in_a_profile_of_the_administrators_is_noted_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "SYSTEM", tmp_path)
    head = 'name = "nimbus"\ntitle = "N"\nscheduler = "slurm"\nnew = 1\n'
    path = tmp_path / "nimbus.toml"
    path.write_text(f'{head}[node]\ncores = 8\nnewer = 2\n[[partitions]]\nname = "cpu"\nnewest = 3\n')
    profile = load_profile("nimbus", make_host())
    assert (profile.site.node.cores, profile.site.partitions[0].name) == (8, "cpu")
    note = (
        f"{path}: this version of Argosy does not know, and does not use: "
        "new (line 4), node.newer (line 7), partitions.0.newest (line 10)"
    )
    heard: list[str] = []
    note_site(replace(laptop(), reporter=Hearing(heard)), profile, {})
    assert heard == [note]
    assert run_app(["sites", "lint", "nimbus"]) == 7
    assert "nimbus.toml:7: " in capsys.readouterr().out
    monkeypatch.setattr(rules, "collect_facts", lambda _: None)
    monkeypatch.setattr(rules, "check_machine", lambda *_, **__: ())
    assert note in [finding.evidence for finding in check_this_machine(laptop())]
    path.write_text(f'{head}[node]\ncores = "8"\n')
    with pytest.raises(SiteError, match="2 faults"):
        load_profile("nimbus", make_host())
    monkeypatch.undo()
    own = tmp_path / "nimbus.toml"
    own.write_text(head)
    with pytest.raises(SiteError, match="unknown key 'new'"):
        load_profile(str(own), make_host())


def test_an_unknown_key_below_a_name_with_a_dot_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "SYSTEM", tmp_path)
    path = tmp_path / "nimbus.toml"
    head = 'name = "nimbus"\ntitle = "N"\n"new.key" = 1\n[slurm]\n"0.1" = 2\n'
    path.write_text(f'{head}[modes."a.b"]\nfoo = 2\ndevices_per_gpu = 2\n[modes.a]\nb = 3\n')
    site = load_profile("nimbus", make_host()).site
    assert {name: mode.devices_per_gpu for name, mode in site.modes.items()} == {"a.b": 2, "a": 0}
    assert describe_unused(path).endswith(
        "new.key (line 1), slurm.0.1 (line 4), modes.a.b.foo (line 7), modes.a.b (line 10)"
    )


def test_an_unknown_key_in_a_fragment_of_the_administrators_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "SYSTEM", tmp_path)
    (tmp_path / "_inner.toml").write_text("newest = 1\n")
    (tmp_path / "_common.toml").write_text('use = ["inner"]\n[node]\nnewer = 2\n')
    (tmp_path / "nimbus.toml").write_text('name = "nimbus"\ntitle = "N"\nuse = ["common"]\n')
    own = tmp_path / "own/cirrus.toml"
    own.parent.mkdir()
    own.write_text('name = "cirrus"\ntitle = "C"\nuse = ["common"]\n')
    start = "this version of Argosy does not know, and does not use:"
    notes = [
        f"{tmp_path}/_inner.toml: {start} newest (line 1)",
        f"{tmp_path}/_common.toml: {start} node.newer (line 3)",
    ]
    for site in ("nimbus", str(own)):
        heard: list[str] = []
        note_site(replace(laptop(), reporter=Hearing(heard)), load_profile(site, make_host()), {})
        assert heard == notes


def test_an_unreadable_profile_is_reported_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "argosy-sites").mkdir()
    (tmp_path / "argosy-sites/wrong.toml").write_text("nodes = 3\n")
    assert run_app(["sites", "ls"]) == 0
    told = capsys.readouterr()
    assert "lumi-g" in told.out
    assert "skipped: unknown key 'nodes' in the profile wrong.toml" in told.err
    assert "wrong.toml:1: nodes" in told.err
    run_app(["sites", "detect"])
    assert "skipped" in capsys.readouterr().err


def test_a_profile_that_takes_the_place_of_a_shipped_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "argosy-sites/lumi-g.toml"
    words = ["launch", "/x/x.sif", "--site", "lumi-g", "--account", "p", "--time", "5", "--dry-run", "--", "true"]
    assert run_app(words) == 0
    assert "profile =" not in capsys.readouterr().out
    own.parent.mkdir()
    own.write_text((DATA / "lumi-g.toml").read_text())
    assert run_app(words) == 0
    told = capsys.readouterr()
    head = " ".join(line.lstrip("# ") for line in told.out.partition("# shellcheck")[0].splitlines())
    assert f"profile = {own}: from this folder; it replaces the shipped profile lumi-g" in head
    assert f"profile {own}: from this folder; it replaces the shipped profile lumi-g" in told.err
    assert run_app(["explain", *words[1:-3], "--json", "--", "true"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["what"] == "profile"]
    assert row["value"] == str(own)
    assert row["why"] == "from this folder; it replaces the shipped profile lumi-g"
    assert run_app(["launch", "/x/x.sif", "--site", "argosy-sites/lumi-g.toml", *words[4:]]) == 0
    assert "profile =" not in capsys.readouterr().out


def test_a_launch_notes_a_profile_of_the_folder_or_that_replaces_a_shipped_one_only(tmp_path: Path) -> None:
    project, user = tmp_path / "project", tmp_path / "user"
    for folder, name in ((project, "here"), (user, "mine"), (user, "lumi-g")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.toml").touch()
    found = (describe_source(name, (project, user, DATA)) for name in ("here", "mine", "lumi-g"))
    rows = [Choice(ChoiceKey.PROFILE, str(path), why, "search path") for path, why in found]
    assert [*plan_notes(tuple(rows))] == [
        f"profile {project}/here.toml: from this folder",
        f"profile {user}/lumi-g.toml: not shipped with Argosy; it replaces the shipped profile lumi-g",
    ]


def test_only_the_callers_network_variables_are_forced() -> None:
    environment = {"NCCL_DEBUG": "INFO", "FI_PROVIDER": "cxi", "PMI_RANK": "3", "NCCLX": "1", "PATH": "/bin"}
    assert caller_variables(environment) == (Variable("FI_PROVIDER", "cxi"), Variable("NCCL_DEBUG", "INFO"))


def test_slurms_configuration_file_gives_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName = far  # ours\nSlurmctldHost=ctl\n")
    told = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert machine_here(make_host(environment=told)).cluster == "far"
    assert machine_here(make_host(environment=told | {"SLURM_CLUSTER_NAME": "own"})).cluster == "own"


AT_LOGIN = (
    "the site is 'local', so the program runs on ctl itself; to submit a job to Slurm, use --site here, "
    "or set site in argosy.toml"
)


@pytest.mark.parametrize(
    ("site", "programs", "job", "said"),
    [
        (
            "local",
            ("sbatch",),
            "",
            [AT_LOGIN],
        ),
        ("local", ("sbatch",), "7", []),
        ("local", (), "", []),
        ("here", ("sbatch",), "", []),
    ],
)
def test_a_launch_on_a_login_node_is_noted_as_no_job(
    site: str, programs: tuple[str, ...], job: str, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "argosy-sites").mkdir()
    text = 'name = "here"\ntitle = "Here"\nscheduler = "slurm"\n[identity]\nclusters = ["far"]\n'
    (tmp_path / "argosy-sites/here.toml").write_text(text)
    (tmp_path / "slurm.conf").write_text("ClusterName=far\n")
    environment = {"SLURM_CONF": str(tmp_path / "slurm.conf"), **({"SLURM_JOB_ID": job} if job else {})}
    heard: list[str] = []
    session = make_session(tmp_path, make_host(*programs, cwd=str(tmp_path), environment=environment))
    session = replace(session, reporter=Hearing(heard))
    note_target(session, launch_plan(site), in_allocation=False)
    assert heard == said


def launch_plan(site: str) -> LaunchPlan:
    scheduler = "local" if site == "local" else "slurm"
    return LaunchPlan("n", site, scheduler, "x.sif", "", JobShape(1, 1), "", (), ())


def test_an_unused_default_of_sbatch_is_shown() -> None:
    rows = {row.what: row for row in explained_rows(SBATCH_WCKEY="k", SBATCH_QOS="high")}
    assert (rows["SBATCH_WCKEY"].value, rows["SBATCH_WCKEY"].source) == ("not used", "environment")
    assert "SBATCH_QOS" not in rows


@pytest.mark.parametrize("word", ["-Mhere", "-M here", "--clusters=here"])
def test_the_cluster_that_is_here_needs_no_name_and_another_is_refused(word: str, tmp_path: Path) -> None:
    environment = {"SLURM_CLUSTER_NAME": "here"}
    session = make_session(tmp_path, make_host("apptainer", "sbatch", cwd=str(tmp_path), environment=environment))
    options = JobOptions(account="project_1", time="00:15:00")
    asked = LaunchRequest("/images/a.sif", ("true",), "lumi-c", options=options, extra=(word, "--hold"))
    directives = prepare_launch(asked, session, purpose=Purpose.SHOW).directives
    assert "--hold" in directives
    assert "here" not in " ".join(directives)
    with pytest.raises(UsageError, match="another cluster"):
        prepare_launch(replace(asked, extra=(word.replace("here", "there"),)), session, purpose=Purpose.SHOW)


def test_a_value_without_a_source_is_shown_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "c.toml"
    profile.write_text('name = "c"\ntitle = "c"\nscheduler = "slurm"\n\n[node]\ncores = 8\n')
    assert run_app(["sites", "show", str(profile)]) == 0
    assert "    documented: no source\n" in capsys.readouterr().out
    assert run_app(["sites", "lint", str(profile)]) == 7
    assert "    a fact without a source cannot be checked\n" in capsys.readouterr().out
