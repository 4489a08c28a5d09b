"""What stands between a typed line and a started program: what is refused early, and what a dry run shows."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from argosy.builder.bases.debian import explain_bootstrap, private_namespace
from argosy.cli.app import app
from argosy.core.errors import CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.model import Bind, ContainerRequest, Gpu, GpuMode, Image, ImageKind, Variable
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import Paths, PlainReporter
from argosy.core.shell import ShellFunction, literal_argv
from argosy.host.cdi import parse_cdi
from argosy.host.probe import open_session, probe_host
from argosy.runtimes.choose import bare_entry
from argosy.runtimes.command_check import refuse_missing_program, refuse_no_program, refuse_quoted_line
from argosy.runtimes.container_plan import ContainerPlan, plan_container
from argosy.runtimes.run import RunRequest, dev_note, note_dropped, prepare_run, read_only_note, render_run
from argosy.runtimes.runtime import load_runtime
from tests.unit.machines import make_host, make_session

HOST = probe_host({"PATH": "/usr/bin", "HOME": "/home/ada"})
MADE = Command(("mmdebstrap", "nosuite"))


def refuse(folder: Path, *command: str, request: ContainerRequest | None = None) -> None:
    refuse_missing_program(command, request or ContainerRequest(), replace(HOST, cwd=str(folder)))


def test_a_program_file_that_is_not_here_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match=r"cannot run trian\.py") as caught:
        refuse(tmp_path, "python", "-u", "trian.py", "--epochs", "2")
    assert caught.value.hint == "did you mean train.py?"


@pytest.mark.parametrize(
    "command",
    [
        ("python", "train.py"),
        ("python3", "-m", "train.py"),
        ("python", "-c", "print(1)", "absent.py"),
        ("sh", "-c", "python absent.py"),
        ("python", "/opt/vendor/absent.py"),
        ("python", "/data-of-the-image/absent.py"),
        ("absent.py",),
        ("python",),
    ],
)
def test_a_program_that_may_be_in_the_image_is_not_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "train.py").touch()
    refuse(tmp_path, *command)


def test_for_a_job_only_files_that_nodes_see_are_checked() -> None:
    host = replace(HOST, cwd="/home/ada/project")
    with pytest.raises(UsageError, match=r"cannot run absent\.py"):
        refuse_missing_program(("python", "absent.py"), ContainerRequest(runtime="apptainer"), host, at_nodes=True)
    # nodes have a /tmp of their own, and containers of some runtimes another folder
    refuse_missing_program(("python", "/tmp/absent.py"), ContainerRequest(), host, at_nodes=True)  # noqa: S108
    refuse_missing_program(("python", "absent.py"), ContainerRequest(runtime="pyxis"), host, at_nodes=True)


def test_bind_mounts_that_do_not_change_the_folder_of_a_program_do_not_hide_that_it_is_missing() -> None:
    host, folder = replace(HOST, cwd="/home/ada/project"), "/home/ada/project"
    for bind in (Bind("/home/ada/.local/state/argosy", "/home/ada/.local/state/argosy"), Bind(folder, folder)):
        with pytest.raises(UsageError, match=r"cannot run absent\.py"):
            refuse_missing_program(("python", "absent.py"), ContainerRequest((bind,)), host, at_nodes=True)
    other = ContainerRequest((Bind("/shared/code", folder),))
    refuse_missing_program(("python", "absent.py"), other, host, at_nodes=True)


def test_a_quoted_command_line_is_refused_and_a_file_name_is_not(tmp_path: Path) -> None:
    (tmp_path / "my tool").touch()
    for word in ("my tool", "/opt/my tool", "python", " train.sh"):
        refuse_quoted_line((word,), replace(HOST, cwd=str(tmp_path)))
    refuse_quoted_line(("sh", "-c", "python train.py"), HOST)
    with pytest.raises(UsageError, match="one argument with blanks") as caught:
        refuse_quoted_line(("python train.py",), replace(HOST, cwd=str(tmp_path)))
    assert "-- python train.py" in caught.value.hint


@pytest.mark.parametrize("word", ["train.py", "./train.py", "run.sh"])
def test_a_script_that_nothing_would_start_is_answered_with_the_command_that_does(tmp_path: Path, word: str) -> None:
    host = replace(HOST, cwd=str(tmp_path))
    refuse_no_program((word,), ContainerRequest(), host)  # it may be the image's
    (tmp_path / word).touch(mode=0o644)
    with pytest.raises(UsageError) as caught:
        refuse_no_program((word, "--epochs"), ContainerRequest(), host)
    assert caught.value.hint.split(";")[0] == f"write: IMAGE -- {'sh' if word.endswith('.sh') else 'python'} {word}"
    refuse_no_program((word,), ContainerRequest(contain=True), host)
    (tmp_path / word).chmod(0o755)
    refuse_no_program((f"./{word}",), ContainerRequest(), host)


@pytest.mark.parametrize(
    "request_",
    [ContainerRequest(contain=True), ContainerRequest(workdir="/opt"), ContainerRequest((Bind("/a", "/tmp"),))],  # noqa: S108 - a mount
)
def test_a_missing_file_is_not_refused_if_the_working_folder_in_the_container_differs(
    tmp_path: Path, request_: ContainerRequest
) -> None:
    refuse(tmp_path, "python", "absent.py", request=request_)


@pytest.mark.parametrize(
    ("said", "kind", "what"),
    [
        (
            "I: running\nE: The repository 'http://deb nosuite Release' does not have a Release file.\nE: mmdebstrap",
            UsageError,
            "there is no Debian suite 'nosuite' at http://mirror",
        ),
        ("E: Unable to locate package nosuchpkg\n", UsageError, "a package is not in Debian nosuite"),
        (
            "Err:1 x\n  Temporary failure resolving 'deb.debian.org'\n",
            ToolFailed,
            "cannot reach Debian's package server",
        ),
        (
            "E: unable to pick chroot mode automatically (use --mode for manual selection)\n",
            ToolMissing,
            "mmdebstrap needs subordinate user ids or fakechroot",
        ),
        (
            "unshare: failed to execute mmdebstrap: No such file or directory\n",
            ToolMissing,
            "cannot create debian:nosuite: mmdebstrap cannot be started",
        ),
        (
            "newuidmap: uid range [0-1) -> [1000-1001) not allowed\n",
            ToolMissing,
            "cannot create debian:nosuite: mmdebstrap needs subordinate user ids",
        ),
        ("E: something else\n", ToolFailed, "creating debian:nosuite failed"),
    ],
)
def test_apts_output_becomes_one_sentence(said: str, kind: type[Exception], what: str) -> None:
    error = explain_bootstrap("nosuite", "http://mirror", MADE, Reply(25, "", said))
    assert isinstance(error, kind)
    assert what in str(error)
    assert str(error).count("\n") <= 5


@pytest.mark.parametrize(
    ("can_mount", "code", "begin"),
    [
        (True, 0, ("unshare", "--mount", "--pid")),
        (False, 0, ("unshare", "--user", "--map-root-user", "--map-auto", "--mount", "--pid")),
        (False, 1, ()),
    ],
)
def test_a_debian_base_is_made_in_a_private_namespace_if_possible(
    *, can_mount: bool, code: int, begin: tuple[str, ...]
) -> None:
    host = replace(HOST, can_mount=can_mount, programs={"unshare": "/usr/bin/unshare"})
    runner = FakeRunner([(("unshare", "--user"), Reply(code, "", ""))])
    session = replace(open_session(runner=runner), host=host)
    words = private_namespace(session)
    assert words[: len(begin)] == begin
    assert ("--kill-child" in words) == bool(begin)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((), True),
        (("pip", "install", "einops"), True),
        (("python", "-m", "pip", "install", "einops"), True),
        (("python", "-mpip", "install", "einops"), True),
        (("apt-get", "install", "-y", "git"), True),
        (("apt", "update"), True),
        (("bash", "-lc", "pip install einops && python t.py"), True),
        (("sh", "-c", "python t.py"), False),
        (("bash", "-c"), False),
        (("pip", "install", "--target", "lib", "einops"), False),
        (("pip", "list"), False),
        (("python", "install.py", "install"), False),
    ],
)
def test_a_command_that_writes_into_an_image_gets_a_note(command: tuple[str, ...], *, said: bool) -> None:
    note = read_only_note(RunRequest("my.sif", command))
    assert ("argosy build requirements.txt --base my.sif" in note) == said
    assert ("--dev" in note) == said


def test_pip_install_user_gets_a_note_with_alternatives() -> None:
    note = read_only_note(RunRequest("my.sif", ("pip", "install", "--user", "einops")))
    assert "~/.local" in note
    assert "--dev" in note
    dev = dev_note(RunRequest("my.sif", ("pip", "install", "--user", "einops"), dev=True), "/p/dev", "/p")
    assert "leave out --user" in dev


@pytest.mark.parametrize(
    ("command", "lift"),
    [
        ((), "unset PIP_CONSTRAINT UV_CONSTRAINT"),
        (("bash", "-c", "cd x; pip install six==1"), "unset PIP_CONSTRAINT UV_CONSTRAINT"),
        (("python", "-m", "pip", "install", "six==1"), "--env PIP_CONSTRAINT= --env UV_CONSTRAINT="),
        (("python", "train.py"), ""),
    ],
)
def test_only_an_installer_or_a_shell_is_told_how_to_change_the_images_packages(
    command: tuple[str, ...], lift: str
) -> None:
    _, *constraint = dev_note(RunRequest("my.sif", command, dev=True), "/p/dev", "/p").splitlines()
    said = f"the image's packages keep their versions; to let pip change them: {lift}"
    assert constraint == ([said] if lift else [])


def test_a_python_path_that_is_dropped_is_noted_once_for_each_value(tmp_path: Path) -> None:
    stream = io.StringIO()
    paths = Paths(tmp_path / "cache", tmp_path / "state", ())
    session = replace(open_session(reporter=PlainReporter(stream)), paths=paths)
    for value in ("/a", "/a", "/b"):
        host = replace(session.host, environment={"PYTHONPATH": value})
        note_dropped(ContainerRequest(), replace(session, host=host))
        note_dropped(ContainerRequest(variables=(Variable("PYTHONPATH", "/c"),)), replace(session, host=host))
    assert stream.getvalue().count("does not enter the container; to pass it: --env PYTHONPATH") == 2


def test_the_note_quotes_the_image_for_a_shell() -> None:
    assert "--base 'my own.sif' -o" in read_only_note(RunRequest("my own.sif", ()))


def test_a_folder_inside_is_found_from_the_current_one() -> None:
    image = Image("/images/my.sif", ImageKind.SIF, "", "")
    for asked, found in (("", HOST.cwd), ("sub", f"{HOST.cwd}/sub"), ("/opt", "/opt")):
        assert plan_container(ContainerRequest(workdir=asked), image, HOST).entry.workdir == found


def test_a_dry_run_shows_the_small_programs_by_name_and_the_command_as_a_line() -> None:
    image = Image("/images/my.sif", ImageKind.SIF, "", "")
    entry = replace(bare_entry(image, HOST), variables=(Variable("COLOUR", "deep blue"),), drop=("PYTHONPATH",))
    plan = ContainerPlan(load_runtime("apptainer"), entry, ())
    words = literal_argv(("sh", "-c", ShellFunction("guard", 'exec "$@"\n'), "sh", "python", "a b"))
    assert render_run(plan, Command(words)).splitlines() == [
        "unset PYTHONPATH",
        *(f"export {v.name}='deep blue'" for v in plan.exports()),
        "guard='exec \"$@\"'",
        "exec sh -c \"$guard\" sh python 'a b'",
    ]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bwrap")
def test_a_run_finds_the_mounts_and_variables_of_the_projects_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tree/bin").mkdir(parents=True)
    (tmp_path / "tree/bin/sh").touch()
    (tmp_path / "tree/usr").mkdir()
    (tmp_path / "tree/etc").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "argosy.toml").write_text(
        f'[launch]\nbind = ["{tmp_path}/data:/data", "/of/a/node"]\nenv = {{ A = "1", B = "1" }}\ngpu = "nv"\n'
    )
    monkeypatch.chdir(tmp_path)
    words = ["run", "tree", "--env", "B=2", "--runtime", "bwrap", "--dry-run", "--", "true"]
    assert app.main(words, standalone_mode=False) == 0
    said = capsys.readouterr()
    assert f"--bind {tmp_path}/data /data" in " ".join(said.out.replace("\\\n", " ").split())
    assert " A=1 B=2 " in said.out
    assert "/of/a/node does not exist here and is not mounted" in said.err


def test_gpus_by_cdi_are_refused_without_a_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ContainerRequest(runtime="podman", gpu=GpuMode.NV)
    request = RunRequest("docker://example.org/x:1", ("true",), wanted)
    place = make_session(tmp_path, make_host("podman", "crun", gpus=(Gpu("nvidia", 0, "/dev/nvidia0"),)))
    monkeypatch.setattr("argosy.runtimes.run.read_cdi", tuple)
    with pytest.raises(CheckFailed, match="podman finds GPUs by CDI") as caught:
        prepare_run(request, place)
    assert "nvidia-ctk cdi generate" in caught.value.hint
    assert prepare_run(request, place, dry=True)
    spec = parse_cdi('{"kind": "nvidia.com/gpu", "devices": []}', "nvidia.json")
    monkeypatch.setattr("argosy.runtimes.run.read_cdi", lambda: (spec,))
    assert prepare_run(request, place)


def test_the_start_script_is_refused_where_the_runtime_does_not_use_it(tmp_path: Path) -> None:
    wanted = ContainerRequest(runtime="podman", enter="run")
    request = RunRequest("docker://example.org/x:1", (), wanted, start_script=True)
    with pytest.raises(UsageError, match="podman starts programs without it"):
        prepare_run(request, make_session(tmp_path, make_host("podman", "crun")), dry=True)
