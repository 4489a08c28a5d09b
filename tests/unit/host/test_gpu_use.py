"""Replies of the vendors' tools, as their public documents and users show them."""

from __future__ import annotations

import pytest

from argosy.host.gpu_use import GpuUse, parse_amd, parse_intel, parse_nvidia

MIB = 1 << 20

NVIDIA = """\
0, GPU-0b1c2d3e-0000-0000-0000-000000000000, 98, 34511, 81559
1, GPU-1b1c2d3e-0000-0000-0000-000000000000, [N/A], [N/A], [N/A]
"""
"""The form of ``nvidia-smi --query-gpu`` with csv, noheader and nounits, and its text for values that a device does not
have (https://docs.nvidia.com/deploy/nvidia-smi/)."""

AMD = """\
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"GPU use (%)": "0", "VRAM Total Memory (B)": "536870912", "VRAM Total Used Memory (B)": "482263040"},
 "card1": {"GPU use (%)": "99", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "11534336"},
 "system": {"Driver version": "6.7.0"}}
"""
"""rocm-smi of a Radeon 680M (https://github.com/henrygd/beszel, tests of its agent), and a second card."""

AMD_PROCESSES = """\
============================ ROCm System Management Interface ============================
=================================== GPUs Indexed by PID ==================================
PID 3828095 is using 0 DRM device(s)
PID 123 is using 2 DRM device(s):
0 1
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""

INTEL = """\
Timestamp, DeviceId, GPU Utilization (%), GPU Memory Utilization (%), GPU Memory Used (MiB)
08:08:17.817,    0,  N/A, 20.00, 8192.00
08:08:17.818,    1, 55.20,  N/A,  N/A
"""
"""xpu-smi dump on Aurora, where the utilization is N/A (https://github.com/intel/xpumanager/issues/98)."""


def test_nvidia() -> None:
    uses = "4242, GPU-0b1c2d3e-0000-0000-0000-000000000000\n[Not Found]\n"
    one = GpuUse(0, 98.0, 34511 * MIB, 81559 * MIB, (4242,))
    assert parse_nvidia(NVIDIA, uses) == (one, GpuUse(1))


def test_amd() -> None:
    one, two = parse_amd(AMD, AMD_PROCESSES)
    assert one == GpuUse(0, 0.0, 482263040, 536870912, (123,))
    assert (two.busy, two.processes) == (99.0, (123,))


def test_intel() -> None:
    assert parse_intel(INTEL) == (GpuUse(0, None, 8192 * MIB, 40960 * MIB), GpuUse(1, 55.2))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
        "{broken",
        "Error: Device not found",
        "Timestamp, DeviceId, GPU Utilization (%)\n12:00:00, N/A, 55.2\n",
    ],
)
def test_a_tool_that_fails_reports_nothing(text: str) -> None:
    assert parse_nvidia(text, text) == parse_amd(text, text) == parse_intel(text) == ()
