"""Find out for which GPUs the torch in an image was built, from its ``version.py`` or from its version number."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.core.model import Image
from argosy.core.parse import parse_json

BACKENDS: Mapping[str, str] = {"nvidia": "cuda", "amd": "hip", "intel": "xpu"}
"""GPU vendor -> the back end's name in ``torch/version.py``. The value there is None if torch was built without it."""

ASK_TORCH = """\
import importlib.util, json, pathlib
spec = importlib.util.find_spec("torch")
found = {}
if spec and spec.origin:
    file = pathlib.Path(spec.origin).with_name("version.py")
    if file.is_file():
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), found)
        found = {name: str(found.get(name) or "") for name in ("__version__", "cuda", "hip", "xpu")}
print(json.dumps(found))
"""
"""Program for the image's Python. It does not import torch, which takes seconds and may need a driver.

A torch without ``version.py`` counts as missing.
"""

BUILD = re.compile(r"\+(?:(cu)\d+|(rocm)[\d.]+|(xpu)|(cpu))\Z")
OF_BUILD = {"cu": "cuda", "rocm": "hip", "xpu": "xpu"}


def parse_torch(text: str) -> dict[str, str]:
    """Parse the last line that `ASK_TORCH` prints; return nothing if there is no torch or no valid line."""
    try:
        torch = parse_json(text.strip().rpartition("\n")[2])
    except ValueError:
        return {}
    return torch if isinstance(torch, dict) else {}


def torch_of_version(version: str) -> dict[str, str]:
    """Return the content of ``torch/version.py`` for a version such as ``2.6.0+cu124``; empty without such a suffix."""
    match = BUILD.search(version)
    if match is None:
        return {}
    backend = OF_BUILD.get(match[0][1:].rstrip("0123456789."), "")
    return {"__version__": version} | ({backend: match[0][1:]} if backend else {})


def torch_of_packages(image: Image) -> dict[str, str]:
    """Return the content of ``torch/version.py`` for a torch with NVIDIA's packages, as PyPI has it; else nothing."""
    names = (re.fullmatch(r"nvidia-nccl-(cu\d+)", name) for name in image.packages)
    cuda = next((match[1] for match in names if match), "")
    return {"__version__": image.torch, "cuda": cuda} if image.torch and cuda else {}


def describe_wrong_build(torch: Mapping[str, str], vendor: str) -> str:
    """Describe the build of a torch without a back end for these GPUs; empty if it has one or is missing."""
    if not torch.get("__version__") or vendor not in BACKENDS or torch.get(BACKENDS[vendor]):
        return ""
    others = ", ".join(name for name in BACKENDS.values() if torch.get(name)) or "the CPU only"
    return f"torch {torch['__version__']} was built for {others}"


def describe_old_driver(torch: Mapping[str, str], newest: str) -> str:
    """Describe a torch whose CUDA has a newer major version than the driver supports; empty if there is none.

    A driver runs every CUDA of its own major version (docs.nvidia.com/deploy/cuda-compatibility, "Minor Version
    Compatibility"). A newer major version needs the package cuda-compat in the image.

    Parameters
    ----------
    newest
        Newest CUDA that the driver supports, for example ``12.2``; empty if unknown.
    """
    major = re.match(r"(?:cu)?(\d\d)", torch.get("cuda", ""))
    if major is None or not newest or int(major[1]) <= int(newest.partition(".")[0]):
        return ""
    return f"torch {torch['__version__']} needs a driver for CUDA {major[1]}, and the driver supports CUDA {newest}"
