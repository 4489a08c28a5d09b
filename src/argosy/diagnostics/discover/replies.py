"""Define the queries to a cluster, and parse the replies of its programs; absent values stay empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from argosy.core.parse import parse_cpulist, parse_int
from argosy.core.process import Argv
from argosy.slurm.queries import parse_scontrol_job

MARK = "@@ "
"""Prefix of the line before each answer of the script."""

LOGIN: Mapping[str, Argv] = {
    "config": ("scontrol", "show", "config"),
    "nodes": ("scontrol", "show", "node", "--oneliner"),
    "partitions": ("scontrol", "show", "partition", "--oneliner"),
    "mpi": ("srun", "--mpi=list"),
    "srun": ("srun", "--help"),
}

GPU_STEPS = "gpu-steps"
"""Name of the answer to whether steps can request GPUs on a cluster that allocates whole nodes: ``yes`` or ``no``."""

NOTHING = frozenset({"", "(null)", "N/A", "NONE", "UNLIMITED", "none"})
DISK_KINDS = frozenset({"ext4", "xfs", "btrfs", "zfs", "ext3"})


class Question(msgspec.Struct, frozen=True):
    """One question of the script."""

    name: str
    command: str
    """Command that people can run to get the same answer; it becomes the source of the value."""
    line: str = ""
    """Command of the script, which may fail; empty if it is the same."""


NODE = (
    Question("host", "uname -n"),
    Question("arch", "uname -m"),
    Question("cpus", "lscpu -p=CPU,CORE,SOCKET,NODE"),
    Question("lscpu", "lscpu"),
    Question("mounts", "cat /proc/mounts"),
    Question("devices", "ls /dev"),
    Question(
        "drm",
        "cat /sys/class/drm/renderD*/device/{vendor,numa_node}",
        "for gpu in /sys/class/drm/renderD*/device\ndo "
        'echo "$(readlink -f "$gpu") $(cat "$gpu/vendor" "$gpu/numa_node" | tr \'\\n\' \' \')"\ndone',
    ),
    Question("nvidia-smi", "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader,nounits"),
    Question("nvidia-topo", "nvidia-smi topo -m"),
    Question("cuda", "nvidia-smi", "nvidia-smi | grep 'CUDA Version'"),
    Question("rocm-smi", "rocm-smi --showproductname --showbus --showmeminfo vram --showtoponuma"),
    Question("rocm", "cat /opt/rocm/.info/version"),
    Question("xpu-smi", "xpu-smi discovery"),
    Question("net", "ls /sys/class/net"),
    Question(
        "infiniband",
        "cat /sys/class/infiniband/*/ports/1/{link_layer,rate}",
        'for port in /sys/class/infiniband/*/ports/1\ndo echo "$(cat "$port/link_layer") $(cat "$port/rate")"\ndone',
    ),
    Question(
        "runtimes",
        "apptainer --version, singularity --version, enroot version",
        "for name in apptainer singularity podman-hpc\ndo "
        '! command -v $name || echo "$name: $($name --version)"\ndone\n'
        '! command -v enroot || echo "enroot: enroot $(enroot version)"',
    ),
    Question(
        "setuid",
        "ls -l libexec/*/bin/starter-suid",
        'for name in apptainer singularity\ndo file=$(readlink -f "$(command -v $name)") && '
        'for suid in "${file%/bin/*}"/libexec/$name/bin/starter-suid\ndo [ ! -u "$suid" ] || echo "$suid"\ndone\ndone',
    ),
    Question(
        "modules", "module -t avail", "bash -lc 'module -t avail 2>&1' </dev/null | grep -iE 'apptainer|singularity'"
    ),
    Question("userns", "unshare --user true", "if unshare --user true\nthen echo yes\nelse echo no\nfi"),
)


def render_questions() -> str:
    """Render the script. It prints a line with the name before each answer; a command that fails prints nothing."""
    return "\n".join(f"echo '{MARK}{each.name}'; {{ {each.line or each.command}; }} 2>/dev/null || :" for each in NODE)


def parse_answers(text: str) -> dict[str, str]:
    """Parse the output of the script: name -> answer."""
    answers: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            current = answers.setdefault(line.removeprefix(MARK).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in answers.items()}


def asked(question: str, host: str) -> str:
    """Return the source of a value: the command and the machine."""
    command = " ".join(LOGIN[question]) if question in LOGIN else next(q.command for q in NODE if q.name == question)
    return f"asked: {command} on {host}"


class NodeShape(msgspec.Struct, frozen=True):
    """The shape of a compute node according to Slurm."""

    arch: str = ""
    sockets: int = 0
    cores: int = 0
    threads: int = 1
    memory_mb: int = 0
    gpus: int = 0
    gpu_type: str = ""
    """Number and type of its generic resource ``gpu``."""
    reserved: tuple[int, ...] | None = ()
    """Core numbers of CPUSpecList, counted by sockets; None if Slurm only has their number."""
    cpus: int = 0
    """CPUs that Slurm allocates (CPUTot): cores or hardware threads; 0 if unknown."""

    def limit_cores(self, max_cpus: int) -> int:
        """Return the cores that a job can use in a partition with this limit (MaxCPUsPerNode); 0: no limit."""
        per_core = self.threads if self.cpus > self.cores else 1
        return min(self.cores, max(1, max_cpus // per_core)) if max_cpus else self.cores

    @property
    def is_consistent(self) -> bool:
        """Whether the CPUs are the cores or the hardware threads; slurm.conf may give fewer by mistake."""
        return self.cpus in {0, self.cores, self.cores * self.threads}


class SlurmNode(msgspec.Struct, frozen=True):
    """A node of Slurm."""

    name: str
    partitions: tuple[str, ...]
    shape: NodeShape


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition of Slurm; 0 or empty without a limit. `max_cpus` is the most CPUs of a node that a job can use."""

    name: str
    default: bool = False
    up: bool = True
    whole_nodes: bool = False
    max_time: str = ""
    max_nodes: int = 0
    min_nodes: int = 0
    max_cpus: int = 0
    qos: tuple[str, ...] = ()
    """The only QOS that jobs may have; empty if all are allowed."""


class Cores(msgspec.Struct, frozen=True):
    """The cores of a node according to Linux: first CPU of each core, ordered by socket, and its NUMA node."""

    first_cpus: tuple[int, ...] = ()
    numa: Mapping[int, int] = msgspec.field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether cores are numbered 0, 1, 2 …, as masks need it."""
        return bool(self.first_cpus) and self.first_cpus == tuple(range(len(self.first_cpus)))


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs of a node according to the vendor's program or the kernel; tuples are in the order of the GPUs."""

    vendor: str = ""
    model: str = ""
    memory_gb: int = 0
    numa: tuple[int, ...] = ()
    pci: tuple[str, ...] = ()


def parse_config(text: str) -> dict[str, str]:
    """Parse ``scontrol show config``: names in lower case, ``(null)`` as an empty value."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip().lower(): "" if value.strip() in NOTHING else value.strip() for name, _, value in pairs}


def gives_whole_nodes(config: Mapping[str, str]) -> bool:
    """Return whether every job gets whole nodes: select/linear does not allocate parts (slurm.conf(5), SelectType)."""
    return config.get("selecttype", "").endswith("linear")


def gpu_option(config: Mapping[str, str]) -> str:
    """Return the option that requests GPUs: only select/cons_tres knows --gpus-per-node (slurm.conf(5), SelectType)."""
    return "gpus-per-node" if config.get("selecttype", "").endswith("cons_tres") else "gres"


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Parse ``scontrol show node --oneliner``."""
    rows = _rows(text, "NodeName")
    return tuple(
        SlurmNode(row["NodeName"], tuple(filter(None, row.get("Partitions", "").split(","))), _shape(row))
        for row in rows
    )


def _rows(text: str, first: str) -> list[dict[str, str]]:
    lines = (line for line in text.splitlines() if line.startswith(f"{first}="))
    return [{key: value.strip() for key, value in parse_scontrol_job(line).items()} for line in lines]


def _shape(row: Mapping[str, str]) -> NodeShape:
    threads = max(1, _int(row.get("ThreadsPerCore", "")))
    sockets = _int(row.get("Sockets", ""))
    gpus, kind = parse_gres(row.get("Gres", ""))
    return NodeShape(
        arch=row.get("Arch", ""),
        sockets=sockets,
        cores=sockets * _int(row.get("CoresPerSocket", "")),
        threads=threads,
        memory_mb=_int(row.get("RealMemory", "")),
        gpus=gpus,
        gpu_type=kind,
        reserved=_reserved(row, threads),
        cpus=_int(row.get("CPUTot", "")),
    )


def _reserved(row: Mapping[str, str], threads: int) -> tuple[int, ...] | None:
    """Give the cores of CPUSpecList, whose numbers count CPUs core by core (slurm.conf(5))."""
    listed = row.get("CPUSpecList", row.get("CpuSpecList", ""))
    if listed in NOTHING:
        return None if _int(row.get("CoreSpecCount", "")) else ()
    return tuple(sorted({cpu // threads for cpu in parse_cpulist(listed)}))


def parse_gres(text: str) -> tuple[int, str]:
    """Read a node's Gres: ``gpu:a100:4(S:0-1),nvme:1`` gives 4 and ``a100``; several types have none."""
    words = re.sub(r"\([^)]*\)", "", text).split(",")
    found = [word.split(":") for word in words if word.split(":")[0] == "gpu"]
    kinds = {":".join(word[1:-1]) for word in found}
    return sum(_int(word[-1]) for word in found), kinds.pop() if len(kinds) == 1 else ""


def parse_gpu_types(text: str) -> tuple[str, ...]:
    """Return the types of GPUs that one node has, if it has several, from ``scontrol show node --oneliner``."""
    by_node = (re.findall(r"\bgpu:([\w.-]*[A-Za-z][\w.-]*)", row.get("Gres", "")) for row in _rows(text, "NodeName"))
    return next((tuple(dict.fromkeys(types)) for types in by_node if len(set(types)) > 1), ())


def parse_partitions(text: str) -> tuple[SlurmPartition, ...]:
    """Parse ``scontrol show partition --oneliner``."""
    rows = _rows(text, "PartitionName")
    return tuple(
        SlurmPartition(
            name=row["PartitionName"],
            default=row.get("Default") == "YES",
            up=row.get("State") == "UP",
            whole_nodes=row.get("OverSubscribe") == "EXCLUSIVE" or row.get("Exclusive") == "NODE",  # since 26.05
            max_time="" if row.get("MaxTime", "") in NOTHING else row["MaxTime"],
            max_nodes=_int(row.get("MaxNodes", "")) or int(row.get("TotalNodes") == "1"),
            min_nodes=_int(row.get("MinNodes", "")),
            max_cpus=_int(row.get("MaxCPUsPerNode", "")),
            qos=() if row.get("AllowQos", "ALL") in {"ALL", *NOTHING} else tuple(row["AllowQos"].split(",")),
        )
        for row in rows
    )


def parse_mpi(text: str) -> tuple[str, ...]:
    """Parse ``srun --mpi=list``: the plug-ins, in either of the two forms that releases print."""
    words = re.findall(r"[a-z_0-9]+", text.lower())
    return tuple(dict.fromkeys(word for word in words if word in {"pmix", "pmi2", "cray_shasta"}))


def parse_lscpu(text: str) -> Cores:
    """Parse ``lscpu -p=CPU,CORE,SOCKET,NODE``."""
    form = re.compile(r"(?:[0-9]{1,9},){3}[0-9]{0,9}")
    rows = [line.split(",") for line in text.splitlines() if form.fullmatch(line)]
    first: dict[tuple[int, int], int] = {}
    numa: dict[int, int] = {}
    for cpu, core, socket, node in rows:
        key = (int(socket), int(core))
        first[key] = min(int(cpu), first.get(key, int(cpu)))
        numa[int(cpu)] = int(node or 0)
    cpus = tuple(first[key] for key in sorted(first))
    return Cores(cpus, {cpu: numa[cpu] for cpu in cpus})


def parse_nvidia(query: str, topology: str) -> Gpus:
    """Read nvidia-smi's ``--query-gpu=name,memory.total,pci.bus_id`` (csv, no units) and its ``topo -m``."""
    rows = [[cell.strip() for cell in line.split(",")] for line in query.splitlines() if line.count(",") == 2]  # noqa: PLR2004
    if not rows:
        return Gpus()
    return Gpus(
        vendor="nvidia",
        model=_one(row[0] for row in rows),
        memory_gb=round(_int(rows[0][1]) / 1024),
        numa=_parse_nvidia_numa(topology),
        pci=tuple(row[2].lower() for row in rows),
    )


def _parse_nvidia_numa(topology: str) -> tuple[int, ...]:
    """Read the NUMA node of each GPU out of ``nvidia-smi topo -m``; empty if one GPU has none, or several."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split("\t") for line in topology.splitlines()]
    heading = next((line for line in lines if any("NUMA Affinity" in cell for cell in line)), None)
    if heading is None:
        return ()
    column = next(i for i, cell in enumerate(heading) if "NUMA Affinity" in cell)
    rows = [line for line in lines if re.fullmatch(r"GPU\d+", line[0].strip())]
    cells = [line[column].strip() if len(line) > column else "" for line in rows]
    return tuple(map(parse_int, cells)) if all(cell.isdecimal() for cell in cells) else ()


def parse_rocm(text: str) -> Gpus:
    """Parse rocm-smi's ``GPU[0] : Name: value`` lines."""
    found: dict[int, dict[str, str]] = {}
    for number, name, value in re.findall(r"^GPU\[(\d+)\]\s*:\s*([^:]+):\s*(.+?)\s*$", text, re.MULTILINE):
        found.setdefault(int(number), {})[name.strip().lower()] = value
    rows = [found[number] for number in sorted(found)]
    if not rows:
        return Gpus()
    numa = [row.get("(topology) numa affinity", row.get("(topology) numa node", "")) for row in rows]
    pci = [row.get("pci bus", "") for row in rows]
    return Gpus(
        vendor="amd",
        model=_one(row.get("card series", row.get("card model", "")) for row in rows),
        memory_gb=round(_int(rows[0].get("vram total memory (b)", "")) / 2**30),
        numa=tuple(map(parse_int, numa)) if all(cell.isdecimal() for cell in numa) else (),
        pci=tuple(word.lower() for word in pci) if all(pci) else (),
    )


def parse_cuda_version(text: str) -> str:
    """Parse the CUDA version that the driver supports from the heading of nvidia-smi: ``CUDA Version: 12.7``."""
    found = re.search(r"CUDA Version:\s*(\d+\.\d+)", text)
    return found[1] if found else ""


def parse_rocm_version(text: str) -> str:
    """Parse the version of the installed ROCm from ``/opt/rocm/.info/version``: ``6.3.4-76``."""
    found = re.match(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else ""


def parse_intel(drm: str, discovery: str) -> Gpus:
    """Parse Intel's GPUs: the model from ``xpu-smi discovery``, the rest from the kernel (``DEVICE VENDOR NUMA``)."""
    rows = sorted(line.split() for line in drm.splitlines() if " 0x8086 " in line)
    if not rows:
        return Gpus()
    nodes = [row[2] if len(row) > 2 else "" for row in rows]  # noqa: PLR2004
    models = re.findall(r"Device Name:\s*([^|\n]+)", discovery)
    return Gpus(
        vendor="intel",
        model=_one(model.strip() for model in models),
        numa=tuple(map(parse_int, nodes)) if all(node.isdecimal() for node in nodes) else (),
        pci=tuple(row[0].rsplit("/", 1)[-1] for row in rows),
    )


def guess_vendor(devices: str) -> tuple[str, str]:
    """Return the GPU vendor and the device file that shows it, from the names in /dev."""
    names = set(devices.split())
    for vendor, node in (("nvidia", "nvidiactl"), ("amd", "kfd"), ("nvidia", "nvidia0")):
        if node in names:
            return vendor, f"/dev/{node}"
    return "", ""


def parse_links(text: str) -> tuple[int, str, int]:
    """Return number, type and Gbit/s of the fastest ports; lines are ``InfiniBand 200 Gb/sec (4X HDR)``."""
    found = [(int(rate), kind) for kind, rate in re.findall(r"^(\S+) (\d+)(?:\.\d+)? Gb/sec", text, re.MULTILINE)]
    if not found:
        return 0, "", 0
    (rate, kind), count = max(Counter(found).items())
    return count, kind, rate


def parse_runtimes(text: str) -> dict[str, str]:
    """Parse ``NAME: NAME version 1.4.5`` rows: runtime -> version."""
    rows = re.findall(r"^([\w-]+): .*?(\d+\.\d[\w.+-]*)", text, re.MULTILINE)
    return {name: version.removesuffix(".") for name, version in rows}


MODULE = re.compile(
    r"(?:.*/)?(?:tacc-)?(apptainer|singularity)(?:-?(?:ce|pro|suid))?(?:[/-]v?\d[^()]*)?(\(.*\))?", re.IGNORECASE
)


def parse_module(text: str) -> tuple[str, str]:
    """Return the runtime and the module that provides it, from the modules of a site; empty if there is none.

    Apptainer comes before Singularity, the module that is marked as the default before the others, and of these the
    last, which usually is the newest. Some sites put such modules into folders: ``tools/singularity-ce/4.1.2``.
    """
    found = [match for line in text.splitlines() if (match := MODULE.fullmatch(line.strip()))]
    if not found:
        return "", ""
    best = max(found, key=lambda match: (match[1].lower() == "apptainer", "D" in (match[2] or "").upper()))
    same = [match for match in found if (match[1].lower(), match[2]) == (best[1].lower(), best[2])]
    return best[1].lower(), same[-1][0].removesuffix(best[2] or "")


NUMBER = "[0-9]*"
"""Pattern for the digits of a name."""


def name_pattern(name: str) -> str:
    """Return a pattern for similar names: ``nid001234`` -> ``nid[0-9]*``. ``c*`` would match every name with c."""
    return re.sub(r"\d+", NUMBER, name.partition(".")[0])


def _int(text: str) -> int:
    match = re.match(r"[0-9]+", text.strip())
    return parse_int(match[0]) if match else 0


def _one(words: Iterable[str]) -> str:
    """Return the only distinct value, or an empty string."""
    found = set(words)
    return found.pop() if len(found) == 1 else ""
