"""Configuration files: keys, precedence, errors, and edits that keep other lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.recipes import user_config
from argosy.recipes.launch_options import LAUNCH, LaunchOptions
from argosy.recipes.option_row import types
from argosy.recipes.user_config import KEYS, edit_config, fill_options, read_files, read_variables, write_config
from tests.unit.cli.test_cli import argosy

DRY = ("launch", "/p/x.sif", "--nodes", "1", "--dry-run", "--", "./a.out")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give the environment of a user with an own configuration, in an empty folder, and a system's configuration."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(user_config, "SYSTEM_CONFIG", tmp_path / "etc/config.toml")
    for name in ("ARGOSY_SITE", "ARGOSY_ACCOUNT", "SBATCH_ACCOUNT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_keys_are_options_and_folders() -> None:
    assert {"site", "account", "partition", "qos", "reservation", "mail_type", "launcher", "runtime"} <= set(KEYS)
    assert set(KEYS) - set(LAUNCH) == {"cache", "state", "images", "trusted_folders"}


def test_only_options_that_are_texts_can_be_configured() -> None:
    """A configured value is a text, and nothing converts it."""
    kinds = types(LaunchOptions)
    assert [name for name, row in LAUNCH.items() if row.config and kinds[name] is not str] == []


def test_variables_win_over_the_users_file_and_that_over_the_systems(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "etc/config.toml", 'site = "a"\naccount = "b"\nqos = "c"\n')
    write(tmp_path / "config/argosy/config.toml", '# mine\naccount = "d"\nqos = "e"\n')
    files = read_files(home)
    assert {key: setting.value for key, setting in files.items()} == {"site": "a", "account": "d", "qos": "e"}
    assert files["account"].source == f"{tmp_path}/config/argosy/config.toml:2"
    variables = read_variables({"ARGOSY_QOS": "f", "ARGOSY_NODES": "9", "ARGOSY_SITE": ""})
    assert {key: (each.value, each.source) for key, each in variables.items()} == {"qos": ("f", "ARGOSY_QOS")}
    filled = fill_options({"site": "", "nodes": 3}, ("site", "qos"), home | {"ARGOSY_QOS": "f"})
    assert filled == {"site": "a", "nodes": 3, "qos": "f"}
    assert "account" not in fill_options({}, ("account",), home, preset=("account",))


def test_an_unknown_key_stops_nobody_if_the_administrators_wrote_it(
    tmp_path: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", home | {"PATH": os.environ["PATH"]})
    write(tmp_path / "etc/config.toml", '# ours\nnew = 1\naccount = "b"\n')
    assert set(read_files(home)) == {"account"}
    assert (
        argosy("config").stderr
        == f"{tmp_path}/etc/config.toml: this version of Argosy does not know, and does not use: new (line 2)\n"
    )
    write(tmp_path / "config/argosy/config.toml", "new = 1\n")
    with pytest.raises(UsageError, match="unknown key 'new'"):
        read_files(home)


def test_the_defaults_of_a_file_are_for_the_site_that_it_names(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "etc/config.toml", 'site = "a"\npartition = "main"\nmail_type = "END"\n')
    both = {"site", "partition", "mail_type"}
    assert set(read_files(home)) == set(read_files(home, site="a")) == set(read_files(home, site="/etc/a.toml")) == both
    assert set(read_files(home, site="b")) == both - {"partition"}
    assert set(read_files(home | {"ARGOSY_SITE": "b"})) == both - {"partition"}
    assert "partition" not in fill_options({"site": "b"}, ("site", "partition"), home)
    write(tmp_path / "config/argosy/config.toml", 'account = "mine"\n')
    assert set(read_files(home, site="b")) == {"site", "account", "mail_type"}
    write(tmp_path / "config/argosy/config.toml", 'site = "b"\nqos = "q"\n')
    assert {key: each.value for key, each in read_files(home).items()} == {"site": "b", "qos": "q", "mail_type": "END"}
    assert set(read_files(home, site="a")) == both


def test_an_empty_value_of_the_users_file_unsets_that_of_the_system(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "etc/config.toml", 'site = "a"\npartition = "main"\n')
    with pytest.raises(UsageError, match="does not set partition") as error:
        write_config(home, "partition", None, waiting=print)
    assert f"{tmp_path}/etc/config.toml:2" in error.value.evidence
    assert "argosy config set partition ''" in error.value.hint
    write_config(home, "partition", "", waiting=print)
    assert set(read_files(home)) == {"site"}
    with pytest.raises(UsageError, match="cannot set qos to an empty value"):
        write_config(home, "qos", "", waiting=print)
    write_config(home, "partition", None, waiting=print)
    assert read_files(home)["partition"].value == "main"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('site = "a"\nacount = "b"\n', "has an unknown key 'acount'\n  {}:2: acount\n  -> did you mean 'account'?"),
        ("account = 3\n", 'is not valid\n  {}:1: the value of account is not a string\n  -> write account = "VALUE"'),
        ("account = b\n", "is not valid TOML\n  {}:1: Invalid value (at line 1, column 11)\n  -> write one KEY"),
    ],
)
def test_a_mistake_in_a_file_is_one_error_with_its_line(
    text: str, message: str, tmp_path: Path, home: dict[str, str]
) -> None:
    path = tmp_path / "config/argosy/config.toml"
    write(path, text)
    with pytest.raises(UsageError) as error:
        read_files(home)
    assert str(error.value).startswith(f"{path} {message.format(path)}")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_that_is_not_regular_is_one_error(
    make: Callable[[Path], None], tmp_path: Path, home: dict[str, str]
) -> None:
    """Nobody writes to the pipe, and the device has no end."""
    path = tmp_path / "config/argosy/config.toml"
    path.parent.mkdir(parents=True)
    make(path)
    before = path.lstat()
    for arguments in (("config",), ("config", "set", "account", "a"), ("config", "unset", "account"), DRY):
        done = argosy(*arguments, **home)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"argosy: cannot read {path}"), arguments
    with pytest.raises(UsageError, match="cannot read"):
        write_config(home, "account", "a", waiting=print)
    assert path.lstat().st_ino == before.st_ino


def test_a_link_to_dev_null_is_an_empty_file_that_is_not_written(tmp_path: Path, home: dict[str, str]) -> None:
    path = tmp_path / "config/argosy/config.toml"
    path.parent.mkdir(parents=True)
    path.symlink_to(os.devnull)
    assert read_files(home) == {}
    with pytest.raises(UsageError, match="cannot read"):
        write_config(home, "account", "a", waiting=print)


def test_an_edit_keeps_every_other_line() -> None:
    text = '# mine\nsite = "a"  # here\n\naccount = "b"\n'
    assert edit_config(text, "site", 'x"y') == '# mine\nsite = "x\\"y"  # here\n\naccount = "b"\n'
    assert edit_config(text, "qos", "q") == text + 'qos = "q"\n'
    assert edit_config(text, "site", None) == '# mine\n\naccount = "b"\n'


def test_a_file_that_cannot_be_edited_stays_as_it_is(tmp_path: Path, home: dict[str, str]) -> None:
    path = tmp_path / "config/argosy/config.toml"
    write(path, "site = a\n")
    with pytest.raises(UsageError, match="is not valid TOML"):
        write_config(home, "site", "b", waiting=print)
    write(path, 'site = """\na"""\n')
    with pytest.raises(UsageError, match="does not set account"):
        write_config(home, "account", None, waiting=print)
    with pytest.raises(UsageError, match="there is no configuration key 'acount'"):
        write_config(home, "acount", None, waiting=print)
    assert path.read_text() == 'site = """\na"""\n'
    write_config(home, "site", "b", waiting=print)
    assert path.read_text() == 'site = "b"\n'


def test_an_unknown_key_can_be_removed(tmp_path: Path, home: dict[str, str]) -> None:
    path = tmp_path / "config/argosy/config.toml"
    write(path, 'acount = "b"\nsite = "local"\n')
    assert argosy("config", **home).returncode == 2
    assert argosy("config", "unset", "acount", **home).returncode == 0
    assert path.read_text() == 'site = "local"\n'


def test_what_a_killed_process_left_next_to_the_file_is_removed(tmp_path: Path, home: dict[str, str]) -> None:
    folder = tmp_path / "config/argosy"
    write(folder / f".config.toml.{2**22 + 1}.0123abcd.part", "sit")
    write_config(home, "site", "b", waiting=print)
    assert [path.name for path in folder.iterdir()] == ["config.toml"]


def test_a_link_to_a_configuration_file_stays_a_link(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "settings/argosy.toml", 'account = "a"\n')
    link = tmp_path / "config/argosy/config.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "settings/argosy.toml")
    write_config(home, "site", "b", waiting=print)
    assert link.is_symlink()
    assert link.read_text() == 'account = "a"\nsite = "b"\n'
    assert [path.name for path in link.parent.iterdir()] == ["config.toml"]


def test_nothing_is_made_to_remove_a_key_of_a_file_that_does_not_exist(tmp_path: Path, home: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="does not set account"):
        write_config(home, "account", None, waiting=print)
    assert not (tmp_path / "config").exists()


def test_a_launch_takes_its_site_and_account_from_the_configuration(tmp_path: Path, home: dict[str, str]) -> None:
    assert argosy("config", "set", "site", "lumi-g", **home).returncode == 0
    assert argosy("config", "set", "account", "mine", **home).returncode == 0
    assert "#SBATCH --account=mine\n" in argosy(*DRY, **home).stdout
    assert "#SBATCH --account=slurms\n" in argosy(*DRY, **home, SBATCH_ACCOUNT="slurms").stdout
    write(tmp_path / "work/argosy.toml", '[launch]\naccount = "projects"\n')
    project = argosy(*DRY, **home, SBATCH_ACCOUNT="slurms").stdout
    assert "#SBATCH --account=projects\n" in project
    variable = argosy(*DRY, **home, ARGOSY_ACCOUNT="variables").stdout
    assert "#SBATCH --account=variables\n" in variable
    option = argosy("launch", "--account", "options", *DRY[1:], **home, ARGOSY_ACCOUNT="variables").stdout
    assert "#SBATCH --account=options\n" in option
    explained = json.loads(argosy("explain", "--json", *DRY[1:4], "--", "./a.out", **home).stdout)
    sources = {row["what"]: row["source"] for row in explained}
    assert sources["--account"] == "argosy.toml:2"


def test_config_shows_each_value_with_its_source(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "config/argosy/config.toml", 'site = "lumi-g"\npartition = "small-g"\ncache = "/big"\n')
    write(tmp_path / "work/argosy.toml", '[launch]\npartition = "standard-g"\n')
    found = json.loads(argosy("config", "--json", **home, ARGOSY_QOS="high", SBATCH_ACCOUNT="s").stdout)
    assert {row["key"]: (row["value"], row["source"].rpartition("/")[2]) for row in found} == {
        "site": ("lumi-g", "config.toml:1"),
        "partition": ("standard-g", "argosy.toml:2"),
        "account": ("s", "SBATCH_ACCOUNT"),
        "qos": ("high", "ARGOSY_QOS"),
        "cache": ("/big", "config.toml:3"),
    }
    assert argosy("config", "get", "partition", **home).stdout == "standard-g\n"
    assert argosy("config", "get", "launcher", **home).returncode == 7
    text = argosy("config", **home).stdout
    assert "not set: " in text
    assert f"site       lumi-g      {tmp_path}/config/argosy/config.toml:1" in text


def test_a_value_that_another_source_overrides_is_reported(home: dict[str, str]) -> None:
    done = argosy("config", "set", "account", "mine", **home, ARGOSY_ACCOUNT="other")
    assert done.stderr == "ARGOSY_ACCOUNT takes precedence here: other\n"
    assert argosy("config", "set", "site", "lumi", **home).stderr.endswith("did you mean lumi-c or lumi-g?\n")
    assert "did you mean 'account'?" in argosy("config", "set", "acount", "x", **home).stderr


def test_a_configured_account_is_not_an_error_without_slurm(home: dict[str, str]) -> None:
    argosy("config", "set", "account", "mine", **home)
    done = argosy("launch", __file__, "--site", "local", "--dry-run", "--", "true", **home)
    assert "--account" not in done.stderr


def test_the_folders_of_the_configuration_are_used(tmp_path: Path, home: dict[str, str]) -> None:
    argosy("config", "set", "images", str(tmp_path / "shelf"), **home)
    assert f"no images in {tmp_path}/shelf" in argosy("images", "ls", **home).stdout
    assert "/other" in argosy("images", "ls", **home, ARGOSY_IMAGES="/other").stdout


def test_variables_in_the_folders_of_a_configuration_file_are_expanded(tmp_path: Path, home: dict[str, str]) -> None:
    write(tmp_path / "etc/config.toml", "")
    own = tmp_path / "config/argosy/config.toml"
    write(own, 'images = "$SHELF/a:${SHELF}/b"\n')
    assert f"{tmp_path}/shelf/a" in argosy("images", "ls", **home, SHELF=str(tmp_path / "shelf")).stdout
    unset = argosy("images", "ls", **home)
    assert unset.returncode == 2
    assert "SHELF is not set" in unset.stderr
    assert f"{own}:1" in unset.stderr
    for value in ("/scratch/{user}/argosy", "/scratch/$/argosy"):
        write(own, f'cache = "{value}"\n')
        refused = argosy("images", "ls", **home)
        assert refused.returncode == 2
        assert value in refused.stderr
    assert argosy("config", "set", "cache", "$NOWHERE/x", **home).returncode == 2


def test_a_check_takes_the_configured_site(home: dict[str, str]) -> None:
    assert "no site is given" in argosy("check", "x.sif", **home).stderr
    assert "there is no image" in argosy("check", "x.sif", **home, ARGOSY_SITE="lumi-g").stderr
