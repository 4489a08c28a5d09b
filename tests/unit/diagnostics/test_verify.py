"""What a run proved is read from logs as NCCL and RCCL really write them, and judged by the site's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from argosy.bench.collectives_output import Measured, parse_bandwidth
from argosy.bench.stored import list_earlier, render_history
from argosy.cli.app import app
from argosy.core.errors import CheckFailed
from argosy.core.findings import Finding, State
from argosy.core.parse import parse_cpulist
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.diagnostics.verify.logs import NetFacts, parse_netlog
from argosy.diagnostics.verify.rules import Expected, Verdict, check_run
from argosy.diagnostics.verify.verify import expect, find_passed, verify_job, verify_runs
from argosy.jobs.launch_plan import NO_PLAN
from argosy.jobs.record import RankFacts, parse_ranks, read_plan
from argosy.sites.binding import render_core_list
from argosy.sites.profile import Site
from argosy.sites.read import read_site
from tests.unit.machines import make_session
from tests.unit.plans import CHOICE, make_plan, plan_text

CORPUS = Path(__file__).parents[2] / "corpus/nccl"
LUMI = read_site("lumi-g")
ANY = Site(name="any")
TWO_NODES = Expected(nodes=2, ranks=4, gpus=2)
RANKS = tuple(RankFacts(rank, rank % 2, f"node{rank // 2 + 1}", cores=str(rank % 2), devices=2) for rank in range(4))


def log(name: str) -> NetFacts:
    return parse_netlog((CORPUS / f"{name}.log").read_text())


def check(verdict: Verdict, name: str) -> Finding:
    return next(each for each in verdict.findings if each.what == name)


def test_rccl_on_slingshot_is_read_whole() -> None:
    net = log("rccl-on-slingshot")
    assert net == NetFacts(
        library="RCCL 2.20.5+hip6.2",
        plugin="aws-ofi-rccl 1.4.0",
        networks=("AWS Libfabric",),
        provider="cxi",
        nics=4,
        direct=True,
        within=("P2P",),
        hosts=("nid005044", "nid005045"),
        devices=(("nid005044", "c1000"),),
        ranks=16,
    )
    verdict = check_run(net, (), TWO_NODES, LUMI)
    assert check(verdict, "network") == Finding(
        "network", State.OK, "AWS Libfabric (cxi, 4 cards, GPUDirect), RCCL 2.20.5+hip6.2"
    )


@pytest.mark.parametrize("name", ["rccl-on-slingshot", "nccl-plugin-new-words"])
def test_each_wording_of_the_plugin_proves_slingshot(name: str) -> None:
    assert check_run(log(name), (), TWO_NODES, LUMI).ok


def test_sockets_in_place_of_slingshot_are_bad_and_the_reason_is_shown() -> None:
    verdict = check_run(log("rccl-fell-back-to-tcp"), (), TWO_NODES, LUMI)
    network = check(verdict, "network")
    assert (network.state, verdict.ok) == ("fail", False)
    assert network.evidence.startswith("TCP over hsn0, not ")
    assert "librccl-net-ofi.so" in network.evidence
    assert "FAIL" in verdict.line
    assert not check_run(log("rccl-fell-back-to-tcp"), (), Expected(), ANY).ok


def test_sockets_of_newer_releases_show_their_interface_and_no_harmless_complaints() -> None:
    net = log("nccl-2.27-sockets")
    assert (net.networks, net.interfaces) == (("Socket",), "[0]eth0:10.0.4.51<0> [1]eth1:10.1.4.51<0>")
    assert net.complaints == ("NET/IB : No device found.",)
    network = check(check_run(net, (), TWO_NODES, ANY), "network")
    assert (network.state, network.evidence) == (
        "fail",
        "TCP over eth0, not the fast network; NCCL 2.27.5+cuda12.9 says 'NET/IB : No device found'",
    )


def test_oneccl_reports_its_provider_and_card() -> None:
    net = log("oneccl-by-tcp")
    assert (net.networks, net.provider, net.interfaces, net.slow) == (("oneCCL",), "tcp", "ib0", False)
    assert check(check_run(net, (), TWO_NODES, read_site("dawn")), "network") == Finding(
        "network", State.OK, "oneCCL (tcp, ib0)"
    )


def test_infiniband_passes_without_a_profile_and_fails_on_slingshot() -> None:
    net = log("infiniband")
    assert (net.networks, net.direct, net.hosts) == (("IB",), True, ("node1", "node2"))
    assert check_run(net, (), TWO_NODES, ANY).ok
    assert not check_run(net, (), TWO_NODES, LUMI).ok


def test_sockets_on_one_node_pass_because_gpus_do_not_use_them() -> None:
    verdict = check_run(log("one-node"), (), Expected(nodes=1, gpus=4), read_site("mn5-acc"))
    assert verdict.ok
    assert check(verdict, "bandwidth").evidence.startswith(
        "301.5 GB/s bus bandwidth; 314 GB/s expected on 1 node, at least 219.8 GB/s (70%) to pass"
    )


def test_a_low_bandwidth_is_a_consequence_of_the_slow_network() -> None:
    net = replace(parse_netlog(SLOW), measured=Measured(1.1, 4 << 30, "all_reduce"))
    verdict = check_run(net, (), Expected(nodes=2, gpus=4), read_site("mn5-acc"))
    assert check(verdict, "bandwidth").hint == "fix the network first"


@pytest.mark.parametrize(
    ("measured", "state", "hint"),
    [
        (Measured(149.0, 4 << 30, "all_reduce"), "ok", ""),
        (Measured(12.0, 1 << 30, "all_reduce"), "fail", "check the cores above, and the load of the network"),
        (Measured(12.0, 1 << 20, "all_reduce"), "unknown", "measure with messages of that size: --max-size 4G"),
        (Measured(12.0), "unknown", "measure with messages of that size: --max-size 4G"),
        (Measured(12.0, 1 << 30, "broadcast"), "ok", ""),
    ],
)
def test_a_bandwidth_is_compared_with_the_sites_if_both_measured_the_same(
    measured: Measured, state: str, hint: str
) -> None:
    verdict = check_run(NetFacts(measured=measured), (), Expected(nodes=2, gpus=4), read_site("mn5-acc"))
    told = check(verdict, "bandwidth")
    assert (told.state, told.hint) == (state, hint)


def test_the_largest_message_of_a_sweep_of_nccl_tests_counts_and_not_the_average() -> None:
    row = "{:>12} {:>13}     float     sum      -1   9411.7  114.08  {}      0   9409.6  114.11  1.0      0\n"
    text = "# Collective test starting: all_reduce_perf\n" + row.format(1 << 30, 1 << 28, 213.91)
    text += row.format(1 << 20, 1 << 18, 20.5) + "# Avg bus bandwidth    : 30.2\n"
    assert parse_bandwidth(text) == Measured(213.91, 1 << 30, "all_reduce")
    assert parse_bandwidth("# Avg bus bandwidth    : 30.2\n") == Measured(30.2)
    assert parse_bandwidth("1 2 3 4 5 6 7 8\n") is None


SLOW = "".join(f"node{n}:1:1 [0] NCCL INFO Using network Socket\n" for n in (1, 2))


def note_bench(
    state: Path, name: str, job: int, nodes: int, speed: float, operation: str = "all_reduce", code: int = 0
) -> Path:
    record, output = state / "runs" / name, state / f"{job}.out"
    record.mkdir(parents=True)
    output.write_text(f"# {operation} · {nodes} ranks\n# Peak bus bandwidth : {speed} GB/s at 1 GiB\n")
    told = {"job": str(job), "output": str(state / "%j.out"), "site": "lab", "time": f"2026-11-2{job}T10:00:00"}
    (record / "submitted.json").write_text(json.dumps(told))
    (record / "job.json").write_text(plan_text(shape={"nodes": nodes, "ranks_per_node": 4}))
    (record / "ends").write_text(f"{job} 0 {code} node[1-2] 0 9\n")
    return record


def test_a_bandwidth_is_shown_beside_that_of_the_last_run_of_its_shape_that_passed(tmp_path: Path) -> None:
    note_bench(tmp_path, "1", 1, nodes=2, speed=80.0)
    note_bench(tmp_path, "2", 2, nodes=2, speed=85.0)
    note_bench(tmp_path, "3", 3, nodes=4, speed=70.0)
    note_bench(tmp_path, "4", 4, nodes=2, speed=40.0, operation="broadcast")
    (note_bench(tmp_path, "41", 1, nodes=2, speed=1.0) / "nccl-0-n1.log").write_text(SLOW)
    note_bench(tmp_path, "42", 1, nodes=2, speed=2.0, code=1)
    own = note_bench(tmp_path, "5", 5, nodes=2, speed=60.0)
    note_bench(tmp_path, "6", 6, nodes=2, speed=90.0)
    measured = Measured(60.0, 1 << 30, "all_reduce")
    passed = find_passed(make_session(tmp_path), own, ANY)
    assert passed is not None
    assert (passed.job.id, passed.net.measured) == ("2", Measured(85.0, 1 << 30, "all_reduce"))
    told = check(check_run(NetFacts(measured=measured), (), TWO_NODES, ANY, passed), "bandwidth")
    assert told == Finding(
        "bandwidth", State.OK, "60 GB/s bus bandwidth; 85 GB/s in job 2 of 2026-11-22, the last run that passed"
    )
    assert find_passed(make_session(tmp_path), tmp_path / "runs/1", ANY) is None


def test_measurements_of_jobs_are_listed_beside_the_best_of_their_kind(tmp_path: Path) -> None:
    note_bench(tmp_path, "1", 1, nodes=2, speed=80.0)
    note_bench(tmp_path, "2", 2, nodes=2, speed=60.0)
    note_bench(tmp_path, "3", 3, nodes=4, speed=70.0)
    (tmp_path / "1.out").with_name("3.out").write_text("no benchmark\n")
    note_bench(tmp_path, "4", 4, nodes=2, speed=40.0, operation="broadcast")
    session = make_session(tmp_path)
    assert [row.split() for row in render_history(list_earlier(session)).splitlines()[1:]] == [
        ["2026-11-24", "4", "lab", "broadcast", "2", "x", "4", "40", "100%", "node[1-2]"],
        ["2026-11-22", "2", "lab", "all_reduce", "2", "x", "4", "60", "75%", "node[1-2]"],
        ["2026-11-21", "1", "lab", "all_reduce", "2", "x", "4", "80", "100%", "node[1-2]"],
    ]
    assert list_earlier(session, "elsewhere") == ()


def test_the_interface_of_the_first_handshake_proves_nothing() -> None:
    net = parse_netlog("nid1:1:1 [0] NCCL INFO Bootstrap : Using hsn0:10.0.0.1<0>\n")
    assert not net.networks
    assert check(check_run(net, RANKS, TWO_NODES, LUMI), "network").state == "fail"
    assert check(check_run(net, RANKS, TWO_NODES, ANY), "network").state == "unknown"


def test_no_log_at_all_is_bad_only_for_gpus_on_several_nodes_of_a_site_that_has_proof_lines() -> None:
    assert not check_run(NetFacts(), RANKS, TWO_NODES, LUMI).ok
    assert check_run(NetFacts(), RANKS, TWO_NODES, ANY).ok
    assert check_run(NetFacts(), RANKS[:2], Expected(nodes=1, ranks=2, gpus=2), LUMI).ok


@pytest.mark.parametrize(
    ("word", "own"), [("--gpus-per-task=1", 1), ("--gpu-bind=closest", 1), ("--network=job_vni", 8), ("", 8)]
)
def test_the_gpus_that_each_rank_should_see_follow_from_the_plan(word: str, own: int) -> None:
    shape = {"nodes": 2, "ranks_per_node": 8, "gpus_per_node": 8}
    plan = make_plan(shape=shape, choices=[CHOICE | {"key": "srun", "value": word}])
    assert expect(plan, ()).own_gpus == own


def test_a_damaged_plan_expects_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(plan_text(shape={"nodes": 2, "ranks_per_node": 8, "\ud800": 1}))
    assert expect(read_plan(tmp_path), RANKS) == expect(NO_PLAN, RANKS)


def test_fewer_network_cards_than_the_node_has_are_bad() -> None:
    one = replace(log("rccl-on-slingshot"), nics=1)
    assert check(check_run(one, (), TWO_NODES, LUMI), "network").state == "fail"


def test_a_run_as_planned_is_reported_in_one_line() -> None:
    verdict = check_run(NetFacts(), RANKS, replace(TWO_NODES, cores=("0", "1")), ANY)
    assert verdict.ok
    assert verdict.line.startswith("ranks: 4 on 2 nodes · network: no line")
    assert verdict.line.endswith("GPUs: use not shown; each rank can see 2 · cores: 4 of 4 ranks bound as planned")


def test_gpus_were_used_only_if_the_library_names_them() -> None:
    by_files = check(check_run(NetFacts(), RANKS, TWO_NODES, ANY), "GPUs")
    assert (by_files.state, by_files.evidence) == ("unknown", "use not shown; each rank can see 2")
    lines = (
        f"node{number // 2 + 1}:1:2 [{number % 2}] NCCL INFO comm 0x5 rank {number} nranks 4 cudaDev {number % 2} "
        f"nvmlDev {number % 2} busId {number % 2}6000 commId 0x1 - Init COMPLETE\n"
        for number in range(4)
    )
    by_nccl = check(check_run(parse_netlog(2 * "".join(lines)), RANKS, TWO_NODES, ANY), "GPUs")
    assert (by_nccl.state, by_nccl.evidence) == ("ok", "4 used by NCCL; each rank can see 2")


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        (RANKS[:3], "ranks"),
        ((*RANKS[:3], replace(RANKS[3], rank=0)), "ranks"),
        ((*RANKS[:3], replace(RANKS[3], devices=0)), "GPUs"),
        ((*RANKS[:3], replace(RANKS[3], visible=(("CUDA_VISIBLE_DEVICES", "1"),))), "GPUs"),
        ((*RANKS[:3], replace(RANKS[3], cores="0")), "cores"),
        ((*RANKS[:3], replace(RANKS[3], cores="0-1")), "cores"),
    ],
)
def test_each_fault_is_found_by_its_check_and_by_no_other(ranks: tuple[RankFacts, ...], name: str) -> None:
    verdict = check_run(NetFacts(), ranks, replace(TWO_NODES, own_gpus=2, cores=("0", "1")), ANY)
    assert [each.what for each in verdict.findings if each.state == "fail"] == [name]


def test_shared_cores_fail_only_if_ranks_compute_on_one_core() -> None:
    for cores, state in (("0", "fail"), ("0-1", "ok")):
        ranks = tuple(replace(each, cores=cores) for each in RANKS)
        (judged,) = (each for each in check_run(NetFacts(), ranks, TWO_NODES, ANY).findings if each.what == "cores")
        assert (judged.state, "shared by ranks of node1" in judged.evidence) == (state, True)


def test_a_duplicate_rank_is_named_with_its_count() -> None:
    same = tuple(replace(each, rank=max(each.rank, 1)) for each in RANKS)
    ranks = check(check_run(NetFacts(), same, TWO_NODES, ANY), "ranks")
    assert (ranks.state, ranks.evidence) == ("fail", "4 on 2 nodes; rank 1 started 2 times")


def test_the_last_run_counts_if_a_job_ran_twice() -> None:
    lines = "".join(
        f"rank={rank} local={rank} host=n1 restart={restart} cores=0-3 devices=1 CUDA_VISIBLE_DEVICES=0\n"
        for restart in (0, 1)
        for rank in (0, 1)
    )
    ranks = parse_ranks(f"{lines}rank=2 local=0 host=n2 restart=0\nsomething else = 3\nrank=")
    assert [(each.rank, each.restart, each.gpus) for each in ranks] == [(0, 1, 1), (1, 1, 1)]


@given(st.sets(st.integers(0, 300), min_size=1))
def test_core_lists_are_parsed_as_rendered(cores: set[int]) -> None:
    assert parse_cpulist(render_core_list(sum(1 << core for core in cores))) == cores


def test_verify_judges_logs_and_sets_its_exit_code() -> None:
    good, bad = (str(CORPUS / f"{name}.log") for name in ("rccl-on-slingshot", "rccl-fell-back-to-tcp"))
    done = CliRunner().invoke(app, ["verify", good, "--site", "lumi-g", "--json"])
    told = json.loads(done.output)
    assert (done.exit_code, told["ok"], told["evidence"]["net"]["provider"]) == (0, True, "cxi")
    assert CliRunner().invoke(app, ["verify", bad, "--site", "lumi-g"]).exit_code == 7
    anywhere = CliRunner().invoke(app, ["verify", good])
    assert (anywhere.exit_code, anywhere.output.split()[:2]) == (0, ["ok", "network"])


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("CANCELLED", "it was cancelled (code 143); the lines below cover the time before"),
        ("RUNNING", "it runs; the lines below cover the time until now"),
        ("COMPLETED", None),
    ],
)
def test_an_unfinished_job_is_not_verified_as_finished(tmp_path: Path, state: str, said: str | None) -> None:
    record = tmp_path / "runs/20260101-000000-abc"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text('{"job": "7", "output": "/none", "site": ""}')
    (record / "ranks-n1").write_text("rank=0 local=0 host=n1 job=7 restart=0 cores=0 devices=0\n")
    line = f"JobId=7 JobState={state} ExitCode=0:0 NodeList=n1 StdOut=/none\n"
    runner = FakeRunner([(("scontrol",), Reply(0, line, ""))])
    _, verdict = verify_job(make_session(tmp_path, runner=runner), "7")
    ends = [check.evidence for check in verdict.findings if check.what == "end"]
    assert ends == ([said] if said else [])
    assert [each.what for each in verdict.findings[-2:]] == ["ranks", "cores"]


def test_a_job_whose_files_prove_nothing_is_not_verified(tmp_path: Path) -> None:
    record, output = tmp_path / "runs/20260101-000000-abc", tmp_path / "job.out"
    record.mkdir(parents=True)
    output.write_text("epoch 1\n")
    (record / "submitted.json").write_text(json.dumps({"job": "7", "output": str(output), "site": ""}))
    (record / "job.json").write_text(plan_text(shape={"nodes": 1, "ranks_per_node": 2}))
    line = f"JobId=7 JobState=COMPLETED ExitCode=0:0 NodeList=n1 StdOut={output}\n"
    session = make_session(tmp_path, runner=FakeRunner([(("scontrol",), Reply(0, line, ""))]))
    with pytest.raises(CheckFailed, match="cannot verify the run"):
        verify_runs(session, ("7",), site="", nodes=0)


def test_hints_of_a_job_have_its_number(tmp_path: Path) -> None:
    record = tmp_path / "runs/20260101-000000-abc"
    record.mkdir(parents=True)
    (record / "submitted.json").write_text('{"job": "7", "output": "/none", "site": ""}')
    (record / "job.json").write_text(plan_text(shape={"nodes": 1, "ranks_per_node": 2}))
    (record / "ranks-n1").write_text("rank=0 local=0 host=n1 job=7 restart=0 cores=0 devices=0\n")
    runner = FakeRunner([(("scontrol",), Reply(0, "JobId=7 JobState=FAILED ExitCode=1:0 NodeList=n1\n", ""))])
    _, verdict = verify_job(make_session(tmp_path, runner=runner), "7")
    (hint,) = (check.hint for check in verdict.findings if check.what == "ranks")
    assert hint.endswith("argosy jobs show 7")


NCCL = "node{}:11:12 [0] {}\n"


def test_a_run_whose_network_failed_after_it_was_chosen_is_bad() -> None:
    used = "".join(NCCL.format(node, "NCCL INFO Using network IB") for node in (1, 2))
    for failure in (
        "misc/ibvwrap.cc:160 NCCL WARN Call to ibv_create_qp failed",
        "misc/ibvwrap.cc:192 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        "transport/net_ib.cc:84 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0",
        "ofi_process_cq:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 110. Error: Connection timed out",
    ):
        net = parse_netlog(used + NCCL.format(1, failure))
        network = check(check_run(net, (), Expected(), ANY), "network")
        assert (network.state, failure.partition("NCCL WARN ")[2] in network.evidence) == ("fail", True)


def test_lines_of_nccl_are_never_called_a_run_without_gpus() -> None:
    warned = "".join(NCCL.format(node, "x.cc:1 NCCL WARN Timeout of a peer") for node in (1, 2))
    network = check(check_run(parse_netlog(warned), (), Expected(), ANY), "network")
    assert (network.state, network.evidence) == ("unknown", "no line of NCCL or RCCL shows it")
    old = "".join(NCCL.format(node, "NCCL INFO NET/IB : Using [0]mlx4_0:1/IB ; OOB ib0:1<0>") for node in (1, 2))
    assert parse_netlog(old).networks == ("IB",)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1", "warn"),
        ("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA", "ok"),
        ("NCCL INFO Using network IB\nn:1:1 [0] NCCL INFO GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "warn"),
    ],
)
def test_a_network_without_gpudirect_is_reported(line: str, state: str) -> None:
    net = parse_netlog("".join(NCCL.format(node, line) for node in (1, 2)))
    verdict = check_run(net, (), Expected(), ANY)
    network = check(verdict, "network")
    assert (network.state, "copied through host memory" in network.evidence) == (state, state == "warn")
    assert ("network: WARN: " in verdict.line) == (state == "warn")


@pytest.mark.parametrize("label", ["0: ", " 0: ", "[1,0]<stdout>:"])
def test_the_rank_before_each_line_of_a_benchmark_does_not_hide_its_bandwidth(label: str) -> None:
    lines = ("# Collective test starting: all_reduce_perf", " 1048576  262144 float sum -1 60.1 17.4 30.5 0 60 17 30 0")
    assert parse_bandwidth("".join(f"{label}{line}\n" for line in lines)) == Measured(30.5, 1 << 20, "all_reduce")


MN5 = """The average bandwidth of all_reduce with a 4.0GB payload (20 trials, 4 ranks):
 algbw: 209.342 GBps (1674.7 Gbps)
 busbw: 314.012 GBps (2512.1 Gbps)
"""
DEVIATION = """The average bandwidth of all_reduce with a 4.0GB payload (20 trials, 8 ranks):
 algbw: 52.186 GBps (std: 0.013) (417.5 Gbps)
 busbw: 91.3 GBps (std: 0.023) (730.6 Gbps)
"""
SWEEP = """| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    32KB |   0.92GBps |   0.48GBps |
|    16GiB |  91.69GBps |  47.32GBps |
"""


@pytest.mark.parametrize(
    ("text", "measured"),
    [
        (MN5, Measured(314.012, 4 * 10**9, "all_reduce")),
        (DEVIATION, Measured(91.3, 4 * 10**9, "all_reduce")),
        (SWEEP, Measured(91.69, 16 << 30, "all_reduce")),
        (" duration: 0.4 sec\n algo throughput: 81.6 Gbps\n busbw: 40.8 Gbps\n", Measured(5.1, 0, "all_reduce")),
        ("tput_avg (Gbps): 1499.18 busbw_avg (Gbps): 800.0\n", Measured(100.0, 0, "all_reduce")),
    ],
    ids=["mn5", "deviation", "table", "bits", "average-bits"],
)
def test_each_form_of_all_reduce_bench_is_read_with_its_unit(text: str, measured: Measured) -> None:
    assert parse_bandwidth(text) == measured
    assert parse_bandwidth("".join(f"0: {line}\n" for line in text.splitlines())) == measured


def test_the_variables_that_nccl_read_are_known_and_those_of_its_log_are_left_out() -> None:
    lines = (
        "NCCL INFO NCCL_SOCKET_IFNAME set by environment to ^docker0,lo",
        "NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "NCCL INFO NCCL_IB_HCA set to mlx5_0",
        "NCCL INFO NCCL_DEBUG_SUBSYS set by environment to INIT",
    )
    net = parse_netlog("".join(NCCL.format(1, line) for line in lines))
    assert net.settings == (
        ("NCCL_IB_DISABLE", "1"), ("NCCL_IB_HCA", "mlx5_0"), ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
    )  # fmt: skip


LIGHTNING = "GPU available: True (cuda), used: False\nTPU available: False, using: 0 TPU cores\n"
PINNED = (
    "/opt/argosy/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py:668: UserWarning: 'pin_memory' "
    "argument is set as true but no accelerator is found, then device pinned memory won't be used.\n"
)
SCALER = "UserWarning: torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.\n"
AUTOCAST = "UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling\n"
STARTED = (
    "/usr/lib/python3/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system "
    "is too old (found version 11040). (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:109.)\n"
)


def gpus(text: str, ranks: tuple[RankFacts, ...] = RANKS, expected: Expected = TWO_NODES) -> Finding:
    return check(check_run(parse_netlog(text), ranks, expected, ANY), "GPUs")


@pytest.mark.parametrize("text", [LIGHTNING, f"[rank0]: INFO: {LIGHTNING}", "GPU available: False, used: False\r\n"])
def test_a_program_that_says_that_it_uses_no_gpu_wastes_the_requested_ones(text: str) -> None:
    found = gpus(text)
    assert found.state == "fail"
    assert found.evidence.startswith('4 requested, used by the program: 0 (Lightning says "GPU available: ')
    assert found.evidence.endswith(', used: False"); each rank can see 2')
    assert "accelerator" in found.hint


def test_jax_that_falls_back_to_the_cpu_in_every_rank_is_reported() -> None:
    line = (
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu."
    )
    found = gpus(4 * f"WARNING:2026-11-29 21:00:00,000:jax._src.xla_bridge:850: {line}\n")
    assert found.state == "warn"
    assert found.evidence.startswith('4 requested, used by JAX: 0 (each rank says "a CUDA-enabled jaxlib')
    assert "requested" not in gpus(3 * line).evidence


@pytest.mark.parametrize("line", [PINNED, SCALER, AUTOCAST, STARTED])
def test_torch_that_finds_no_gpu_in_every_rank_is_reported(line: str) -> None:
    found = gpus(4 * line)
    assert found.state == "warn"
    assert found.evidence.startswith('4 requested, used by torch: 0 (each rank says "')
    assert found.evidence.endswith('"); each rank can see 2')
    assert "argosy check" in found.hint
    assert gpus(line, RANKS[:1], Expected(nodes=1, ranks=1, gpus=2)).state == "warn"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU available: True (cuda), used: True\n" + LIGHTNING,
        3 * PINNED,
        2 * PINNED + 2 * SCALER,
        "GPU available: True (cuda), used:\n",
        "if CUDA is not available. Disabling\n" * 4,
        LIGHTNING + "node1:1:2 [0] NCCL INFO comm 0x5 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 6000 commId 0x1\n",
    ],
)
def test_without_evidence_nothing_is_said_about_unused_gpus(text: str) -> None:
    assert "requested" not in gpus(text).evidence


def test_a_run_whose_ranks_recorded_nothing_is_judged_by_its_program() -> None:
    assert gpus(LIGHTNING, ()).evidence == (
        '4 requested, used by the program: 0 (Lightning says "GPU available: True (cuda), used: False")'
    )
    assert gpus(3 * PINNED, ()).state == "unknown"
    assert gpus(4 * PINNED, ()).state == "warn"


def test_a_job_that_requested_no_gpu_wastes_none() -> None:
    verdict = check_run(parse_netlog(LIGHTNING), RANKS, replace(TWO_NODES, gpus=0), ANY)
    assert "requested" not in verdict.line


def test_a_job_without_gpus_on_a_node_that_has_some_is_not_asked_for_logs_of_nccl() -> None:
    shape = {"nodes": 2, "ranks_per_node": 2}
    verdict = check_run(NetFacts(), RANKS, expect(make_plan(shape=shape), RANKS), ANY)
    assert [each.what for each in verdict.findings] == ["ranks", "network", "cores"]
    assert check(verdict, "network").evidence.startswith("the run used no GPU")
    assert not any("--debug" in each.hint for each in verdict.findings)


def test_debug_net_is_not_recommended_to_a_run_that_had_it() -> None:
    shape = {"nodes": 2, "ranks_per_node": 2, "gpus_per_node": 2}
    plan = make_plan(shape=shape)
    network = check(check_run(NetFacts(), RANKS, expect(plan, RANKS), ANY), "network")
    assert network.hint == "run it with --debug net"
    asked = CHOICE | {"key": "NCCL_DEBUG", "value": "INFO", "why": "--debug net: shows which network is used"}
    plan = make_plan(shape=shape, choices=[asked])
    assert not check(check_run(NetFacts(), RANKS, expect(plan, RANKS), ANY), "network").hint
