"""Other tools' words: what they become, what is refused, how their commands are installed."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from argosy.builder.conda_scripts import parse_activation
from argosy.builder.layer import rename_prefix
from argosy.cli.app import app
from argosy.cli.cmd_compat import PROGRAMS, known_tools, programs_of, render_program
from argosy.cli.compat.cotainr import PREFIX, CotainrOptions, is_cotainr, plan_request
from argosy.core.errors import UsageError
from argosy.core.layout import plan_activation
from argosy.sites.bases import System, read_systems
from argosy.sites.read import DATA

SYSTEMS = MappingProxyType({"big-g": System("/base.sif", "big"), "big-c": System("docker://ubuntu:24.04", "big")})


def test_cotainrs_arguments_become_a_request() -> None:
    request = plan_request(CotainrOptions(Path("/x/out.sif"), system="big-g", conda_env=Path("env.yml")), SYSTEMS)
    assert (request.base, request.site, request.output) == ("/base.sif", "big", Path("/x/out.sif"))
    assert request.sources == (Path("env.yml"),)
    assert request.prefix_layout.prefix == PREFIX


def test_a_base_image_is_for_no_site_and_an_environment_may_be_left_out() -> None:
    request = plan_request(CotainrOptions(Path("/x/out.sif"), base_image="docker://ubuntu:24.04"), {})
    assert (request.base, request.site, request.sources) == ("docker://ubuntu:24.04", "", ())


def test_cotainrs_labels_quote_every_argument() -> None:
    words = CotainrOptions(Path("out.sif"), base_image="a b", conda_env=Path("e.yml"), accept_licenses=True)
    labels = dict(plan_request(words, {}).prefix_layout.labels)
    assert labels["cotainr.command"] == ("cotainr build out.sif '--base-image=a b' --conda-env=e.yml --accept-licenses")
    assert "argosy" in labels["cotainr.version"]
    assert labels["cotainr.url"] == "https://github.com/DeiC-HPC/cotainr"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (CotainrOptions(Path("o")), "--base-image or --system is missing"),
        (CotainrOptions(Path("o"), base_image="b", system="big-g"), "cannot be used together"),
        (CotainrOptions(Path("o"), system="big-h"), "did you mean --system=big-"),
        (CotainrOptions(Path("o"), system="nowhere-at-all"), "--base-image=BASE"),
    ],
)
def test_impossible_arguments_are_refused_with_a_next_step(words: CotainrOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_request(words, SYSTEMS)


def test_the_shipped_profiles_name_systems_with_their_bases() -> None:
    systems = read_systems((DATA,))
    assert {"lumi-g", "lumi-c"} <= set(systems)
    assert all(system.base and system.site for system in systems.values())


@pytest.mark.parametrize(
    ("line", "theirs"),
    [
        ("env.yml --base debian:bookworm -o my.sif", False),
        ("env.yml --base=docker://x -o --system.sif", False),
        ("my.sif --system=big-g --conda-env=env.yml", True),
        ("my.sif --base-image docker://x", True),
    ],
)
def test_mixed_options_of_cotainr_and_argosy_are_refused(line: str, theirs: bool) -> None:  # noqa: FBT001
    assert is_cotainr(line.split()) is theirs


def test_an_option_that_only_argosy_has_names_its_command() -> None:
    said = CliRunner().invoke(app, ["build", "out.sif", "--base-image=x", "--format=sqsh"])
    assert isinstance(said.exception, UsageError)
    assert str(said.exception) == (
        "cotainr has no option --format\n  -> use Argosy's options: argosy build environment.yml --base BASE -o IMAGE …"
    )


def test_the_environments_variables_name_the_folder_that_cotainr_has() -> None:
    named = rename_prefix(parse_activation("", "tiny", (("DATA", "/opt/argosy/env/share:/data"),)), PREFIX)
    assert dict(named.prepend) == {"PATH": f"{PREFIX}/bin"}
    assert dict(named.identity)["CONDA_PREFIX"] == PREFIX
    assert dict(named.identity)["CONDA_DEFAULT_ENV"] == "conda_container_env"
    assert dict(named.identity)["ARGOSY_PREFIX"] == "/opt/argosy"
    assert dict(named.default) == {"DATA": f"{PREFIX}/share:/data"}


def test_a_folder_with_only_the_same_prefix_is_left_alone() -> None:
    named = rename_prefix(plan_activation(extra=(("A", "/opt/argosy/envy"),)), "/else")
    assert dict(named.default) == {"A": "/opt/argosy/envy"}


def test_commands_are_installed_for_one_tool_or_for_all(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compat", "install", str(tmp_path / "bin"), "cotainr"])
    assert done.exit_code == 0, done.output
    program = tmp_path / "bin/cotainr"
    assert program.stat().st_mode & 0o777 == 0o755
    assert 'compat run cotainr "$@"' in program.read_text()
    again = CliRunner().invoke(app, ["compat", "install", str(tmp_path / "bin"), "cotainr"])
    assert isinstance(again.exception, UsageError)
    assert again.exception.hint == "choose another folder, or use --force to replace it"
    assert set(programs_of(())) == set(PROGRAMS)
    assert set(programs_of(("cotainr",))) == {"cotainr"} and "cotainr" in known_tools()  # noqa: PT018


@pytest.mark.parametrize(("name", "said"), [("file", "is a file"), ("dangling", "is a broken link to nowhere")])
def test_something_in_place_of_the_folder_is_reported(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    done = CliRunner().invoke(app, ["compat", "install", str(tmp_path / name)])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.exception.hint == "choose another folder with FOLDER"


@pytest.mark.parametrize(
    "words", [("", "--base-image", "x.sif"), ("a.sif", "--base-image", "x.sif", "--conda-env", "")]
)
def test_an_empty_file_name_is_reported_as_an_unset_variable(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["compat", "run", "cotainr", "build", *words])
    assert "the path is empty" in done.output


def test_a_python_with_a_blank_in_its_path_starts() -> None:
    assert "exec '/my python/bin/python' -P -m argosy.cli" in render_program("cotainr", "/my python/bin/python")


def test_cotainr_without_arguments_and_its_version_answer_as_cotainr_does() -> None:
    alone, version = (CliRunner().invoke(app, ["compat", "run", "cotainr", *words]) for words in ([], ["--version"]))
    assert (alone.exit_code, "cotainr build my.sif" in alone.output) == (0, True)
    assert (version.exit_code, version.output.startswith("cotainr, answered by argosy ")) == (0, True)


def test_cotainr_accepts_verbose_or_quiet_repeatedly_but_not_both() -> None:
    words = ["compat", "run", "cotainr", "build", "x.sif", "--base-image=nowhere.sif", "-vv", "--quiet"]
    said = CliRunner().invoke(app, words)
    assert isinstance(said.exception, UsageError)
    assert "--verbose and --quiet cannot be used together" in str(said.exception)


def test_a_tool_is_not_taken_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word, tool in (("cotainr", "cotainr"), ("wrap-install", "tykky")):
        with pytest.raises(UsageError, match="is a tool, not a folder") as caught:
            CliRunner().invoke(app, ["compat", "install", word], catch_exceptions=False, standalone_mode=False)
        assert caught.value.hint.endswith(f"install ~/.local/bin {tool}")
    assert not list(tmp_path.iterdir())
