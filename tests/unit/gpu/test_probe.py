"""The probe reads a driver correctly, and names each fault of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu.probe.cuda import PTX_TARGETS, render_kernel
from gpu.probe.result import ProbeError, check_bytes, parse_lines, summarise_copies

ROOT = Path(__file__).parents[3]

Libraries = Callable[..., Path]


def run_probe(folder: Path, *words: str, code: int, **variables: str) -> dict[str, Any]:
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), **variables}
    command = (sys.executable, "-m", "gpu.probe", *words)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    (report,) = parse_lines(done.stdout)
    return report


def test_a_gpu_computes_and_copies(fake_library: Libraries) -> None:
    report = run_probe(fake_library("cuda", "libcuda.so.1"), "--rank", code=0, LOCAL_RANK="0", FAKE_CUDA="large memory")
    assert (report["error"], report["never_ran_before"], report["library"]) == (None, False, "libcuda.so.1")
    first, second = report["devices"]
    assert (first["name"], second["name"]) == ("Fake GPU 0", "Fake GPU 1")
    assert first["uuid"] == "28" * 16
    assert (first["cuda"], first["capability"], first["processors"], first["memory_bytes"]) == (
        "12.4",
        "9.0",
        132,
        80 << 30,
    )
    assert first["kernel"] == {"elements": 1 << 20, "target": "sm_50", "correct": True}
    # The fake clock counts 1 ms for each copy of 256 MiB, which reads and writes.
    assert first["bandwidth"] == {
        "buffer_mib": 256,
        "copies": 20,
        "repeats": 5,
        "gb_per_s": 536.9,
        "gb_per_s_best": 536.9,
    }


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("no device", "no device", "cuInit: CUDA_ERROR_NO_DEVICE (100)"),
        ("empty", "no device", "cuDeviceGetCount: the driver shows no GPU"),
        ("mismatch", "driver error", "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        ("no memory", "out of memory", "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)"),
        ("illegal address", "driver error", "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ("bad module", "driver error", "cuModuleLoadData: sm_50: CUDA_ERROR_INVALID_IMAGE (200)"),
        ("wrong result", "wrong result", "vector_add: element 4711 is 1048577.0, expected 1048576.0"),
        ("lost copy", "wrong result", "cuMemcpyDtoD: byte 0 is 0, expected 165"),
        ("no clock", "wrong result", "the timer measured 0.0 s for 20 copies"),
    ],
)
def test_a_fault_is_named(fake_library: Libraries, fault: str, kind: str, text: str) -> None:
    report = run_probe(fake_library("cuda", "libcuda.so.1"), code=1, FAKE_CUDA=fault)
    assert report["error"] == {"kind": kind, "text": text}


def test_without_a_driver_the_library_is_named(tmp_path: Path) -> None:
    report = run_probe(tmp_path, code=1)
    assert report["error"]["kind"] == "no driver"
    assert "cannot load libcuda.so.1: " in report["error"]["text"]


def test_a_driver_without_a_function_is_too_old(fake_library: Libraries) -> None:
    report = run_probe(fake_library("cuda", "libcuda.so.1", "-DOLD"), code=1)
    text = "libcuda.so.1 has no cuDevicePrimaryCtxRelease_v2: the driver is too old"
    assert report["error"] == {"kind": "driver error", "text": text}


def test_a_gpu_with_little_free_memory_gets_smaller_buffers(fake_library: Libraries) -> None:
    report = run_probe(fake_library("cuda", "libcuda.so.1"), code=0)
    assert [device["bandwidth"]["buffer_mib"] for device in report["devices"]] == [8, 8]


def test_a_driver_that_refuses_old_targets_gets_a_newer_one(fake_library: Libraries) -> None:
    report = run_probe(fake_library("cuda", "libcuda.so.1"), code=0, FAKE_CUDA="new driver")
    assert report["devices"][0]["kernel"]["target"] == "sm_75"


@pytest.mark.parametrize("local_rank", [0, 1])
def test_a_rank_tests_its_own_gpu_only(fake_library: Libraries, local_rank: int) -> None:
    variables = {"RANK": str(4 + local_rank), "LOCAL_RANK": str(local_rank), "CUDA_VISIBLE_DEVICES": "0,1"}
    report = run_probe(fake_library("cuda", "libcuda.so.1"), "--rank", code=0, **variables)
    assert (report["rank"], report["local_rank"]) == (4 + local_rank, local_rank)
    assert report["visible"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert ["kernel" in device for device in report["devices"]] == [local_rank == 0, local_rank == 1]


def test_the_amd_probe_copies_and_reports_that_it_never_ran_before(fake_library: Libraries) -> None:
    folder = fake_library("hip", "libamdhip64.so")
    report = run_probe(folder, "--vendor", "amd", code=0)
    assert report["never_ran_before"] is True
    assert report["devices"][0]["kernel"] is None
    assert (report["devices"][0]["name"], report["devices"][0]["bandwidth"]["buffer_mib"]) == ("Fake AMD 0", 4)
    assert run_probe(folder, "--vendor", "amd", code=1, FAKE_HIP_EMPTY="1")["error"]["kind"] == "no device"


def test_the_intel_probe_copies_and_reports_that_it_never_ran_before(fake_library: Libraries) -> None:
    folder = fake_library("ze", "libze_loader.so.1")
    report = run_probe(folder, "--vendor", "intel", code=0)
    assert report["never_ran_before"] is True
    (device,) = report["devices"]
    assert (device["name"], device["memory_bytes"], device["bandwidth"]["buffer_mib"]) == ("Fake Intel", 48 << 30, 4)
    assert run_probe(folder, "--vendor", "intel", code=1, FAKE_ZE_EMPTY="1")["error"]["kind"] == "no device"


def test_reports_are_found_in_the_output_of_a_launcher() -> None:
    output = 'NCCL INFO\n[rank 1] argosy-gpu-probe {"rank": 1}\nargosy-gpu-probe {"rank": 0}\n'
    assert [report["rank"] for report in parse_lines(output)] == [1, 0]


def test_figures_need_a_clock_and_equal_bytes() -> None:
    assert summarise_copies(1 << 20, [1.0, 2.0, 4.0])["gb_per_s_best"] == 0.0
    with pytest.raises(ProbeError, match="byte 2 is 1, expected 0"):
        check_bytes(b"\0\0\1", 0, "copy")


def test_each_target_gives_another_program() -> None:
    texts = [render_kernel(version, target) for version, target in PTX_TARGETS]
    assert len(set(texts)) == len(PTX_TARGETS)
    assert all(text.count("{") == text.count("}") == 1 for text in texts)
