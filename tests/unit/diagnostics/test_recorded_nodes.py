"""Nodes of real clusters, as `scontrol show node --oneliner` printed them on public pages, and what is read from each.

The lines keep all keys that describe the hardware; times, loads and energy are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.process import FakeRunner, Reply
from argosy.core.session import Session
from argosy.diagnostics.discover.discover import DiscoverRequest, discover_site
from argosy.diagnostics.discover.replies import LOGIN, NodeShape, parse_nodes
from tests.unit.machines import make_host, make_session

RECORDED = [
    (  # CREATE, King's College London: virtual machines; reserved cores, no type of GPU
        (
            "NodeName=erc-hpc-vm013 Arch=x86_64 CoresPerSocket=6  CPUAlloc=1 CPUEfctv=10 CPUTot=12 "
            "AvailableFeatures=icelake,a100,a100_80g Gres=gpu:1(S:0-1) Version=23.11.5 RealMemory=117000 Sockets=2 "
            "CoreSpecCount=2 CPUSpecList=5,11 State=MIXED ThreadsPerCore=1 Partitions=gpu "
        ),
        NodeShape("x86_64", 2, 12, 1, 117000, 1, "", (5, 11), 12),
    ),
    (  # Donders Institute: another generic resource before the GPUs
        (
            "NodeName=dccn-c083 Arch=x86_64 CoresPerSocket=32 CPUAlloc=2 CPUEfctv=63 CPUTot=64 CPULoad=3.00 "
            "Gres=cpu:amd:1,gpu:nvidia_a100-sxm4-40gb:4(S:0-1) Version=22.05.10 "
            "OS=Linux 4.18.0-553.8.1.el8_10.x86_64 #1 SMP Tue Jul 2 07:26:33 EDT 2024 RealMemory=515578 Sockets=2 "
            "CoreSpecCount=1 CPUSpecList=63 State=MIXED ThreadsPerCore=1 Partitions=gpu,batch "
            "CfgTRES=cpu=63,mem=515578M,billing=63,gres/gpu=4,gres/gpu:nvidia_a100-sxm4-40gb=4"
        ),
        NodeShape("x86_64", 2, 64, 1, 515578, 4, "nvidia_a100-sxm4-40gb", (63,), 64),
    ),
    (  # a department's cluster with Slurm 22.05: CPUs are hardware threads
        (
            "NodeName=bigMem0 Arch=x86_64 CoresPerSocket=16 CPUAlloc=28 CPUEfctv=64 CPUTot=64 "
            "Gres=gpu:tesla_t4:4(S:0-1) "
            "Version=22.05.2 RealMemory=1030499 Sockets=2 State=MIXED ThreadsPerCore=2 Partitions=partition"
        ),
        NodeShape("x86_64", 2, 32, 2, 1030499, 4, "tesla_t4", (), 64),
    ),
    (  # a workstation cluster: one socket
        (
            "NodeName=nml-slurm-node1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPUEfctv=16 CPUTot=16 Gres=gpu:2(S:0) "
            "Version=23.11.0 RealMemory=128681 Sockets=1 State=IDLE ThreadsPerCore=2 Partitions=debug"
        ),
        NodeShape("x86_64", 1, 8, 2, 128681, 2, "", (), 16),
    ),
    (  # a virtual machine whose cores are sockets
        (
            "NodeName=g01 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=24 CPUTot=24 Gres=gpu:ampere:2(S:0) "
            "Version=22.05.2 RealMemory=121856 Sockets=24 State=IDLE ThreadsPerCore=1 Partitions=gpgpu"
        ),
        NodeShape("x86_64", 24, 24, 1, 121856, 2, "ampere", (), 24),
    ),
    (  # TWCC, Taiwan: Slurm 17.11, a drained node
        (
            "NodeName=gn0101.twcc.ai Arch=x86_64 CoresPerSocket=18 CPUAlloc=0 CPUErr=0 CPUTot=36 Gres=gpu:8 "
            "Version=17.11 "
            "OS=Linux 3.10.0-862.el7.x86_64 #1 SMP Fri Apr 20 16:44:24 UTC 2018  RealMemory=772437 Sockets=2 "
            "CoreSpecCount=2 CPUSpecList=0-1 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=SlurmDefault "
        ),
        NodeShape("x86_64", 2, 36, 1, 772437, 8, "", (0, 1), 36),
    ),
    (  # Slurm 15.08 names no partitions
        (
            "NodeName=3452453456 Arch=x86_64 CoresPerSocket=10 CPUAlloc=0 CPUErr=0 CPUTot=20 Features=(null) "
            "Gres=gpu:gtx1080ti:1 NodeAddr=DataMining Version=15.08 OS=Linux RealMemory=60000 Sockets=1 State=IDLE "
            "ThreadsPerCore=2"
        ),
        NodeShape("x86_64", 1, 10, 2, 60000, 1, "gtx1080ti", (), 20),
    ),
    (  # ten GPUs at one socket, Slurm 20.02
        (
            "NodeName=wmc-slave-g20 Arch=x86_64 CoresPerSocket=24 CPUAlloc=7 CPUTot=48 Gres=gpu:10(S:0) "
            "Version=20.02.3 "
            "RealMemory=248000 Sockets=2 State=MIXED ThreadsPerCore=1 Partitions=gpu5"
        ),
        NodeShape("x86_64", 2, 48, 1, 248000, 10, "", (), 48),
    ),
    (  # a supercomputer centre with Slurm 2.6: no GPUs, few keys
        (
            "NodeName=cn7298 Arch=x86_64 CoresPerSocket=12 CPUAlloc=24 CPUErr=0 CPUTot=24 CPULoad=24.01 "
            "Features=(null) "
            "Gres=(null) NodeAddr=cn7298 NodeHostName=cn7298 OS=Linux RealMemory=64000 AllocMem=0 Sockets=2 "
            "State=ALLOCATED ThreadsPerCore=1"
        ),
        NodeShape("x86_64", 2, 24, 1, 64000, 0, "", (), 24),
    ),
    (  # Yggdrasil, University of Geneva: one reserved core in each socket
        (
            "NodeName=cpu113 Arch=x86_64 CoresPerSocket=8 CPUAlloc=1 CPUEfctv=14 CPUTot=16 "
            "AvailableFeatures=GOLD-6244,XEON_GOLD_6244,V9 Gres=(null) Version=24.11.1 RealMemory=770000 Sockets=2 "
            "CoreSpecCount=2 CPUSpecList=7,15 State=MIXED ThreadsPerCore=1 Partitions=public-bigmem,shared-bigmem"
        ),
        NodeShape("x86_64", 2, 16, 1, 770000, 0, "", (7, 15), 16),
    ),
    (  # Berlin Institute of Health: no memory in slurm.conf
        (
            "NodeName=med0740 Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPUTot=32 Gres=(null) Version=20.02.0 "
            "RealMemory=1 "
            "Sockets=2 State=IDLE ThreadsPerCore=2 Partitions=debug"
        ),
        NodeShape("x86_64", 2, 16, 2, 1, 0, "", (), 32),
    ),
]
UNCLEAR = (
    "NodeName=bettley Arch=aarch64 CoresPerSocket=4 CPUAlloc=0 CPUEfctv=1 CPUTot=1 Gres=(null) Version=22.05.8 "
    "RealMemory=4096 Sockets=1 State=IDLE ThreadsPerCore=1 Partitions=general,debug\n"
)
"""A cluster of Raspberry Pis: slurm.conf gives no CPUs, so Slurm allocates one."""


@pytest.mark.parametrize(("line", "shape"), RECORDED, ids=[line.split()[0][9:] for line, _ in RECORDED])
def test_a_recorded_node_is_read(line: str, shape: NodeShape) -> None:
    (node,) = parse_nodes(f"{line}\n")
    assert node.shape == shape
    assert node.shape.is_consistent


def session(folder: Path, nodes: str) -> Session:
    texts = {"nodes": nodes, "partitions": "PartitionName=general Default=YES State=UP MaxNodes=1 MaxTime=UNLIMITED\n"}
    replies = [(words, Reply(0, texts.get(name, ""), "")) for name, words in LOGIN.items()]
    return make_session(
        folder, make_host("srun", cwd=str(folder)), FakeRunner([*replies, (("sh", "-c"), Reply(0, "", ""))])
    )


def test_cores_that_slurm_contradicts_are_a_question(tmp_path: Path) -> None:
    (node,) = parse_nodes(UNCLEAR)
    assert not node.shape.is_consistent
    draft = discover_site(session(tmp_path, UNCLEAR), DiscoverRequest("pi", tmp_path / "pi.toml", "2026-11-21"))
    assert "cores of a node: Slurm has 1 CPUs (CPUTot), but its sockets have 4 cores" in draft.questions
    assert "\ncores = " not in (tmp_path / "pi.toml").read_text()
