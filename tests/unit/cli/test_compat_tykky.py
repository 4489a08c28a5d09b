"""The words of tykky: what they ask of `argosy wrap`, and that each of its options is taken, explained or refused."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.cli.cmd_compat import PROGRAMS
from argosy.cli.compat.tykky import name_files, plan_advanced, plan_new, plan_settings, plan_update
from argosy.cli.compat.tykky_arguments import ACTIONS, ARGOSY, Arguments, options_of, parse_arguments
from argosy.cli.compat.tykky_config import (
    NOTHING_TO_DO,
    REFUSED,
    TAKEN,
    Conf,
    LogSettings,
    merge_conf,
    read_conf,
    read_log_settings,
)
from argosy.core.errors import UsageError
from argosy.core.model import Bind
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind, Settings, WrapRequest

CWD = Path("/project/me")


def read(file: str) -> str:
    return {"env.txt": "numpy=1.26\n", "list.txt": "@EXPLICIT\nhttps://x/y.conda\n", "vars": "export A='x y'\n"}.get(
        file, "scipy  # why\n# no\n\npandas>=2\n"
    )


def new(line: str, conf: Conf | None = None) -> WrapRequest:
    program, *words = shlex.split(line)
    return plan_new(parse_arguments(program, words), conf or Conf(), CWD, read)


def test_each_command_of_tykky_is_installed() -> None:
    assert {name for name, program in PROGRAMS.items() if program.tool == "tykky"} == set(ARGOSY)


BASE = "--pre-install --post-install --environ -w --wrapper-paths"
THEIRS = {
    "conda-containerize new": f"{BASE} --prefix --mamba --uv --nocache -r --requirement --requirements-file",
    "conda-containerize update": f"{BASE} --nocache -r --requirement --requirements-file",
    "conda-containerize advanced": "",
    "pip-containerize new": f"{BASE} --prefix --uv --slim --pyver --system-site-packages --nocache",
    "pip-containerize update": f"{BASE} --nocache -r --requirement --requirements-file",
    "pip-containerize advanced": "",
    "wrap-container": "-w --wrapper-paths --prefix -y --yaml --environ",
    "wrap-install": f"{BASE} --prefix -y --yaml --mask",
}
"""What each command of tykky takes, of its versions 0.4 and 0.5."""


def test_each_command_has_the_options_that_tykky_gives_it_and_no_other() -> None:
    ours = {
        f"{program} {action}".strip(): options_of(program, action) for program in ACTIONS for action in ACTIONS[program]
    }
    assert {place: {flag for each in options for flag in each.flags} for place, options in ours.items()} == {
        place: set(flags.split()) for place, flags in THEIRS.items()
    }


def compat_run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compat", "run", *words])
    return (done.exit_code if not isinstance(done.exception, UsageError) else 2), done.output or str(done.exception)


@pytest.mark.parametrize("program", ARGOSY)
def test_a_command_without_arguments_or_with_help_prints_its_usage(program: str) -> None:
    for words in ((), ("--help",)):
        code, said = compat_run(program, *words)
        assert code == 0
        assert ARGOSY[program] in " ".join(said.split())
    if "new" in ACTIONS[program]:
        assert "--post-install" in compat_run(program, "new", "--help")[1]
        assert "arguments are required" in compat_run(program, "new")[1]


def test_an_empty_list_of_paths_is_reported_as_an_unset_variable() -> None:
    with pytest.raises(UsageError, match="the path is empty"):
        parse_arguments("wrap-container", ["x.sif", "-w", ""])


def test_a_conda_environment_sees_the_host_as_under_tykky() -> None:
    asked = new("conda-containerize new --mamba --prefix env -r req.txt --post post.sh environment.yml")
    assert asked.prefix == CWD / "env"
    assert asked.recipe == PrefixRecipe(
        PrefixSourceKind.FILES,
        ("/project/me/environment.yml", "/project/me/req.txt"),
        base="debian:bookworm",
        after=("/project/me/post.sh",),
        own_python=True,
        default_base=True,
    )
    assert asked.settings == Settings(host=True)
    assert not new("conda-containerize new --prefix e environment.yml", Conf(isolate=True)).settings.host


def test_further_paths_come_beside_those_of_the_environment() -> None:
    asked = new("conda-containerize new --prefix e -w libexec/bin,/usr/bin/git environment.yml")
    assert asked.settings.paths == ("/opt/argosy/env/bin", "/opt/argosy/env/libexec/bin", "/usr/bin/git")


def test_a_list_of_conda_packages_is_never_installed_by_pip() -> None:
    assert new("conda-containerize new --prefix e list.txt").recipe.sources == ("/project/me/list.txt",)
    with pytest.raises(UsageError, match="without exact versions"):
        new("conda-containerize new --prefix e env.txt")


def test_a_version_of_python_is_one_of_the_base() -> None:
    assert new("pip-containerize new --prefix e req.txt").recipe.base == "debian:bookworm"
    assert new("pip-containerize new --slim --prefix e req.txt").recipe.base == "docker://python:3-slim"
    slim = new("pip-containerize new --uv --pyver 3.12 --prefix e req.txt")
    assert slim.recipe.base == "docker://python:3.12-slim"
    assert not slim.settings.host
    named = new("pip-containerize new --slim --pyver 3.13.2-slim-bullseye --prefix e req.txt")
    assert named.recipe.base == "docker://python:3.13.2-slim-bullseye"


def test_a_container_is_copied_unless_the_site_shares_it() -> None:
    asked = new("wrap-container -w /opt/venv/bin --environ vars --prefix e vendor.sif")
    assert asked.recipe == PrefixRecipe(PrefixSourceKind.IMAGE, ("/project/me/vendor.sif",), copy=True)
    assert asked.settings == Settings(paths=("/opt/venv/bin",), variables=(("A", "x y"),))
    shared = new("wrap-container -w /bin --prefix e docker://python:3", Conf(share=True)).recipe
    assert (shared.sources, shared.copy) == (("docker://python:3",), False)


def test_an_installation_is_masked_only_on_request() -> None:
    beside = new("wrap-install --prefix e -w /project/me/tools/bin,sbin tools/")
    assert (beside.recipe.at, beside.settings.paths) == ("/opt/argosy/installation", ("bin", "sbin"))
    masked = new("wrap-install --mask --prefix e -w bin tools")
    assert (masked.recipe.sources, masked.recipe.at) == (("/project/me/tools",), "/project/me/tools")


def test_an_update_adds_packages_and_keeps_how_commands_start() -> None:
    words = parse_arguments(
        "pip-containerize", ["update", "env", "-r", "req.txt", "--post-install", "post.sh", "--nocache"]
    )
    asked = plan_update(words, CWD, read)
    assert (asked.prefix, asked.packages) == (CWD / "env", ("scipy", "pandas>=2"))
    assert asked.after == ("/project/me/post.sh",)
    assert len(words.notes) == 1
    old = Settings(paths=("/x",), variables=(("B", "1"),), host=True)
    recipe = PrefixRecipe(PrefixSourceKind.FILES, ("/a",))
    assert plan_settings(words, Conf(), old, recipe, read) == old
    more = parse_arguments("conda-containerize", ["update", "env", "--environ", "vars"])
    assert plan_settings(more, Conf(), old, recipe, read).variables == (("B", "1"), ("A", "x y"))
    paths = parse_arguments("conda-containerize", ["update", "env", "-w", "/y,/x"])
    assert plan_settings(paths, Conf(), old, recipe, read).paths == ("/x", "/y")
    other = parse_arguments("pip-containerize", ["update", "env", "--requirements-file", "req.txt"])
    assert plan_update(other, CWD, read).packages == ("scipy", "pandas>=2")


def test_an_installation_made_by_tykky_cannot_be_updated_and_its_sources_are_named(tmp_path: Path) -> None:
    for name in ("common.sh", "share/conf.yaml", "share/previous_input/1/env.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    code, said = compat_run("conda-containerize", "update", str(tmp_path), "--post-install", "x.sh")
    assert code == 2
    assert "tykky made it" in said
    assert f"conda-containerize new --prefix DIR {tmp_path}/share/previous_input/1/env.yml" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pip-containerize new --system-site-packages --prefix e r.txt", "argosy wrap FILE --base IMAGE"),
        ("conda-containerize new --uv --prefix e e.yml", "omit --uv"),
        ("conda-containerize new e.yml", "--prefix DIR"),
        ("wrap-container --prefix e x.sif", "argosy wrap IMAGE -w PATHS"),
        ("wrap-install --prefix e x -w bin --unknown", "argosy wrap FOLDER"),
        ("wrap-container -w /x --prefix e x.sif --post-install p.sh", "argosy wrap IMAGE -w PATHS"),
        ("pip-containerize remove", "argosy wrap requirements.txt"),
        ("pip-containerize new --prefix e ''", "check that the shell variable is set"),
    ],
)
def test_an_unsupported_option_names_its_replacement(line: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        new(line)
    assert said in error.value.hint


def test_an_update_runs_nothing_before() -> None:
    with pytest.raises(UsageError, match="--pre-install"):
        plan_update(parse_arguments("pip-containerize", ["update", "env", "--pre", "x.sh"]), CWD, read)


def test_the_sections_of_a_site_are_joined_as_tykky_does() -> None:
    site = {
        "defaults": {"container_src": "a.sif", "isolate": "no", "mount_points": ["/scratch"], "num_cpus": 8},
        "appends": {"mount_points": ["/opt/cray"]},
        "prepends": {"wrapper_paths": ["first"]},
        "force": {"share_container": "yes"},
    }
    merged = merge_conf(site, {"isolate": "yes", "wrapper_paths": ["mine"], "installation_prefix": "/x/$USER"})
    assert read_conf(merged, {"USER": "me"}) == Conf(
        base="a.sif",
        isolate=True,
        share=True,
        prefix="/x/me",
        binds=(Bind("/opt/cray", "/opt/cray"),),
        paths=("first", "mine"),
    )
    with pytest.raises(UsageError, match="no section 'default'"):
        merge_conf({"default": {}}, {})


def test_fixed_variables_are_set_and_computed_ones_refused() -> None:
    rows = [{"type": "set", "name": "A", "value": 1}]
    assert read_conf({"extra_envs": rows, "container_src": "auto"}, {}) == Conf(variables=(("A", "1"),))
    with pytest.raises(UsageError, match="fixed value"):
        read_conf({"extra_envs": [{"type": "append", "name": "PATH", "value": "/x"}]}, {})


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("post_install", "pip install x", "post_install: [{file: SCRIPT}]"),
        ("isolat", "x", "did you mean isolate"),
        ("wrap_all", "yes", "-w PATH,PATH"),
        ("template_script", "mine.sh", "--post-install SCRIPT"),
        ("tykky_abuse", "x", "shell code is not supported"),
        ("excluded_mount_points", ["/x"], "--contain"),
    ],
)
def test_an_unsupported_key_names_its_replacement(key: str, value: object, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        read_conf({key: value}, {})
    assert hint in error.value.hint


KEYS = """
add_ld build_tmpdir build_tmpdir_base composable conda_arch conda_version container_image container_src create_wrappers
env_file env_name excluded_mount_points extra_envs installation_file_paths installation_path
installation_prefix isolate log_level mamba max_num_cpus mode mount_points num_cpus pipcache post_install pre_install
requirements_file share_container singularity_executable_path source_mount_point sqfs_image sqfs_options sqfs_src
template_script tykky_abuse update_installation uv workdir wrap_all wrap_src wrapper_ld_library_paths wrapper_paths
"""


def test_every_key_of_tykky_is_taken_or_without_effect_or_refused_by_name() -> None:
    assert TAKEN | NOTHING_TO_DO | set(REFUSED) == set(KEYS.split())


def test_the_sites_configuration_of_tykky_is_read_unchanged() -> None:
    site = {
        "defaults": {
            "log_level": 2,
            "env_name": "env1",
            "conda_version": "latest",
            "installation_prefix": "$PWD",
            "installation_path": "/LUMI_TYKKY",
            "composable": True,
            "container_src": "docker://opensuse/leap:15.4",
            "container_image": "container.sif",
            "sqfs_image": "img.sqfs",
            "source_mount_point": "/TMP_MP",
            "mount_points": ["/projappl", "/flash", "/scratch", "/run"],
            "isolate": False,
            "create_wrappers": True,
            "wrap_all": False,
            "num_cpus": 8,
            "sqfs_options": "-noappend",
            "add_ld": True,
        },
        "force": {
            "build_tmpdir_base": "$TMPDIR",
            "conda_arch": "Linux-x86_64",
            "max_num_cpus": 16,
            "workdir": "$PWD",
        },
        "appends": None,
        "prepends": None,
    }
    conf = read_conf(merge_conf(site, {}), {"PWD": "/here"})
    assert conf == Conf(
        base="docker://opensuse/leap:15.4", isolate=False, prefix="/here", binds=(Bind("/run", "/run"),)
    )


@pytest.mark.parametrize("point", ["", "scratch"])
def test_a_relative_mount_point_is_refused(point: str) -> None:
    with pytest.raises(UsageError, match=f"mount_points: '{point}' does not begin with /"):
        read_conf({"mount_points": ["/run", point]}, {})


def test_a_value_of_a_configuration_stays_a_value_whatever_a_shell_would_make_of_it() -> None:
    odd = '" ; touch x; $(id) `id` "'
    conf = read_conf({"container_src": odd, "extra_envs": [{"name": "A", "value": odd}]}, {})
    assert (conf.base, conf.variables) == (odd, (("A", odd),))


def test_a_configuration_file_alone_describes_an_installation() -> None:
    conf = read_conf({"installation_file_paths": ["environment.yml", "req.txt"], "installation_prefix": "/p/env"}, {})
    words = plan_advanced(Arguments("conda-containerize", "advanced", "conf.yaml"), conf)
    asked = plan_new(words, conf, CWD, read)
    assert asked.prefix == Path("/p/env")
    assert asked.recipe.sources == ("/project/me/environment.yml", "/project/me/req.txt")
    with pytest.raises(UsageError, match="nothing to install"):
        plan_advanced(words, Conf())


def test_a_configuration_alone_in_tykkys_own_keys_with_scripts_and_variables() -> None:
    keys = {
        "mode": "conda",
        "env_file": "environment.yml",
        "requirements_file": "req.txt",
        "template_script": "conda.sh",
        "update_installation": "no",
        "pre_install": [{"file": "before.sh"}],
        "post_install": [{"file": "after.sh"}],
        "extra_envs": [{"file": "vars"}, {"type": "set", "name": "B", "value": 2}],
        "installation_prefix": "/p/env",
    }
    conf = read_conf(keys, {})
    asked = plan_new(plan_advanced(Arguments("conda-containerize", "advanced", "c.yaml"), conf), conf, CWD, read)
    assert asked.recipe.sources == ("/project/me/environment.yml", "/project/me/req.txt")
    assert (asked.recipe.before, asked.recipe.after) == (("/project/me/before.sh",), ("/project/me/after.sh",))
    assert dict(asked.settings.variables) == {"A": "x y", "B": "2"}
    with pytest.raises(UsageError) as error:
        plan_advanced(Arguments("pip-containerize", "advanced", "c.yaml"), conf)
    assert error.value.hint == "use: conda-containerize advanced c.yaml"
    with pytest.raises(UsageError, match="requests an update"):
        plan_advanced(Arguments("conda-containerize", "advanced", "c.yaml"), read_conf({"mode": "conda_modify"}, {}))


def test_tykkys_variables_set_the_log_level_and_the_work_folder() -> None:
    assert read_log_settings({}) == LogSettings()
    assert read_log_settings({"CW_BUILD_TMPDIR": "/local/me", "CW_LOG_LEVEL": "3"}) == LogSettings(
        "/local/me", verbose=True
    )
    assert read_log_settings({"CW_LOG_LEVEL": "0"}) == LogSettings(quiet=True)
    notes = read_log_settings(
        {"CW_DEBUG_KEEP_FILES": "1", "CW_EXTRA_BIND_MOUNTS": "/a:/b", "CW_ENABLE_CONDARC": "1"}
    ).notes
    assert [note.split()[0] for note in notes] == ["CW_DEBUG_KEEP_FILES", "CW_EXTRA_BIND_MOUNTS"]
    with pytest.raises(UsageError, match="not a number"):
        read_log_settings({"CW_LOG_LEVEL": "debug"})


REPO = Path(__file__).parents[3]


def test_each_test_that_the_page_on_tykky_names_is_there_and_its_checks_add_up() -> None:
    page = (REPO / "docs/reference/tykky.md").read_text()
    there = {
        name
        for file in (REPO / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert set(re.findall(r"`(test_\w+)`", page)) - there == set()
    rows = [row.split(" | ") for row in page.splitlines() if re.match(r"\| \d", row)]
    counts = Counter[str]()
    for row in rows:
        counts[next(word for word in ("yes", "in another form", "cannot fail") if row[2].startswith(word))] += int(
            row[0].strip("| ")
        )
    sentence = " ".join(page.partition("## tykky's own tests")[2].partition("\n|")[0].split())
    numbers = re.findall(r"(?:contains|repeat) (\d+)|(\d+) (?:are tested|can never)", sentence)
    given = [int(first or second) for first, second in numbers]
    assert given == [sum(counts.values()), counts["yes"], counts["in another form"], counts["cannot fail"]]
    for line in page.splitlines():
        assert not line.startswith("| ") or line.startswith(("| checks", "| tykky |")) or "`test_" in line


@pytest.mark.parametrize(
    ("program", "text", "name"),
    [
        ("pip-containerize", "tinypkg\n", "requirements.txt"),
        ("conda-containerize", "dependencies: [zlib]\n", "environment.yml"),
        ("conda-containerize", "@EXPLICIT\n", "explicit.txt"),
    ],
)
def test_a_pipe_of_the_shell_is_read_as_the_command_means_it(
    tmp_path: Path, program: str, text: str, name: str
) -> None:
    reads, writes = os.pipe()
    os.write(writes, text.encode())
    os.close(writes)
    words = name_files(parse_arguments(program, ["new", "--prefix", "env", f"/dev/fd/{reads}"]), tmp_path)
    os.close(reads)
    assert words.what == str(tmp_path / name)
    assert (tmp_path / name).read_text() == text


def test_a_file_whose_name_tells_its_kind_stays_in_place(tmp_path: Path) -> None:
    words = parse_arguments("pip-containerize", ["new", "--prefix", "env", "pins.txt"])
    assert name_files(words, tmp_path) == words
