"""`argosy sites new`: replies as Slurm, Linux and the vendors' programs print them, and the profile that they make."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from argosy.core.errors import ToolFailed, ToolMissing, UsageError
from argosy.core.mounts import parse_file_system
from argosy.core.process import Command, FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.discover.discover import DiscoverRequest, discover_site
from argosy.diagnostics.discover.replies import (
    LOGIN,
    NODE,
    NodeShape,
    name_pattern,
    parse_answers,
    parse_gpu_types,
    parse_gres,
    parse_intel,
    parse_links,
    parse_lscpu,
    parse_module,
    parse_mpi,
    parse_nodes,
    parse_nvidia,
    parse_partitions,
    parse_rocm,
    parse_runtimes,
    render_questions,
)
from argosy.diagnostics.validate.validate import validation_request
from argosy.sites.binding import plan_masks
from argosy.sites.job_settings import at_partition
from argosy.sites.lint.profile_rules import lint_named_profile
from argosy.sites.lint.value_rules import VALUE_RULES
from argosy.sites.profile import Node, Partition, Site
from argosy.sites.read import DATA, read_site
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_host, make_session

CONFIG = """\
Configuration data as of 2026-11-21T12:37:38
AccountingStorageEnforce = associations,limits,qos
ClusterName             = hera
JobSubmitPlugins        = lua
SelectType              = select/cons_tres
SLURM_VERSION           = 24.11.5

Slurmctld(primary) at ctl is UP
"""
NODES = (
    "NodeName=nid1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=28 CPUTot=32 CPULoad=5.11 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1) NodeAddr=nid1 NodeHostName=nid1 "
    "Version=24.11.5 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=16000 AllocMem=0 FreeMem=18868 Sockets=2 "
    "Boards=1 CoreSpecCount=2 CPUSpecList=0-1,16-17  State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions=main,gpu-debug  BootTime=2026-11-21T11:13:38 \n"
    "NodeName=nid2 Arch=x86_64 CoresPerSocket=64 Gres=(null) RealMemory=8000 Sockets=2 ThreadsPerCore=1 "
    "Partitions=cpu \n"
)
PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 OverSubscribe=NO "
    "State=UP TotalNodes=2\n"
    "PartitionName=main Default=NO MaxNodes=16 MaxTime=2-00:00:00 MinNodes=1 OverSubscribe=EXCLUSIVE State=UP\n"
    "PartitionName=gpu-debug Default=NO MaxNodes=2 MaxTime=00:30:00 MinNodes=0 OverSubscribe=NO State=UP\n"
    "PartitionName=old Default=NO MaxNodes=2 MaxTime=UNLIMITED MinNodes=0 OverSubscribe=NO State=DOWN\n"
)
MPI = (
    "MPI plugin types are...\n\tnone\n\tpmix\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v5\n"
)
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tNV4\tNV4\tPXB\t0-7,16-23\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tNV4\tNV4\tSYS\t0-7,16-23\t0\t\tN/A\n"
    "GPU2\tNV4\tNV4\t X \tNV4\tSYS\t8-15,24-31\t1\t\tN/A\n"
    "GPU3\tNV4\tNV4\tNV4\t X \tSYS\t8-15,24-31\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\tSYS\tSYS\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
)
QUERY = "\n".join(f"NVIDIA A100-SXM4-40GB, 40960, 00000000:{bus}:00.0" for bus in ("07", "0F", "47", "4E"))
CPUS = "# CPU,Core,Socket,Node\n" + "\n".join(f"{cpu},{cpu % 16},{cpu % 16 // 8},{cpu % 16 // 8}" for cpu in range(32))
ROCM = """\
============================ ROCm System Management Interface ============================
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI250X
GPU[0]\t\t: PCI Bus: 0000:C1:00.0
GPU[0]\t\t: VRAM Total Memory (B): 68702699520
GPU[0]\t\t: (Topology) Numa Node: 3
GPU[0]\t\t: (Topology) Numa Affinity: 3
GPU[1]\t\t: Card Series: \t\tAMD Instinct MI250X
GPU[1]\t\t: PCI Bus: 0000:C6:00.0
GPU[1]\t\t: VRAM Total Memory (B): 68702699520
GPU[1]\t\t: (Topology) Numa Node: 3
GPU[1]\t\t: (Topology) Numa Affinity: 3
"""
ANSWERS = {
    "host": "nid1",
    "arch": "x86_64",
    "cpus": CPUS,
    "lscpu": "Architecture:   x86_64\nModel name:     AMD EPYC 7543\n",
    "mounts": "overlay / overlay rw 0 0\ntmpfs /tmp tmpfs rw,relatime 0 0\n",
    "devices": "null\nnvidia0\nnvidiactl\n",
    "nvidia-smi": QUERY,
    "nvidia-topo": TOPOLOGY,
    "cuda": "| NVIDIA-SMI 565.57.01      Driver Version: 565.57.01      CUDA Version: 12.7     |",
    "net": "ib0\nlo",
    "infiniband": "InfiniBand 200 Gb/sec (4X HDR)\nInfiniBand 200 Gb/sec (4X HDR)\nEthernet 25 Gb/sec (1X EDR)",
    "runtimes": "/usr/bin/apptainer\napptainer: apptainer version 1.4.5",
    "setuid": "/usr/libexec/apptainer/bin/starter-suid",
    "userns": "yes",
}


def printed(answers: dict[str, str]) -> str:
    return "".join(f"@@ {name}\n{text}\n" for name, text in answers.items())


def session(answers: dict[str, str], folder: Path, *, slurm: bool = True, node: Reply | None = None) -> Session:
    texts = {"config": CONFIG, "nodes": NODES, "partitions": PARTITIONS, "mpi": MPI, "srun": "Usage: srun"}
    replies = [(words, Reply(0, texts[name], "")) for name, words in LOGIN.items()]
    replies.append((("sh", "-c"), Reply(0, printed({"runtimes": answers.get("runtimes", "")}), "")))
    replies.append((("srun", "--nodes=1"), node or Reply(0, printed(answers), "")))
    host = make_host(*(["srun"] if slurm else []), hostname="login3", cwd=str(folder))
    return make_session(folder, host, FakeRunner(replies))


def discovered(folder: Path, answers: dict[str, str], **options: Any) -> Site:
    file = folder / "hera.toml"
    discover_site(session(answers, folder), DiscoverRequest("hera", file, "2026-11-21", **options))
    return read_site(str(file))


def test_slurms_nodes_give_cores_reserved_cores_gpus_and_memory() -> None:
    first, second = parse_nodes(NODES)
    assert first.name == "nid1"
    assert first.partitions == ("main", "gpu-debug")
    assert first.shape == NodeShape("x86_64", 2, 16, 2, 16000, 4, "a100", (0, 8), 32)
    assert second.shape == NodeShape("x86_64", 2, 128, 1, 8000, 0, "", ())


def test_a_number_of_reserved_cores_does_not_identify_them() -> None:
    (node,) = parse_nodes("NodeName=a Sockets=1 CoresPerSocket=4 CoreSpecCount=1 RealMemory=1 Partitions=p")
    assert node.shape.reserved is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:4", (4, "")),
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:a100:2,gpu:v100:2,nvme:1", (4, "")),
        ("nvme:1", (0, "")),
        ("(null)", (0, "")),
        ("", (0, "")),
    ],
)
def test_a_nodes_gres_gives_number_and_type_of_its_gpus(text: str, found: tuple[int, str]) -> None:
    assert parse_gres(text) == found


def test_a_job_in_a_partition_with_one_node_has_one_node() -> None:
    (debug,) = parse_partitions("PartitionName=debug Default=YES MaxNodes=UNLIMITED State=UP TotalCPUs=32 TotalNodes=1")
    assert debug.max_nodes == 1
    partitions = (Partition(name="debug", max_nodes=1), Partition(name="long", max_nodes=1))
    site = Site(name="desk", title="t", scheduler="slurm", partitions=partitions)
    assert validation_request(site, "", JobOptions(), None, "desk").resources.nodes == 1
    several = replace(site, partitions=(*partitions, Partition(name="all")))
    assert validation_request(several, "", JobOptions(), None, "desk").resources.nodes == 2


def test_a_partition_without_limits_has_no_limits() -> None:
    cpu, main, *_ = parse_partitions(PARTITIONS)
    assert (cpu.default, cpu.max_nodes, cpu.max_time, cpu.whole_nodes) == (True, 0, "1-00:00:00", False)
    assert (main.max_nodes, main.min_nodes, main.whole_nodes) == (16, 1, True)


def test_a_partition_that_gives_whole_nodes_is_read_in_the_form_of_26_05() -> None:
    """There, OverSubscribe=EXCLUSIVE in slurm.conf becomes Exclusive=NODE."""
    whole, shared = parse_partitions(
        "PartitionName=p1 DisableRootJobs=NO Exclusive=NODE GraceTime=0 OverSubscribe=NO State=UP\n"
        "PartitionName=p3 DisableRootJobs=NO Exclusive=USER GraceTime=0 OverSubscribe=NO State=UP\n"
    )
    assert (whole.whole_nodes, shared.whole_nodes) == (True, False)


def test_mpi_plugins_are_read_in_the_form_of_old_and_new_releases() -> None:
    assert parse_mpi(MPI) == ("pmix", "cray_shasta", "pmi2")
    assert parse_mpi("srun: MPI types are...\nsrun: pmi2\nsrun: none\n") == ("pmi2",)


def test_nvidia_smi_gives_numa_nodes_with_escapes_and_more_columns() -> None:
    gpus = parse_nvidia(QUERY, TOPOLOGY)
    assert gpus.numa == (0, 0, 1, 1)
    assert (gpus.model, gpus.memory_gb, gpus.pci[1]) == ("NVIDIA A100-SXM4-40GB", 40, "00000000:0f:00.0")
    assert parse_nvidia(QUERY, TOPOLOGY.replace("8-15,24-31\t1", "8-15,24-31\t0-1")).numa == ()


def test_rocm_smi_gives_numa_nodes_buses_and_memory() -> None:
    gpus = parse_rocm(ROCM)
    assert (gpus.numa, gpus.pci, gpus.memory_gb) == ((3, 3), ("0000:c1:00.0", "0000:c6:00.0"), 64)
    assert gpus.model == "AMD Instinct MI250X"


def test_intels_gpus_are_read_from_the_kernel_and_named_by_xpu_smi() -> None:
    rows = "/sys/devices/pci0000:29/0000:29:01.0 0x8086 0 \n/sys/devices/pci0000:9a/0000:9a:01.0 0x8086 1 \n/x 0x1a03 0"
    table = (
        "| 0 | Device Name: Intel(R) Data Center GPU Max 1550 |\n| 1 | Device Name: Intel(R) Data Center GPU Max 1550 |"
    )
    gpus = parse_intel(rows, table)
    assert (gpus.numa, gpus.pci) == ((0, 1), ("0000:29:01.0", "0000:9a:01.0"))
    assert gpus.model == "Intel(R) Data Center GPU Max 1550"


def test_interleaved_cores_are_seen() -> None:
    assert parse_lscpu(CPUS).plain
    assert not parse_lscpu("0,0,0,0\n1,1,1,1\n2,2,0,0\n3,3,1,1").plain


def test_the_last_and_longest_mount_holds_a_path() -> None:
    mounts = "a / ext4 rw 0 0\nb /wor xfs rw 0 0\nc /work xfs rw 0 0\nd /work tmpfs rw 0 0\n"
    assert parse_file_system(mounts, "/work") == "tmpfs"
    assert parse_file_system("a / ext4 rw 0 0\n", "/work") == "ext4"


def test_the_fastest_ports_are_the_network() -> None:
    assert parse_links(ANSWERS["infiniband"]) == (2, "InfiniBand", 200)


def test_runtimes_report_their_versions() -> None:
    text = "/usr/bin/singularity\nsingularity: singularity-ce version 4.1.3-1\nenroot: enroot 3.4.1"
    assert parse_runtimes(text) == {"singularity": "4.1.3-1", "enroot": "3.4.1"}


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("apptainer/\napptainer/1.3.4\napptainer/1.4.5", ("apptainer", "apptainer/1.4.5")),
        ("tools/\ntools/singularity-ce/4.1.2(default)", ("singularity", "tools/singularity-ce/4.1.2")),
        ("singularity/3.8.7\ntacc-apptainer/1.3.3", ("apptainer", "tacc-apptainer/1.3.3")),
        ("SingularityCE/4.1(default)\nSingularityCE/4.2", ("singularity", "SingularityCE/4.1")),
        ("apptainer-1.3.4-gcc-12.2.0-abcdefg", ("apptainer", "apptainer-1.3.4-gcc-12.2.0-abcdefg")),
        ("singularity", ("singularity", "singularity")),
        ("Apptainer-Tools/2023\nsingularity-compose/1.0\nThese modules need apptainer", ("", "")),
    ],
)
def test_the_module_of_a_runtime_is_found(listed: str, found: tuple[str, str]) -> None:
    assert parse_module(listed) == found


def test_names_of_hosts_become_patterns() -> None:
    assert name_pattern("nid001234.site.example") == "nid[0-9]*"
    assert name_pattern("gpu-2-11") == "gpu-[0-9]*-[0-9]*"


def test_the_script_asks_every_question_and_its_answers_are_read_back() -> None:
    script = render_questions()
    names = [line.split("'")[1] for line in script.splitlines() if line.startswith("echo '@@")]
    assert names == [f"@@ {each.name}" for each in NODE]
    assert parse_answers(printed(ANSWERS)) == {name: text.strip("\n") for name, text in ANSWERS.items()}


def test_with_two_threads_per_core_jobs_count_cores_as_the_map_does(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (option,) = discovered(tmp_path, ANSWERS).options
    assert (option.to, option.word, "2 threads" in option.why) == ("sbatch", "--threads-per-core=1", True)
    assert discovered(tmp_path / "cpu", ANSWERS, partition="cpu").options == ()


class GivesWholeNodes:
    """A cluster of select/linear, which says the same to every step that asks for GPUs."""

    def __init__(self, runner: FakeRunner, refused: Reply) -> None:
        self.runner, self.refused = runner, refused
        runner.replies[:0] = [(LOGIN["config"], Reply(0, CONFIG.replace("cons_tres", "linear"), ""))]

    def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Reply:
        if any(word.startswith("--gres") for word in command.argv) and self.refused.code:
            return self.refused
        return self.runner.run(command, on_line)

    def run_foreground(self, command: Command, on_stderr: Callable[[bytes], None] | None = None) -> int:
        raise AssertionError(command, on_stderr)

    def exec_command(self, command: Command) -> int:
        raise AssertionError(command)


@pytest.mark.parametrize(
    ("reply", "option", "asks"),
    [
        (Reply(1, "", "srun: error: Unable to create step for job 7: Invalid generic resource (gres)"), True, False),
        (Reply(1, "", "srun: error: Unable to allocate resources: Requested nodes are busy"), False, True),
        (Reply(0, "", ""), False, False),
    ],
)
def test_if_slurm_allocates_only_whole_nodes_the_discovery_tests_whether_steps_get_gpus(
    tmp_path: Path, reply: Reply, *, option: bool, asks: bool
) -> None:
    place = session(ANSWERS, tmp_path)
    assert isinstance(place.runner, FakeRunner)
    place = replace(place, runner=GivesWholeNodes(place.runner, reply))
    discover_site(place, DiscoverRequest("hera", tmp_path / "hera.toml", "2026-11-21", on_node=True))
    site = read_site(str(tmp_path / "hera.toml"))
    assert (site.slurm.whole_nodes, site.slurm.gpu_option) == (True, "gres")
    assert [each.word for each in site.options if each.to == "srun-always"] == ["--gres=none"] * option
    assert any("--gres=none" in question for question in site.open_questions) is asks


def test_complete_replies_of_a_cluster_give_a_profile_with_a_map_and_a_source_for_each_value(tmp_path: Path) -> None:
    site = discovered(tmp_path, ANSWERS, on_node=True)
    node = site.node
    assert (node.cores, node.reserved, node.numa, node.gpus, node.gpu_vendor) == (16, "0,8", 2, 4, "nvidia")
    assert node.gpu_cpus == ("1-3", "4-6", "9-11", "12-14")
    assert len(plan_masks(node)) == 4
    assert (node.nics, node.nic, node.nic_gbit, node.tmp_in_memory) == (2, "InfiniBand", 200, True)
    assert site.identity.hosts == ("login[0-9]*", "nid[0-9]*")
    assert (site.runtime.name, site.runtime.version, site.launcher.mpi) == ("apptainer", "1.4.5", "pmix")
    assert node.sources["gpu_numa"] == "asked: nvidia-smi topo -m on nid1"
    assert (site.slurm.version, site.slurm.gpu_option) == ("24.11.5", "gpus-per-node")
    assert (node.cuda, node.sources["cuda"]) == ("12.7", "asked: nvidia-smi on nid1")


def test_amds_driver_version_comes_from_the_installed_rocm_or_stays_open(tmp_path: Path) -> None:
    amd = {**ANSWERS, "nvidia-smi": "", "devices": "kfd\ndri\n", "rocm-smi": ROCM}
    assert discovered(tmp_path, {**amd, "rocm": "6.3.4-76"}, on_node=True).node.rocm == "6.3.4"
    (tmp_path / "hera.toml").unlink()
    site = discovered(tmp_path, amd, on_node=True)
    assert site.node.rocm == ""
    assert "the ROCm version that the driver supports: add node.rocm" in site.open_questions


def test_the_profile_describes_gpu_nodes_and_names_partitions_left_out(tmp_path: Path) -> None:
    site = discovered(tmp_path, ANSWERS, on_node=True)
    assert [(p.name, p.choose, p.debug, p.whole_nodes) for p in site.partitions] == [
        ("main", True, False, True),
        ("gpu-debug", False, True, False),
        ("cpu", False, False, False),
    ]
    assert any(question.endswith("unlike the nodes of the profile: old") for question in site.open_questions)
    assert any("enforces associations" in question for question in site.open_questions)
    assert any("job_submit plugin (lua)" in question for question in site.open_questions)


def test_a_partition_with_other_gpus_is_reported_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = NODES.splitlines()[0].replace("nid1", "nid3").replace("a100", "h100").replace("main,gpu-debug", "new")
    monkeypatch.setitem(globals(), "NODES", f"{NODES}{other}\n")
    monkeypatch.setitem(globals(), "PARTITIONS", f"{PARTITIONS}PartitionName=new State=UP\n")
    site = discovered(tmp_path, ANSWERS, on_node=True, partition="main")
    new = site.partition("new")
    assert new is not None
    assert (new.gpus, new.cores, new.gpu_model) == (None, 0, "h100")
    assert at_partition(site, site.partition("main")).node.gpu_cpus
    assert not at_partition(site, new).node.gpu_cpus


def test_a_partition_without_gpus_is_in_the_profile_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PARTITIONS", PARTITIONS.replace("=main ", "=main AllowQos=hopper,long "))
    site = discovered(tmp_path, ANSWERS, on_node=True)
    cpu = site.partition("cpu")
    assert cpu is not None
    assert (cpu.gpus, cpu.cores, cpu.choose) == (0, 128, False)
    assert site.node.gpus == 4
    asked = [question for question in site.open_questions if "AllowQos" in question]
    assert [question.partition(";")[0] for question in asked] == [
        "partitions that accept only some QOS (AllowQos): main: hopper or long"
    ]


def test_the_draft_has_the_threads_of_a_core_also_if_there_is_one(tmp_path: Path) -> None:
    assert discovered(tmp_path, ANSWERS, partition="cpu").node.threads_per_core == 1


def test_a_partition_of_another_kind_can_be_named(tmp_path: Path) -> None:
    site = discovered(tmp_path, {}, partition="cpu")
    assert (site.node.cores, site.node.gpus, site.partitions[0].name) == (128, 0, "cpu")


def test_a_partition_that_is_down_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "".join(NODES.splitlines(keepends=True)[0].replace("nid1", f"nid{n}") for n in (3, 4))
    monkeypatch.setitem(globals(), "NODES", (NODES + more).replace("Partitions=main", "Partitions=old,main"))
    monkeypatch.setitem(globals(), "PARTITIONS", "\n".join(reversed(PARTITIONS.splitlines())))
    assert [p.name for p in discovered(tmp_path, ANSWERS).partitions if p.choose] == ["gpu-debug"]


def test_a_partition_with_fewer_cpus_than_its_nodes_has_that_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = PARTITIONS.replace("Default=NO MaxNodes=2 ", "Default=NO MaxNodes=2 MaxCPUsPerNode=8 ", 1)
    monkeypatch.setitem(globals(), "PARTITIONS", limits.replace("MaxNodes=16", "MaxCPUsPerNode=UNLIMITED"))
    site = discovered(tmp_path, ANSWERS, on_node=True)
    assert [(p.name, p.cores) for p in site.partitions] == [("main", 0), ("gpu-debug", 4), ("cpu", 128)]
    assert site.partitions[1].why == "cores: MaxCPUsPerNode is 8"
    assert not at_partition(site, site.partitions[1]).node.gpu_cpus


def test_facts_that_need_a_compute_node_stay_absent_with_a_note(tmp_path: Path) -> None:
    site = discovered(tmp_path, ANSWERS)
    assert site.node == Node(
        arch="x86_64",
        sockets=2,
        cores=16,
        threads_per_core=2,
        reserved="0,8",
        memory_mb=16000,
        gpus=4,
        gpu_model="a100",
        source=site.node.source,
        why=site.node.why,
    )
    assert "--on-node" in site.open_questions[0]


@pytest.mark.parametrize("kept", [*ANSWERS, ""])
def test_missing_replies_still_give_a_valid_profile(tmp_path: Path, kept: str) -> None:
    site = discovered(tmp_path, {"host": "nid1"} | ({kept: ANSWERS[kept]} if kept else {}), on_node=True)
    assert site.open_questions


def test_quotes_and_control_characters_of_slurm_stay_data(tmp_path: Path) -> None:
    answers = ANSWERS | {"lscpu": 'Model name: a "b"\\ $(touch x)\x01\n'}
    assert discovered(tmp_path, answers, on_node=True).node.cpu_model == 'a "b"\\ $(touch x)\x01'


def test_a_failed_query_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new" / "hera.toml"
    refused = Reply(1, "", "srun: error: Unable to allocate resources: Invalid account")
    with pytest.raises(ToolFailed, match="querying a compute node") as error:
        discover_site(
            session(ANSWERS, tmp_path, node=refused), DiscoverRequest("hera", file, "2026-11-21", on_node=True)
        )
    assert "Invalid account" in error.value.evidence
    assert "--gpus-per-node=4 sh -c '…'" in error.value.evidence
    assert "--account" in error.value.hint
    with pytest.raises(ToolMissing, match="cannot find Slurm"):
        discover_site(session(ANSWERS, tmp_path, slurm=False), DiscoverRequest("hera", file, "2026-11-21"))
    for name, partition in (("../hera", ""), ("_hera", ""), ("", ""), ("hera", "nope")):
        with pytest.raises(UsageError):
            discover_site(session(ANSWERS, tmp_path), DiscoverRequest(name, file, "2026-11-21", True, partition))
    assert not file.parent.exists()


def test_a_cluster_that_hides_its_nodes_is_explained(tmp_path: Path) -> None:
    place = session(ANSWERS, tmp_path)
    assert isinstance(place.runner, FakeRunner)
    denied = Reply(1, "", "slurm_load_node error: Access/permission denied")
    place.runner.replies.insert(0, (("scontrol", "show", "node"), denied))
    with pytest.raises(ToolFailed, match="Access/permission denied") as error:
        discover_site(place, DiscoverRequest("hera", tmp_path / "hera.toml", "2026-11-21"))
    assert "PrivateData" in error.value.hint
    assert not (tmp_path / "hera.toml").exists()


def test_an_unknown_partition_is_refused_also_if_no_node_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown partition 'nope'"):
        discovered(tmp_path, ANSWERS, partition="nope")
    assert not list(tmp_path.glob("*.toml"))


def test_an_existing_profile_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "hera.toml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        discover_site(session(ANSWERS, tmp_path), DiscoverRequest("hera", file, "2026-11-21"))
    assert file.read_text() == "mine"


@pytest.mark.parametrize("kept", [*ANSWERS, ""])
@pytest.mark.parametrize("options", [{"on_node": True}, {}, {"partition": "cpu"}], ids=str)
def test_lint_finds_no_wrong_value_in_a_drafted_profile(tmp_path: Path, kept: str, options: dict[str, Any]) -> None:
    answers = ANSWERS if not kept else {"host": "nid1", kept: ANSWERS[kept]}
    discovered(tmp_path, answers, **options)
    found = lint_named_profile(str(tmp_path / "hera.toml"), (DATA,))
    # With some replies only, threads may look like cores, or a network like one without its plugin.
    assert [each.evidence for each in found if each.what in {rule.name for rule in VALUE_RULES}] == []


def test_the_profile_is_plain_toml(tmp_path: Path) -> None:
    discovered(tmp_path, ANSWERS, on_node=True)
    table = tomllib.loads((tmp_path / "hera.toml").read_text())
    assert msgspec.convert(table, Site).checked == "2026-11-21"


def test_gpus_of_several_types_on_a_node_are_an_open_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = NODES.replace("gpu:a100:4(S:0-1)", "gpu:a100:3(S:0-1),gpu:a100_1g.5gb:7")
    assert parse_gpu_types(mixed) == ("a100", "a100_1g.5gb")
    assert parse_gpu_types(NODES) == parse_gpu_types(NODES.replace("gpu:a100:4(S:0-1)", "gpu:4")) == ()
    monkeypatch.setitem(globals(), "NODES", mixed)
    (tmp_path / "cpu").mkdir()
    for folder, partition, asks in ((tmp_path, "", True), (tmp_path / "cpu", "cpu", False)):
        questions = discovered(folder, ANSWERS, partition=partition).open_questions
        assert any("slurm.cpus_per_gpu_type" in question for question in questions) is asks
