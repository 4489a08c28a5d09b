"""The ways into a prefix beside its commands: what a shell, `module` and Jupyter read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from venv import EnvBuilder

import pytest

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.wrap.activation import (
    KernelRequest,
    add_kernel,
    module_name,
    render_activate,
    render_activate_fish,
    render_lua,
    render_tcl,
    write_activation,
)
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind, Settings, Version, Wrapped
from argosy.wrap.versions import switch, write_version
from tests.unit.machines import make_session

VERSION = Version(
    number=1,
    identity="abc",
    made="2026-01-01T00:00:00Z",
    reason="new",
    argosy="0",
    recipe=PrefixRecipe(PrefixSourceKind.FILES, ("/a/environment.yml",)),
    settings=Settings(),
    runtime="apptainer",
    image="image.sif",
    commands=(Wrapped("python", "/opt/argosy/env/bin/python"),),
)

SHELLS = [shell for shell in ("bash", "dash", "zsh") if shutil.which(shell)]
FISH = shutil.which("fish") or ""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    made = tmp_path / "my $env"
    (made / "versions/1/bin").mkdir(parents=True)
    tool = made / "versions/1/bin/tool"
    tool.write_text("#!/bin/sh\necho of the prefix\n")
    tool.chmod(0o755)
    write_version(made / "versions/1", VERSION)
    write_activation(made, VERSION)
    switch(made, 1)
    return made


@pytest.mark.parametrize("shell", SHELLS)
def test_an_activated_prefix_gives_its_commands_and_takes_them_back(prefix: Path, shell: str) -> None:
    script = (
        'PATH=/usr/bin:/bin; . "$1/activate"; tool; echo "$ARGOSY_ACTIVE"; deactivate; echo "$PATH $ARGOSY_ACTIVE."'
    )
    done = subprocess.run([shell, "-c", script, "x", prefix], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["of the prefix", str(prefix), "/usr/bin:/bin ."]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_name_of_a_prefix_is_text_in_every_file_and_in_the_prompt(tmp_path: Path, shell: str) -> None:
    name = "e\n$(touch made) `touch made`; touch made"
    (tmp_path / "bin").mkdir()
    (tmp_path / "activate").write_text(render_activate(str(tmp_path), name))
    script = 'PS1="$ "; . "$1/activate"; echo "$PS1"'
    done = subprocess.run([shell, "-c", script, "x", tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "(e _(touch made) _touch made_; touch made) $ \n"
    assert not (tmp_path / "made").exists()
    for text in (render_lua("/p", name, "x"), render_tcl(name, "x"), render_activate_fish(name)):
        assert not any(line.startswith("$(touch") for line in text.splitlines())


@pytest.mark.skipif(not FISH, reason="fish is not installed here")
def test_fish_activates_one_prefix_then_another_and_goes_back(prefix: Path) -> None:
    other = prefix.with_name("other")
    shutil.copytree(prefix, other, symlinks=True)
    script = (
        "set PATH /usr/bin /bin; cd $argv[1]; source activate.fish; tool; echo $ARGOSY_ACTIVE;"
        ' source $argv[2]/activate.fish; echo $PATH; deactivate; echo $PATH "$ARGOSY_ACTIVE."'
    )
    done = subprocess.run(
        [FISH, "--no-config", "-c", script, prefix, other], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["of the prefix", str(prefix), f"{other}/bin /usr/bin /bin", "/usr/bin /bin ."]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_prompt_shows_the_prefix_name_without_special_characters(prefix: Path, shell: str) -> None:
    script = """PS1='> '; . "$1/activate"; printf '%s\n' "$PS1"; deactivate; printf '%s\n' "$PS1" """
    done = subprocess.run([shell, "-c", script, "x", prefix], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(my _env) > ", "> "]


@pytest.mark.parametrize("shell", SHELLS)
def test_deactivate_changes_nothing_in_a_path_that_was_reset(prefix: Path, shell: str) -> None:
    script = '. "$1/activate"; PATH=/usr/bin:/bin; deactivate; echo "$PATH $ARGOSY_ACTIVE."'
    done = subprocess.run([shell, "-c", script, "x", prefix], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("/usr/bin:/bin .\n", "")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("a venv") / "venv"
    EnvBuilder().create(made)
    return made


@pytest.mark.parametrize("shell", [each for each in SHELLS if each != "dash"])  # it cannot tell the path of the copy
def test_activating_another_prefix_in_a_venv_leaves_the_first_prefix_not_the_venv(
    prefix: Path, venv: Path, shell: str
) -> None:
    other = prefix.with_name("other")
    shutil.copytree(prefix, other, symlinks=True)
    script = (
        'PATH=/usr/bin:/bin; . "$1/activate"; . "$2/bin/activate"; . "$3/activate"; echo "$PATH"; deactivate; '
        'echo "$PATH"'
    )
    done = subprocess.run([shell, "-c", script, "x", prefix, venv, other], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{other}/bin:{venv}/bin:/usr/bin:/bin", f"{venv}/bin:/usr/bin:/bin"]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_prefix_is_left_inside_a_venv_which_keeps_its_deactivate(prefix: Path, venv: Path, shell: str) -> None:
    script = (
        'PATH=/usr/bin:/bin; . "$1/activate"; . "$2/bin/activate"; argosy_deactivate; echo "$PATH"; '
        'deactivate; echo "${VIRTUAL_ENV-no venv} ${ARGOSY_ACTIVE-no prefix}"'
    )
    done = subprocess.run([shell, "-c", script, "x", prefix, venv], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{venv}/bin:/usr/bin:/bin", "no venv no prefix"]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_prefix_is_left_after_a_venv_took_its_deactivate_away(prefix: Path, venv: Path, shell: str) -> None:
    script = 'PATH=/usr/bin:/bin; . "$1/activate"; . "$2/bin/activate"; deactivate; argosy_deactivate; echo "$PATH"'
    done = subprocess.run([shell, "-ec", script, "x", prefix, venv], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("/usr/bin:/bin\n", "")


def test_activating_another_prefix_leaves_the_first(prefix: Path) -> None:
    other = prefix.with_name("other")
    shutil.copytree(prefix, other, symlinks=True)
    script = 'PATH=/usr/bin:/bin; . "$1/activate"; . "$2/activate"; echo "$PATH"; deactivate; echo "$PATH"'
    done = subprocess.run(["/bin/bash", "-euc", script, "x", prefix, other], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{other}/bin:/usr/bin:/bin", "/usr/bin:/bin"]


def test_the_script_is_read_by_its_mere_name(prefix: Path) -> None:
    script = 'cd "$1"; PATH=/usr/bin:/bin; . activate; echo "$ARGOSY_ACTIVE"'
    done = subprocess.run(["/bin/bash", "-euc", script, "x", prefix], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{prefix}\n", "")


def test_the_activate_script_passes_shellcheck(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed here")
    (tmp_path / "activate").write_text(render_activate("/data/it's mine", "it's mine"))
    done = subprocess.run([shellcheck, tmp_path / "activate"], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_module_has_a_name_that_can_be_typed(prefix: Path) -> None:
    assert module_name("my env, 2") == "my-env-2"
    assert module_name("...") == "environment"
    assert sorted(path.name for path in (prefix / "modulefiles").iterdir()) == ["my-env", "my-env.lua"]


def test_modulefiles_find_the_prefix_by_their_own_path_and_quote_its_text(tmp_path: Path) -> None:
    lua = render_lua('/a "b"', "env", 'x "y" [z]')
    assert 'match(myFileName(), "^(/.*)/modulefiles/' in lua
    assert 'or "/a \\"b\\""' in lua
    tcl = render_tcl("env", 'x "y" [exit 3] $z')
    assert 'module-whatis "x \\"y\\" \\[exit 3\\] \\$z"' in tcl
    if shutil.which("tclsh"):
        head = "proc module-whatis text {puts $text}; proc prepend-path {n v} {puts $v}; proc setenv {n v} {}\n"
        script = tmp_path / "x.tcl"
        script.write_text(f'set ModulesCurrentModulefile "/p q/modulefiles/env"\n{head}{tcl}')
        done = subprocess.run([shutil.which("tclsh") or "", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ['x "y" [exit 3] $z', "/p q/bin"]


def test_a_kernel_starts_the_python_of_the_prefix(prefix: Path, tmp_path: Path) -> None:
    session = make_session(runner=FakeRunner())
    spec = add_kernel(KernelRequest(prefix, tmp_path / "jupyter"), session)
    assert spec == tmp_path / "jupyter/kernels/my-env/kernel.json"
    told = json.loads(spec.read_text())
    assert told["argv"] == [f"{prefix}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert told["display_name"] == "my $env"
    add_kernel(KernelRequest(prefix, tmp_path / "jupyter"), session)
    spec.write_text('{"argv": ["/usr/bin/python3"]}')
    with pytest.raises(UsageError, match="another kernel"):
        add_kernel(KernelRequest(prefix, tmp_path / "jupyter"), session)
    add_kernel(KernelRequest(prefix, tmp_path / "jupyter", force=True), session)
    assert json.loads(spec.read_text()) == told


def test_a_python_without_ipykernel_is_refused_with_the_command_to_add_it(prefix: Path, tmp_path: Path) -> None:
    python = (f"{prefix}/bin/python", "-c", "import ipykernel")
    session = make_session(runner=FakeRunner([(python, Reply(1, "", "ModuleNotFoundError: No module"))]))
    with pytest.raises(CheckFailed) as error:
        add_kernel(KernelRequest(prefix, tmp_path / "jupyter"), session)
    assert error.value.hint == f"add it: argosy wrap update '{prefix}' ipykernel"
    assert not (tmp_path / "jupyter").exists()


LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")
ENVIRONMENT_MODULES = Path("/usr/lib/x86_64-linux-gnu/modulecmd.tcl")


@pytest.mark.parametrize("program", [LMOD, ENVIRONMENT_MODULES], ids=["Lmod", "Environment Modules"])
@pytest.mark.parametrize("kind", ["lua", "Tcl"])
def test_module_load_gives_the_commands_and_unload_takes_them_back(prefix: Path, program: Path, kind: str) -> None:
    if not program.exists() or (program is ENVIRONMENT_MODULES and kind == "lua"):
        pytest.skip("not installed here (Debian: lmod or environment-modules)" if kind == "Tcl" else "reads Tcl only")
    if kind == "Tcl":
        (prefix / "modulefiles/my-env.lua").unlink()
    moved = prefix.with_name("moved")
    prefix.rename(moved)
    script = (
        'module() { eval "$("$PROGRAM" bash "$@")"; }; module load my-env; tool; echo "$ARGOSY_ACTIVE"; '
        'module unload my-env; command -v tool || echo "gone $ARGOSY_ACTIVE."'
    )
    env = {"PATH": "/usr/bin:/bin", "MODULEPATH": str(moved / "modulefiles"), "PROGRAM": str(program)}
    done = subprocess.run(["/bin/bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["of the prefix", str(moved), "gone ."], done.stderr
