"""The page of `argosy report`: every text of a job is text, every section is there, nothing is loaded."""

from __future__ import annotations

import os
import re
import tarfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from argosy.bench.result import ALGORITHM, BUS, BenchKind, BenchResult, Figure
from argosy.core.findings import Finding, State
from argosy.core.model import Choice
from argosy.core.pages import TEMPLATES
from argosy.core.records import replace
from argosy.diagnostics.report.cause import allows_card, cite_lines, explain_cause
from argosy.diagnostics.report.model import (
    Change,
    Cited,
    Comparison,
    Event,
    Excerpt,
    NextStep,
    Phase,
    RankRow,
    Report,
    ReportCase,
    Search,
    UserException,
    UserFrame,
)
from argosy.diagnostics.report.next_steps import add_nodes, list_steps
from argosy.diagnostics.report.node_view import describe_marks, draw_job_node, job_node
from argosy.diagnostics.report.page import render_page, tabulate_results, write_bundle
from argosy.diagnostics.report.sections import list_step_texts, mark_words
from argosy.diagnostics.report.source import (
    describe_arguments,
    describe_return,
    find_argument_use,
    find_exception,
    read_excerpt,
    search_arguments,
    search_frames,
)
from argosy.diagnostics.report.summary import fill_names, relevant_findings, summarize, summarize_results
from argosy.diagnostics.report.timeline import list_bars, sum_phases
from argosy.diagnostics.verify.logs import NetFacts
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.jobs.record import Run
from argosy.sites.profile import Node

HOSTILE = "</style></pre><script>alert('1')</script><img src=http://x onerror=alert(2)>\x1b[31m"

FACTS = JobFacts(
    id="7", state="FAILED", kind="ended", meaning="ended with an error", reason="", nodes="node[1-2]",
    output=f"/o/{HOSTILE}", code=3, restarts=0, record="", first=RankEnd(3, "node2", 3), last_lines=(HOSTILE,),
)  # fmt: skip
PLAN = LaunchPlan(
    name=HOSTILE, site="lumi-g", scheduler="slurm", image="/x.sif", digest="", shape=JobShape(2, 2, 8, 7),
    script=f"#!/bin/sh\n# {HOSTILE}\n", submit=("sbatch",), choices=(Choice("launcher", "srun", HOSTILE, "option"),),
    cores=("0-1", "2-3"),
)  # fmt: skip
RANKS = tuple(
    RankRow(rank, f"node{rank // 2 + 1}", rank % 2, ("0-1", "2-3")[rank % 2], ("0-1", "2-3")[rank % 2], 8)
    for rank in range(4)
)
MEASURED = BenchResult(
    BenchKind.COLLECTIVES, "job 7", HOSTILE,
    tuple(
        Figure("", quantity, "GB/s", speed, speed * 0.9, speed * 1.1, 2, size)
        for size, speed in ((1 << 20, 10.5), (1 << 30, 90.25)) for quantity in (BUS, ALGORITHM)
    ),
    expected={2: 100.0},
)  # fmt: skip
CASE = ReportCase(
    facts=FACTS,
    plan=PLAN,
    findings=(Finding("network", State.FAIL, HOSTILE, "use --debug net"), Finding("ranks", State.OK, "4")),
    errors=(KnownError("oom", "cause", 12, HOSTILE, 1, "the GPU has no memory left", "use smaller batches", ""),),
    compared=Comparison("5", "argosy launch /a.sif", (Change("image", HOSTILE, "/b.sif"),), ("nodes",), (HOSTILE,)),
    results=(MEASURED, replace(MEASURED, label="job 5")),
    search=Search("/x/train.py", words=(HOSTILE,)),
    excerpt=Excerpt(f"/x/{HOSTILE}", ((4, HOSTILE, False), (5, HOSTILE, True))),
    typed=f"cd /x && argosy launch {HOSTILE}",
)
REPORT = Report(
    case=CASE,
    summary=summarize(CASE),
    cause=HOSTILE,
    steps=(NextStep(HOSTILE, f"sbatch {HOSTILE}", HOSTILE), NextStep("Compare.", "argosy launch x", instead=True)),
    chain=(Cited(HOSTILE, HOSTILE, 5), Cited(HOSTILE, HOSTILE)),
    timeline=(
        Event(100.0, "submitted", Phase.QUEUE),
        Event(160.0, "started", Phase.START),
        Event(400.0, HOSTILE, Phase.END),
    ),
    unknown=(("first output", HOSTILE),),
    ranks=RANKS,
    measured=summarize_results((MEASURED,)),
    evidence=(HOSTILE,),
    packages=(("torch", "2.7"), (HOSTILE, "1")),
    output=HOSTILE,
    commands=(("See the output", "argosy logs 7 'a\"b'"),),
    node=Node(cores=8, gpus=2, nics=2, nic=HOSTILE),
    networks={"node1": NetFacts(networks=(HOSTILE,))},
    written=500.0,
    user=HOSTILE,
    argosy="0.1.0",
)


def with_case(**changes: Any) -> Report:
    """Return the report with changes of its case."""
    return replace(REPORT, case=replace(CASE, **changes))


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
    assert set(page.links) == {"#line-5", "#network-lines"}, "a cited line and a failed check have links"


def test_credentials_of_urls_are_nowhere_on_the_page() -> None:
    url = "https://me:s3cret@host/x?sig=s3cret</pre>"
    plan = replace(PLAN, script=url, choices=(Choice("--env", url, url, "option"),))
    error = replace(CASE.errors[0], text=url, cause=url, fix=url)
    facts = replace(FACTS, last_lines=(url,))
    report = with_case(facts=facts, plan=plan, errors=(error,), findings=(Finding("network", State.FAIL, url, url),))
    page = render_page(replace(report, cause=url, evidence=(url,), timeline=(Event(1, url, Phase.RUN),)))
    assert "s3cret" not in page
    assert Page(page).ids == Page(render_page(REPORT)).ids


def test_every_section_is_there() -> None:
    page = render_page(REPORT)
    assert Page(page).ids == [
        "failure", "program", "commands", "changes", "verdict", "ranks", "measured", "timeline", "plan", "output",
    ]  # fmt: skip
    for text in ("rank 3 on node2 failed first", "The GPU has no memory left", "Use smaller batches", "90.2"):
        assert text in page


def test_a_job_without_a_record_has_a_page_too() -> None:
    facts = replace(FACTS, code=0, first=None, last_lines=())
    empty = replace(
        with_case(facts=facts, plan=None, findings=(), errors=(), results=(), compared=Comparison(), typed="",
                  excerpt=None),
        chain=(), timeline=(), ranks=(), evidence=(), packages=(), measured="", steps=(), commands=(), unknown=(),
    )  # fmt: skip
    page = render_page(empty)
    assert "Argosy has no record of this job" in page
    assert "No rank has started" in page
    assert "measured" not in Page(page).ids


GOOD = replace(FACTS, state="COMPLETED", meaning="ended well", code=0, first=None)
SLOW = Finding("network", State.FAIL, "TCP over eth0, not InfiniBand; NCCL 2.27 says 'No device'", "ls /dev/infiniband")
CHANGED = Comparison(
    "5", "cd /x && argosy launch /x.sif -- python train.py ib", (Change("arguments", "ib", "sockets"),),
    ("image", "nodes"), ("train.py",), (Change("NCCL_IB_HCA in the log", "", "mlx4"),), 10, "InfiniBand (mlx5_0)",
)  # fmt: skip
RECORDED = replace(FACTS, record="/r", last_lines=())
COMMAND = replace(PLAN, command=("python", "train.py", "sockets"))
SEARCH = Search("/x/train.py", 49, 62, (51, 60))


def test_the_cause_of_a_failure_is_a_known_error_then_the_exception_then_unknown() -> None:
    alone = replace(CASE, compared=Comparison())
    assert explain_cause(alone) == "The GPU has no memory left."
    raised = UserException("KeyError: 'label'", (UserFrame("/x/train.py", 51, "load"),))
    assert explain_cause(replace(alone, errors=(), raised=raised)) == (
        "Line 51 of /x/train.py raised KeyError: 'label' (in load)."
    )
    assert explain_cause(replace(alone, errors=())) == "The output contains no error that Argosy knows."
    first = KnownError(
        "first-error", "unexplained", 3, "E: no space", 1, "not a known error; the first is: x", "read", ""
    )
    unexplained = replace(alone, errors=(first,))
    assert explain_cause(unexplained).endswith("no error that Argosy knows; its first error is in line 3: E: no space.")
    look = NextStep("Look at the last lines of the output, below.", section="failure")
    assert next(list_steps(replace(unexplained, facts=replace(FACTS, first=None)))) == look
    assert next(list_steps(replace(unexplained, facts=replace(FACTS, last_lines=())))).command == "argosy logs 7"
    advised = replace(alone, errors=(), facts=replace(FACTS, advice="use more --time"))
    assert explain_cause(advised) == "", "the summary says how it ended, and the step what to change"
    assert explain_cause(replace(alone, facts=GOOD, findings=())) == ""


def test_a_failed_check_is_explained_by_the_only_difference_from_the_last_run_that_passed() -> None:
    slow = ReportCase(GOOD, COMMAND, (SLOW,), compared=CHANGED)
    assert explain_cause(slow) == (
        "The network check failed: TCP over eth0, not InfiniBand; NCCL 2.27 says 'No device'. "
        "In the launch, the argument 'sockets' (before: 'ib') is the only difference from job 5, which passed with "
        "InfiniBand (mlx5_0) on the same nodes, the same image and the same train.py. "
        "NCCL read NCCL_IB_HCA=mlx4 (names of the InfiniBand cards that NCCL may use); "
        "the log of job 5 does not mention it."
    )
    equal = explain_cause(replace(slow, compared=Comparison("5", "", (), ("image",))))
    assert equal.endswith("Nothing that Argosy records differs from job 5, which passed on the same image.")
    other = replace(CHANGED, changes=(Change("image", "a.sif", "b.sif"),), observed=())
    assert "Recorded differences from job 5" in explain_cause(replace(slow, compared=other))


PROGRAM = Excerpt(
    "/x/train.py",
    ((21, 'SETTINGS = {"sockets": {"NCCL_IB_HCA": "mlx4"}}', False), (30, "environ.update(SETTINGS[network])", False)),
)


def test_a_line_of_the_program_joins_the_argument_with_the_cards_that_nccl_could_not_use() -> None:
    compared = replace(CHANGED, cards=("mlx5_0", "mlx5_1"))
    search = search_arguments("/x/train.py", CHANGED.changes[0])
    low = Finding("bandwidth", State.FAIL, "1.1 GB/s")
    tcp = NetFacts(networks=("Socket",))
    case = ReportCase(RECORDED, COMMAND, (SLOW, low), compared=compared, search=search, excerpt=PROGRAM, net=tcp)
    case = replace(case, facts=replace(GOOD, record="/r"))
    assert explain_cause(case).endswith(
        "For 'sockets', line 21 of the program contains this value of NCCL_IB_HCA. NCCL read NCCL_IB_HCA=mlx4 "
        "(names of the InfiniBand cards that NCCL may use), but no card that job 5 used (mlx5_0 and mlx5_1) has such a "
        "name, so NCCL used TCP, which explains the low bandwidth."
    )
    assert [(each.text, each.line) for each in cite_lines(case)] == [
        ("Line 21 has 'sockets' and NCCL_IB_HCA", 21),
        ("Line 30 uses SETTINGS", 30),
    ]
    look, repeat, *_, cards = list_steps(case)
    assert (look.text, look.command) == ("Look at line 21 of train.py, below.", "")
    assert (
        "Launch with 'ib', as in job 5, on the nodes of this job. If it passes its checks, the cause is confirmed."
        in repeat.text
    )
    assert "correct line 21 so that NCCL_IB_HCA names your cards (mlx5_0 and mlx5_1)." in repeat.text
    assert "Expected: mlx5_0 and mlx5_1." in cards.text
    assert "explains" not in explain_cause(replace(case, findings=(SLOW,)))
    assert "so NCCL used TCP" not in explain_cause(replace(case, net=NetFacts()))
    same = replace(compared, observed=(Change("NCCL_IB_HCA in the log", "", "mlx5"),))
    assert "does not mention it" in explain_cause(replace(case, compared=same))
    excluded = replace(compared, observed=(Change("NCCL_IB_HCA in the log", "", "^mlx5"),))
    said = explain_cause(replace(case, compared=excluded))
    assert "which excludes all cards that job 5 used (mlx5_0 and mlx5_1), so NCCL used TCP" in said
    assert cite_lines(replace(case, compared=same)) == ()


def test_a_value_of_nccl_ib_hca_allows_cards_by_prefix_by_name_or_by_exclusion() -> None:
    for rule in ("mlx5", "mlx5_0", "mlx4,mlx5_0:1", "=mlx5_0", "^mlx5_1", "^=mlx5", "^mlx5_0:2", ""):
        assert allows_card(rule, "mlx5_0"), rule
    for rule in ("mlx4", "mlx5_1", "=mlx5", "^mlx5", "^=mlx5_0"):
        assert not allows_card(rule, "mlx5_0"), rule


def test_the_lines_from_an_argument_to_an_error_are_cited_in_their_order() -> None:
    frames = (
        UserFrame("/x/train.py", 79, "<module>", "train(sys.argv[1], int(sys.argv[2]))"),
        UserFrame("/x/train.py", 73, "train", "load(step)"),
        UserFrame("/x/train.py", 61, "load", "return BATCHES[step]"),
    )
    lines = ((22, "BATCHES: list[int] = [1]", False), (61, "    return BATCHES[step]", True))
    case = ReportCase(
        replace(RECORDED, last_lines=("rank 3 step 2", "", *TRACEBACK)),
        replace(PLAN, command=("python", "train.py", "ib", "3")), raised=UserException("KeyError: 'label'", frames),
        compared=replace(CHANGED, changes=(Change("arguments", "ib", "ib 3"),)), excerpt=Excerpt("/x/train.py", lines),
    )  # fmt: skip
    assert [each.text for each in cite_lines(case)] == [
        "Line 79 reads the argument (sys.argv[2])", "Line 73, in train, calls load",
        "Line 61, in load, raises KeyError: 'label'", "Line 22 defines BATCHES",
        "Last line of rank 3 before the error",
    ]  # fmt: skip
    assert cite_lines(case)[-1].code == "rank 3 step 2"
    assert "uses the rank" not in explain_cause(case)
    own = replace(
        case, raised=UserException("x", (frames[0], replace(frames[1], code="load(step) if n == RANK else 1")))
    )
    assert (
        "Line 73 of train.py uses the rank, and the argument is also the number of the rank that failed first."
        in explain_cause(own)
    )
    other = replace(own, facts=replace(own.facts, first=RankEnd(2, "node1", 3)))
    assert "uses the rank" not in explain_cause(other)
    main = replace(frames[0], path="/x/main.py")
    apart = replace(case, raised=UserException("x", (main, *frames[1:])))
    assert next((each.text, each.line) for each in cite_lines(apart)) == (
        "Line 79 of main.py reads the argument (sys.argv[2])", 0
    )  # fmt: skip
    alone = replace(case, compared=Comparison(), excerpt=None, raised=UserException("x", frames[2:]))
    assert [each.line for each in cite_lines(alone)] == [61, 0]
    assert cite_lines(replace(case, raised=None)) == ()


def test_the_page_shows_where_it_leaves_out_lines_of_the_program() -> None:
    lines = ((4, "a", False), (5, "b", True), (9, "c", False))
    page = render_page(with_case(excerpt=Excerpt("/x.py", lines)))
    shown = [
        line.strip() for line in re.sub("<.*?>", "", page).splitlines() if re.match("( |▶) +[459] |        …", line)
    ]
    assert shown == ["4  a", "▶    5  b", "…", "9  c"]


def test_an_alternative_belongs_to_the_step_before_it() -> None:
    steps = (NextStep("Fix it."), NextStep("Launch.", "launch a"), NextStep("Compare.", "launch b", instead=True))
    found = list_step_texts(replace(REPORT, steps=steps))
    assert [[step.text for step, _ in alternatives] for alternatives in found] == [
        ["Fix it."], ["Launch.", "Compare."],
    ]  # fmt: skip


def test_a_new_word_of_a_command_is_marked_but_not_the_name_of_a_job() -> None:
    before = "launch --name good -- python train.py ib"
    assert mark_words("launch --name slow -- python train.py tcp", before)[-1] == ("tcp", True)
    assert [new for _, new in mark_words("launch --name slow --name=x -- python", before)] == [False] * 6
    assert mark_words("a b", "") == (("a", False), ("b", False))


def test_a_job_without_a_time_limit_has_one_text() -> None:
    for limit in ("UNLIMITED", "365-00:00:00"):
        page = render_page(with_case(facts=replace(FACTS, time_limit=limit)))
        assert "<dt>Time limit</dt><dd>none</dd>" in page


def test_unused_cards_have_the_names_that_an_earlier_job_on_the_same_nodes_logged() -> None:
    node, tcp = Node(cores=8, nics=2), NetFacts(networks=("Socket",), interfaces="[0]eth0:10.0.0.1")
    picture = drawn(draw_job_node("node1", RANKS[:2], node, tcp, ("mlx5_0", "mlx5_1")))
    assert ">mlx5_1<" in picture
    assert ">card unused<" in drawn(draw_job_node("node1", RANKS[:2], node, tcp, ("mlx5_0",)))


def test_a_failure_names_the_line_that_reads_the_changed_argument() -> None:
    frames = (UserFrame("/x/train.py", 75, "<module>", "train(int(sys.argv[2]))"), UserFrame("/x/train.py", 51, "load"))
    change = Change("arguments", "ib", "ib 3")
    plan = replace(PLAN, command=("python", "train.py", "ib", "3"))
    case = ReportCase(
        FACTS, plan, compared=replace(CHANGED, changes=(change,), observed=()), raised=UserException("x", frames)
    )
    assert "the added argument '3' is the only difference from job 5, which passed on" in explain_cause(case)
    two = replace(case, compared=replace(case.compared, changes=(replace(change, now="ib 3 4"),)))
    assert "the added arguments '3 4' are the only difference from job 5" in explain_cause(two)
    assert explain_cause(case).endswith("Line 75 of train.py reads this argument (sys.argv[2]).")
    assert find_argument_use(UserException("x", frames), plan.command, Change("arguments", "ob 3", "ib 3")) is None


def test_the_steps_after_a_failure_begin_with_one_that_costs_nothing() -> None:
    raised = UserException("KeyError", (UserFrame("/x/train.py", 51, "load"),))
    case = ReportCase(
        RECORDED, COMMAND, compared=CHANGED, raised=raised, search=SEARCH, typed="cd /x && argosy launch y"
    )
    read, back, again = list_steps(case)
    assert read.command == "sed -n 49,62p /x/train.py"
    assert read.where == "Type it on a login node; costs no GPU hours."
    assert back.text == ("If you did not want the argument 'sockets' (before: 'ib'): launch with 'ib', as in job 5.")
    assert back.command == CHANGED.repeat
    assert back.where == (
        "Type it on a login node; costs about 0.044 GPU hours (2 nodes, 16 GPUs in all, 10 s in job 5)."
    )
    assert again.text.endswith(
        "correct line 51, or its input, then launch this job again. It fails again if nothing changed."
    )
    assert (again.command, again.instead) == ("cd /x && argosy launch y", True)
    inside = replace(case, search=replace(SEARCH, in_image=True))
    assert next(list_steps(inside)).command == "argosy run /x.sif -- sed -n 49,62p /x/train.py"
    far = next(list_steps(replace(case, ssh="login1")))
    assert (far.command, far.where) == (
        "ssh login1 'sed -n 49,62p /x/train.py'",
        "Type it on the machine from which you launched the job; costs no GPU hours.",
    )
    shown = next(list_steps(replace(case, excerpt=Excerpt("/x/train.py", ((51, "x", True),)))))
    assert (shown.text, shown.command, shown.section) == (
        "Look at line 51 of train.py, below, and at the lines with ▶ that lead to it.",
        "",
        "program",
    )
    assert [each.command for each in list_steps(replace(case, typed="", compared=Comparison()))][1:] == [
        "sbatch /r/job.sh"
    ]
    assert next(list_steps(replace(case, search=None))).command == "argosy logs 7"
    assert [each.text for each in list_steps(replace(case, facts=replace(RECORDED, advice="wait")))] == ["Wait."]


def test_the_steps_after_a_failed_check_find_the_cause_before_they_repeat_a_job() -> None:
    search = search_arguments("/x/train.py", CHANGED.changes[0])
    facts = replace(GOOD, record="/r")
    slow = ReportCase(facts, COMMAND, (SLOW,), compared=CHANGED, search=search, profile="lumi-g")
    find, repeat, check, devices = list_steps(slow)
    assert find.command == "grep -nF -e sockets -e NCCL_ /x/train.py"
    assert repeat.command == "cd /x && argosy launch --nodelist 'node[1-2]' /x.sif -- python train.py ib"
    assert "on the nodes of this job" in repeat.text
    assert check.command == "argosy check /x.sif --site lumi-g"
    assert check.text.startswith("If the run of step 2 fails its checks: ")
    assert devices.text.startswith("If step 3 finds no fault: ")
    assert devices.command.endswith("--follow -- ls /sys/class/infiniband")
    assert devices.where == "Type it on a login node; submits a job: 1 node, 8 GPUs, for a few seconds."
    assert tuple(list_steps(replace(slow, findings=()))) == ()
    alone = [each.command.split(" ")[0] for each in list_steps(replace(slow, compared=Comparison()))]
    assert alone == ["argosy", "argosy", "sbatch"]


def test_only_a_command_line_that_can_name_nodes_claims_the_same_nodes() -> None:
    assert add_nodes("sbatch /r/job.sh", "n[1-2]") == "sbatch --nodelist='n[1-2]' /r/job.sh"
    for line in (
        "cd /x && argosy launch --nodelist n1 y",
        "cd /x && argosy launch -w n1 y",
        "cd /x && argosy bench nodes",
    ):
        assert add_nodes(line, "n1") == line
    workers = "cd /x && argosy launch {}y.sif -- python t.py -w 3"
    assert add_nodes(workers.format(""), "n1") == workers.format("--nodelist n1 "), "-w is an argument of the program"
    assert add_nodes("cd '/a b' && argosy launch y -- z", "") == "cd '/a b' && argosy launch y -- z"


def test_a_failed_job_says_that_its_output_has_no_bandwidth() -> None:
    shown = relevant_findings((), PLAN, FACTS, replace(CHANGED, bandwidth="23.1 GB/s"))
    assert shown == (
        Finding("bandwidth", State.UNKNOWN, "the output of this job has no measurement (job 5 measured 23.1 GB/s)"),
    )
    assert relevant_findings((), PLAN, FACTS, CHANGED) == ()


def test_changed_arguments_are_described() -> None:
    assert describe_arguments(Change("", "ib", "ib 3 4")) == "added arguments '3 4'"
    assert describe_arguments(Change("", "ib 3", "ib")) == "missing argument '3'"
    assert describe_return(Change("", "ib", "ib 3 4")) == "without '3 4'"
    assert describe_return(Change("", "ib 3", "ib")) == "with '3'"
    assert describe_return(Change("", "a b", "a c")) == "with 'b'"
    assert describe_return(Change("", "a b", "c")) == "with 'a b'"
    assert describe_arguments(Change("", "a b", "a c")) == "argument 'c' (before: 'b')"
    assert describe_arguments(Change("", "a b", "c")) == "argument 'c' (before: 'a b')"
    assert search_arguments("t.py", Change("", "--net=ib", "--net=tcp -v 3")).words == ("net", "tcp", "NCCL_")


def test_an_excerpt_shows_the_lines_of_the_traceback_unless_the_program_changed_later(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    os.utime(program, (1000, 1000))
    frames = tuple(UserFrame(str(program), line, "f") for line in (70, 64, 59))
    search = search_frames(UserException("x", frames), "/")
    assert search == Search(str(program), 54, 70, (70, 64, 59))
    excerpt = read_excerpt(search, 2000.0)
    assert excerpt is not None
    assert [number for number, _, marked in excerpt.lines if marked] == [59, 64, 70]
    assert excerpt.lines[0] == (54, "line 54", False)
    changed = read_excerpt(search, 500.0)
    assert changed == Excerpt(
        str(program), note="train.py was changed after the job started, so its lines are not shown."
    )
    far = search_frames(
        UserException("x", (UserFrame("train.py", 99, "g"), UserFrame("train.py", 3, "f"))), str(tmp_path)
    )
    assert far == Search(str(program), 1, 8, (3,))
    program.write_text("LABELS = [1]\nOTHER = 2\n" + "\n" * 20 + "return LABELS[2]\n")
    os.utime(program, (1000, 1000))
    defined = read_excerpt(Search(str(program), 18, 23, (23,)), 2000.0)
    assert defined is not None
    assert [number for number, _, _ in defined.lines] == [1, *range(18, 24)]
    program.write_text("NETS = {'tcp': 1}\nuse(NETS)\n'NETS'\n")
    os.utime(program, (1000, 1000))
    users = read_excerpt(Search(str(program), words=("tcp", "NCCL_")), 2000.0)
    assert users is not None
    assert [number for number, _, _ in users.lines] == [1, 2]


def test_an_excerpt_has_the_lines_with_a_word(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    os.utime(program, (1000, 1000))
    words = read_excerpt(Search(str(program), words=("line 7",)), 2000.0)
    assert words is not None
    assert [number for number, _, _ in words.lines] == [7, *range(70, 80)]


def test_only_programs_outside_the_image_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret")
    os.utime(secret, (1, 1))
    assert read_excerpt(Search(str(secret), 1, 5), 100.0) is None, "a log may name any file"
    assert read_excerpt(Search(str(tmp_path / "gone.py"), 1, 5), 100.0) is None
    inside = search_frames(UserException("x", (UserFrame("/opt/argosy/env/app.py", 3, "f"),)), "/x")
    assert inside is not None
    assert inside.in_image


def test_the_placeholders_of_hints_are_filled() -> None:
    hints = fill_names("argosy jobs show JOB, argosy why LOG", replace(FACTS, output="/o/x y"))
    assert hints == "argosy jobs show 7, argosy why '/o/x y'"


def test_the_exit_codes_of_the_program_and_of_the_job_are_named() -> None:
    run = Run("7", 0, 143, "node[1-2]", 100, 400)
    page = render_page(with_case(facts=replace(FACTS, runs=(run,))))
    assert "rank 3: 3 (failed first); step: 143 (the other ranks were stopped by SIGTERM)" in page
    assert "0.17 node hours, 1.3 GPU hours" in page


def test_the_exit_code_of_a_task_is_not_that_of_another_task_of_the_array() -> None:
    runs = (Run("8", 0, 3, "node1", 100, 101), Run("9", 0, 0, "node1", 100, 101))
    page = render_page(with_case(facts=replace(FACTS, runs=runs)))
    assert "<dt>Exit code</dt><dd>3</dd>" in page
    assert "node hours" not in page


def test_a_job_on_one_node_has_no_plural() -> None:
    page = render_page(with_case(plan=replace(PLAN, shape=JobShape(1, 1, 1))))
    assert "<dt>Requested</dt><dd>1 node, 1 rank and 1 GPU</dd>" in page


def test_a_consequence_is_certain_if_the_rank_that_failed_first_is_known() -> None:
    others = replace(CASE.errors[0], name="ended-with-others", level="symptom", cause="a job may be cancelled")
    page = render_page(with_case(errors=(others,)))
    assert "The other ranks were stopped because rank 3 had failed" in page
    assert "A job may be cancelled" in render_page(with_case(errors=(others,), facts=replace(FACTS, first=None)))


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/ada/train.py", line 51, in load_label',
    "    return labels[step]",
    '  File "/opt/argosy/lib/python3.12/site-packages/torch/utils/data.py", line 9, in get',
    "KeyError: 'label'",
)


def test_an_exception_of_the_program_is_found_with_its_place_in_the_users_code() -> None:
    raised = find_exception(TRACEBACK)
    assert raised == UserException(
        "KeyError: 'label'", (UserFrame("/home/ada/train.py", 51, "load_label", "return labels[step]"),)
    )
    case = replace(CASE, facts=replace(FACTS, last_lines=TRACEBACK), raised=raised)
    assert summarize(case).endswith("rank 3 on node2 failed first (code 3): KeyError: 'label'.")
    assert find_exception(("[rank3]: torch.OutOfMemoryError: full",)) == UserException("torch.OutOfMemoryError: full")
    assert find_exception(("no error here", "Error")) is None


def test_the_summary_says_what_happened() -> None:
    def said(facts: JobFacts, **more: Any) -> str:
        return summarize(ReportCase(facts, **more))

    early = replace(FACTS, first=None, submitted="2026-01-02T03:04:05")
    assert said(FACTS) == "Job 7 failed: rank 3 on node2 failed first (code 3)."
    assert said(GOOD) == "Job 7 finished with exit code 0."
    assert said(GOOD, findings=(SLOW,)) == (
        "Job 7 finished with exit code 0, but it failed 1 of 1 check: network (TCP over eth0, not InfiniBand)."
    )
    assert said(replace(GOOD, restarts=2)) == "Job 7 finished with exit code 0, after 2 restarts."
    passed = (Finding("ranks", State.OK, "4"), Finding("GPUs", State.OK, "4"))
    assert said(GOOD, findings=passed, results=(MEASURED,)) == (
        "Job 7 finished with exit code 0 and passed all 2 checks. "
        "Bus bandwidth, as the program printed it: 90.25 GB/s; expected 100 GB/s, at least 70 GB/s (70%) to pass."
    )
    assert said(early) == "Job 7 failed before its first rank started (code 3)."
    output = "argosy: the command of --before failed (code 3)\nargosy: job 7 ended with code 3\n"
    assert said(early, output=output).endswith("started: the command of --before failed (code 3).")
    assert said(replace(GOOD, id="x", is_local=True, kind="running", meaning="runs")) == "Run x runs."


def test_a_job_that_ended_well_with_a_failed_check_is_not_marked_as_good() -> None:
    assert "! finished, but 1 check failed" in render_page(with_case(facts=GOOD))
    assert "✓ finished, all checks passed" in render_page(with_case(facts=GOOD, findings=CASE.findings[1:]))
    assert "✓ finished<" in render_page(with_case(facts=GOOD, findings=(Finding("cores", State.UNKNOWN, "x"),)))


def test_a_job_that_ended_well_has_nothing_to_fix() -> None:
    good = replace(with_case(facts=GOOD, findings=CASE.findings[1:], errors=()), cause="", steps=())
    assert "There is nothing to fix." in render_page(good)
    assert "There is nothing to fix." not in render_page(REPORT)


def test_checks_of_gpus_are_left_out_for_a_job_without_gpus() -> None:
    unknown = tuple(Finding(name, State.UNKNOWN, "x") for name in ("end", "GPUs", "network"))
    found = (*unknown, Finding("cores", State.OK, "x"))
    assert [each.what for each in relevant_findings(found, PLAN, GOOD, Comparison())] == ["GPUs", "network", "cores"]
    shown = relevant_findings(found, replace(PLAN, shape=JobShape(1, 1)), GOOD, Comparison())
    assert [each.what for each in shown] == ["cores"]


def test_the_measured_bandwidth_is_compared_in_a_sentence() -> None:
    assert summarize_results((MEASURED, replace(MEASURED, label="job 5")), "5") == (
        "Largest bus bandwidth: 90.25 GB/s on 2 nodes in job 7, 90.25 GB/s on 2 nodes in job 5, the last run that "
        "passed; the site's profile expects 100 GB/s on 2 nodes."
    )
    assert summarize_results((BenchResult(BenchKind.SETTINGS, "job 7", "x", ()),)) == ""


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
        ("nodes", "message size", "job 7, GB/s", "job 5, GB/s", "job 7 / job 5"),
        ("2", "1 MiB", "10.5", "10.5", "1.00"), ("2", "1 GiB", "90.25", "90.25", "1.00"),
    )  # fmt: skip


def test_drawings_without_data_are_empty() -> None:
    assert [text for *_, text in list_bars((Event(1, "submitted", Phase.QUEUE),))] == ["in the queue 0 s"]
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
    for text in (">mlx5_0<", ">mlx5_1<", ">used<", "InfiniBand, 2 of 2 cards: mlx5_0, mlx5_1", "2 of 2 used"):
        assert text in picture, text
    assert "absent" not in picture
    slow = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts(networks=("Socket",), interfaces="[0]eth0:10.0.0.1")))
    assert slow.count('class="absent"') == 2
    assert "Network: TCP over eth0 instead of 2 x HDR" in slow
    silent = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts()))
    assert silent.count('class="open"') == 4
    assert "the logs of this node name no network" in silent
    half = drawn(draw_job_node("node1", RANKS[:2], node, NetFacts(networks=("AWS Libfabric",), provider="cxi", nics=1)))
    assert "AWS Libfabric (cxi), 1 of 2 cards" in half
    assert half.count(">card ?<") == 2


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
        Event(0, "submitted", Phase.QUEUE), Event(5, "started", Phase.START), Event(10, "first", Phase.RUN),
        Event(140, "ended", Phase.QUEUE), Event(150, "again", Phase.START), Event(160, "ended", Phase.END),
    )  # fmt: skip
    assert [text for _, text in sum_phases(moments)] == ["in the queue 15 s", "starting 15 s", "running 2 min 10 s"]
    assert [seconds for _, seconds, _ in list_bars(moments)] == [5, 5, 130, 10, 10, 0]
    written = (*moments[:2], Event(10, "first output", Phase.RUN), moments[-1])
    texts = ["in the queue 5 s", "until the first output 5 s", "running 2 min 30 s"]
    assert [text for _, text in sum_phases(written)] == texts


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
    write_bundle(tmp_path / "b.tar.gz", with_case(facts=facts))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert archive.getnames() == ["job-7/report.html", "job-7/record/job.sh", "job-7/output/x.out"]
        for name in archive.getnames():
            file = archive.extractfile(name)
            assert file is not None
            assert b"secret" not in file.read()
