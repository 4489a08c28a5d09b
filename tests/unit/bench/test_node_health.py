"""Nodes that were tried each alone: what their lines say is read, and those to leave out are named with the reason."""

from __future__ import annotations

import ast

import pytest

from argosy.bench.requests import as_node_test, node_test_command
from argosy.core.errors import UsageError
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.diagnostics.verify import verify
from argosy.diagnostics.verify.logs import BadNode, DeviceTest, find_bad_nodes, parse_node_tests
from argosy.diagnostics.verify.rules import Expected, check_node_tests
from argosy.jobs.record import RankFacts
from argosy.launch.launchers.launcher import refuse_without_package
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_session

GOOD = "matmul 612.300 TFLOP/s, memory 2870.1 GB/s, from host 54.3 GB/s, to the next 312.0 GB/s"
HOSTS = ("n1", "n2", "n3")


def line(host: str, gpu: int, words: str = GOOD, kind: str = "NVIDIA H100 80GB HBM3") -> str:
    return f"# node {host} gpu {gpu} ({kind}): {words}\n"


def results_of(**changed: str) -> tuple[DeviceTest, ...]:
    """Give three nodes of two GPUs; `n2` replaces the words of that node's second GPU."""
    return parse_node_tests(
        "".join(line(host, gpu, changed.get(host, GOOD) if gpu else GOOD) for host in HOSTS for gpu in (0, 1))
    )


def test_a_line_is_read_with_its_figures() -> None:
    (test,) = parse_node_tests("noise\n" + line("n1", 3) + "argosy: # node of something else\n")
    assert test == DeviceTest(
        "n1",
        "gpu 3",
        "NVIDIA H100 80GB HBM3",
        {
            "matmul": (612.3, "TFLOP/s"),
            "memory": (2870.1, "GB/s"),
            "from host": (54.3, "GB/s"),
            "to the next": (312.0, "GB/s"),
        },
    )


def test_nodes_that_answer_alike_are_good() -> None:
    assert find_bad_nodes(results_of(n2=GOOD.replace("612.300", "500.000")), HOSTS, 2) == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (GOOD.replace("612.300", "400.000"), "gpu 1 is slow: matmul 400 of 612.3 TFLOP/s, the median"),
        (GOOD.replace("54.3", "12.1"), "gpu 1 is slow: from host 12.1 of 54.3 GB/s, the median"),
        (f"{GOOD} | wrong: a product differs | wrong: a copy differs", "gpu 1: wrong: a product differs"),
        ("matmul 612.300 TFLOP/s | failed: CUDA error: ECC, again", "gpu 1: failed: CUDA error: ECC, again"),
    ],
)  # fmt: skip
def test_a_node_is_named_with_its_first_fault(words: str, why: str) -> None:
    assert find_bad_nodes(results_of(n2=words), HOSTS, 2) == (BadNode("n2", why),)


def test_a_node_without_an_answer_or_with_fewer_gpus_is_bad() -> None:
    tests = [
        test
        for test in results_of()
        if (test.host, test.device) not in {("n1", "gpu 1"), ("n3", "gpu 0"), ("n3", "gpu 1")}
    ]
    assert find_bad_nodes(tests, HOSTS, 2) == (BadNode("n1", "shows 1 of 2 GPUs"), BadNode("n3", "did not answer"))


def test_only_devices_of_one_model_are_compared() -> None:
    old = line("n9", 0, GOOD.replace("612.300", "310.000"), "NVIDIA A100-SXM4-80GB")
    assert find_bad_nodes(parse_node_tests(old + line("n1", 0) + line("n2", 0)), ("n1", "n2", "n9"), 1) == ()


def test_the_processors_of_nodes_may_serve_other_jobs_too() -> None:
    rates = {"n1": 2.0, "n2": 1.9, "n3": 1.1, "n4": 0.9}
    text = "".join(f"# node {host} cpu (processor): matmul {rate:.3f} TFLOP/s\n" for host, rate in rates.items())
    assert [node.host for node in find_bad_nodes(parse_node_tests(text), tuple(rates), 0)] == ["n4"]


def test_the_verdict_names_nodes_to_exclude_and_needs_no_network() -> None:
    ranks = tuple(RankFacts(n, 0, host, devices=2) for n, host in enumerate(HOSTS))
    expected = Expected(nodes=3, ranks=3, gpus=2, own_gpus=2, hosts=HOSTS)
    assert check_node_tests(results_of(), ranks, expected).ok
    verdict = check_node_tests(results_of(n2=" | failed: gone"), ranks, expected)
    (nodes,) = (check for check in verdict.findings if check.what == "nodes")
    assert (nodes.state, verdict.bad_nodes) == ("fail", ("n2",))
    assert nodes.hint.startswith("exclude them with --exclude n2,")
    assert {check.what for check in verdict.findings} == {"ranks", "GPUs", "nodes"}


def test_each_node_is_tried_once_and_alone() -> None:
    request = as_node_test(
        LaunchRequest("my.sif", node_test_command(), resources=ResourceRequest(nodes=4, gpus_per_node=8))
    )
    assert (request.resources.ranks, request.launcher, request.independent_ranks, request.name) == (
        4,
        "none",
        True,
        "bench-nodes",
    )


def test_the_program_needs_only_torch() -> None:
    tree = ast.parse(node_test_command()[2])
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    own = {"__future__", "collections.abc", "typing", "os", "socket", "statistics", "sys", "threading", "time"}
    assert modules | names - own == (modules & own) | {"torch"}


def exclude(words: str) -> LaunchRequest:
    request = LaunchRequest("my.sif", ("true",), options=JobOptions(exclude=words))
    return verify.exclude_bad_nodes_of(request, make_session())


def test_bad_nodes_of_a_job_are_excluded_beside_named_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, tuple[str, ...]] = {"12": ("n2", "n7"), "13": ()}
    monkeypatch.setattr(verify, "find_bad_nodes_of", lambda _, job: found[job])
    request = exclude("n1,@12,n[3-4]")
    assert request.options.exclude == "n1,n2,n7,n[3-4]"
    assert [(row.value, row.why) for row in request.choices] == [("n2,n7", "bad nodes of job 12")]
    assert replace(exclude("@13"), choices=()).options == JobOptions()


def test_only_a_job_number_can_follow_the_at_sign() -> None:
    with pytest.raises(UsageError, match="'last' is not a job number") as refused:
        exclude("@last")
    assert refused.value.hint.startswith("give the number of the job")


def test_if_no_node_answered_no_node_is_called_bad() -> None:
    verdict = check_node_tests((), (), Expected(nodes=3, hosts=HOSTS))
    (check,) = [check for check in verdict.findings if check.what == "nodes"]
    assert (check.state, verdict.bad_nodes) == ("fail", ())
    assert "--exclude" not in check.hint


def test_an_image_that_surely_lacks_torch_is_not_measured() -> None:
    image = Image("/shared/x.sif", ImageKind.SIF, "", "", argosy=True, packages=frozenset({"numpy"}), complete=True)
    request = as_node_test(LaunchRequest("x.sif", node_test_command()))
    with pytest.raises(UsageError, match="the benchmark needs PyTorch"):
        refuse_without_package("none", image, needs_torch=request.needs_torch)
