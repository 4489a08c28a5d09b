"""The command line: help, errors, exit codes, plain output."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from argosy.cli.__main__ import run_app
from argosy.cli.app import COMMANDS, app
from argosy.cli.cmd_run import run
from argosy.cli.hints import COMMAND_HINTS, OPTION_HINTS
from argosy.core.errors import ArgosyError
from argosy.core.os_errors import explain_os_error
from argosy.core.session import PlainReporter
from argosy.recipes.launch_options import LAUNCH
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind, Settings, Version
from argosy.wrap.versions import switch, write_version

CONTROL = "\x1b"


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def argosy(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process: a start of Python costs more than what is looked at here."""
    out, err, handlers = io.StringIO(), io.StringIO(), [signal.getsignal(each) for each in STOPPING]
    asked = patch.object(sys, "argv", ["argosy", *words]), patch.dict(os.environ, {"ARGOSY_DEBUG": ""} | environment)
    with redirect_stdout(out), redirect_stderr(err), asked[0], asked[1]:
        code = run_app([*words])
    for each, handler in zip(STOPPING, handlers, strict=True):
        signal.signal(each, handler)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def start(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as users do."""
    command = (sys.executable, "-m", "argosy.cli", *words)
    env = {**os.environ, **environment}
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        env=env,
        encoding="iso8859-1" if "PYTHONIOENCODING" in environment else "utf-8",
    )


@pytest.mark.parametrize(
    "words",
    [
        *("run --dev-dir  x.sif -- true", "shell --dev-dir  x.sif", "wrap x.sif --prefix e -w ", "wrap update e -w "),
        *("launch --after  x.sif -- true", "launch --array= x.sif -- true", "run --with  x.sif -- true"),
    ],
)
def test_an_empty_value_is_reported_as_an_unset_variable(words: str) -> None:
    said = argosy(*words.split(" "))
    assert " is empty\n" in said.stderr or "the path is empty" in said.stderr
    assert "check that the shell variable is set" in said.stderr


@pytest.mark.parametrize("words", ["cache info", "cache gc", "images ls"])
@pytest.mark.parametrize("place", ["file", "loop"])
def test_a_file_in_place_of_the_cache_is_a_usage_error(tmp_path: Path, words: str, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    there = str(tmp_path / place)
    said = argosy(*words.split(), ARGOSY_CACHE=there, ARGOSY_STATE=there, ARGOSY_IMAGES=there)
    assert "defect" not in said.stderr


def test_an_empty_package_name_is_reported_as_an_unset_variable(tmp_path: Path) -> None:
    version = Version(
        1,
        "a",
        "",
        "new",
        "0",
        PrefixRecipe(PrefixSourceKind.FILES, ("/a/r.txt",)),
        Settings(),
        "apptainer",
        "image.sif",
    )
    (tmp_path / "versions/1/bin").mkdir(parents=True)
    write_version(tmp_path / "versions/1", version)
    switch(tmp_path, 1)
    said = argosy("wrap", "update", str(tmp_path), "")
    assert "the name of a package is empty" in said.stderr


def test_help_lists_every_command_and_describes_argosy() -> None:
    said = start("--help")
    assert said.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert name in said.stdout
        assert line.split(",")[0][:30] in said.stdout


REQUIREMENTS = str(Path(__file__).parents[3] / "examples/pi/requirements.txt")
DAWN = ("launch", "x.sif", "--site", "dawn", "--account", "a", "--time", "1:00:00", "--gpus-per-node", "4")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    said = argosy(name, "--help")
    assert said.returncode == 0
    assert said.stdout.startswith(f"Usage: argosy {name}")


@pytest.mark.parametrize("words", [(), ("build",), ("images",), ("images", "info")])
def test_help_is_a_command_too(words: tuple[str, ...]) -> None:
    said = argosy("help", *words)
    assert said.returncode == 0
    assert said.stdout == argosy(*words, "--help").stdout


@pytest.mark.parametrize("words", [(), ("images",)])
def test_a_command_group_without_arguments_prints_its_help(words: tuple[str, ...]) -> None:
    said = argosy(*words)
    assert (said.stdout + said.stderr).startswith(" ".join(("Usage: argosy", *words)))


def test_help_cuts_no_line_of_a_command() -> None:
    for name in ("images", "jobs", "sites"):
        assert "..." not in argosy(name, "--help").stdout.partition("Commands:")[2]


def test_explain_has_its_own_help_for_shared_options() -> None:
    said = argosy("explain", "--help").stdout
    assert "Print the report as JSON." in said
    assert "--dry-run" not in said


def test_a_removed_working_folder_is_reported_when_started_as_a_module(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m argosy.cli images ls'
    words = ("sh", "-c", script, sys.executable)
    said = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert said.returncode == 2
    assert "the current folder was removed" in said.stderr


def test_help_imports_no_command() -> None:
    code = "import sys; from argosy.cli.__main__ import run_app; run_app(['--help']); print(sorted(sys.modules))"
    said = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    for heavy in ("argosy.builder", "argosy.launch", "yaml", "msgspec", "rich", "packaging", "importlib.metadata"):
        assert f"'{heavy}'" not in said.stdout


def test_a_dry_run_of_a_launch_imports_no_other_command() -> None:
    words = ["launch", "/p/x.sif", "--site", "lumi-g", "--account", "p", "--dry-run", "--", "python", "t.py"]
    code = f"import sys; from argosy.cli.__main__ import run_app; run_app({words}); print(sorted(sys.modules))"
    said = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    *_, modules = said.stdout.splitlines()
    assert "'argosy.launch.plan'" in modules
    for story in (
        "argosy.builder",
        "argosy.wrap",
        "argosy.diagnostics.check",
        "argosy.diagnostics.verify",
        "argosy.diagnostics.doctor",
    ):
        assert f"'{story}'" not in modules
    for heavy in ("yaml", "rich", "packaging", "importlib.metadata", "asyncio", "ssl", "http.client", "email"):
        assert f"'{heavy}'" not in modules


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("biuld",), 2, "did you mean 'argosy build'?"),
        (("wrap", "updat", "env", "tqdm"), 2, "did you mean 'argosy wrap update'?"),
        (("wrap", "x", "--prefix"), 2, "see 'argosy wrap new --help'"),
        (("wrap", "", "--prefix", "env"), 2, "invalid SOURCES: the path is empty"),
        (("build", "nothing.yml", "--base", "debian:bookworm", "-o", "x.sif"), 2, "nothing.yml"),
        (("images", "info", "nothing.sif"), 2, "there is no image 'nothing.sif'"),
        (("run", "nothing.sif", "--", "true"), 125, "there is no image 'nothing.sif'"),
        (("run", "", "--", "true"), 125, "the image argument is empty"),
        (("run", "nothing.sif"), 125, "the image's own program: argosy run --enter run IMAGE"),
        (("launch", "nothing.sif", "--site", "locl", "--dry-run", "--", "true"), 3, "did you mean local?"),
        (("run", "nothing.sif", ""), 125, "the command is empty"),
        (("run", "nothing.sif", "--", "prog", "--dry-run"), 125, "there is no image"),
        (("why", ""), 2, "there is no log ''"),
        (("why", "/usr"), 2, "'/usr' is a folder, not a log\n  -> name a file in it"),
        (("cache", "edit"), 2, "argosy cache has no command 'edit'\n  known: gc, info"),
        (("images", "export", "x.sif", "-o", "y"), 2, "--format is missing\n  choose one of: sif, sqsh,"),
        (("build", "numpy", "--base", "debian:bookworm", "-o", "x.sif"), 2, "echo numpy > requirements.txt"),
        (("build", "--locked", __file__, "-o", "x.sif"), 6, "is not a lock\n  -> use a file that argosy lock wrote"),
        ((*DAWN, "--script", "no/dir/job.sh", "--", "true"), 2, "mkdir -p no/dir"),
        ((*DAWN, "--nodes", "999", "--dry-run", "--", "true"), 3, "at most 256"),
        ((*DAWN, "--sbatch-arg=--nodes=4", "--dry-run", "--", "true"), 2, "use argosy's own --nodes"),
        (("sites", "show", "nowhere"), 3, "unknown site 'nowhere'"),
        (("sites", "show", "lumi"), 3, "-> did you mean lumi-c or lumi-g?"),
        (("sites", "lint", "no-such/place.toml"), 3, "cannot find the site profile no-such/place.toml"),
        (("verify", "no.log"), 2, "there is no log 'no.log'\n  -> give a file, the number or name of a job, or last"),
        (("launch", "--dry-run", "x.sif", "python", "t.py", "--epochs"), 2, "write -- before the command"),
        (("help", "biuld"), 2, "did you mean 'argosy build'?"),
        (("launch", "nothing.sif", "--json", "--", "true"), 125, "--json needs --dry-run"),
        ((*DAWN, "--dry-run", "--script", "job.sh", "--", "true"), 2, "--dry-run and --script cannot be used together"),
        (
            ("bench", "collectives", *DAWN[1:], "--dry-run", "--script", "job.sh"),
            2,
            "--dry-run and --script cannot be used together",
        ),
        (("bench", "collectives", *DAWN[1:], "--json"), 2, "--json needs --dry-run"),
        (("bench", "collectives", *DAWN[1:], "--nodes", "1,2", "--json"), 2, "--json needs --dry-run"),
        (
            ("build", REQUIREMENTS, "--base", "x.sif", "-o", "y.sif", "--dry-run", "--on-node", "--submit"),
            2,
            "--on-node and --submit cannot be used together",
        ),
        (
            ("shell", "x.sif", "--dry-run", "--dev", "--detach", "one"),
            2,
            "--detach and --dev cannot be used together",
        ),
        (
            ("run", "x.sif", "--dev", "--with", "rich", "--", "true"),
            125,
            "install it in the writable image: argosy run x.sif --dev -- pip install rich\n",
        ),
        (
            ("launch", "x.sif", "--ssh", "far:/w", "--in-allocation", "--", "true"),
            125,
            "in the allocation: bash job.sh",
        ),
        (("launch", "x.sif", "--ssh", "far:/w", "--interactive"), 125, "argosy attach JOB"),
        (("launch", "x.sif", "--ssh", "far:/w", "--script", "j.sh", "--", "true"), 2, "--dry-run prints the script"),
        (("jobs", "15"), 2, "argosy jobs show 15"),
        (("cancel", "my-job"), 2, "there is no job 'my-job'\n"),
        (("verify", __file__), 7, "cannot verify the run: its logs contain no line"),
    ],
)
def test_a_mistake_gives_one_message_and_its_code(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    said = argosy(*words, ARGOSY_CACHE=str(tmp_path), ARGOSY_IMAGES=str(tmp_path), ARGOSY_STATE=str(tmp_path))
    assert said.returncode == code
    assert said.stderr.startswith("argosy: ")
    assert message in said.stderr
    assert "Traceback" not in said.stderr
    assert said.stdout == "" or "--json" in words
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            ("launch", "x.sif", "--gpu-per-node", "4", "--", "ls"),
            "did you mean --gpus-per-node? For example: argosy launch IMAGE --gpus-per-node N -- COMMAND",
        ),
        (("sites", "ls", "--jsn"), "did you mean --json? For example: argosy sites ls --json"),
        (("images", "exprt"), "did you mean 'argosy images export'?"),
        (("images", "info", "a", "b"), "unexpected argument 'b'\n  -> see 'argosy images info --help'"),
        (("launch", "x.sif", "--nodes", "two", "--", "ls"), "invalid --nodes: 'two' is not a valid integer\n"),
        (("launch", "x.sif", "--nodes"), "argosy launch: --nodes needs a value\n"),
        (("cancel",), "argosy cancel: JOBS is missing\n  -> write: argosy cancel JOBS; "),
        (("compat", "run"), "-> write: argosy compat run PROGRAM; "),
        (("images", "slim"), "-> write: argosy images slim IMAGE -- COMMAND; "),
        (("images", "export", "x", "--format", "sif"), "-> write: argosy images export IMAGE --output FILE; "),
        (("lock", "--upgrade"), "argosy lock: --upgrade needs a value\n  -> write: --upgrade NAME; "),
        (("launch", "x.sif", "--nodes", "0", "--", "ls"), "invalid --nodes: 0 is smaller than 1\n"),
        (("completion", "tcsh"), "invalid SHELL: 'tcsh' is not one of"),
        (("import", "no.sh"), "no such file: no.sh\n"),
        (("sites", "lint", "no.sh"), "no such file: no.sh\n"),
        (("sites", "merge", "no.json"), "no such file: no.json\n"),
        (("attach", "nope"), "there is no job or session 'nope'\n"),
        (("bench", "compare", "no.json"), "no such file: no.json\n"),
        (("bench", "settings", "--of", "12"), "there is no record of job 12\n"),
        (("bench", "settings", "--try", "A=1"), "no image and no job is given\n"),
        (("launch", "x.sif", "--gpu", "cuda", "--", "ls"), "-> did you mean nv?"),
        (("build", "r.txt", "--format", "squashfs", "-o", "x"), "-> did you mean sqsh?"),
        (("build", "r.txt", "--extra-index-url", "u", "-o", "x"), "-> write it on a line of requirements.txt"),
        (("build", "r.txt", "-t", "mine", "-o", "x"), "-o FILE names the image"),
        (("config", "show"), "'argosy config' alone prints all values"),
        (("config", "list"), "'argosy config' alone prints all values"),
        (("run", "x.sif", "--site", "lumi-g", "--", "ls"), "argosy launch has this option: argosy launch IMAGE --site"),
        (("check", "x.sif", "lumi-g"), "for a site: argosy check --site lumi-g\n"),
        (("build", "r.txt", "new.sif"), "no such file: r.txt"),
        (("build", "new.sif", "r.txt"), "for the image to build, write -o new.sif"),
        (("build", "r.txt", "-f", "Dockerfile", "-o", "new.sif"), "write: argosy build . -f Dockerfile"),
        (("build", "-f", "Dockerfile", "-o", "new.sif"), "write: argosy build . -f Dockerfile"),
        (("build", "-", "-o", "new.sif"), "argosy build does not read its standard input"),
        (
            ("build", "https://e.org/Dockerfile", "-o", "new.sif"),
            "download it first: curl -LO https://e.org/Dockerfile",
        ),
        (("build", "Dockerfile.nowhere", "-o", "x.sif"), "no such file: Dockerfile.nowhere\n  -> check the path\n"),
        (("run", "x.sif", "-B", "/:/data:RO", "--", "ls"), "the option is ro or rw"),
        (("run", "x.sif", "--bind", "--", "ls"), "-> the value of --bind is missing\n"),
        (("launch", "x.sif", "--account", "--", "ls"), "-> the value of --account is missing\n"),
        (("run", "bare:", "--with", " ", "--", "ls"), "the name of a package is empty\n"),
        (("images", "info", "ubuntu"), "in a registry: docker://ubuntu\n"),
        (
            ("run", "x.sif", "\u2014gpu", "none", "--", "true"),
            "begins with a typographic dash\n  -> write --gpu\n",
        ),
        (("run", "x.sif", "\u2013gpu=none", "--", "true"), "-> write --gpu=none\n"),
        (("run", "x.sif", "\u2013\u2013", "true"), "-> write --\n"),
        (("launch", "x.sif", "\u2013A", "p", "--", "true"), "-> write -A\n"),
        (("launch", "x.sif", "--", "true", "\u2013epochs", "3"), "your program gets it unchanged\n"),
        (("launch", "x.sif", "--dry-run=true", "--", "ls"), "--dry-run takes no value\n  -> write only --dry-run\n"),
        (("launch", "x.sif", "-A=p", "--", "ls"), "invalid --account: '=p' begins with '='\n  -> write -A p\n"),
        (("launch", "x.sif", "-N=2", "--", "ls"), "-> write -N 2\n"),
        (("launch", "x.sif", "-N", "--", "ls"), "-> the value of --nodes is missing\n"),
        (("launch", "x.sif", "--gpu", "8", "--", "ls"), "for a number of GPUs: --gpus 8"),
        (("launch", "x.sif", "--nodes", "2-4", "--", "ls"), "--elastic 2:4"),
        (("launch", "x.sif", "--launcher", "deepspeed", "--", "ls"), "did you mean torchrun?"),
        (("launch", "x.sif", "--cluster", "lumi-g", "--", "ls"), "--site NAME selects the site"),
        (("explain", "x.sif", "--dry-run", "--", "ls"), "'argosy explain' starts nothing"),
        (("run", "x.sif", "--gpus", "all", "--", "ls"), "GPUs are available in the container without an option"),
        (("run", "x.sif", "--ipc=host", "--", "ls"), "the container shares network, memory and processes"),
        (("run", "-w", "/w", "x.sif", "--", "ls"), "use --workdir DIR"),
        (("build", "r.txt", "--from", "debian", "-o", "x"), "use --base BASE"),
        (("build", "r.txt", "--fakeroot", "-o", "x"), "--build-backend chooses how"),
        (("shell",), "argosy shell: the image is missing\n  -> write: argosy shell IMAGE\n"),
        (("shell", "x.sif", "--", "ls"), "unexpected argument 'ls'\n  -> for a command: argosy run IMAGE -- COMMAND"),
        (("-v",), "argosy --version prints the version"),
        (
            ("wrap", "r.txt", "--prefix"),
            "--prefix needs a value\n  -> write: --prefix DIR; see 'argosy wrap new",
        ),
        (("wrap", "ls"), "did you mean 'argosy wrap history'? It lists the versions of one prefix; no list of "),
        (("wrap", "rm", "env"), "argosy wrap has no command 'rm'\n  -> a prefix is a folder: remove it with rm -r DIR"),
        (("wrap", "remove", "env"), "-> a prefix is a folder: remove it with rm -r DIR"),
        (("wrap", "histry", "env"), "did you mean 'argosy wrap history'?\n"),
        (("config", "set", "site=lumi-g"), "-> write: argosy config set site lumi-g\n"),
        (("config", "set", "--site", "lumi-g"), "-> write: argosy config set site VALUE\n"),
        (("config", "account", "p"), "-> write: argosy config set account VALUE\n"),
        (("cache", "gc", "--keep", "20"), "invalid --keep '20'"),
        (("jobs", "ls"), "'argosy jobs' alone lists your jobs"),
        (("jobs", "cancel", "15"), "did you mean 'argosy cancel'?"),
        (("images", "build"), "did you mean 'argosy build'?"),
        (("images", "show", "digits"), "did you mean 'argosy images info'?"),
        (("images", "clean"), "did you mean 'argosy images gc'?"),
        (("images", "delete", "x"), "did you mean 'argosy images rm'?"),
        (("sites", "list"), "did you mean 'argosy sites ls'?"),
        (("sites", "info", "lumi-g"), "did you mean 'argosy sites show'?"),
        (("sites", "check", "x.toml"), "did you mean 'argosy sites lint'?"),
        (("cache", "ls"), "did you mean 'argosy cache info'?"),
        (("cache", "clear"), "did you mean 'argosy cache gc'?"),
        (("sessions", "kill", "x"), "did you mean 'argosy sessions stop'?"),
        (("wrap", "r.txt"), "for example: argosy wrap environment.yml --prefix"),
        (("sbatch", "job.sh"), "argosy import job.sh"),
        (("launch", "x.sif", "--site", "marenostrum5", "--", "ls"), "-> did you mean mn5-acc or mn5-gpp?"),
        (("lint", "my.toml"), "-> in Argosy: argosy sites lint NAME\n"),
        (("shell", "--shell", "zsh", "x.sif"), "no option --shell\n  -> for a command: argosy run IMAGE -- COMMAND\n"),
        (("run", "--entr", "run", "x.sif"), "did you mean --enter? For example: argosy run IMAGE --enter run\n"),
        (("run", "--entr=exec", "x.sif", "ls"), "For example: argosy run IMAGE --enter exec -- COMMAND\n"),
        (("run", "--entr", "x.sif", "ls"), "For example: argosy run IMAGE --enter ENTER -- COMMAND\n"),
        (("run", "-e", "A=1", "x.sif", "--", "ls"), "-> use --env NAME=VALUE\n"),
        (("launch", "-e", "A=1", "x.sif", "--", "ls"), "-> use --env NAME=VALUE for a variable, or --error FILE for"),
    ],
)
def test_a_mistake_is_answered_with_a_suggestion_and_an_example(words: tuple[str, ...], hint: str) -> None:
    assert hint in argosy(*words).stderr


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ("build", "argosy build pyproject.toml -o my.sif"),
        ("lock --upgrade six", "argosy lock pyproject.toml"),
        ("bundle -o x.tar", "argosy bundle pyproject.toml -o my.tar"),
    ],
)
def test_without_sources_the_example_is_of_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, example: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").touch()
    assert f"-> for example: {example}\n" in argosy(*words.split()).stderr


def test_a_launch_without_an_image_names_the_jobs_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = argosy("launch").stderr
    assert "-> write: argosy launch IMAGE -- COMMAND; " in bare
    Path("argosy.toml").write_text('[job.train]\ncommand = ["true"]\n[job.eval]\ncommand = ["true"]\n')
    assert "  jobs of argosy.toml: train, eval\n  -> write: argosy launch train; or" in argosy("launch").stderr
    Path("argosy.toml").write_text("job = 3\n")
    assert argosy("launch").stderr == bare


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sites lint my.toml", '-> write title = "3"'),
        ("launch x.sif --site my.toml --dry-run -- true", '-> write title = "3"'),
        ("launch x.sif --site two.toml --dry-run -- true", "to see how to correct each: argosy sites lint two.toml"),
        ("sites lint h.toml", "it is a folder\n  -> did you mean my.toml?"),
        ("run train.py -- true", "to run a Python program: argosy run IMAGE -- python FILE"),
        ("images sbom train.py", "to run a Python program: argosy run IMAGE -- python FILE"),
        ("launch x.sif --site dawn --account a --time 1h --gpus 4 --script a'b -- true", "start it with: sbatch 'a'"),
    ],
)
def test_the_next_step_of_a_hint_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, hint: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("title = 3\n")
    Path("two.toml").write_text("title = 3\nname = 4\n")
    Path("h.toml").mkdir()
    Path("train.py").touch()
    done = CliRunner().invoke(app, words.split())
    assert hint in done.output + str(done.exception)


def test_errors_are_json_with_json() -> None:
    said = argosy("sites", "show", "lumi", "--json")
    error = json.loads(said.stdout)["error"]
    assert (error["hint"], error["exit_code"], said.returncode) == ("did you mean lumi-c or lumi-g?", 3, 3)
    assert error["message"] in said.stderr
    assert set(error) == {"message", "evidence", "hint", "exit_code"}
    started = argosy("launch", "nothing.sif", "--json", "--", "true")
    assert json.loads(started.stdout)["error"]["exit_code"] == started.returncode == 125
    assert argosy("run", "nothing.sif", "--", "prog", "--json").stdout == ""


def test_output_is_plain_when_piped() -> None:
    for words in (("--help",), ("sites", "show", "local"), ("run", "nothing", "--", "x")):
        said = start(*words, FORCE_COLOR="1", CLICOLOR_FORCE="1", TERM="xterm-256color")
        assert CONTROL not in said.stdout + said.stderr


def test_every_report_is_available_as_json(tmp_path: Path) -> None:
    assert {site["name"] for site in json.loads(argosy("sites", "ls", "--json").stdout)} >= {"local"}
    assert json.loads(argosy("sites", "show", "local", "--json").stdout)["name"] == "local"
    assert json.loads(argosy("images", "ls", "--json", ARGOSY_IMAGES=str(tmp_path)).stdout) == []


def test_an_empty_catalog_says_how_to_add_an_image(tmp_path: Path) -> None:
    said = argosy("images", "ls", ARGOSY_IMAGES=str(tmp_path))
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"no images in {tmp_path}")
    assert "argosy images pull docker://" in said.stdout
    assert (
        "argosy images pull docker://" in argosy("images", "ls", "--has", "torch", ARGOSY_IMAGES=str(tmp_path)).stdout
    )


@pytest.mark.parametrize("name", ["hello", "hello.sif:latest", "helo.sif"])
def test_a_file_here_is_suggested_for_its_name_without_suffix_or_with_a_tag(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.sif").touch()
    assert "did you mean hello.sif?" in argosy("images", "info", name, ARGOSY_IMAGES=str(tmp_path / "none")).stderr


def test_a_file_name_removes_no_image_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shelf").mkdir()
    for file in ("hello.sif", "shelf/hello.sif"):
        (tmp_path / file).touch()
    said = argosy("images", "rm", "hello.sif", ARGOSY_IMAGES=str(tmp_path / "shelf"))
    assert said.returncode == 2
    assert "for the image of the catalog: argosy images rm hello; for the file: rm hello.sif" in said.stderr
    assert (tmp_path / "shelf/hello.sif").exists()
    assert argosy("images", "rm", "hello", ARGOSY_IMAGES=str(tmp_path / "shelf")).returncode == 0


def test_an_image_is_not_read_as_a_log(tmp_path: Path) -> None:
    (tmp_path / "x.sqsh").write_bytes(b"hsqs" + bytes(100))
    said = argosy("verify", str(tmp_path / "x.sqsh"))
    assert "x.sqsh is an image, not a log\n  -> check an image with: argosy check" in said.stderr


def test_a_misspelt_name_is_found_in_a_catalog_of_versions(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits/2026-01-01.sif").touch()
    assert "did you mean digits?" in argosy("images", "info", "digts", ARGOSY_IMAGES=str(tmp_path)).stderr


def test_a_defect_is_reported_as_one_with_its_traceback_on_request() -> None:
    code = """
import sys
from argosy.cli import __main__ as main
main.app.main = lambda *a, **k: 1 / 0
sys.exit(main.run_app(['sites']))
"""
    said = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=False)
    assert "this is a bug in Argosy" in said.stderr
    assert "Traceback" not in said.stderr
    debug = {**os.environ, "ARGOSY_DEBUG": "1"}
    said = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=False, env=debug)
    assert "ZeroDivisionError" in said.stderr
    assert "Traceback" in said.stderr


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "no more processes or threads can be started"),
        (ImportError("_zstd.so: failed to map segment from shared object"), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "no more processes or threads can be started"),
    ],
)
def test_a_limit_of_the_machine_is_no_defect(monkeypatch: pytest.MonkeyPatch, error: Exception, what: str) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(app, "main", fail)
    done = argosy("sites")
    assert done.returncode == 7
    assert done.stderr.startswith(f"argosy: {what}")


@pytest.mark.parametrize(("words", "code"), [(("sites", "show", "local"), 141), (("images", "list"), 2), ((), 141)])
def test_a_reader_that_left_ends_it_quietly_and_an_error_keeps_its_code(words: tuple[str, ...], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as gone:  # noqa: PTH123 - a descriptor, no path
        command = (sys.executable, "-m", "argosy.cli", *words)
        assert subprocess.run(command, stdout=gone, stderr=gone, check=False).returncode == code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    said = argosy("completion", shell)
    assert said.returncode == 0
    assert "_ARGOSY_COMPLETE" in said.stdout


def test_completion_in_bash_offers_commands_and_options() -> None:
    def offers(words: str) -> str:
        count = str(len(words.split(" ")) - 1)
        said = start(_ARGOSY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
        assert said.returncode == 0
        return said.stdout

    assert "plain,launch" in offers("argosy la")
    assert "plain,--base" in offers("argosy build --ba")


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which $ARGOSY starts Argosy."""
    env = {**os.environ, **environment, "ARGOSY": str(Path(sys.executable).with_name("argosy")), "ARGOSY_DEBUG": ""}
    return subprocess.run(
        ("/bin/sh", "-c", line),
        capture_output=True,
        check=False,
        env=env,
        encoding="iso8859-1" if "PYTHONIOENCODING" in environment else "utf-8",
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_the_output_is_not_a_defect(unbuffered: str) -> None:
    said = shell('"$ARGOSY" sites ls > /dev/full', PYTHONUNBUFFERED=unbuffered)
    assert said.returncode == 7
    assert "no space left" in said.stderr
    assert "defect" not in said.stderr
    assert "ignored" not in said.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("init p", "FOLDER"),
        ("import job.sh", "--output"),
        ("report last", "--output"),
        ("launch x.sif --site dawn --account a --time 1h --gpus 4 --script new.sh -- true", "--script"),
        ("launch bare: --log-dir job.sh -- true", "--log-dir"),
    ],
)
def test_a_full_disk_or_a_file_in_the_way_has_a_hint_with_the_option_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, option: str
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    record = tmp_path / "state/runs/20260102-030405-123456-abcd"
    record.mkdir(parents=True)
    (record / "end.json").write_text('{"code": 0}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARGOSY_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("argosy.core.store._write_unnamed", lambda *_, **__: False)
    monkeypatch.setattr("argosy.core.store._write_new", fill)
    Path("job.sh").write_text("#!/bin/bash\n#SBATCH --ntasks=1\nsrun python train.py\n")
    error = CliRunner().invoke(app, words.split()).exception
    assert isinstance(error, ArgosyError), error
    assert error.hint.endswith(f" with {option}")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("build e.yml -o x.sif", "--work-dir, --output or ARGOSY_CACHE"),
        ("images pull docker://debian:12 -o x.sif", "--output or ARGOSY_CACHE"),
        ("wrap e.yml --prefix p", "--work-dir or ARGOSY_CACHE"),
        ("launch x.sif -- true --work-dir", "ARGOSY_CACHE"),
        ("images ls", "ARGOSY_CACHE"),
    ],
)
def test_a_hint_for_another_folder_names_only_options_of_the_command(
    monkeypatch: pytest.MonkeyPatch, words: str, options: str
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise explain_os_error(OSError(errno.ENOSPC, "No space left on device"), Path("folder"))

    monkeypatch.setattr("argosy.cli.common.probe.open_session", fill)
    assert argosy(*words.split()).stderr.endswith(f"choose another folder with {options}\n")


def test_a_full_disk_with_the_cache_on_it_has_a_hint_to_collect_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise explain_os_error(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "new")

    monkeypatch.setattr("argosy.images.catalog.list_catalog", fill)
    for cache, is_named in ((str(tmp_path / "cache/none"), True), ("/proc/none", False)):
        monkeypatch.setenv("ARGOSY_CACHE", cache)
        said = argosy("images", "ls").stderr
        assert (f"; argosy cache gc removes unused files of the cache {cache}" in said) == is_named
        assert "free some space or files" in said


def test_a_full_disk_below_a_new_profile_has_a_hint_with_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("argosy.diagnostics.discover.discover.discover_site", fill)
    assert "choose another folder with --output" in argosy("sites", "new", "mine").stderr


def test_a_removed_working_folder_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    said = shell(f"cd '{folder}' && rmdir '{folder}' && \"$ARGOSY\" why nothing")
    assert said.returncode == 2
    assert "the current folder was removed" in said.stderr


def test_closed_standard_streams_end_nothing() -> None:
    said = shell('"$ARGOSY" --version <&- >&-')
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(("words", "code"), [("config", 0), ("run /nope", 125), ("why", 2)])
def test_a_closed_standard_error_leaves_output_and_exit_code(words: str, code: int) -> None:
    said = shell(f'"$ARGOSY" {words} 2>&-')
    assert (said.returncode, bool(said.stdout)) == (code, code == 0)


@pytest.mark.parametrize(("limit", "code"), [(40_000, 7), (200_000, 7), (1_000_000, 0)])
def test_a_limit_of_memory_that_threads_do_not_start_with_is_refused(limit: int, code: int) -> None:
    said = shell(f'ulimit -v {limit}; "$ARGOSY" sites ls')
    assert said.returncode == code
    assert (f"'ulimit -v' is {limit}; Argosy needs 262144" in said.stderr) == bool(code)


def test_a_name_that_is_too_long_is_refused_briefly() -> None:
    said = argosy("why", "a" * 100_000)
    assert said.returncode == 7
    assert "file name too long" in said.stderr
    assert len(said.stderr) < 3000


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_value_of_100_kb_is_cut_in_the_message_with_its_length(more: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("a" * 100_000 + "!\n")
    said = argosy("build", str(tmp_path / "requirements.txt"), "-o", str(tmp_path / "x.sif"), *more)
    assert said.returncode == 2
    assert len(said.stderr + said.stdout) < 8000
    assert re.search(r" … .* \(100\d\d\d characters\)", said.stderr)


def dry_run(*words: str, image: str = "/p/x.sif") -> subprocess.CompletedProcess[str]:
    job = ("--nodes", "2", "--account", "p", "--qos", "q", "--time", "1:00:00", "--dry-run", "--", "python", "t.py")
    return argosy("launch", image, *words, *job)


def test_a_job_without_gpus_learns_how_to_request_them() -> None:
    said = dry_run("--site", "nvidia-apptainer")
    assert said.returncode == 2
    assert "the job does not request GPUs" in said.stderr
    assert "--gpus-per-node 1; or --gpu none" in said.stderr
    assert dry_run("--site", "mn5-acc", "--gpu", "none").returncode == 0


def test_ranks_that_leave_gpus_idle_are_reported_if_the_gpus_are_a_default() -> None:
    warning = "1 rank on a node with 8 GPUs; for a rank per GPU: --ranks 16"
    assert warning in dry_run("--site", "lumi-g", "--ranks", "2").stderr
    assert "for a rank per GPU" not in dry_run("--site", "lumi-g", "--ranks", "16").stderr
    assert "for a rank per GPU" not in dry_run("--site", "lumi-g", "--ranks", "2", "--gpus-per-node", "8").stderr


def test_a_script_names_the_nearest_partition() -> None:
    script = dry_run("--site", "lumi-g", "--partition", "standrad-g").stdout
    assert "#SBATCH --partition=standrad-g" in script
    head = " ".join(script.partition("main()")[0].replace("#", " ").split())
    assert "did you mean standard-g?" in head


def test_a_job_without_gpus_on_request_is_not_told_how_to_get_them() -> None:
    said = dry_run("--site", "lumi-g", "--gpu", "none")
    assert said.returncode == 0
    assert "request GPUs" not in said.stdout + said.stderr
    for option in ("--gpus", "--gpus-per-node"):
        assert "use --gpu none for a job without GPUs" in dry_run("--site", "lumi-g", option, "0").stderr


@pytest.mark.parametrize("words", [(), ("--", "htop")])
def test_a_dry_run_of_an_interactive_launch_shows_salloc(words: tuple[str, ...]) -> None:
    options = ("--site", "lumi-g", "--gpus", "1", "--account", "p", "--time", "1:00:00", "--interactive", "--dry-run")
    shown = argosy("launch", "/p/x.sif", *options, *words)
    assert shown.returncode == 0, shown.stderr
    head = " ".join(shown.stdout.replace("\\", " ").replace("#", " ").split())
    assert re.search(r" salloc .*--gpus-per-node=1 .*--account=p .*srun --overlap .*--pty bash FILE ", head)
    assert "#SBATCH" not in shown.stdout
    assert ("htop" if words else "exec bash") in shown.stdout
    plan = json.loads(argosy("launch", "/p/x.sif", *options, "--json", *words).stdout)
    assert plan["submit"][0] == "salloc"
    assert plan["script"] + "\n" == shown.stdout + "\n"


def test_a_launch_without_a_command_says_why_its_name_is_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = argosy("launch", "train").stderr
    assert "no command to launch" in said
    assert f"'train' is not a job: there is no argosy.toml in {tmp_path}" in said
    assert "is not a job" not in argosy("launch", "my.sif").stderr


def test_an_invalid_default_is_refused_before_it_is_written(tmp_path: Path) -> None:
    said = argosy("config", "set", "time", "1hh", XDG_CONFIG_HOME=str(tmp_path))
    assert said.returncode == 2
    assert "invalid time limit '1hh'" in said.stderr
    assert not (tmp_path / "argosy").exists()


def test_a_relative_folder_in_a_configuration_file_names_the_line_and_can_be_repaired(tmp_path: Path) -> None:
    said = argosy("config", "set", "cache", "near", XDG_CONFIG_HOME=str(tmp_path))
    assert (said.returncode, "cache is a relative path: near" in said.stderr) == (2, True)
    (tmp_path / "argosy").mkdir()
    (tmp_path / "argosy/config.toml").write_text('images = "/one:two"\n')
    said = argosy("images", "ls", XDG_CONFIG_HOME=str(tmp_path))
    assert said.returncode == 2
    assert "images is a relative path: two" in said.stderr
    assert f"{tmp_path}/argosy/config.toml:1: each working directory" in said.stderr
    assert argosy("config", "unset", "images", XDG_CONFIG_HOME=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        *("build e.yml --base b.sif", "lock e.yml", "bundle e.yml", "images pull docker://debian:12", "report last"),
        *("images export my.sif --format sqsh", "sites picture lumi-g", "import job.sh"),
    ],
)
@pytest.mark.parametrize("name", ["new/", "old/"])
def test_a_file_to_write_whose_name_ends_in_a_slash_is_refused(
    words: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "job.sh").write_text("#!/bin/sh\nsrun true\n")
    said = argosy(*words.split(), "-o", name)
    assert said.returncode == 2
    assert said.stderr == f"argosy: {name} is the name of a folder\n  -> add the name of the file: {name}NAME\n"


def test_an_oci_layout_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.txt").write_text("einops\n")
    said = argosy("build", "r.txt", "--format", "oci", "-o", "new/", "--dry-run")
    assert said.returncode == 0
    assert f"would build  {tmp_path}/new (oci)" in said.stdout


@pytest.mark.parametrize("key", ["launcher", "runtime", "container_per", "mpi"])
def test_a_default_that_no_launch_accepts_is_refused_before_it_is_written(key: str, tmp_path: Path) -> None:
    said = argosy("config", "set", key, "foo", XDG_CONFIG_HOME=str(tmp_path))
    assert said.returncode == 2
    assert f"invalid {key} 'foo'" in said.stderr
    assert "  known: " in said.stderr
    assert not (tmp_path / "argosy").exists()


def test_an_invalid_choice_in_a_configuration_file_names_the_file_and_can_be_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "argosy"
    folder.mkdir()
    (folder / "config.toml").write_text('qos = "q"\ncontainer_per = "nodes"\n')
    words = ("launch", "/p/x.sif", "--site=lumi-g", "--account=p", "--dry-run", "--", "true")
    said = argosy(*words, XDG_CONFIG_HOME=str(tmp_path))
    assert said.returncode == 2
    assert said.stderr.splitlines() == [
        "argosy: invalid container_per 'nodes'",
        f"  {folder}/config.toml:2: container_per = nodes",
        "  known: node, rank",
        "  -> did you mean node?",
    ]
    assert argosy("config", "set", "container_per", "node", XDG_CONFIG_HOME=str(tmp_path)).returncode == 0
    assert argosy(*words, XDG_CONFIG_HOME=str(tmp_path)).returncode == 0
    said = argosy("run", "/p/x.sif", "--", "true", XDG_CONFIG_HOME=str(tmp_path), ARGOSY_RUNTIME="aptainer")
    assert "  ARGOSY_RUNTIME: runtime = aptainer\n" in said.stderr
    assert "did you mean apptainer?" in said.stderr


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("ARGOSY_MODE=foo", "--site lumi-g --account p"),
        ("ARGOSY_LAUNCHER=srun", ""),
        ("ARGOSY_SITE=lumi-h", "--account p"),
    ],
)
def test_an_error_about_a_default_names_the_place_that_sets_it(variable: str, words: str) -> None:
    name, _, value = variable.partition("=")
    said = argosy("launch", "/p/x.sif", *words.split(), "--dry-run", "--", "true", **{name: value})
    assert f"  {name}: {name.removeprefix('ARGOSY_').lower()} = {value}\n" in said.stderr


def test_an_invalid_time_at_a_site_with_partitions_is_a_usage_error() -> None:
    said = argosy("launch", "/p/x.sif", "--site=lumi-g", "--account=p", "--time=soon", "--dry-run", "--", "true")
    assert said.returncode == 2
    assert "--time soon" in said.stderr


def test_an_interactive_launch_needs_slurm_also_in_a_dry_run() -> None:
    said = argosy("launch", "/p/x.sif", "--interactive", "--dry-run")
    assert said.returncode == 2
    assert "--interactive needs a site with Slurm" in said.stderr


@pytest.mark.parametrize("site", ["lumi-g", "dawn"])
def test_the_head_of_a_gpu_job_never_says_gpu_none(site: str) -> None:
    head = dry_run("--site", site, "--gpus-per-node", "4" if site == "dawn" else "8").stdout.partition("main()")[0]
    assert "gpu = by /dev" in head
    assert "gpu = none" not in head
    assert "cores per rank = 0" not in head


@pytest.mark.parametrize("runtime", ["bwrap", "podman"])
def test_a_runtime_that_needs_an_unpacked_image_is_refused_on_a_machine_that_is_not_the_site(runtime: str) -> None:
    said = dry_run("--site", "lumi-g", "--runtime", runtime, "--gpu", "none", image="mine.sif")
    assert (said.returncode, said.stdout) == (2, "")
    assert f"cannot plan a job with {runtime} for lumi-g on this machine" in said.stderr
    assert "choose another runtime with --runtime" in said.stderr


def test_an_image_of_a_registry_is_not_fetched_to_show_a_plan_for_another_site(tmp_path: Path) -> None:
    fetched = "docker://registry.invalid/torch"
    shown = dry_run("--site", "lumi-g", "--gpus-per-node", "8", image=fetched)
    assert shown.returncode == 0, shown.stderr
    pull = f"run first: argosy images pull {fetched} -o torch_latest.sif"
    assert f"#   {pull}\n" in shown.stdout
    assert pull in shown.stderr
    assert "argosy_image=torch_latest.sif\n" in shown.stdout
    assert "registry.invalid" not in shown.stdout.partition("main()")[2]
    file = tmp_path / "job.sh"
    options = ("--site", "lumi-g", "--gpus-per-node", "8", "--account", "p", "--script", str(file))
    kept = argosy("launch", fetched, *options, "--", "python", "t.py")
    assert kept.returncode == 0, kept.stderr
    assert pull in file.read_text()


@pytest.mark.parametrize(
    ("site", "image", "vendors"),
    [
        ("lumi-g", "docker://nvcr.io/nvidia/pytorch:24.04-py3", ("NVIDIA", "AMD")),
        ("mn5-acc", "docker://rocm/pytorch:latest", ("AMD", "NVIDIA")),
        ("nvidia-pyxis", "/project/rocm-6.sqsh", ("AMD", "NVIDIA")),
        ("lumi-g", "docker://rocm/pytorch:latest", ()),
        ("mn5-acc", "/project/rocm/train.sif", ()),
        ("lumi-g", "cuda-and-rocm.sif", ()),
    ],
)
def test_an_image_whose_name_says_another_vendor_is_doubtful(site: str, image: str, vendors: tuple[str, ...]) -> None:
    said = dry_run("--site", site, "--gpus-per-node", "1", image=image)
    assert said.returncode == 0, said.stderr
    for vendor in vendors:
        assert vendor in said.stderr.partition("made for")[2]
    assert (f"image = {image}: its name says" in said.stderr) == bool(vendors)
    assert "made for" not in dry_run("--site", site, "--gpus-per-node", "1", "--no-check", image=image).stderr


def test_a_relative_chdir_of_a_job_elsewhere_stays_relative_to_the_submit_folder() -> None:
    at = ("--site", "mn5-acc", "--chdir", "sub")
    shown = dry_run(*at, "--log-dir", "logs", "--output", "out/x.txt", image="mine.sif").stdout
    assert "#SBATCH --chdir=sub\n" in shown
    assert "#SBATCH --output=out/x.txt\n" in shown
    assert "argosy_image=../mine.sif\n" in shown
    assert 'log_rank "../logs/$SLURM_JOB_ID"' in shown.replace("\\\n", "")
    assert str(Path.cwd()) not in shown
    assert "#SBATCH --output=t-%j.out\n" in dry_run(*at, image="mine.sif").stdout
    assert "argosy_image=mine.sif\n" in dry_run("--site", "mn5-acc", image=str(Path("mine.sif").absolute())).stdout
    far = dry_run("--site", "mn5-acc", "--chdir", "/gpfs/x", image="mine.sif")
    assert "the job looks for it in /gpfs/x" in far.stderr


UNDER_NOHUP = """\
import os, signal
from argosy.cli.__main__ import _catch_signals
from argosy.core.process import Command, RealRunner

_catch_signals()
runner, program = RealRunner(), Command(("sh", "-c", "kill -HUP $$; echo $1", "sh", "alive"))
os.kill(os.getpid(), signal.SIGHUP)
print(runner.run(program).stdout.strip(), flush=True)
runner.run_foreground(program)
runner.exec_command(program)
"""


def test_an_ignored_signal_stays_ignored_in_started_programs() -> None:
    words = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", UNDER_NOHUP)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["alive"] * 3), done.stderr


def test_an_interrupt_during_imports_ends_silently(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    script = Path(sys.executable).with_name("argosy")
    for words in ((str(script),), (sys.executable, "-m", "argosy.cli")):
        path = {**os.environ, "PYTHONPATH": str(tmp_path)}
        said = subprocess.run((*words, "--version"), capture_output=True, text=True, check=False, env=path)
        assert (said.returncode, said.stderr) == (-signal.SIGINT, "")


# Locales and full disks

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""As Python sees a locale whose encoding is not UTF-8."""


def test_a_launch_under_a_locale_without_utf8_passes_every_byte(tmp_path: Path) -> None:
    more = ASCII | {"ARGOSY_STATE": str(tmp_path)}
    long = "x" * 100  # its reason is cut with an ellipsis
    done = start("launch", "bare:", "--env", f"LONG={long} é", "--", "sh", "-c", 'echo "$1 $LONG"', "sh", "ü€", **more)
    assert done.stdout == f"ü€ {long} é\n", done.stderr


def test_a_stream_that_cannot_encode_a_character_is_not_a_defect(tmp_path: Path) -> None:
    more = {"PYTHONIOENCODING": "iso8859-1", "ARGOSY_STATE": str(tmp_path)}
    done = start("launch", "bare:", "--dry-run", "--", "echo", "€", **more)
    assert (done.returncode, "defect" in done.stderr) == (0, False)
    assert "\\u20ac" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"), [(("sites", "show", "nosuch"), 3), (("run", "bare:", "-v", "--", "true"), 0)]
)
def test_messages_that_cannot_be_written_change_no_exit_code(words: tuple[str, ...], code: int) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run((sys.executable, "-m", "argosy.cli", *words), stderr=full, check=False)
    assert done.returncode == code


@pytest.mark.parametrize("name", COMMAND_HINTS)
def test_a_command_of_another_tool_is_answered_with_one_that_exists(name: str) -> None:
    said = argosy(name)
    assert said.returncode == 2
    assert said.stderr.startswith(f"argosy: there is no command {name!r}\n  -> in Argosy: ")
    for command in re.findall(r"argosy ([a-z]+)", COMMAND_HINTS[name]):
        assert command in COMMANDS


@pytest.mark.parametrize("name", [name for name in OPTION_HINTS if name.startswith("--")])
def test_an_option_of_another_tool_is_answered_and_never_by_a_guess(name: str) -> None:
    said = argosy("launch", "x.sif", f"{name}=1", "--", "ls")
    assert said.returncode in {2, 125}
    assert OPTION_HINTS[name] in said.stderr or name in {o for row in LAUNCH.values() for o in row.synonyms}
    assert "id you mean" not in said.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--gres=gpu:a100:4", "use --gpus-per-node 4 --gpu-type a100"),
        ("--gres gpu:2", "use --gpus-per-node 2"),
        ("-e A=1", "--env NAME=VALUE"),
        ("-it", "uses your terminal"),
    ],
)
def test_an_option_of_slurm_is_answered_by_the_option_to_use(words: str, answer: str) -> None:
    assert answer in argosy("launch", "x.sif", *words.split(), "--", "ls").stderr


SHORT = "launch /p/x.sif --site lumi-g -A p -N 2 --ntasks-per-node=8 -c 7 -p standard-g -t 1h -J test -q normal"


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--begin", "--sbatch-arg=--begin=VALUE"),
        ("--hold", "--sbatch-arg=--hold"),
        ("--comment=x", "--sbatch-arg=--comment=VALUE"),
    ],
)
def test_an_option_that_only_slurm_has_is_passed_to_slurm(option: str, hint: str) -> None:
    said = argosy("launch", "/p/x.sif", option, "--", "true").stderr
    assert f"-> pass it to Slurm: {hint}" in said


def test_the_options_of_slurm_and_torchrun_are_accepted() -> None:
    said = argosy(*SHORT.split(), "--launcher", "srun", "--dry-run", "--", "./a.out")
    assert said.returncode == 0, said.stderr
    for line in ("--job-name=test", "--nodes=2", "--account=p", "--partition=standard-g", "--time=1:00:00"):
        assert f"#SBATCH {line}\n" in said.stdout
    assert "2 nodes with 8 GPUs and 8 ranks on each" in said.stdout
    assert "--cpus-per-task=56" in said.stdout
    words = "launch /p/x.sif --site lumi-g -A p --nnodes 2 --nproc-per-node 4 --dry-run -- ls"
    torchrun = argosy(*words.split())
    assert "#SBATCH --nodes=2" in torchrun.stdout


def test_ranks_per_node_need_a_number_of_nodes() -> None:
    said = argosy("launch", "/p/x.sif", "--gpus", "16", "--ntasks-per-node", "8", "--dry-run", "--", "ls")
    assert "--ranks-per-node needs --nodes" in said.stderr
    both = argosy("launch", "/p/x.sif", "-N", "2", "-n", "5", "--ntasks-per-node", "8", "--dry-run", "--", "ls")
    assert "--ranks 5 contradicts --ranks-per-node 8" in both.stderr


def test_argosy_alone_prints_the_help_and_succeeds() -> None:
    said = argosy()
    assert said.returncode == 0
    assert said.stdout == argosy("--help").stdout


def test_a_bind_mount_in_the_style_of_docker_is_answered() -> None:
    said = argosy("run", "x.sif", "-v", "/a:/b", "--", "ls")
    assert "--bind /a:/b" in said.stderr


def test_an_error_about_a_shipped_site_names_site_and_key_and_with_verbose_the_file(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    words = ["bare:", "--site", "lumi-g", "--nodes", "2", "--dry-run", "--", "true"]
    assert run_app(["launch", *words]) == 3
    plain = capfd.readouterr().err
    assert ("site lumi-g: slurm.required" in plain, "lumi-g.toml" in plain) == (True, False)
    assert run_app(["launch", "--verbose", *words]) == 3
    assert "data/lumi-g.toml:" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("-v", "/data:/data", "x.sif", "ls"), "use --bind /data:/data"),
        (("x.sif", "-v", ".:/work", "ls"), "use --bind .:/work"),
        (("-it", "x.sif", "ls"), "the container uses your terminal"),
        (("-e", "A=1", "x.sif", "ls"), "use --env NAME=VALUE"),
        (("--mpich", "x.sif", "ls"), "the site's profile adds the flags of podman-hpc"),
    ],
)
def test_options_of_docker_and_podman_hpc_are_answered(words: tuple[str, ...], hint: str) -> None:
    said = argosy("run", *words)
    assert said.returncode in {2, 125}
    assert hint in said.stderr


def test_options_of_run_end_at_the_command() -> None:
    context = run.make_context("run", ["-B", "/a", "x.sif", "--gpu=none", "python", "-c", "print(1)", "--gpu", "nv"])
    assert context.params["command"] == ("python", "-c", "print(1)", "--gpu", "nv")
    assert (context.params["image"], context.params["bind"], context.params["gpu"]) == ("x.sif", ("/a",), "none")
    assert run.make_context("run", ["x.sif", "--", "--gpu"]).params["command"] == ("--gpu",)


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    name = str(tmp_path / f"{CONTROL}[31m\xe9\udcff.sif")
    said = argosy("images", "info", name).stderr
    assert CONTROL not in said
    assert "\\x1b[31m" in said
    stream = io.StringIO()
    PlainReporter(stream).note(f"{name}\tand\x07\n")
    assert stream.getvalue() == f"{tmp_path}/\\x1b[31m\xe9\udcff.sif\tand\\x07\n\n"
