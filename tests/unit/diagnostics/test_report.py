"""The page of `argosy report`: every text of a job is text, every section is there, nothing is loaded."""

from __future__ import annotations

import re
import tarfile
from html.parser import HTMLParser
from pathlib import Path

from argosy.bench.result import ALGORITHM, BUS, BenchResult, Figure, Kind
from argosy.core.findings import Finding, State
from argosy.core.model import Choice
from argosy.core.pages import TEMPLATES
from argosy.core.records import replace
from argosy.diagnostics.report.advice import (
    advise,
    explain_missing_bandwidth,
    fill_names,
    find_exception,
    relevant_findings,
    summarize,
    summarize_results,
)
from argosy.diagnostics.report.bundle import write_bundle
from argosy.diagnostics.report.drawings import describe_phases, draw_timeline
from argosy.diagnostics.report.model import Change, Comparison, Moment, Phase, RankRow, Report, Step
from argosy.diagnostics.report.next_steps import list_steps
from argosy.diagnostics.report.node_view import describe_marks, draw_job_node, job_node
from argosy.diagnostics.report.page import render_page, tabulate_results
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.launch_plan import LaunchPlan, Shape
from argosy.jobs.query import JobFacts
from argosy.jobs.record import Run
from argosy.sites.profile import Node

HOSTILE = "</style></pre><script>alert('1')</script><img src=http://x onerror=alert(2)>\x1b[31m"

FACTS = JobFacts(
    id="7", state="FAILED", kind="ended", meaning="ended with an error", reason="", nodes="node[1-2]",
    output=f"/o/{HOSTILE}", code=3, restarts=0, record="", first=RankEnd(3, "node2", 3), last_lines=(HOSTILE,),
)  # fmt: skip
PLAN = LaunchPlan(
    name=HOSTILE, site="lumi-g", scheduler="slurm", image="/x.sif", digest="", shape=Shape(2, 2, 8, 7),
    script=f"#!/bin/sh\n# {HOSTILE}\n", submit=("sbatch",), choices=(Choice("launcher", "srun", HOSTILE, "option"),),
    cores=("0-1", "2-3"),
)  # fmt: skip
RANKS = tuple(
    RankRow(rank, f"node{rank // 2 + 1}", rank % 2, ("0-1", "2-3")[rank % 2], ("0-1", "2-3")[rank % 2], 8)
    for rank in range(4)
)
MEASURED = BenchResult(
    Kind.COLLECTIVES, "job 7", HOSTILE,
    tuple(
        Figure("", quantity, "GB/s", speed, speed * 0.9, speed * 1.1, 2, size)
        for size, speed in ((1 << 20, 10.5), (1 << 30, 90.25)) for quantity in (BUS, ALGORITHM)
    ),
    expected={2: 100.0},
)  # fmt: skip
REPORT = Report(
    facts=FACTS,
    subject="job 7",
    summary=summarize("job 7", FACTS, (), ""),
    advice=HOSTILE,
    steps=(Step(HOSTILE, f"sbatch {HOSTILE}"), Step("Compare.")),
    plan=PLAN,
    findings=(Finding("network", State.FAIL, HOSTILE, "use --debug net"), Finding("ranks", State.OK, "4")),
    errors=(KnownError("oom", "cause", 12, HOSTILE, 1, "the GPU has no memory left", "use smaller batches", ""),),
    timeline=(
        Moment(100.0, "submitted", Phase.QUEUE, HOSTILE),
        Moment(160.0, "started", Phase.START),
        Moment(400.0, HOSTILE, Phase.END),
    ),
    unknown=(("first output", HOSTILE),),
    ranks=RANKS,
    measured=summarize_results((MEASURED,)),
    results=(MEASURED, replace(MEASURED, label="job 5")),
    evidence=(HOSTILE,),
    program=f"python {HOSTILE}",
    typed=f"cd /x && argosy launch {HOSTILE}",
    compared=Comparison("5", "argosy launch /a.sif", (Change("image", HOSTILE, "/b.sif"),), ("nodes",)),
    packages=(("torch", "2.7"),),
    output=HOSTILE,
    commands=(("See the output", "argosy logs 7 'a\"b'"), ("Find the cause of the failure", "argosy why 7")),
    node=Node(cores=8, gpus=2, nics=2, nic=HOSTILE),
    networks={"node1": NetFacts(networks=(HOSTILE,))},
    argosy="0.1.0",
)


class Page(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in {"src", "href"}]
        self.ids += [str(value) for name, value in attrs if name == "id" and tag == "section"]


def test_hostile_text_stays_text_and_nothing_is_loaded() -> None:
    page = Page(render_page(REPORT))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.links == []


def test_every_section_is_there() -> None:
    page = render_page(REPORT)
    assert Page(page).ids == [
        "failure", "commands", "changes", "verdict", "ranks", "measured", "timeline", "plan", "output",
    ]  # fmt: skip
    for text in ("rank 3 on node2 failed first", "The GPU has no memory left", "Use smaller batches", "90.2"):
        assert text in page


def test_a_job_without_a_record_has_a_page_too() -> None:
    empty = replace(
        REPORT, plan=None, findings=(), errors=(), timeline=(), ranks=(), results=(), evidence=(),
        compared=Comparison(), packages=(), measured="", steps=(), commands=(), unknown=(),
        facts=replace(FACTS, code=0, first=None, last_lines=()),
    )  # fmt: skip
    page = render_page(empty)
    assert "Argosy has no record of this job" in page
    assert "No rank has started" in page
    assert "measured" not in Page(page).ids


def test_the_advice_is_the_fix_of_the_first_cause_then_the_first_failed_check_then_the_output() -> None:
    assert advise(FACTS, REPORT.errors, ()) == "The GPU has no memory left. Use smaller batches."
    failed = Finding("network", State.FAIL, "TCP sockets", "bind the libraries")
    assert advise(FACTS, (), (failed,)) == "Network: bind the libraries."
    assert advise(FACTS, (), ()) == "The output contains no error that Argosy knows: read its last lines below."
    assert advise(replace(FACTS, code=0, advice="wait"), (), (failed,)) == "Wait."
    assert advise(replace(FACTS, code=0), (), ()) == ""


def test_a_failed_check_is_compared_with_the_last_run_that_passed() -> None:
    good = replace(FACTS, state="COMPLETED", meaning="ended well", code=0, first=None)
    failed = Finding("network", State.FAIL, "TCP sockets", "bind the libraries")
    change = Change("program", "python train.py ib", "python train.py sockets")
    told = advise(good, (), (failed,), Comparison("5", "", (change,), ("image", "nodes"), "IB (mlx5_0)"))
    assert told == (
        "Only the recorded arguments differ from job 5, the last run that passed its checks, "
        "with the same image and nodes. "
        "It used IB (mlx5_0). The likely cause is the difference: program is 'python train.py sockets', "
        "and was 'python train.py ib'."
    )
    assert "bind" not in told, "the history refutes this cause"
    equal = advise(good, (), (failed,), Comparison("5", "", (), ("program", "image")))
    assert "with the same program and image. These are not the cause." in equal


CHANGED = Comparison(
    "5",
    "argosy launch x",
    (Change("program", "python train.py ib", "python train.py ib 3"),),
    ("nodes",),
    "IB (mlx5_0)",
)
RECORDED = replace(FACTS, record="/r")
COMMAND = replace(PLAN, command=("python", "train.py", "ib", "3"))


def test_a_failed_job_has_a_step_for_each_explanation() -> None:
    arguments, program = list_steps(RECORDED, COMMAND, (), CHANGED)
    assert program.command == "sbatch /r/job.sh"
    assert "sbatch keeps the arguments (python train.py ib 3)" in program.text
    assert arguments.command == "argosy launch x"
    assert arguments.text.startswith(
        "The arguments are the only recorded difference from job 5, the last run that passed"
    )
    assert len(tuple(list_steps(RECORDED, COMMAND, (), Comparison()))) == 1


def test_a_failed_check_has_its_steps_in_order() -> None:
    good = replace(RECORDED, state="COMPLETED", meaning="ended well", code=0, first=None)
    failed = Finding("network", State.FAIL, "TCP sockets", "check the cards")
    repeat, check, rest = list_steps(good, COMMAND, (failed,), CHANGED)
    assert repeat == Step("Repeat job 5, which passed and used IB (mlx5_0) on the same nodes.", "argosy launch x")
    assert check.command == "argosy check /x.sif --site lumi-g"
    assert check.text.endswith("Then check the cards.")
    assert "which NCCL_ variables it sets" in rest.text
    assert tuple(list_steps(good, COMMAND, (), CHANGED)) == ()
    alone = [each.command.split()[0] for each in list_steps(good, COMMAND, (failed,), Comparison())]
    assert alone == ["sbatch", "argosy"]


def test_a_failed_job_says_that_it_measured_no_bandwidth() -> None:
    told = explain_missing_bandwidth(FACTS, replace(CHANGED, bandwidth="23.1 GB/s"))
    assert told.startswith("Bus bandwidth: not measured, the job ended before (job 5")
    assert explain_missing_bandwidth(FACTS, CHANGED) == ""


def test_the_placeholders_of_hints_are_filled() -> None:
    hints = fill_names("argosy jobs show JOB, argosy why LOG", replace(FACTS, output="/o/x y"))
    assert hints == "argosy jobs show 7, argosy why '/o/x y'"


def test_the_exit_codes_of_the_program_and_of_the_job_are_named() -> None:
    run = Run("7", 0, 143, "node[1-2]", 100, 400)
    assert "3 of rank 3, which failed first; 143 of the job (the launcher ended the other ranks by SIGTERM)" in (
        render_page(replace(REPORT, facts=replace(FACTS, runs=(run,))))
    )


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/ada/train.py", line 51, in load_label',
    '  File "/opt/argosy/lib/python3.12/site-packages/torch/utils/data.py", line 9, in get',
    "KeyError: 'label'",
)


def test_an_exception_of_the_program_is_named_with_its_place_in_the_users_code() -> None:
    raised = replace(FACTS, last_lines=TRACEBACK)
    symptom = replace(REPORT.errors[0], level="symptom")
    told = "Rank 3 raised the exception in /home/ada/train.py, line 51 (load_label). Correct the program"
    assert advise(raised, (symptom,), ()).startswith(told)
    assert advise(raised, REPORT.errors, ()).startswith("The GPU has no memory left"), "a known cause comes first"
    assert summarize("job 7", raised, (), "").endswith("rank 3 on node2 failed first (code 3): KeyError: 'label'.")
    assert find_exception(("[rank3]: torch.OutOfMemoryError: full",)) == ("torch.OutOfMemoryError: full", "")
    assert find_exception(("no error here", "Error")) is None


def test_the_next_step_does_not_repeat_the_exception_of_the_summary() -> None:
    raised = replace(FACTS, last_lines=TRACEBACK)
    cause = replace(REPORT.errors[0], cause="the program raised KeyError: 'label' at train.py:51", fix="read line 51")
    assert advise(raised, (cause,), ()) == "Read line 51."


def test_the_summary_says_what_happened() -> None:
    good = replace(FACTS, state="COMPLETED", meaning="ended well", code=0, first=None)
    failed = Finding("network", State.FAIL, "TCP sockets", "bind the libraries")
    early = replace(FACTS, first=None, submitted="2026-01-02T03:04:05")
    assert summarize("job 7", FACTS, (), "") == "Job 7 failed: rank 3 on node2 failed first (code 3)."
    assert summarize("job 7", good, (), "") == "Job 7 ended well."
    assert summarize("job 7", good, (failed,), "") == "Job 7 ended with code 0: 1 of 1 check failed (network)."
    assert summarize("job 7", replace(good, restarts=2), (), "") == "Job 7 ended well, after 2 restarts."
    passed = (Finding("ranks", State.OK, "4"), Finding("GPUs", State.OK, "4"))
    assert summarize("job 7", good, passed, "", (MEASURED,)) == (
        "Job 7 ended well: 2 checks passed; 90.25 GB/s of 100 expected."
    )
    assert summarize("job 7", early, (), "") == "Job 7 failed before its first rank started (code 3)."
    said = "argosy: what runs before the ranks failed (code 3)\nargosy: job 7 ended with code 3\n"
    assert summarize("job 7", early, (), said).endswith("started: what runs before the ranks failed (code 3).")
    assert summarize("run x", replace(good, kind="running", meaning="runs"), (), "") == "Run x runs."


def test_a_job_that_ended_well_with_a_failed_check_is_not_marked_as_good() -> None:
    good = replace(FACTS, state="COMPLETED", meaning="ended well", code=0, first=None)
    page = render_page(replace(REPORT, facts=good))
    assert "! ended, but not as expected" in page
    assert "✓ ended well" not in page
    assert "✓ ended well" in render_page(replace(REPORT, facts=good, findings=REPORT.findings[1:]))


def test_checks_of_gpus_are_left_out_for_a_job_without_gpus() -> None:
    unknown = tuple(Finding(name, State.UNKNOWN, "x") for name in ("end", "GPUs", "network"))
    found = (*unknown, Finding("cores", State.OK, "x"))
    assert [each.what for each in relevant_findings(found, PLAN)] == ["GPUs", "network", "cores"]
    assert [each.what for each in relevant_findings(found, replace(PLAN, shape=Shape(1, 1)))] == ["cores"]


def test_the_measured_bandwidth_is_compared_in_a_sentence() -> None:
    assert summarize_results((MEASURED, replace(MEASURED, label="job 5")), "5") == (
        "Largest bus bandwidth: 90.25 GB/s on 2 nodes in job 7, 90.25 GB/s on 2 nodes in job 5, the last run that "
        "passed; the site's profile expects 100 GB/s on 2 nodes."
    )
    assert summarize_results((BenchResult(Kind.SETTINGS, "job 7", "x", ()),)) == ""


def test_a_core_that_was_planned_for_another_rank_is_marked() -> None:
    node = Node(cores=8, gpus=2)
    right = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts()))
    swapped = (replace(RANKS[0], cores="2-3"), replace(RANKS[1], cores="0-1"))
    wrong = drawn(draw_job_node("node1", swapped, node, NetFacts()))
    assert 'missed"' not in right
    assert wrong.count('missed"') == 4
    assert "core 0: rank 1, planned for rank 0" in wrong
    assert right.count("use not shown") == 2


def test_the_rank_that_failed_first_is_marked_and_only_used_marks_are_explained() -> None:
    failed = (RANKS[0], replace(RANKS[1], end="rank 1 on node1 failed first (code 3)"))
    picture = draw_job_node("node1", failed, Node(cores=4), NetFacts())
    assert drawn(picture).count('failed"') == 2, "both cores"
    assert "core 2: rank 1, which failed first" in picture
    assert "c1" not in drawn(picture), "a rank that did not fail is not red"
    assert "failed first" in describe_marks([picture])
    assert "dotted" not in describe_marks([picture])


def test_the_table_of_bandwidths_has_a_column_for_each_job() -> None:
    assert tabulate_results((MEASURED, replace(MEASURED, label="job 5"))) == (
        ("nodes", "message", "job 7, GB/s", "job 5, GB/s", "job 7 / job 5"),
        ("2", "1 MiB", "10.5", "10.5", "1.00"), ("2", "1 GiB", "90.25", "90.25", "1.00"),
    )  # fmt: skip


def test_drawings_without_data_are_empty() -> None:
    assert draw_timeline((Moment(1, "submitted", Phase.QUEUE),)) == ""
    assert draw_job_node("n", (), Node(), NetFacts()).startswith("<svg")


def drawn(picture: str) -> str:
    """Return a picture without its style sheet."""
    return re.sub(r"<style>.*?</style>", "", picture, flags=re.DOTALL)


def test_the_network_cards_and_gpus_show_what_the_logs_of_the_node_show() -> None:
    node = Node(cores=8, gpus=2, gpu_cpus=("0-3", "4-7"), nics=2, nic="HDR", gpu_nics=(0, 1))
    fast = NetFacts(
        networks=("IB",), interfaces="[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]", devices=(("node1", "41"), ("node1", "81"))
    )
    picture = drawn(draw_job_node("node1", RANKS[:2], node, fast))
    for text in (">mlx5_0<", ">mlx5_1<", ">used<", "IB, 2 of 2 cards in the log: mlx5_0, mlx5_1", "2 of 2 used"):
        assert text in picture, text
    assert "absent" not in picture
    slow = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts(networks=("Socket",), interfaces="[0]eth0:10.0.0.1")))
    assert slow.count('class="absent"') == 2
    assert "TCP sockets over eth0 instead of 2 x HDR" in slow
    silent = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts()))
    assert silent.count('class="open"') == 4
    assert "the logs of this node name no network" in silent
    half = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts(networks=("AWS Libfabric",), provider="cxi", nics=1)))
    assert "AWS Libfabric (cxi), 1 of 2 cards in the log" in half
    assert half.count(">NIC ?<") == 2


def test_a_gpu_that_no_rank_saw_is_marked() -> None:
    blind = tuple(replace(each, gpus=1) for each in RANKS[:2])
    picture = drawn(draw_job_node("node1", blind, Node(cores=8, gpus=2), NetFacts()))
    assert picture.count('class="absent"') == 1
    assert "1 of 2 visible to the ranks" in picture


def test_a_job_with_some_gpus_of_a_node_has_no_map_of_them() -> None:
    node = Node(cores=8, gpus=2, gpu_cpus=("0-3", "4-7"), nics=2, gpu_nics=(0, 1))
    assert job_node(node, 2) == node
    assert job_node(node, 1).gpu_cpus == ()


def test_the_durations_of_the_phases_are_summed_up() -> None:
    moments = (
        Moment(0, "submitted", Phase.QUEUE), Moment(5, "started", Phase.START), Moment(10, "first", Phase.RUN),
        Moment(140, "ended", Phase.QUEUE), Moment(150, "again", Phase.START), Moment(160, "ended", Phase.END),
    )  # fmt: skip
    assert describe_phases(moments) == "in the queue 15 s, starting 15 s, running 2 min 10 s"


def luminance(color: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.1)."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_has_contrast_in_both_modes() -> None:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    modes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(modes) == 2
    for mode in modes:
        colors = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", mode))
        for name in ("text", "soft", "ok", "fail", "warn", "unknown"):
            for back in ("back", "box", *(("start", "run", "stop") if name == "text" else ())):
                assert contrast(colors[name], colors[back]) >= 4.5, (name, back)


def test_a_bundle_has_the_report_the_records_and_the_output_without_credentials(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    (record / "job.sh").write_text("pip --index https://me:secret@host/simple\n")
    output = tmp_path / "x.out"
    output.write_text("see https://me:secret@host/\n")
    facts = replace(FACTS, record=str(record), output=str(output))
    write_bundle(tmp_path / "b.tar.gz", replace(REPORT, facts=facts))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert archive.getnames() == ["job-7/report.html", "job-7/record/job.sh", "job-7/output/x.out"]
        for name in archive.getnames():
            file = archive.extractfile(name)
            assert file is not None
            assert b"secret" not in file.read()
