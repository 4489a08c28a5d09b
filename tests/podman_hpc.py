"""A built podman-hpc for the tests that start it for real: it is in no package, so its place is given."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ARGOSY_PODMAN_HPC"
NO_PODMAN_HPC = f"{VARIABLE} names no folder with bin/podman-hpc (lab/README.md)"


def built_podman_hpc() -> str:
    """Give the folder whose bin has podman-hpc; empty where none is given."""
    return os.environ.get(VARIABLE, "")


def settings(folder: Path) -> dict[str, str]:
    """Give the variables of a podman-hpc that keeps everything of a user in this folder."""
    built = built_podman_hpc()
    return {
        "PATH": f"{built}/bin:{os.environ['PATH']}",
        "USER": "alice",
        "STORAGE_DRIVER": "overlay",
        "PODMANHPC_GRAPH_ROOT": f"{folder}/storage",
        "PODMANHPC_RUN_ROOT": "/run/alice/podman-hpc",
        "PODMANHPC_CONFIG_HOME": f"{folder}/config",
        "PODMANHPC_HOOKS_DIR": f"{folder}/hooks",
        "PODMANHPC_MODULES_DIR": f"{built}/etc/podman_hpc/modules.d",
        "SQUASH_DIR": f"{folder}/squash",
    }
