"""The shells complete argosy's words: each in the way that the shell itself uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ARGOSY = Path(sys.executable).parent / "argosy"
ENVIRONMENT = {**os.environ, "PATH": f"{ARGOSY.parent}:{os.environ['PATH']}"}

BASH = """\
set -u
eval "$(argosy completion bash)"
complete -p argosy
COMP_WORDS=({words}) COMP_CWORD={number}
_argosy_completion argosy
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_shell(shell: str, *words: str) -> list[str]:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    done = subprocess.run((shell, *words), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def in_bash(*words: str) -> list[str]:
    script = BASH.format(words=" ".join(f"'{word}'" for word in ("argosy", *words)), number=len(words))
    registered, *found = in_shell("bash", "--norc", "-c", script)
    assert registered.endswith("argosy")
    return found


def test_bash_completes_a_command() -> None:
    assert in_bash("la") == ["launch"]


def test_bash_completes_an_option_of_a_command_and_its_values() -> None:
    assert "--dry-run" in in_bash("launch", "--dr")
    assert in_bash("run", "--gpu", "nv") == ["nv", "nvccli"]


def test_bash_completes_the_name_of_a_site() -> None:
    assert in_bash("launch", "a.sif", "--site", "lumi") == ["lumi-c", "lumi-g"]
    assert in_bash("sites", "diff", "lumi-c", "daw") == ["dawn"]


def test_bash_completes_images_of_the_catalog_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf/digits.sif").touch()
    (tmp_path / "digits-new.sif").touch()
    monkeypatch.setitem(ENVIRONMENT, "ARGOSY_IMAGES", str(tmp_path / "shelf"))
    assert in_bash("run", "dig") == ["digits", "digits-new.sif"]
    assert in_bash("build", "x.yml", "--base", "digits-") == ["digits-new.sif"]
    assert in_bash("run", "digits", "--", "digits-") == ["digits-new.sif"]
    assert in_bash("run", "digits", "--workdir", "she") == ["shelf"]


def test_bash_completes_launchers_partitions_jobs_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "argosy/runs/20260101-1"
    run.mkdir(parents=True)
    (run / "submitted.json").write_text('{"job": "4711"}')
    monkeypatch.setitem(ENVIRONMENT, "XDG_STATE_HOME", str(tmp_path))
    assert in_bash("launch", "x.sif", "--launcher", "tor") == ["torchrun"]
    assert "small-g" in in_bash("launch", "x.sif", "--site", "lumi-g", "--partition", "")
    assert in_bash("logs", "47") == ["4711"]
    assert in_bash("config", "set", "acc") == ["account"]


def test_bash_completes_subcommands() -> None:
    assert in_bash("images", "i") == ["info"]


def test_fish_completes_a_command() -> None:
    assert any(
        "launch" in line for line in in_shell("fish", "-c", "argosy completion fish | source; complete -C'argosy la'")
    )


def test_zsh_takes_the_script_as_it_is() -> None:
    script = 'autoload -U compinit && compinit -D && eval "$(argosy completion zsh)" && print -r -- $_comps[argosy]'
    assert in_shell("zsh", "-f", "-c", script) == ["_argosy_completion"]


@pytest.mark.parametrize("kind", ["zsh", "fish"])
def test_other_shells_complete_commands(kind: str) -> None:
    word = "la" if kind == "fish" else "1"  # fish gives the word itself, zsh its number
    asked = {"_ARGOSY_COMPLETE": f"{kind}_complete", "COMP_WORDS": "argosy la", "COMP_CWORD": word}
    done = subprocess.run((ARGOSY,), env=ENVIRONMENT | asked, capture_output=True, text=True, check=False)
    assert "launch" in done.stdout, done.stderr
