"""What travels by ssh: words, files and paths; the far side is played by a local sh."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, UsageError
from argosy.core.model import Bind, ContainerRequest
from argosy.core.process import Command, OnLine, RealRunner, Reply
from argosy.core.records import replace
from argosy.core.ssh import MARK, OverSsh, Remote, parse_remote, render_file, render_word, run_text
from argosy.images.remote import fetch_bytes
from argosy.jobs.remote_record import LOG_BYTES, copy_notes, copy_output
from argosy.launch.model import LaunchRequest
from argosy.launch.submit_ssh import launch_by_ssh, remote_path, with_remote_paths
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_host, make_session

PATH = {"PATH": os.environ["PATH"]}


class NearSsh(RealRunner):
    """Does what ssh would: gives the last word to a shell, in a folder of its own, after what its profile prints."""

    def __init__(self, home: Path, says: str = "", code: int | None = None) -> None:
        super().__init__()
        self.home, self.says, self.code = home, says, code

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        assert command.argv[:-1] == ("ssh", "-o", "BatchMode=yes", "--", "far")
        if self.code is not None:
            return Reply(self.code, self.says, "ssh: no")
        line = f"printf %s {shlex.quote(self.says)}; {command.argv[-1]}"
        return super().run(replace(command, argv=("sh", "-c", line), cwd=str(self.home)), on_line)


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("lumi", Remote("lumi")),
        ("ada@lumi:/scratch/a b", Remote("ada@lumi", "/scratch/a b")),
        ("lumi:~/x", Remote("lumi", "x")),
        ("lumi:~", Remote("lumi")),
        ("lumi:x:y", Remote("lumi", "x:y")),
    ],
)
def test_a_machine_and_a_folder_are_read(text: str, remote: Remote) -> None:
    assert parse_remote(text) == remote


@pytest.mark.parametrize("text", ["", ":/x", "-oProxyCommand=id", "a b:/x", "\nx", "/scratch/x", "./x:y"])
def test_a_destination_that_ssh_would_misread_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid ssh destination"):
        parse_remote(text)


@settings(max_examples=10, deadline=None)
@example(words=["aé", "argosÿ", "%é"])
@given(words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\1\r"), max_size=20), max_size=4))
def test_arguments_and_texts_arrive_unchanged(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    far = OverSsh(NearSsh(tmp_path_factory.mktemp("far"), says=f"welcome\n{MARK[:5]}\n"), Remote("far"))
    reply = far.run(Command(("printf", r"%s\001", *words)))
    assert (reply.stdout.split("\1")[:-1] or [""]) == (words or [""])
    text = "\n".join((*words, "argosy-end-of-text", "last"))
    assert far.run(Command(("cat",), stdin=text)).stdout == f"{text}\n"


def test_a_file_is_written_and_its_bytes_are_read(tmp_path: Path) -> None:
    far = OverSsh(NearSsh(tmp_path), Remote("far"))
    assert run_text(far, render_file("it's here", "one\n$two `three`\n")).code == 0
    assert (tmp_path / "it's here").read_text() == "one\n$two `three`\n"
    (tmp_path / "data").write_bytes(bytes(range(256)) * 9)
    assert fetch_bytes(far, "data", 255, 3) == b"\xff\x00\x01"
    assert far.run(Command(("cat",), stdin_file=str(tmp_path / "it's here"))).stdout == "one\n$two `three`\n"


def test_a_file_that_cannot_be_written_whole_ends_the_script(tmp_path: Path) -> None:
    """The device fails as a file system over quota does."""
    script = f"{render_file('/dev/full', 'one')}\necho submitted\n"
    reply = run_text(OverSsh(NearSsh(tmp_path), Remote("far")), script)
    assert (reply.code, reply.stdout) == (1, "")


@pytest.mark.parametrize("shell", [name for name in ("sh", "bash", "zsh", "tcsh", "fish") if shutil.which(name)])
def test_a_program_is_one_argument_that_every_login_shell_reads_alike(shell: str) -> None:
    word = render_word("printf '%s|' 'a  b' \"$HOME\" 'it'\\''s !x' '$y' 'ü'\nexit 3\n")
    assert re.fullmatch(r"""exec sh -c 'eval "\$\(printf "[\\0-7]+"\)"'""", word)
    done = subprocess.run([shell, "-c", word], capture_output=True, text=True, check=False, env={"HOME": "/h", **PATH})
    assert (done.returncode, done.stdout) == (3, "a  b|/h|it's !x|$y|ü|")


def test_a_missing_folder_and_a_failed_connection_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="no such folder on far: none"):
        OverSsh(NearSsh(tmp_path), Remote("far", "none")).run(Command(("true",)))
    with pytest.raises(CheckFailed) as caught:
        OverSsh(NearSsh(tmp_path), Remote("far", "-a 'b'")).run(Command(("true",)))
    (word,) = shlex.split(caught.value.hint.partition("ssh far ")[2])
    assert shlex.split(word) == ["mkdir", "-p", "--", "-a 'b'"]
    with pytest.raises(ToolFailed, match="cannot connect to far by ssh") as unreachable:  # as a registry out of reach
        OverSsh(NearSsh(tmp_path, code=255), Remote("far")).run(Command(("true",)))
    assert unreachable.value.evidence == "$ ssh far\nssh: no\n(exit code 255)"
    assert OverSsh(NearSsh(tmp_path), Remote("far")).run(Command(("sh", "-c", "exit 255"))).code == 255


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("", ""),
        ("x/y", "/far/x/y"),
        ("/here/x", "/far/x"),
        ("/here", "/far"),
        ("/hereafter", "/hereafter"),
        ("/scratch/x", "/scratch/x"),
        ("../x", "/far/../x"),
    ],
)
def test_a_local_folder_maps_to_the_remote_one(path: str, there: str) -> None:
    assert remote_path(path, "/here", "/far") == there


def test_every_path_of_a_request_is_moved() -> None:
    binds = (Bind("/here/data", "/data"), Bind("/here/same", "/here/same"), Bind("/scratch", "/scratch"))
    request = LaunchRequest(
        "my.sif",
        ("python", "/here/x.py"),
        options=JobOptions(output="/here/%j.out", error="", chdir="/here"),
        logs="/here/logs",
        checkpoint="/here/last.pt",
        container=ContainerRequest(binds=binds, workdir="/here/sub"),
    )
    done = with_remote_paths(request, "/here", "/far")
    assert (done.image, done.options.output, done.options.error, done.options.chdir) == (
        *("/far/my.sif", "/far/%j.out", "", "/far"),
    )
    assert (done.logs, done.checkpoint, done.container.workdir) == ("/far/logs", "/far/last.pt", "/far/sub")
    assert [(bind.source, bind.target) for bind in done.container.binds] == [
        *(("/far/data", "/data"), ("/far/same", "/far/same"), ("/scratch", "/scratch")),
    ]
    assert done.command == request.command
    assert with_remote_paths(replace(request, image="docker://a/b"), "/here", "/far").image == "docker://a/b"


def copied(far: OverSsh, record: Path, output: str) -> str:
    copy_notes(far, record)
    return copy_output(far, record, output)


def test_a_jobs_files_are_copied_and_its_output_grows(tmp_path: Path) -> None:
    there, record = tmp_path / "there", tmp_path / "record"
    there.mkdir()
    record.mkdir()
    (record / "submitted.json").write_text(json.dumps({"ssh": "far", "there": str(there)}))
    far, output = OverSsh(NearSsh(tmp_path), Remote("far")), there / "job.out"
    copy = Path(copied(far, record, str(output)))
    assert not copy.exists(), "nothing is written yet"
    (there / "ends").write_text("1 0 0 node1\n")
    (there / "ranks-0").write_text("rank 0\n")
    (there / "job.sh").write_text("not copied")
    (there / "nccl-0-node1-7.log").write_text("NCCL INFO x" * LOG_BYTES)
    output.write_bytes(b"first\xff\n")
    copied(far, record, str(output))
    assert copy.read_bytes() == b"first\xff\n"
    assert sorted(path.name for path in record.iterdir()) == [
        *("ends", "nccl-0-node1-7.log", "output-job.out", "ranks-0", "submitted.json")
    ]
    assert (record / "nccl-0-node1-7.log").stat().st_size == LOG_BYTES
    (there / "ends").write_text("1 0 0 node1\n1 1 0 node1\n")
    (record / "nccl-0-node1-7.log").chmod(0o400)
    output.write_bytes(b"first\xff\nsecond\n")
    copied(far, record, str(output))
    assert copy.read_bytes() == b"first\xff\nsecond\n"
    assert (record / "ends").read_text().count("\n") == 2
    assert (record / "nccl-0-node1-7.log").stat().st_mode & 0o777 == 0o400, "a log that has not grown stays"
    output.write_bytes(b"anew\n")
    copied(far, record, str(output))
    assert copy.read_bytes() == b"anew\n", "a file that is shorter was begun anew"


def test_an_alias_in_the_catalog_of_the_site_is_submitted_as_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, here, catalog = tmp_path / "far", tmp_path / "here", tmp_path / "catalog" / "tools"
    for folder in (far / "bin", here / "tree", catalog):
        folder.mkdir(parents=True)
    words = ["mksquashfs", str(here / "tree"), str(catalog / "1.sqsh"), "-quiet"]
    subprocess.run(words, check=True, capture_output=True)
    (catalog / "stable.sqsh").symlink_to("1.sqsh")
    (far / "bin" / "sbatch").write_text("#!/bin/sh\necho 7\n")
    (far / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{far}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("ARGOSY_STATE", str(far / "state"))
    monkeypatch.setenv("ARGOSY_IMAGES", str(catalog.parent))
    text = 'name = "lab"\ntitle = "lab"\nscheduler = "slurm"\n[runtime]\nname = "apptainer"\n'
    (here / "lab.toml").write_text(text)
    session = make_session(here, make_host(cwd=str(here)), NearSsh(far))
    request = LaunchRequest("tools:stable", ("true",), site=str(here / "lab.toml"), options=JobOptions(time="5"))
    launched = launch_by_ssh(request, session, Remote("far"))
    script = Path(launched.record, "job.sh").read_text()
    assert f"{catalog}/1.sqsh" in script
    assert "stable" not in script
    with pytest.raises(UsageError, match=f"cannot find the image {far}/tools:2 at far") as error:
        launch_by_ssh(replace(request, image="tools:2"), session, Remote("far"))
    assert error.value.evidence == "the catalog there does not have the name tools:2, either"


@pytest.mark.parametrize(("error", "is_kept"), [("Invalid partition", False), ("Socket timed out", True)])
def test_the_record_of_a_refused_job_is_removed_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, *, is_kept: bool
) -> None:
    far, here = tmp_path / "far", tmp_path / "here"
    (far / "bin").mkdir(parents=True)
    here.mkdir()
    for name, text in {"sbatch": f"echo 'sbatch: error: {error}' >&2; exit 1", "squeue": ":"}.items():
        (far / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (far / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{far}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("ARGOSY_STATE", str(far / "state"))
    (here / "lab.toml").write_text('name = "lab"\ntitle = "lab"\nscheduler = "slurm"\n')
    session = make_session(here, make_host(cwd=str(here)), NearSsh(far))
    request = LaunchRequest("bare:", ("true",), site=str(here / "lab.toml"), options=JobOptions(time="5"))
    with pytest.raises(ArgosyError, match=r"sbatch|Slurm|partition"):
        launch_by_ssh(request, session, Remote("far"))
    kept = (len([*session.paths.runs.glob("*")]), len([*(far / "state" / "runs").glob("*")]))
    assert kept == ((1, 1) if is_kept else (0, 0))
