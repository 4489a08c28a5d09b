"""CDI specifications, device nodes and driver libraries: what is carried in for GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from argosy.core.errors import CheckFailed
from argosy.core.model import Bind, Devices, Gpu, GpuMode, Variable
from argosy.host.cdi import choose_devices, parse_cdi
from argosy.host.gpus import parse_ldconfig, plan_devices, read_cdi, read_gpus, read_nodes

NVIDIA_CDI = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: 0
  containerEdits:
    deviceNodes: [{path: /dev/nvidia0}]
- name: "1"
  containerEdits:
    deviceNodes: [{path: /dev/nvidia1, hostPath: /dev/nvidia1}]
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl}]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, create-symlinks, --link, libcuda.so.1::/usr/lib64/libcuda.so]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64, --folder=/usr/lib64/vdpau]
  mounts:
  - hostPath: /usr/lib64/libcuda.so.550.1
    containerPath: /usr/lib64/libcuda.so.550.1
    options: [ro, nosuid, nodev, bind]
  - hostPath: /run/nvidia-persistenced/socket
    containerPath: /run/nvidia-persistenced/socket
    options: [nosuid, nodev, bind]
"""

LDCONFIG = """\
4 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibnvidia-ml.so.1 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6
"""


def test_a_specification_is_read_in_full() -> None:
    spec = parse_cdi(NVIDIA_CDI, "/etc/cdi/nvidia.yaml")
    assert choose_devices(spec) == Devices(
        nodes=("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"),
        binds=(
            Bind("/usr/lib64/libcuda.so.550.1", "/usr/lib64/libcuda.so.550.1", read_only=True),
            Bind("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket"),
        ),
        variables=(Variable("NVIDIA_VISIBLE_DEVICES", "void"),),
        links=(("libcuda.so.1", "/usr/lib64/libcuda.so"),),
        library_folders=("/usr/lib64", "/usr/lib64/vdpau"),
    )


def test_the_device_all_means_each_device() -> None:
    data = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}},
            {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/b"}]}},
        ],
    }
    assert choose_devices(parse_cdi(json.dumps(data), "/etc/cdi/x.json")).nodes == ("/dev/b",)


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("a: [", "line 2, column 1"),
        ("[]", "the file: expected a table, found a list"),
        ("kind: 7.5", "kind: expected a string, found 7.5"),
        ("kind: x\ndevices: 3", "devices: expected a list, found 3"),
        ("kind: x\ndevices: [{}]", "devices[0].name: expected a string, found nothing"),
        (
            "kind: x\ncontainerEdits: {deviceNodes: [{path: /a}, {path: b}]}",
            "containerEdits.deviceNodes[1].path: expected an absolute path, found 'b'",
        ),
        (
            "kind: x\ncontainerEdits: {deviceNodes: [{path: /a, hostPath: /b}]}",
            "containerEdits.deviceNodes[0].hostPath: expected the same path as in the container, found '/b'",
        ),
        ("kind: x\ncontainerEdits: {env: [A]}", "containerEdits.env[0]: expected NAME=VALUE, found 'A'"),
        (
            "kind: x\ncontainerEdits: {hooks: [{args: [h, --link, x]}]}",
            "containerEdits.hooks[0].args[2]: expected TARGET::LINK, found 'x'",
        ),
        ("kind: x\ncontainerEdits: {mounts: [7]}", "containerEdits.mounts[0]: expected a table, found 7"),
    ],
)
def test_a_wrong_specification_is_named_by_file_and_field(text: str, evidence: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        parse_cdi(text, "/etc/cdi/bad.yaml")
    assert "/etc/cdi/bad.yaml" in caught.value.what
    assert evidence in caught.value.evidence


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "devices", "containerEdits", "env"]), inner)
    ),
)


VALID = {"kind": "x", "containerEdits": {"env": ["A=b"]}}


@given(JSON)
@example(VALID)
def test_no_specification_ends_in_another_error(data: object) -> None:
    assert_refused_or_read(json.dumps(data), is_valid=data == VALID)


@given(st.text())
@example(json.dumps(VALID))
def test_no_text_ends_in_another_error(text: str) -> None:
    assert_refused_or_read(text, is_valid=text == json.dumps(VALID))


def assert_refused_or_read(text: str, *, is_valid: bool) -> None:
    try:
        spec = parse_cdi(text, "/etc/cdi/x.yaml")
    except CheckFailed:
        assert not is_valid
    else:
        assert spec.kind
        assert not is_valid or choose_devices(spec).variables == (Variable("A", "b"),)


def test_the_linkers_list_is_read_for_this_machine_only() -> None:
    assert parse_ldconfig(LDCONFIG) == (
        ("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1"),
        ("libnvidia-ml.so.1", "/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
        ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
    )


def test_without_a_specification_nodes_and_driver_libraries_are_carried_in() -> None:
    devices = plan_devices(GpuMode.NV, (), ("/dev/nvidia0",), parse_ldconfig(LDCONFIG))
    assert devices.nodes == ("/dev/nvidia0",)
    assert {bind.target for bind in devices.binds} == {
        "/.singularity.d/libs/libcuda.so.1",
        "/.singularity.d/libs/libnvidia-ml.so.1",
    }
    assert all(bind.read_only for bind in devices.binds)


def test_a_specification_comes_before_nodes() -> None:
    spec = parse_cdi(NVIDIA_CDI, "/etc/cdi/nvidia.yaml")
    devices = plan_devices(GpuMode.NV, (spec,), ("/dev/other",), ())
    assert "/dev/other" not in devices.nodes
    assert "/dev/nvidia1" in devices.nodes


def test_a_specification_of_another_vendor_is_not_used() -> None:
    spec = parse_cdi(NVIDIA_CDI, "/etc/cdi/nvidia.yaml")
    assert plan_devices(GpuMode.ROCM, (spec,), ("/dev/kfd",), parse_ldconfig(LDCONFIG)) == Devices(nodes=("/dev/kfd",))


def test_cdi_without_a_specification_is_refused() -> None:
    with pytest.raises(CheckFailed, match="no CDI specification"):
        plan_devices(GpuMode.CDI, (), ("/dev/nvidia0",), ())


def test_no_gpu_needs_nothing() -> None:
    assert plan_devices(GpuMode.NONE, (), ("/dev/nvidia0",), parse_ldconfig(LDCONFIG)) == Devices()


def test_gpus_are_read_from_device_nodes(tmp_path: Path) -> None:
    dev, sys = tmp_path / "dev", tmp_path / "sys"
    for name in (
        "nvidia10",
        "nvidia2",
        "nvidiactl",
        "nvidia-uvm",
        "kfd",
        "dri/renderD128",
        "dri/renderD129",
        "dri/card0",
    ):
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()
    for name, vendor in {"renderD128": "0x1002", "renderD129": "0x8086"}.items():
        (sys / "class/drm" / name / "device").mkdir(parents=True)
        (sys / "class/drm" / name / "device/vendor").write_text(vendor + "\n")
    assert read_gpus(str(dev), str(sys)) == (
        Gpu("nvidia", 0, f"{dev}/nvidia2"),
        Gpu("nvidia", 1, f"{dev}/nvidia10"),
        Gpu("amd", 0, f"{dev}/dri/renderD128"),
        Gpu("intel", 0, f"{dev}/dri/renderD129"),
    )
    assert read_nodes(GpuMode.NV, str(dev)) == tuple(
        f"{dev}/{name}" for name in ("nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm")
    )
    assert read_nodes(GpuMode.ROCM, str(dev)) == (f"{dev}/kfd", f"{dev}/dri")
    (dev / "kfd").unlink()
    assert [gpu.vendor for gpu in read_gpus(str(dev), str(sys))] == ["nvidia", "nvidia", "intel"]


def test_a_machine_without_gpus_has_no_gpus(tmp_path: Path) -> None:
    assert read_gpus(str(tmp_path), str(tmp_path)) == ()
    assert read_nodes(GpuMode.NONE, str(tmp_path)) == ()


def test_a_later_folder_overrides_its_namesake(tmp_path: Path) -> None:
    for folder, node in (("a", "/dev/old"), ("b", "/dev/new")):
        (tmp_path / folder).mkdir()
        text = f"kind: v/c\ncontainerEdits: {{deviceNodes: [{{path: {node}}}]}}\n"
        (tmp_path / folder / "x.yaml").write_text(text)
    (tmp_path / "a/README").write_text("not a specification")
    specs = read_cdi((str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")))
    assert [choose_devices(spec).nodes for spec in specs] == [("/dev/new",)]
