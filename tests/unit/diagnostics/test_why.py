"""Known errors are found in logs as they are really printed, causes before what follows of them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argosy.cli.app import app
from argosy.core.errors import UsageError
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter
from argosy.diagnostics.why import explain, find
from argosy.diagnostics.why.explain import explain_job_end, explain_log, render_errors
from argosy.diagnostics.why.find import find_errors, without_digits
from argosy.diagnostics.why.signatures import (
    DATA,
    FILES,
    SHIPPED,
    Signature,
    read_known_errors,
    read_own_file,
    read_signatures,
)
from argosy.host.probe import open_session
from argosy.jobs.query import JobFacts
from tests.unit.machines import make_session

CORPUS = sorted((Path(__file__).parents[2] / "corpus/logs").glob("*.log"))
SIGNATURES = read_signatures()


def test_there_are_enough_known_errors_and_each_is_complete() -> None:
    assert len(SIGNATURES) >= 270
    assert [each.name for each in SIGNATURES if not each.cause] == []
    assert [each.name for each in SIGNATURES if not each.fix] == []
    assert [(each.name, each.source) for each in SIGNATURES if not each.source.startswith("https://")] == []


def test_each_known_error_matches_its_own_example_only() -> None:
    """The further lines of an example, which ``also`` asks for, may be errors of their own."""
    wrong = {}
    for known in SIGNATURES:
        found = [(each.name, each.line) for each in find_errors(f"epoch 1\n{known.example}\n", SIGNATURES)]
        if (known.name, 2) not in found or (len(found) > 1 and not (known.also or known.stalled)):
            wrong[known.name] = found
    assert wrong == {}
    assert len({known.name for known in SIGNATURES}) == len(SIGNATURES)


def test_an_error_of_slurmstepd_is_known_in_the_form_of_both_releases() -> None:
    """Since Slurm 25.05 the time precedes it, in place of the name of the program."""
    old = re.compile(r"slurmstepd(?:-\S+)?: (?=error: )")
    logs = {known.name: known.example for known in SIGNATURES} | {path.stem: path.read_text() for path in CORPUS}
    logs["memory"] = "slurmstepd: error: Step 7.0 exceeded memory limit (4200000 > 4194304), being killed\n"
    logs["harmless"] = "slurmstepd: error: NVML: Failed to get process count for gpu utilization(0): Unknown\n"
    logs["labelled"] = "0: step 1\n1: step 1\n0: frobnicating\n" + "slurmstepd: error: no frob for step 7\n" * 4
    logs = {name: text for name, text in logs.items() if old.search(text)}
    assert len(logs) > 70

    def names(text: str) -> list[tuple[str, str]]:
        return [(each.name, each.rank) for each in find_errors(text, SIGNATURES)]

    differ = {
        name: (names(text), names(new))
        for name, text in logs.items()
        for form in ("2026-11-29T20:47:04.208", "2026-11-29T20:47:04.208+01:00", "Nov 29 20:47:04")
        if names(text) != names(new := old.sub(f"[{form}] ", text))
    }
    assert differ == {}


@pytest.mark.parametrize("log", CORPUS, ids=lambda path: path.stem)
def test_the_cause_of_a_real_log_comes_first_and_a_good_run_has_no_cause(log: Path) -> None:
    text = log.read_bytes().decode()
    wanted = re.findall(r"^# (?:top|also):[ ]*(.*)$", text, re.MULTILINE)
    body = re.sub(r"^# .*$", "#", text, flags=re.MULTILINE)
    found = [each.name for each in find_errors(body, SIGNATURES)]
    assert found[:1] == wanted[0].split()
    assert found[1:] == (wanted[1].split() if len(wanted) > 1 else [])


@pytest.mark.parametrize("first", range(0, len(SIGNATURES), 10))
@settings(max_examples=settings().max_examples // 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_matching_text_contains_a_needed_word(first: int, data: st.DataObject) -> None:
    for known in SIGNATURES[first : first + 10]:
        text = data.draw(st.from_regex(re.compile(known.match, re.MULTILINE)), known.name)
        assert any(word in without_digits(text.split("\n")) for word in known.needs), known.name


def test_no_name_is_given_twice_since_the_second_error_would_be_ignored() -> None:
    names = [name for path in SHIPPED for name in re.findall(r'^name = "(.+)"', path.read_text(), re.MULTILINE)]
    assert [name for name in names if names.count(name) > 1] == []


def test_each_known_error_has_needed_words_to_search_long_logs_fast() -> None:
    assert [each.name for each in SIGNATURES if not each.needs] == []


def test_each_needed_word_consists_of_parts_of_its_pattern() -> None:
    stale = [
        (each.name, word)
        for each in SIGNATURES
        for word in each.needs
        if not all(part in each.match for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", word))
    ]
    assert stale == [], "these words are not in the pattern: a line can match without them"


def test_no_pattern_repeats_word_characters_before_any_text_which_takes_quadratic_time() -> None:
    assert [each.name for each in SIGNATURES if re.search(r"\\w[*+]\[\^\\n\]", each.match)] == []


def test_text_beyond_the_longest_message_is_ignored() -> None:
    said = "RuntimeError: No CUDA GPUs are available"
    assert find_errors(f"{' ' * 1000}{said}", SIGNATURES)
    assert find_errors(f"{' ' * 2000}{said}", SIGNATURES) == ()


def test_a_line_of_megabytes_and_control_characters_do_no_harm() -> None:
    text = "x" * 3_000_000 + "\n\x1b[31mRuntimeError: No CUDA GPUs are available\x1b[0m\n"
    (found,) = find_errors(text, SIGNATURES)
    assert found.name == "no-gpu-seen"
    assert "\x1b" not in found.text


def test_a_long_log_is_read_from_its_end_and_lines_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argosy.diagnostics.why.explain.MOST_BYTES", 1000)
    log = tmp_path / "long.out"
    log.write_text("a line of sixteen\n" * 500 + "ModuleNotFoundError: No module named 'einops'\n")
    (found,) = explain_log(open_session(), str(log)).errors
    assert (found.name, found.line) == ("module-missing", 501)


def test_a_progress_bar_is_one_line_as_in_an_editor() -> None:
    (found,) = find_errors("start\r\n10%\r20%\r30%\nRuntimeError: No CUDA GPUs are available\n", SIGNATURES)
    assert found.line == 3


def test_only_the_end_of_a_long_stream_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.diagnostics.why.explain.MOST_BYTES", 1000)
    text = "RuntimeError: No CUDA GPUs are available\n" + "a line of sixteen\n" * 500 + "Disk quota exceeded\n"
    told = CliRunner().invoke(app, ["why", "-", "--json"], input=text)
    assert [(each["name"], each["line"]) for each in json.loads(told.output)[0]["errors"]] == [("quota", 502)]


@pytest.mark.parametrize(
    ("state", "end", "errors"),
    [
        ("CANCELLED", "job 7 was cancelled (code 143)", 0),
        ("COMPLETED", "job 7 ended well (code 0)", 1),
        ("RUNNING", "job 7 runs", 1),
    ],
)
def test_why_tells_how_a_job_ended_and_blames_no_rank_of_a_cancelled_job(
    tmp_path: Path, state: str, end: str, errors: int
) -> None:
    output = tmp_path / "out"
    output.write_text("slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T19:10:14 ***\n")
    line = f"JobId=7 JobState={state} ExitCode=0:0 NodeList=n1 StdOut={output}\n"
    there = make_session(tmp_path, runner=FakeRunner([(("scontrol",), Reply(0, line, ""))]))
    found = explain_log(there, "7")
    assert found.end == end
    assert len(found.errors) == errors


@pytest.mark.parametrize(
    ("state", "code", "hint"), [("FAILED", "3:0", "code 3"), ("CANCELLED", "0:15", ""), ("COMPLETED", "0:0", "")]
)
def test_a_job_that_failed_without_an_error_gets_a_next_step(tmp_path: Path, state: str, code: str, hint: str) -> None:
    output = tmp_path / "out"
    output.write_text("step 1\n")
    line = f"JobId=7 JobState={state} ExitCode={code} NodeList=n1 StdOut={output}\n"
    found = explain_log(make_session(tmp_path, runner=FakeRunner([(("scontrol",), Reply(0, line, ""))])), "7")
    assert found.errors == ()
    assert bool(found.hint) == bool(hint)
    assert hint in found.hint


def test_the_last_line_of_a_running_job_tells_what_it_waits_for(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("> initializing torch distributed ...\n")
    line = f"JobId=7 JobState=RUNNING ExitCode=0:0 NodeList=n1 StdOut={output}\n"
    found = explain_log(make_session(tmp_path, runner=FakeRunner([(("scontrol",), Reply(0, line, ""))])), "7")
    assert [each.name for each in found.errors] == ["waits-for-ranks"]


def test_a_user_adds_known_errors_and_overrides_shipped_ones(tmp_path: Path) -> None:
    own = tmp_path / "argosy/signatures.toml"
    own.parent.mkdir()
    own.write_text('[[signature]]\nname = "quota"\nmatch = "ours is full"\ncause = "c"\nfix = "f"\n')
    signatures = read_known_errors({"XDG_CONFIG_HOME": str(tmp_path)}).signatures
    assert [each.cause for each in find_errors("ours is full\n", signatures)] == ["c"]
    assert [each.name for each in find_errors("Disk quota exceeded\n", signatures)] == ["first-error"]


GOOD = "[[signature]]\nname = 'good'\nmatch = 'ours'\ncause = 'c'\nfix = 'f'\n"
BAD = "[[signature]]\nname = 'bad'\nmatch = '(?P<who>x)'\ncause = 'c'\n"
OWN_MISTAKES = {
    f"{GOOD}{BAD}fixx = 'f'\n": ":10: unknown key 'fixx' (did you mean 'fix'?); the known error 'bad' is not used",
    f"{BAD}{GOOD}": ":1: Object missing required field `fix`; the known error 'bad' is not used",
    f"{BAD}fix = 'f'\nalso = ['(']\n{GOOD}": "'(' of 'bad' is not a regular expression",
    f"{BAD}fix = 'ask {{who}}, not {{whom}}, in ${{HOME}}'\n{GOOD}": "'{whom}' of 'bad' is not a group of its match",
    f"{BAD}fix = 'f'\nlevel = 'reason'\n{GOOD}": ":6: 'reason' is not one of its values",
    f"{BAD}fix = 1\n{GOOD}{BAD}fix = 'f'\nneeds = ['code 7']\n": "(and 1 more mistake in this file)",
    f"{BAD}fix = 'f'\nneeds = ['code 7']\n{GOOD}": "'code 7', a needed word of 'bad', has a digit",
    f"{GOOD}[[signatures]]\nname = 'x'\n": ":6: unknown key 'signatures' (did you mean 'signature'?)",
    f"{GOOD}[[signature]\n": ":6: ",
    "signature = 1\n": "[[signature]]",
    "[signature]\nname = 'x'\n": "[[signature]]",
    "signature = [1]\n": "the known error is not used",
}


@pytest.mark.parametrize("text", OWN_MISTAKES)
def test_a_mistake_in_a_file_of_known_errors_costs_only_that_entry_and_is_noted(tmp_path: Path, text: str) -> None:
    own = tmp_path / "argosy/signatures.toml"
    own.parent.mkdir()
    own.write_text(text)
    known = read_known_errors({"XDG_CONFIG_HOME": str(tmp_path)})
    (note,) = known.notes
    assert note.count(str(own)) == 1
    assert OWN_MISTAKES[text] in note
    names = {each.name for each in known.signatures}
    assert names >= {each.name for each in SIGNATURES}
    assert "bad" not in names
    assert ("good" in names) == (GOOD in text and "[[signature]\n" not in text)


def test_a_file_of_known_errors_that_cannot_be_read_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "argosy/signatures.toml"
    own.mkdir(parents=True)
    (note,) = read_known_errors({"XDG_CONFIG_HOME": str(tmp_path)}).notes
    assert "directory" in note

    def refuse(path: Path, **_: str) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuse)
        (note,) = read_own_file(own).notes
    assert f"chmod a+r {own}" in note


def test_why_and_the_end_of_a_job_note_a_mistake_in_the_known_errors_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "argosy/signatures.toml"
    own.parent.mkdir()
    own.write_text(f"{GOOD}color = 'red'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    log = tmp_path / "job.out"
    log.write_text("RuntimeError: No CUDA GPUs are available\n")
    told = CliRunner().invoke(app, ["why", str(log), str(log), "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)[1]["errors"][0]["name"] == "no-gpu-seen"
    assert told.stderr.count("unknown key 'color'") == 1
    assert CliRunner().invoke(app, ["report", "77"]).stderr.count("unknown key 'color'") == 1
    printed = io.StringIO()
    session = replace(make_session(tmp_path), reporter=PlainReporter(stream=printed))
    session = replace(session, host=replace(session.host, environment={"XDG_CONFIG_HOME": str(tmp_path)}))
    facts = JobFacts("18", "FAILED", "ended", "", "", "node1", str(log), 1, 0, "")
    assert "No CUDA GPUs are available" in explain_job_end(session, facts)
    assert printed.getvalue().count("unknown key 'color'") == 1


def test_named_groups_of_a_signature_are_filled_into_cause_and_fix() -> None:
    known = Signature(
        name="disk", match=r"no (?P<what>\w+) on\n (?P<where>\S+)", cause="{what} lacks at {where}", fix="add {what}"
    )
    (found,) = find_errors("start\nno space on\n node7: stop\n", (known,))
    assert (found.cause, found.fix) == ("space lacks at node7", "add space")


def test_the_usual_reasons_of_a_cause_follow_it_one_in_each_line() -> None:
    often = ("old files fill {where}: 'df -h' shows it", "a quota")
    known = Signature(
        name="disk", match=r"no space on (?P<where>\S+)", cause="no space", often=often, fix="remove files"
    )
    assert render_errors(find_errors("no space on node7\n", (known,))) == (
        "line 1: no space on node7\n  cause  no space\n  often  old files fill node7: 'df -h' shows it\n"
        "         a quota\n  fix    remove files"
    )


def test_a_message_that_is_longer_than_expected_fills_no_name() -> None:
    """Blank lines between the lines of a log make its messages longer."""
    known = Signature(name="part", match=r"no part(?:[^\n]*\n)+?name: (?P<name>\w+)", cause="lost ({name})", fix="-")
    (found,) = find_errors("no part" + "\n" * (find.SPAN + 1) + "name: x\n", (known,))
    assert found.cause == "lost"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("no space on node7", "space() lacks at node7: add :z (node7), then .float()"),
        ("no space", "space() lacks at: add :z, then .float()"),
    ],
)
def test_a_name_without_a_text_leaves_no_brackets_and_code_keeps_its_own(log: str, cause: str) -> None:
    template = "{what}() lacks at {where}: add :z ({where}), then .float()"
    known = Signature(name="disk", match=r"no (?P<what>\w+)(?: on (?P<where>\S+))?", cause=template, fix="f{where}()")
    (found,) = find_errors(f"{log}\n", (known,))
    assert found.cause == cause
    assert found.fix.endswith("()")


@pytest.mark.parametrize(
    ("log", "names"),
    [
        ("pulled the image with enroot\ncannot open the card\n", ["in-container"]),
        ("cannot open the card\n", ["anywhere"]),
        ("pulled with enroot\ncannot open the card\nOutOfMemory\n", ["anywhere"]),
    ],
)
def test_a_signature_can_need_or_exclude_other_lines_of_the_log(log: str, names: list[str]) -> None:
    anywhere = Signature(name="anywhere", match="cannot open the card", cause="c", fix="f")
    known = (
        replace(anywhere, name="in-container", also=("^pulled", "enroot|apptainer"), unless=("OutOfMemory",)),
        anywhere,
    )
    assert [each.name for each in find_errors(log, known)] == names


def test_a_rank_that_was_killed_is_the_cause_of_what_the_others_print(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(
        "[rank0]: RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:34567\n"
        "argosy: rank 1 on node2 ended with signal 9\nsrun: error: node2: task 1: Killed\n"
    )
    explained = explain_log(make_session(tmp_path), str(log))
    assert [each.name for each in explained.errors] == ["killed", "connection-lost"]
    assert explained.end == "rank 1 on node2 failed first (code 137, signal 9)"


def test_a_rank_that_ends_without_a_word_is_the_cause_of_the_end_of_the_others(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(
        "srun: error: node2: task 1: Exited with exit code 5\nsrun: Terminating StepId=7.0\n"
        "slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-29T12:00:00 ***\n"
        "srun: error: node1: task 0: Terminated\nargosy: rank 1 on node2 failed first (code 5)\n"
    )
    (error,) = explain_log(make_session(tmp_path), str(log)).errors
    assert error.cause.startswith("rank 1 on node2 failed first (code 5), without an error that is known")
    assert "argosy logs JOB --rank R" in error.fix


def test_an_explanation_has_no_name_that_its_pattern_does_not_fill() -> None:
    for known in SIGNATURES:
        names = re.findall(r"\{([a-z]+)\}", " ".join((known.cause, *known.often, known.fix)))
        assert set(names) <= set(re.compile(known.match).groupindex), known.name


def test_consequences_are_explained_only_if_no_cause_is_known() -> None:
    text = "RuntimeError: No CUDA GPUs are available\nConnection reset by peer\n"
    said = render_errors(find_errors(text, SIGNATURES), "job.out")
    assert said.count("  fix ") == 1
    assert said.splitlines()[-1].startswith("line 2: the process at the other end")
    alone = render_errors(find_errors("Connection reset by peer\n", SIGNATURES))
    assert alone.count("  fix ") == 1


@pytest.mark.parametrize(("state", "expected"), [("CANCELLED by 2001", False), ("FAILED", True)])
def test_ranks_of_a_cancelled_job_are_not_reported_as_failed(tmp_path: Path, state: str, expected: bool) -> None:  # noqa: FBT001 - a case
    log = tmp_path / "18.out"
    log.write_text("slurmstepd-node1: error: *** STEP 18.0 ON node1 CANCELLED AT 2026-11-22T08:11:36 ***\n")
    ended = JobFacts("18", state, "ended", "", "", "node1", str(log), 143, 0, "")
    said = explain_job_end(open_session(), ended)
    assert ("another rank had failed" in said) is expected


def test_the_last_run_of_a_restarted_job_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "18.out"
    first = "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-22T08:22:32 DUE TO PREEMPTION ***\n"
    first += "argosy: job 18 ended with code 143\n"
    second = "RuntimeError: No CUDA GPUs are available\nargosy: job 18 ended with code 1\n"
    ended = JobFacts("18", "FAILED", "ended", "", "", "node1", str(log), 1, 1, "")
    for text, line in ((first + second, 3), (first + first + second, 5), (second, 1), (f"\n{second[:41]}", 2)):
        log.write_text(text)
        assert explain_job_end(open_session(), ended).startswith(f"{log}:{line}: RuntimeError: No CUDA GPUs")


@pytest.mark.parametrize(("state", "code", "level"), [("COMPLETED", 0, "survived"), ("FAILED", 1, "cause")])
def test_a_job_that_ended_well_has_no_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, code: int, level: str
) -> None:
    log = tmp_path / "18.out"
    log.write_text("OSError: [Errno 122] Disk quota exceeded\nsaved elsewhere\n")
    ended = JobFacts("18", state, "ended", "", "", "node1", str(log), code, 0, "")
    monkeypatch.setattr(explain, "_find_log", lambda *_: (log, ended))
    explained = explain_log(make_session(tmp_path), "18")
    assert [each.level for each in explained.errors] == [level]
    assert explained.failed is (state == "FAILED")


def test_an_image_that_was_removed_since_the_launch_was_there_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "18.out"
    log.write_text("FATAL:   could not open image /i/tools/1.sif: lstat /i/tools/1.sif: no such file or directory\n")
    for record, expected in (("/state/runs/18", True), ("", False)):
        ended = JobFacts("18", "FAILED", "ended", "", "", "node1", str(log), 255, 0, record)
        monkeypatch.setattr(explain, "_find_log", lambda *_, ended=ended: (log, ended))
        (error,) = explain_log(make_session(tmp_path), "18").errors
        assert error.often[0].startswith("the image was there when the job was launched") is expected
        assert any("mistyped" in reason for reason in error.often) is not expected
        assert ("was there when" in explain_job_end(make_session(tmp_path), ended)) is expected


def test_a_failed_job_whose_log_has_only_a_warning_gets_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "18.out"
    log.write_text("CondaError: Run 'conda init' before 'conda deactivate'\n")
    ended = JobFacts("18", "FAILED", "ended", "", "", "node1", str(log), 1, 0, "")
    monkeypatch.setattr(explain, "_find_log", lambda *_: (log, ended))
    explained = explain_log(make_session(tmp_path), "18")
    assert [each.level for each in explained.errors] == ["warning"]
    assert explained.hint.startswith("the program ended with code 1 and wrote no error that is known")


def test_every_file_of_known_errors_is_read_and_every_named_one_exists() -> None:
    assert {path.stem for path in DATA.glob("*.toml")} == set(FILES)
    named = (
        *(find.OF_LAUNCHERS + find.OF_LIMITS + find.OF_OTHERS + find.ENDS_FROM_OUTSIDE),
        *(find.MILD + find.ENVIRONMENT + find.TELL_LEAST),
        *explain.SILENT_ENDS.values(),
    )
    assert set(named) <= {each.name for each in SIGNATURES}


def test_the_exit_code_of_why_tells_whether_a_cause_is_known(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("RuntimeError: No CUDA GPUs are available\n")
    told = CliRunner().invoke(app, ["why", str(log), "--json"])
    assert told.exit_code == 0
    assert json.loads(told.output)[0]["errors"][0]["name"] == "no-gpu-seen"
    log.write_text("all is well\n")
    assert CliRunner().invoke(app, ["why", str(log)]).exit_code == 7
    missing = CliRunner().invoke(app, ["why", str(tmp_path / "none.out")])
    assert isinstance(missing.exception, UsageError)


def test_long_fields_are_wrapped_below_their_text_if_the_output_is_a_terminal() -> None:
    known = Signature(name="disk", match="no space", cause="the disk " * 6, often=("old " * 12,), fix="rm")
    found = find_errors("no space\n", (known,))
    shown = render_errors(found, width=40).split("\n")
    assert shown[1:4] == [
        "  cause  the disk the disk the disk the",
        f"{'':9}disk the disk the disk",
        f"  often  {'old ' * 7}old",
    ]
    assert len(render_errors(found).split("\n")) == 4


def test_two_warnings_that_prove_a_failure_together_are_the_cause() -> None:
    """torch warns for IPv6 and continues with IPv4; if both fail, the program ends."""
    warned = (
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to {} (errno: 98 - Address already in use).\n"
    )
    six, four = warned.format("[::]:25641"), warned.format("0.0.0.0:25641")
    assert [each.level for each in find_errors(six, read_signatures())] == ["warning"]
    (error,) = find_errors(six + four, read_signatures())
    assert (error.level, error.times) == ("cause", 2)
    assert "25641" in error.cause


def test_names_are_read_from_a_message_with_blank_lines_between_its_lines() -> None:
    """Some terminals and web forms double the line ends of a message."""
    said = "\n\n".join(next(each for each in SIGNATURES if each.name == "pmix-component").example.splitlines())
    assert "PMIX_MCA_psec=^munge" in find_errors(said, SIGNATURES)[0].fix


def test_the_way_of_an_error_through_nccl_is_no_progress() -> None:
    first = (
        "n1:1:7 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-3 (size 963)\n"
    )
    way = "".join(f"n1:1:7 [0] NCCL INFO {name}:{line} -> 2\n" for name in ("init.cc", "proxy.cc") for line in range(9))
    assert [each.level for each in find_errors(first + way, SIGNATURES)] == ["cause"]


BUILD_WITHOUT_NVCC = (
    "error: subprocess-exited-with-error\n"
    "UserWarning: flash_attn was requested, but nvcc was not found.  Are you sure your environment has nvcc\n"
)
UNPACKING_WITH_OLD_GLIBC = (
    "FATAL:   while extracting a.sif: root filesystem extraction failed: extract command failed: /opt/tool:\n"
    "/lib/libc.so.6: version `GLIBC_2.33' not found (required by /opt/tool)\n"
)


@pytest.mark.parametrize(
    ("log", "name"), [(BUILD_WITHOUT_NVCC, "nvcc-missing"), (UNPACKING_WITH_OLD_GLIBC, "glibc-too-old")]
)
def test_a_reason_is_named_before_what_follows_from_it(log: str, name: str) -> None:
    assert find_errors(log, SIGNATURES)[0].name == name
