"""The steps of `make gpu`: each starts `argosy` as a user would, and checks what the probe in the container reports."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu.environment import REPO, Reply, has_program, run
from gpu.probe.result import parse_lines
from gpu.report import State, Step

INSIDE = "/opt/argosy-gpu"
"""Mount point of this checkout in the container."""

RUNTIMES = ("bwrap", "apptainer", "podman")
GPU_OPTIONS: Mapping[str, str] = {"nvidia": "nv", "amd": "rocm", "intel": "auto"}
STEP_LIMIT = 90.0
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
NO_TORCH = "needs an image with PyTorch: make gpu TORCH_IMAGE=FILE"


@dataclass(frozen=True, slots=True)
class Stage:
    """Facts and settings that all steps share."""

    argosy: tuple[str, ...]
    """Command that starts Argosy."""
    environment: Mapping[str, str]
    vendor: str
    gpus: int
    image: Path
    torch_image: str
    remaining: Callable[[], float]
    """Returns the seconds that are left for the whole run."""
    root: bool = False

    def start(self, *words: str, extra: Mapping[str, str] | None = None) -> tuple[str, Reply]:
        """Run `argosy` with arguments, and return the command line and the reply."""
        limit = min(STEP_LIMIT, self.remaining())
        reply = run((*self.argosy, *words), {**self.environment, **(extra or {})}, limit)
        return shlex.join(("argosy", *words)), reply


def all_steps(stage: Stage) -> list[Callable[[], Step]]:
    """Return the steps in their order: the cheap ones first, PyTorch last."""
    docker = "docker starts images of its daemon; the kit's image is a file"
    return [
        partial(run_doctor, stage),
        partial(run_check, stage),
        *(partial(run_runtime, stage, name) for name in RUNTIMES),
        partial(Step, "run docker", State.SKIPPED, docker),
        partial(run_ranks, stage),
        partial(run_slurm, stage),
        partial(run_torch, stage, "bench nodes", ("bench", "nodes")),
        partial(run_nccl, stage),
        partial(run_torch, stage, "bench collectives", ("bench", "collectives", "--ranks", str(stage.gpus))),
    ]


def run_doctor(stage: Stage) -> Step:
    """Check that `argosy doctor` finds the GPUs; other problems of the machine do not matter here."""
    command, reply = stage.start("doctor", "--json")
    findings = _read_json(reply.stdout).get("findings", [])
    found = [finding for finding in findings if "gpu" in str(finding.get("what", "")).lower()]
    good = bool(found) and all(finding["state"] == "ok" for finding in found)
    reason = "" if good else _reason(reply, "doctor does not report the GPUs as ok")
    return _step("doctor", command, reply, reason, {"gpus": found})


def run_check(stage: Stage) -> Step:
    """Check the image with `argosy check`."""
    command, reply = stage.start("check", str(stage.image), "--site", "local", "--json")
    return _step("check", command, reply, "" if reply.code == 0 else _reason(reply), _read_json(reply.stdout))


def run_runtime(stage: Stage, runtime: str) -> Step:
    """Run the probe on all GPUs under a container runtime."""
    name = f"run {runtime}"
    if not has_program(runtime, stage.environment):
        return Step(name, State.SKIPPED, f"{runtime} is not installed")
    if runtime == "podman" and stage.vendor == "nvidia" and not any(map(_has_files, CDI_FOLDERS)):
        return Step(name, State.SKIPPED, "podman needs a CDI specification, and this machine has none")
    options = ("--runtime", runtime, "--gpu", GPU_OPTIONS[stage.vendor], *_container_options())
    command, reply = stage.start("run", *options, str(stage.image), "--", *_probe(stage))
    probes = parse_lines(reply.stdout)
    return _step(name, command, reply, judge_reply(reply, judge_probes(probes, 1, stage.gpus)), {"probes": probes})


def run_ranks(stage: Stage) -> Step:
    """Launch a rank per GPU on this machine; each must compute on a GPU of its own."""
    shape = ("--ranks", str(stage.gpus), "--launcher", "none")  # the kit's image has no torch, and so no torchrun
    options = (*shape, "--gpu", GPU_OPTIONS[stage.vendor], *_container_options())
    command, reply = stage.start("launch", str(stage.image), *options, "--", *_probe(stage), "--rank")
    probes = parse_lines(reply.stdout)
    reason = judge_reply(reply, judge_probes(probes, stage.gpus, 1) or judge_ranks(probes))
    return _step("launch --ranks", command, reply, reason, {"probes": probes})


def run_slurm(stage: Stage) -> Step:
    """Run a job with a GPU of Slurm's GRES in the lab."""
    name = "slurm gres"
    lab = Path(stage.environment.get("ARGOSY_LAB") or "/var/tmp/argosy-lab")  # noqa: S108 - the lab's own default
    if not stage.root:
        return Step(name, State.SKIPPED, "the lab needs root")
    if not any(lab.glob("*")):
        return Step(
            name, State.SKIPPED, f"the lab has no root file system in {lab}, and builds one with a network only"
        )
    return Step(name, State.SKIPPED, "the lab shows fake device nodes only; it cannot pass a real GPU to a job yet")


def run_torch(stage: Stage, name: str, words: tuple[str, ...]) -> Step:
    """Run a command of `argosy` that needs an image with PyTorch."""
    if not stage.torch_image:
        return Step(name, State.SKIPPED, NO_TORCH)
    command, reply = stage.start(*words, stage.torch_image)
    return _step(name, command, reply, _code(reply), {"output": reply.stdout[-4000:]})


def run_nccl(stage: Stage) -> Step:
    """Let PyTorch sum over all ranks, and check that NCCL started and what `argosy verify` says about the output."""
    name = "nccl and verify"
    if not stage.torch_image:
        return Step(name, State.SKIPPED, NO_TORCH)
    options = ("--ranks", str(stage.gpus), *_container_options(), "--env", "NCCL_DEBUG=INFO")
    program = ("--", "python", f"{INSIDE}/gpu/all_reduce.py")
    command, reply = stage.start("launch", stage.torch_image, *options, *program)
    log = REPO / "build" / "gpu-nccl.log"
    log.write_text(reply.stdout + reply.stderr, encoding="utf-8")
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if "NCCL INFO" in line and "Init" in line]
    _, verdict = stage.start("verify", str(log))
    reason = _code(reply) or ("" if lines else "the output has no INIT line of NCCL")
    return _step(name, command, reply, reason, {"nccl": lines[:20], "verify": verdict.stdout[-4000:]})


def judge_probes(probes: Sequence[Mapping[str, Any]], processes: int, gpus: int) -> str:
    """Return why the probes' reports are not as expected; empty if they are.

    Parameters
    ----------
    processes
        Expected number of reports.
    gpus
        Expected number of tested GPUs in each report.
    """
    if len(probes) != processes:
        return f"{len(probes)} of {processes} processes reported"
    for probe in probes:
        if probe["error"]:
            return f"{probe['error']['kind']}: {probe['error']['text']}"
        tested = [device for device in probe["devices"] if "bandwidth" in device]
        if len(tested) != gpus:
            return f"{len(tested)} of {gpus} GPUs were tested"
    return ""


def judge_ranks(probes: Sequence[Mapping[str, Any]]) -> str:
    """Return why the ranks do not have a GPU each; empty if they do."""
    own = [
        device.get("uuid") or device.get("bus")
        for probe in probes
        for device in probe["devices"]
        if "bandwidth" in device
    ]
    return "" if len(set(own)) == len(own) else f"several ranks used the same GPU: {', '.join(map(str, own))}"


def judge_reply(reply: Reply, reason: str) -> str:
    """Join what the probes' reports show with how the command ended; empty if both are good."""
    return "; ".join(filter(None, [reason, _code(reply)]))


def _container_options() -> tuple[str, ...]:
    return ("--bind", f"{REPO}:{INSIDE}:ro", "--env", f"PYTHONPATH={INSIDE}", "--env", "PYTHONDONTWRITEBYTECODE=1")


def _probe(stage: Stage) -> tuple[str, ...]:
    return ("python3", "-m", "gpu.probe", "--vendor", stage.vendor)


def _step(name: str, command: str, reply: Reply, reason: str, values: Mapping[str, Any]) -> Step:
    return Step(name, State.FAIL if reason else State.OK, reason, reply.seconds, command, values)


def _code(reply: Reply) -> str:
    return "" if reply.code == 0 else _reason(reply)


def _reason(reply: Reply, text: str = "") -> str:
    return text or f"exit code {reply.code}: {reply.last_lines}"


def _has_files(folder: Path) -> bool:
    return any(folder.glob("*.*"))


def _read_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
