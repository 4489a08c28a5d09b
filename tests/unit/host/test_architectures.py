"""Which programs of other architectures run here, and what an image for other machines is told by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from argosy.builder import resolve
from argosy.builder.bases.debian import make_debian
from argosy.builder.bases.engines import EngineOptions, run_definition, run_dockerfile
from argosy.builder.records import BuildRequest
from argosy.builder.resolve import resolve_target_session
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.core.session import Session
from argosy.host.architectures import Emulator, emulating, find_emulators, machine_named, parse_entry
from argosy.sites.load import load_site
from tests.unit.machines import make_host, make_session

ARM = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: POCF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""
JAVA = "enabled\ninterpreter /usr/bin/jexec\nflags: \noffset 0\nmagic 504b0304\n"
WINDOWS = "enabled\ninterpreter /usr/bin/wine\nflags: \nextension .exe\n"
BIG_ENDIAN = ARM.replace("7f454c46020101", "7f454c46020201").replace("0200b700", "000200b7")


@pytest.fixture
def binfmt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the kernel's list of a machine where nothing is registered yet."""
    folder = tmp_path / "binfmt_misc"
    folder.mkdir()
    for name in ("register", "status"):
        (folder / name).write_text("enabled\n")
    monkeypatch.setattr(resolve, "emulating", partial(emulating, folder=folder))
    return folder


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return make_session(tmp_path / "places")


def request(**more: str) -> BuildRequest:
    return BuildRequest((), "debian:bookworm", Path("out.sif"), **more)  # type: ignore[arg-type]  # of text only


def target_session(session: Session, **more: str) -> Session:
    asked = request(**more)
    site = load_site(asked.site, session.host) if asked.site else None
    return resolve_target_session(asked, session, site, None)


def test_an_entry_gives_architecture_emulator_and_visibility_in_containers() -> None:
    assert parse_entry(ARM) == Emulator("aarch64", "/usr/libexec/qemu-binfmt/aarch64-binfmt-P", fixed=True)
    unfixed = parse_entry(ARM.replace("POCF", "OC"))
    assert unfixed
    assert not unfixed.fixed
    assert parse_entry(ARM.replace("b700", "f300")) == Emulator("riscv64", unfixed.program, fixed=True)


@pytest.mark.parametrize(
    "text",
    [
        JAVA,
        WINDOWS,
        "",
        "enabled\n",
        ARM.replace("enabled", "disabled"),
        ARM.replace("0200b700", "02003700"),
        BIG_ENDIAN,
        ARM[:90],
    ],
    ids=["jar", "extension", "empty", "no lines", "disabled", "another machine", "big-endian", "short"],
)
def test_an_entry_for_an_unknown_architecture_is_ignored(text: str) -> None:
    assert parse_entry(text) is None


def test_the_kernels_list_is_read_without_its_switches_and_may_be_missing(binfmt: Path) -> None:
    assert list(find_emulators(binfmt)) == []
    (binfmt / "qemu-aarch64").write_text(ARM)
    (binfmt / "jexec").write_text(JAVA)
    assert [each.arch for each in find_emulators(binfmt)] == ["aarch64"]
    assert list(find_emulators(binfmt / "nowhere")) == []


@pytest.mark.parametrize(
    ("word", "machine"),
    [("arm64", "aarch64"), ("linux/arm64/v8", "aarch64"), ("AMD64", "x86_64"), ("ppc64el", "ppc64le"), ("m1", "m1")],
)
def test_other_names_of_an_architecture_are_recognised(word: str, machine: str) -> None:
    assert machine_named(word) == machine


def test_a_host_runs_its_own_programs_and_those_of_its_emulators(binfmt: Path) -> None:
    host = make_host()
    assert emulating(host, "x86_64", binfmt) == host
    (binfmt / "qemu-aarch64").write_text(ARM)
    there = emulating(host, "aarch64", binfmt)
    assert (there.arch, there.target) == ("x86_64", "aarch64")


def test_a_foreign_architecture_is_refused_with_the_evidence(binfmt: Path) -> None:
    with pytest.raises(CheckFailed, match="cannot run programs for aarch64 on this machine, which is x86_64") as caught:
        emulating(make_host(), "aarch64", binfmt)
    assert caught.value.evidence == f"{binfmt}: no emulator is registered"
    with pytest.raises(CheckFailed) as caught:
        emulating(make_host(), "aarch64", binfmt / "nowhere")
    assert caught.value.evidence.endswith("nowhere: not mounted, so the registered emulators are unknown")
    (binfmt / "qemu-aarch64").write_text(ARM.replace("POCF", "OC"))
    with pytest.raises(CheckFailed) as caught:
        emulating(make_host(), "aarch64", binfmt)
    assert "aarch64-binfmt-P is registered without the flag F" in caught.value.evidence


@pytest.mark.parametrize("more", [{"arch": "arm64"}, {"site": "alps-daint"}, {"arch": "aarch64", "site": "alps-daint"}])
def test_an_image_is_for_the_requested_architecture_or_that_of_the_site(
    binfmt: Path, session: Session, more: dict[str, str]
) -> None:
    (binfmt / "qemu-aarch64").write_text(ARM)
    assert target_session(session, **more).host.target == "aarch64"


@pytest.mark.parametrize("more", [{}, {"site": "lumi-g"}, {"arch": "amd64"}])
def test_an_image_for_this_kind_of_machine_asks_for_no_emulator(
    binfmt: Path, session: Session, more: dict[str, str]
) -> None:
    assert list(find_emulators(binfmt)) == []
    assert target_session(session, **more) == session


def test_a_site_of_a_foreign_architecture_is_refused_with_the_way_to_plan_here(binfmt: Path, session: Session) -> None:
    assert list(find_emulators(binfmt)) == []
    with pytest.raises(CheckFailed, match="alps-daint is aarch64: cannot run programs for aarch64") as caught:
        target_session(session, site="alps-daint")
    assert "--on-node --dry-run" in caught.value.hint


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"arch": "m1"}, "unknown architecture 'm1'"),
        ({"arch": "amd64", "site": "alps-daint"}, "but alps-daint is aarch64"),
    ],
)
def test_contradicting_options_are_refused(session: Session, more: dict[str, str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        target_session(session, **more)


def make_of_dockerfile(there: Session, folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM debian\n")
    run_dockerfile(folder / "Dockerfile", EngineOptions(), there, folder)


def make_of_definition(there: Session, folder: Path) -> None:
    (folder / "x.def").write_text("Bootstrap: docker\nFrom: debian\n")
    run_definition(folder / "x.def", EngineOptions(), there, folder)


def make_of_debian(there: Session, _: Path) -> None:
    make_debian("debian:bookworm", there, ())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_of_dockerfile, ("--platform", "linux/arm64")),
        (make_of_definition, ("--arch", "arm64")),
        (make_of_debian, ("--architectures=arm64", "--skip=check/qemu")),
    ],
)
def test_every_tool_that_makes_a_base_gets_the_architecture(
    session: Session, tmp_path: Path, make: Callable[[Session, Path], None], words: tuple[str, ...]
) -> None:
    runner = FakeRunner([((), Reply(1, "", "no"))])
    host = make_host("podman", "apptainer", "mmdebstrap", emulated="aarch64")
    with pytest.raises(ArgosyError):
        make(Session(host, runner, session.paths, session.reporter), tmp_path)
    assert all(word in runner.seen[0].argv for word in words)
