"""What shells read of tykky: `tykky activate`, and the completion of its commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.app import app
from argosy.cli.compat.tykky_arguments import render_files
from argosy.wrap.activation import render_activate

SHELLS = [shell for shell in ("bash", "dash", "zsh") if shutil.which(shell)]
COMPLETERS = [shell for shell in SHELLS if shell != "dash"]
READ_COMPLETION = {
    "bash": '. "$1"; shift',
    "zsh": 'autoload -Uz compinit && compinit -D && . "$1" && shift && emulate sh',  # as zsh calls functions of bash
}
COMPLETE = """
for line; do
    COMP_WORDS=($line)
    case $line in *" ") COMP_WORDS+=("") ;; esac
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _argosy_tykky
    echo "$line=${COMPREPLY[*]}"
done
"""
COMPLETED = {
    "conda-containerize u": "update",
    "conda-containerize new --m": "--mamba",
    "/x/bin/pip-containerize new --s": "--slim --system-site-packages",
    "pip-containerize update env --pre": "--pre-install",
    "pip-containerize update --slim --sl": "",
    "wrap-container --w": "--wrapper-paths",
    "wrap-install dir --ma": "--mask",
    "wrap-install --prefix --ma": "",
    "wrap-install ": "",
    "tykky de": "deactivate",
    "tykky activate ": "env1",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a folder with tykky's files, and one with an environment."""
    (tmp_path / "tools").mkdir()
    for name, text in render_files(str(tmp_path / "tools")).items():
        (tmp_path / "tools" / name).write_text(text)
    prefix = tmp_path / "all mine/env1"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/tool").write_text("#!/bin/sh\necho of env1\n")
    (prefix / "bin/tool").chmod(0o755)
    (prefix / "activate").write_text(render_activate(str(prefix), "env1"))
    return tmp_path


def shell(name: str, place: Path, script: str, *words: str, **env: str) -> str:
    command = [name, "-c", script, *(["x"] if name != "fish" else []), *words]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(place)} | env
    done = subprocess.run(command, env=variables, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("name", SHELLS)
def test_tykky_activates_an_environment_by_name_and_by_folder(place: Path, name: str) -> None:
    found = {"TYKKY_PATH": f"/nowhere:{place}/all mine"}
    script = '. tools/tykky.sh; tykky activate {}; tool; echo "$TYKKY_PREFIX"; tykky deactivate; echo "$PATH"'
    for word in ("env1", "'all mine/env1'", "'all mine/env1/'"):
        said = shell(name, place, script.format(word), **found)
        assert said.splitlines() == ["of env1", f"{place}/all mine/env1", "/usr/bin:/bin"]


@pytest.mark.parametrize("name", SHELLS)
def test_an_unknown_environment_is_reported_and_changes_nothing(place: Path, name: str) -> None:
    script = '. tools/tykky.sh; tykky activate env2 || echo "$PATH"'
    assert shell(name, place, script).splitlines() == [
        "/usr/bin:/bin",
        "tykky: there is no environment env2",
        "  -> give its folder, or add the folder above it to TYKKY_PATH=",
    ]
    (place / "env2").mkdir()
    (place / "env2/common.sh").touch()
    assert "made by tykky itself" in shell(name, place, script)


def test_a_child_shell_deactivates_what_its_parent_activated(place: Path) -> None:
    script = (
        ". tools/tykky.sh; tykky activate 'all mine/env1'; bash -c '. tools/tykky.sh; tykky deactivate; echo $PATH'"
    )
    assert shell("bash", place, script) == "/usr/bin:/bin"


def test_the_prompt_stays_unchanged_on_request(place: Path) -> None:
    script = "PS1='$ '; . tools/tykky.sh; tykky activate 'all mine/env1'; echo \"$PS1\""
    assert shell("bash", place, script) == "(env1) $"
    assert shell("bash", place, script, TYKKY_CHANGE_PS1="0") == "$"


@pytest.mark.parametrize("words", ["conda-containerize --help", "pip-containerize new -h", "wrap-install --help"])
def test_the_help_of_a_command_can_be_piped(words: str) -> None:
    command = [sys.executable, "-m", "argosy.cli", "compat", "run", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {words.rpartition(' ')[0]}")


@pytest.mark.parametrize("name", COMPLETERS)
def test_bash_and_zsh_complete_the_commands_of_tykky(place: Path, name: str) -> None:
    words = (str(place / "tools/tykky-completion.bash"), *COMPLETED)
    said = shell(name, place, READ_COMPLETION[name] + COMPLETE, *words, TYKKY_PATH=f"{place}/all mine")
    assert dict(line.split("=") for line in said.splitlines()) == COMPLETED


@pytest.mark.parametrize("name", COMPLETERS)
def test_a_shell_of_a_person_has_the_completion_and_a_script_pays_nothing_for_it(place: Path, name: str) -> None:
    ask = ". tools/tykky.sh; type _argosy_tykky 2>&1; complete -p wrap-install 2>&1; print $_comps[wrap-install] 2>&1"
    known = {"bash": "complete -o default -F _argosy_tykky", "zsh": "_bash_complete -o default -F _argosy_tykky"}
    assert known[name] not in shell(name, place, f"{ask}; true")
    command = [name, *(["--norc"] if name == "bash" else ["-f"]), "-i", "-c", f"{ask}; true"]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin"}, cwd=place, capture_output=True, text=True, check=False
    )
    assert known[name] in done.stdout


def test_fish_activates_and_completes(place: Path) -> None:
    if not shutil.which("fish"):
        pytest.skip("fish is not installed here")
    script = (
        "source tools/tykky.fish; tykky activate env1; tool; tykky deactivate; string join : $PATH; "
        "complete -C'conda-containerize new --mam'; complete -C'pip-containerize upd'; complete -C'wrap-install --mas'"
    )
    said = shell("fish", place, script, TYKKY_PATH=f"{place}/all mine").splitlines()
    assert said[:2] == ["of env1", "/usr/bin:/bin"]
    assert [line.split("\t")[0] for line in said[2:]] == ["--mamba", "update", "--mask"]


@pytest.mark.parametrize("name", ["tykky.sh", "tykky-completion.bash"])
def test_shell_files_pass_shellcheck(place: Path, name: str) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed here")
    done = subprocess.run([shellcheck, "-x", place / "tools" / name], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_the_files_for_shells_come_with_the_commands(place: Path) -> None:
    done = CliRunner().invoke(app, ["compat", "install", str(place / "bin"), "tykky"])
    assert done.exit_code == 0, done.output
    assert {path.name for path in (place / "bin").iterdir()} > set(render_files(""))
    assert (place / "bin/tykky.sh").stat().st_mode & 0o777 == 0o644
    assert str(place / "bin/tykky-completion.bash") in (place / "bin/tykky.sh").read_text()
