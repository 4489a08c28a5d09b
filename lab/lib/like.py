# noqa: INP001 - a script beside shell files
"""Read a site's profile and print the settings of a cluster of its shape, as assignments that bash reads.

Words: SITE (a name in src/argosy/sites/data, or a path that ends in .toml).  It writes nothing.  What the profile does
not know is chosen small, and said on standard error.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "src/argosy/sites/data"
DEVICES = {"amd": "kfd dri", "intel": "dri", "nvidia": "nvidiactl"}
CORES_PER_GPU = 8


def read_profile(name: str) -> dict[str, Any]:
    """Read a profile with what it builds on, the profile's own values first."""
    path = Path(name) if name.endswith(".toml") else DATA / f"{name}.toml"
    if not path.is_file():
        known = " ".join(sorted(each.stem for each in DATA.glob("[!_]*.toml")))
        sys.exit(f"lab: there is no site {name!r}; there are: {known}")
    profile = tomllib.loads(path.read_text())
    for other in profile.get("use", ()):
        fragment = DATA / f"_{other}.toml"
        base = read_profile(str(fragment) if fragment.is_file() else other)
        for key, value in base.items():
            if isinstance(value, dict):
                profile[key] = {**value, **profile.get(key, {})}
            elif isinstance(value, list):
                own = profile.get(key, [])
                named = {part.get("name") for part in own if isinstance(part, dict)} - {None}
                kept = [part for part in value if not isinstance(part, dict) or part.get("name") not in named]
                profile[key] = [*kept, *own]
    return profile


def shape_of(profile: dict[str, Any]) -> dict[str, str]:
    """Give sockets, cores, NUMA nodes, GPUs and memory."""
    node, slurm = profile.get("node", {}), profile.get("slurm", {})
    vendor = node.get("gpu_vendor", "")
    gpus = node.get("gpus") or (2 if vendor else 0)
    cores = node.get("cores") or gpus * slurm.get("cpus_per_gpu", CORES_PER_GPU) or CORES_PER_GPU
    for key, value in (("cores", cores), ("gpus", gpus)):
        if key not in node and (key == "cores" or vendor):
            sys.stderr.write(f"lab: the profile does not know {key}: {value} are taken\n")
    sockets = node.get("sockets", 1)
    asked = re.fullmatch(r"(\d+)G", slurm.get("mem", ""))
    memory = node.get("memory_mb") or (int(asked[1]) * 1024 if asked else 16000)
    return {
        "SOCKETS": str(sockets),
        "CORES": str(cores // sockets),
        "NUMA": str(max(1, node.get("numa", sockets) // sockets)),
        "GPUS": str(gpus),
        "RESERVED": node.get("reserved", ""),
        "MEMORY": str(memory),
        "DEVICES": DEVICES.get(vendor, "") if gpus else "",
    }


def partitions_of(profile: dict[str, Any]) -> str:
    """Give the partitions with their limits, as lines of slurm.conf."""
    lines = []
    shape, gpus = shape_of(profile), profile.get("node", {}).get("gpus", 0)
    # Where jobs say no number of cores, the site's Slurm gives them by GPU.
    by_gpu = gpus and not profile.get("slurm", {}).get("cpus_option", True)
    cores = int(shape["CORES"]) * int(shape["SOCKETS"])
    whole = profile.get("slurm", {}).get("whole_nodes", False)
    rows = profile.get("partitions", ())
    default = next((row["name"] for row in rows if row.get("choose")), rows[0]["name"] if rows else "")
    for row in rows:
        words = [f"PartitionName={row['name']}", "Nodes=ALL", "State=UP"]
        words += ["Default=YES"] if row["name"] == default else []
        words += [f"MaxTime={row['max_time']}"] if row.get("max_time") else []
        words += [f"MaxNodes={row['max_nodes']}"] if row.get("max_nodes") else []
        words += [f"DefCpuPerGPU={cores // gpus}"] if by_gpu else []
        words += ["OverSubscribe=EXCLUSIVE"] if row.get("whole_nodes") or whole else []
        lines.append(" ".join(words))
    return "\n".join(lines)


def hosts_of(profile: dict[str, Any]) -> str:
    """Give a pattern of the compute nodes' names, with {} for the number."""
    patterns = profile.get("identity", {}).get("hosts", ())
    pattern = next((each for each in patterns if "*" in each and not each.startswith("login")), "node*")
    return re.sub(r"^\*", "node", pattern).rstrip("*").replace("*", "0") + "%.0f"


def main() -> None:
    """Print the settings."""
    profile = read_profile(sys.argv[1])
    slurm = profile.get("slurm", {})
    paths = [path for bind in profile.get("binds", ()) for path in bind["paths"] if not bind.get("if_there")]
    settings = {
        **shape_of(profile),
        "PARTITIONS": partitions_of(profile),
        "HOSTS": hosts_of(profile),
        # Memory is given out like cores where it is known how much a node has.
        "SELECT": "CR_Core_Memory" if profile.get("node", {}).get("memory_mb") else "CR_Core",
        "REQUIRED": " ".join(slurm.get("required", ())),
        "MPIEXEC": profile.get("launcher", {}).get("mpiexec", ""),
        "STANDINS": " ".join(path for path in paths if "*" not in path),
    }
    for name, value in settings.items():
        sys.stdout.write(f"{name}={shlex.quote(value)}\n")


if __name__ == "__main__":
    main()
