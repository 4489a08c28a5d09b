"""Numbers, JSON and TOML of other programs: every fault is one kind of error, and every reader handles it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from argosy.bench.collectives_output import parse_bandwidth
from argosy.bench.requests import parse_node_counts, parse_size
from argosy.builder.freeze import parse_conda, parse_record
from argosy.core.errors import ArgosyError, CheckFailed, ImageError, SiteError, UsageError
from argosy.core.parse import decode_json, parse_cpulist, parse_int, parse_json, parse_path, parse_toml
from argosy.core.process import FakeRunner, Reply
from argosy.core.redact import redact
from argosy.diagnostics.check import parse_contents
from argosy.diagnostics.discover.replies import parse_nodes
from argosy.diagnostics.validate.merge import read_result
from argosy.diagnostics.verify.logs import parse_netlog
from argosy.diagnostics.why.signatures import read_own_file
from argosy.host.cdi import parse_cdi
from argosy.images.oci import parse_config
from argosy.images.registry.convert import parse_sif_layer
from argosy.images.registry.references import parse_reference
from argosy.images.registry.skopeo import parse_manifest
from argosy.jobs.outputs import read_ends_of
from argosy.jobs.query import find_job
from argosy.jobs.record import parse_ranks
from argosy.jobs.remote_record import copy_notes, copy_output
from argosy.launch.shape import fewest_cores
from argosy.recipes.project_file import read_project
from argosy.recipes.read import read_recipe
from argosy.recipes.user_config import read_files
from argosy.runtimes.edf import parse_edf
from argosy.sites.binding import parse_ranges
from argosy.sites.lint.profile_rules import lint_named_profile
from argosy.sites.read import DATA, read_site
from argosy.slurm.queries import is_job_id, parse_exit_code
from argosy.slurm.times import slurm_time
from tests.unit.machines import make_host, make_session

DEEP = "[" * 100_000
LONG = "9" * 5000
TOML = (f"a = {LONG}\n", f"a = {DEEP}\n")


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), (" 07 ", 7), ("²", 5), ("٣", 5), (LONG, 5), ("-1", 5), ("", 5), ("1.0", 5)]
)
def test_a_number_is_its_digits_or_the_default(text: str, number: int) -> None:
    assert parse_int(text, 5) == number


@pytest.mark.parametrize("text", [DEEP, "{", LONG, '"\ud800'])
def test_invalid_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    with pytest.raises(msgspec.DecodeError):
        decode_json(text.encode(errors="surrogatepass"), dict[str, int])


@pytest.mark.parametrize("text", TOML)
def test_a_toml_file_with_a_long_number_or_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "argosy/config.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)
    with pytest.raises(UsageError, match="not valid TOML"):
        read_project(path)
    with pytest.raises(UsageError, match="not valid TOML"):
        read_files({"XDG_CONFIG_HOME": str(tmp_path)})
    assert read_own_file(path).notes
    with pytest.raises(SiteError, match="TOML"):
        read_site(str(path))
    with pytest.raises(ArgosyError):
        parse_edf(text, "x.toml")


def test_json_that_is_nested_deeply_is_refused_by_each_reader(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(DEEP)
    with pytest.raises(UsageError, match="not a result"):
        read_result(path)
    with pytest.raises(CheckFailed, match="CDI"):
        parse_cdi(DEEP, "x.json")
    with pytest.raises(ImageError, match="not a container image"):
        parse_config(DEEP, "x")
    contents = parse_contents(f"argosy:torch={DEEP}\nargosy:end=yes\n")
    assert contents is not None
    assert contents.torch == {}


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        '{"layers": [{"mediaType": ["x"]}]}',
        '{"layers": [1]}',
        '{"manifests": [{"digest": "x", "platform": {"os": "linux", "architecture": ["amd64"]}}]}',
        '{"manifests": [{"digest": "x", "platform": {"os": "linux", "architecture": 7}}]}',
    ],
)
def test_a_manifest_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="cannot read the manifest of x"):
        parse_manifest(text, "amd64", "x")
    with pytest.raises(ImageError, match="cannot read the manifest of oras://h/x"):
        parse_sif_layer(text, parse_reference("oras://h/x"))


def test_a_record_of_conda_that_is_a_list_names_no_package() -> None:
    assert parse_record(parse_conda, "[1]") == []


def test_a_profile_that_is_not_utf_8_is_a_finding_of_lint(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'name = "\xff"\n')
    (found,) = lint_named_profile(str(path), (DATA,))
    assert "cannot read the profile" in found.evidence
    assert (found.state, found.path, found.line) == ("fail", str(path), 0)


def test_a_site_with_an_endless_name_is_unknown() -> None:
    with pytest.raises(SiteError, match="unknown site"):
        read_site("x" * 5000)


@pytest.mark.parametrize(("text", "code"), [("3:0", 3), ("0:15", 143), ("²:0", 1), (f"{LONG}:{LONG}", 1), ("", 1)])
def test_any_exit_code_of_slurm_is_a_number(text: str, code: int) -> None:
    assert parse_exit_code(text) == code


def test_ranges_of_cores_are_bounded() -> None:
    assert parse_cpulist("0-6:2,9") == {0, 2, 4, 6, 9}
    assert parse_cpulist("0-99999999999,0-1000000000000000000:2,²") == frozenset()
    (node,) = parse_nodes("NodeName=a CPUSpecList=0-99999999999,1 ThreadsPerCore=1 CoresPerSocket=4 Sockets=1")
    assert node.shape.reserved == (1,)
    (rank,) = parse_ranks(f"rank=0 host=a devices={LONG}\n")
    assert rank.devices == 0


@pytest.mark.parametrize(
    "text",
    [
        "JobId=7 JobState=FAILED Restarts=abc ExitCode=1:0 StdOut=/nowhere",
        "JobId=7 JobState=RUNNING ArrayTaskId=2 StdOut=/nowhere",
        f"JobId=7 JobState=RUNNING StdOut=/nowhere/%{LONG}N BatchHost=n1",
        "JobId=7 JobState=FAILED ExitCode=1:0 StdOut=/nowhere/\0x",
        "JobId=7 JobState=  ExitCode=1:0 StdOut=/x\nJobId=8 JobState= ArrayTaskId=2 StdOut=/x",
    ],
)
def test_a_reply_of_slurm_with_other_values_is_still_a_job(tmp_path: Path, text: str) -> None:
    session = make_session(tmp_path, make_host(), FakeRunner([(("scontrol",), Reply(0, text, ""))]))
    assert find_job(session, "7").restarts == 0


def test_a_number_that_is_too_long_in_a_variable_or_an_option_is_no_number() -> None:
    assert fewest_cores(f"{LONG},4") == 4
    assert slurm_time(f"{LONG}h") == f"{LONG}h"
    assert not is_job_id(f"7_{LONG}")


@pytest.mark.parametrize(("parse", "text"), [(parse_size, f"{LONG}K"), (parse_node_counts, f"1,{LONG}")])
def test_a_number_that_is_too_long_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError, match="invalid"):
        parse(text)


def test_a_copy_cut_by_a_lost_connection_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "ends").write_text("7 0 0 n1\n")
    for reply in ("ends YWJjZ\n", "ends \n"):  # the second: head(1) failed, whose exit code a pipeline loses
        copy_notes(FakeRunner([((), Reply(0, reply, ""))]), tmp_path)
        assert (tmp_path / "ends").read_text() == "7 0 0 n1\n"
    for reply in ("5\nYWJjZ\n", "²\n", f"{LONG}\n"):
        copy = Path(copy_output(FakeRunner([((), Reply(0, reply, ""))]), tmp_path, "/x/out"))
        assert not copy.exists() or copy.read_bytes() == b""


def test_figures_that_are_not_numbers_are_not_figures() -> None:
    assert (
        parse_bandwidth(f"busbw: 1.2.3 GBps\n# Avg bus bandwidth : ...\n# Peak bus bandwidth : . GB/s at {LONG} B\n")
        is None
    )
    assert parse_netlog(f"(found {LONG} nics)\nnranks {LONG} \n").nics == 0


def test_lines_of_a_hundred_thousand_letters_are_searched_in_linear_time() -> None:
    # A search that is quadratic in the length of a line takes minutes here.
    line = "A" * 100_000
    assert parse_netlog(f"{line}\nn1:1:2 [0] NCCL INFO Using network IB\n").networks == ("IB",)
    assert redact(f"{line} {line}https://ada:secret@host/x") == f"{line} {line}https://***@host/x"


def test_an_endless_device_is_read_up_to_a_limit() -> None:
    # Without a bound this takes all memory of the machine.
    assert len(read_ends_of("/dev/zero")) < 1 << 22


def test_a_list_of_cores_or_a_path_with_too_many_characters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="invalid list of cores"):
        parse_ranges(f"0-{LONG}")
    (tmp_path / "requirements.txt").write_text(f"./{LONG}\n")
    with pytest.raises(UsageError, match=r"requirements\.txt"):
        read_recipe(["requirements.txt"], cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "path"),
    [("~/x", "/home/ada/x"), ("~nobody-here/x", "~nobody-here/x"), ("./~x", "~x"), ("./~root", "~root"), ("a~", "a~")],
)
def test_a_tilde_is_a_home_only_at_the_beginning_and_for_a_user(
    text: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_path(text) == Path(path)
