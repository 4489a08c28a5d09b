"""Texts as other programs, people and Argosy itself write them: what the fuzzer begins with."""

from __future__ import annotations

import json

from argosy.recipes.lock import render_lock
from tests.unit.recipes.test_lock import LOCK as LOCK_RECORD

CUT = "\n=====CUT=====\n"
"""Separates the replies of several programs in one input."""

DIGEST = "sha256:" + "ab" * 32

LOCK = render_lock(LOCK_RECORD)
SITES = ("lumi-g", "mn5-acc", "nvidia-pyxis")

SQUEUE = (
    "7|RUNNING|None|2026-11-21T10:00:00|2|1:02|1-00:00:00|gpu|n[1-2]|train\n"
    "8_[1-4%2]|PENDING|Priority|N/A|1|0:00|UNLIMITED|gpu||a|b\n"
    "9+1|PENDING|(Nodes required are DOWN)||1|0:00|5:00|c||x\n"
)
SCONTROL = (
    "JobId=7 JobName=train UserId=alice(1000) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Restarts=1 "
    "ExitCode=3:0 RunTime=00:01:02 TimeLimit=01:00:00 NodeList=n[1-2] BatchHost=n1 NumNodes=2 ArrayJobId=7 "
    "ArrayTaskId=2 Command=/home/alice/job.sh a=1 StdErr=/tmp/e-%N-%3t StdIn=/dev/null StdOut=/tmp/out-%N.txt\n"
    "JobId=8 ArrayJobId=7 ArrayTaskId=3 JobState=PENDING Reason=Resources StdOut=/tmp/o\n"
)
SACCT = "7|FAILED|3:0|n[1-2]|7\n7_1|COMPLETED|0:0|n1|8\n7_2|CANCELLED by 1000|0:15|n2|9\n"
SINFO = (
    "gpu|up|2-00:00:00|1-16|3/1/0/4|128|500000+|gpu:a100:4(S:0-1)\nold|down|infinite|1-infinite|0/0/2/2|8|1|(null)\n"
)
SACCTMGR = "proj|gpu|normal,long\n|\nnormal|1-00:00:00|gres/gpu=8|4|10\n"
NODE_LISTS = ("0,8-10", "0-63", "1-7,9,11-13", "0x1", "")
RANKS = (
    "rank=0 local=0 host=n1 restart=0 cores=0-7 devices=4 job=7 CUDA_VISIBLE_DEVICES=0,1,2,3 torch=4\n"
    "rank=1 local=1 host=n1 restart=0 cores=8-15:2 devices=4 job=7 ROCR_VISIBLE_DEVICES=1\n"
)
RECORD = {
    "ranks-n1": RANKS,
    "ends": "7 0 3 n[1-2] 1700000000 1700000100\n7 1 137 n1 1700000200 1700000300\n",
    "first": "7 1 0 3 n1\n",
    "submitted.json": json.dumps({"job": "7", "output": "OUTPUT", "site": "lumi-g", "time": "2026-11-21T10:00:00"}),
    "job.json": json.dumps(
        {
            "name": "train", "site": "lumi-g", "scheduler": "slurm", "image": "/x.sif", "digest": DIGEST, "logs": "",
            "shape": {"nodes": 2, "ranks": 2, "cores": 8, "gpus": 4, "gpus_per_node": 4, "ranks_per_node": 1},
            "submit": ["sbatch", "{script}"],
            "choices": [{"key": "network", "value": "ofi", "why": "x", "source": "site lumi-g"}],
            "cores": ["0-7"], "output": "OUTPUT", "directives": ["nodes=2", "exclusive"], "versions": {"torch": "2.6"},
            "variables": {"A": "b"}, "launcher": {"name": "srun"},
        }
    ),
    "nccl-n1.log": "n1:12:34 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)\n"
    "n1:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA\n",
}  # fmt: skip
"""Files of a job's record."""

ROCM = """\
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI250X
GPU[0]\t\t: PCI Bus: 0000:C1:00.0
GPU[0]\t\t: VRAM Total Memory (B): 68702699520
GPU[0]\t\t: (Topology) Numa Node: 3
"""
RESULT = json.dumps(
    {
        "argosy_validate": 1, "site": "desk", "job": "7", "date": "2026-11-21", "partition": "gpu", "nodes": "n[1-2]",
        "runtime": "apptainer", "image": "",
        "facts": [{"name": "node.cores", "value": "8", "how": "nproc"}, {"name": "slurm.version", "value": "24.11.5"}],
    }
)  # fmt: skip
SIGNATURES = """\
[[signature]]
name = "mine"
match = 'NCCL WARN .*connect (to|from)'
needs = ["NCCL WARN"]
level = "cause"
cause = "a network is down"
fix = "use another"
source = "https://example.org"
example = "NCCL WARN connect to"
"""
PROJECTS = (
    """\
[image]
base = "debian:bookworm"
pip = ["requirements.txt", "torch==2.6"]
env = { A = "b" }
output = "x.sif"

[[stage]]
name = "compile"
base = "debian:bookworm+gcc"
copy = ["a.c"]
run = "gcc a.c"
results = { a = "/usr/bin/a" }

[[step]]
run = ["echo a", "echo b"]

[job.train]
command = ["python", "train.py", "--lr", 0.1]
nodes = 2
time = "00:15:00"
launcher = "torchrun"
env = { NCCL_DEBUG = "INFO" }
""",
    '[image]\nconda = "environment.yml"\n[job."a b"]\nsite = "lumi-g"\nimage = "x.sif"\ncommand = "python a.py"\n',
)
CONFIG = 'site = "lumi-g"\nruntime = "apptainer"\naccount = "project_1"\n'
EDF = """\
image = "nvcr.io#nvidia/pytorch:25.01-py3"
mounts = ["/capstor:/capstor", "${HOME}/a:/b:ro"]
workdir = "/w"
writable = true
entrypoint = false
[env]
NCCL_DEBUG = "INFO"
[annotations]
com.hooks.aws_ofi_nccl.enabled = "true"
"""
CONDARC = """\
channels: [conda-forge, https://conda.example/main]
default_channels:
  - https://a.example
channel_alias: https://conda.example
custom_channels: {x: https://b.example}
channel_priority: strict
ssl_verify: false
"""
PIPFILE_LOCK = json.dumps(
    {
        "_meta": {"sources": [{"name": "pypi", "url": "https://pypi.org/simple", "verify_ssl": True}], "requires": {}},
        "default": {
            "numpy": {"version": "==1.26.4", "hashes": [DIGEST], "index": "pypi"},
            "x": {"git": "https://a/b", "ref": "1"},
        },
        "develop": {"pytest": {"version": "==8", "markers": "python_version >= '3.9'"}},
    }
)
DOCKERFILE = """\
# escape=\\
FROM debian:bookworm AS one
RUN <<EOF
apt-get update
EOF
RUN apt-get install -y \\
    python3
COPY --from=one /a /b
ENV A=b
CMD ["python3"]
"""
DEFINITION = """\
Bootstrap: docker
From: debian:bookworm
Stage: build

%post
    apt-get update
%environment
    export A=b
%files from build
    /a /b
%runscript
    exec python3 "$@"
"""
MANIFESTS = (
    json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 7},
            "layers": [{"mediaType": "application/vnd.sylabs.sif.layer.v1.sif", "digest": DIGEST, "size": 123}],
        }
    ),
    json.dumps(
        {
            "schemaVersion": 2,
            "manifests": [
                {"digest": DIGEST, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}},
                {"digest": DIGEST, "size": 1, "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
            ],
        }
    ),
)
OCI_CONFIG = json.dumps(
    {
        "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00.123456789Z",
        "config": {"Env": ["PATH=/usr/bin", "A=b c"], "Entrypoint": ["/e"], "Cmd": ["python3"], "Labels": {"a": "b"}},
        "rootfs": {"type": "layers", "diff_ids": [DIGEST]},
    }
)  # fmt: skip
REFERENCES = (
    "docker://nvcr.io/nvidia/pytorch:25.01-py3", "oras://ghcr.io/a/b@" + DIGEST, "library://a/b/c:1",
    "docker-archive:/x/y.tar:name", "oci:/x:tag", "docker://[::1]:5000/x",
)  # fmt: skip
PACKAGES = (
    "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\nPackage: x\nStatus: deinstall ok\nVersion: 1\n",
    "Metadata-Version: 2.1\nName: Flask_Login\nVersion: 0.6\n\ntext\n",
    "bash\t5.2-1\ngpg-pubkey\t1-1\n",
    json.dumps({"name": "python", "version": "3.11", "build": "h1_0", "sha256": "ab" * 32, "url": "https://u:p@c/x"}),
)
CDI = json.dumps(
    {
        "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0"}]}}
        ],
        "containerEdits": {
            "env": ["A=b"], "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]}],
            "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["create-symlinks", "--link", "a::b"]}],
        },
    }
)  # fmt: skip
ENVIRON = "# comment\nexport A=b\nB='x $y'\nC=\"d e\" # note\n"
PROBE = (
    "argosy:path:/usr/bin\nargosy:program:/usr/bin/a:b\nargosy:setting:home = /usr/bin\nargosy:glibc:glibc 2.36\n"
    "argosy:python:3.11.2\nargosy:missing:/x\nargosy:end:yes\n"
)
CONTENTS = (
    'argosy:glibc=2.36\nargosy:python=3.11\nargosy:torch={"version": "2.6.0+cu124", "cuda": "12.4", "hip": null, '
    '"archs": ["sm_80"]}\nargosy:mpi=Open MPI 5\nargosy:entry=yes\nargosy:end=yes\n'
)
