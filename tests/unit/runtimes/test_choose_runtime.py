"""Which runtime, how the layer attaches, which way GPUs enter: each choice with its reason."""

from __future__ import annotations

import pytest

from argosy.core.errors import CheckFailed, ToolMissing, UsageError
from argosy.core.model import Attach, Gpu, GpuMode, Image, ImageKind, Person
from argosy.core.records import replace
from argosy.host import probe
from argosy.host.gpus import choose_gpu_mode
from argosy.runtimes.choose import choose_attach, choose_runtime, gpu_at_sites
from argosy.runtimes.runtime import AUTOMATIC, RUNTIMES, load_runtime
from argosy.sites.read import read_site
from tests.unit.machines import make_host

ALICE = Person(2001, 2001, "alice", "/home/alice")
LAYERED = Image("/a.sif", ImageKind.SIF, "", "amd64", layer_offset=4096, layer_part=4)
PLAIN = replace(LAYERED, layer_offset=-1)


@pytest.mark.parametrize(
    ("programs", "chosen"),
    [
        (("bwrap", "singularity", "apptainer"), "apptainer"),
        (("bwrap", "singularity"), "singularity"),
        (("bwrap",), "bwrap"),
    ],
)
def test_the_first_runtime_that_is_here_is_taken(programs: tuple[str, ...], chosen: str) -> None:
    runtime, choice = choose_runtime("", make_host(*programs), LAYERED)
    assert (runtime.name, choice.value, choice.source) == (chosen, chosen, "machine")


def test_the_reason_names_the_runtimes_that_were_skipped() -> None:
    _, choice = choose_runtime("", make_host("bwrap"), LAYERED)
    assert choice.why == "found on PATH; apptainer is not installed; singularity is not installed"


def test_an_option_wins() -> None:
    runtime, choice = choose_runtime("bwrap", make_host("apptainer", "bwrap"), LAYERED)
    assert (runtime.name, choice.source) == ("bwrap", "option")


def test_a_missing_runtime_is_refused_with_its_package_and_the_installed_ones() -> None:
    with pytest.raises(ToolMissing) as caught:
        choose_runtime("singularity", make_host("bwrap"), LAYERED)
    assert "installed: bwrap" in caught.value.evidence
    assert caught.value.hint == "install singularity-ce (sylabs.io), or use --runtime bwrap"


def test_if_no_runtime_works_each_reason_is_shown() -> None:
    with pytest.raises(ToolMissing) as caught:
        choose_runtime("", make_host("bwrap", user_namespaces=False), LAYERED)
    assert caught.value.evidence.splitlines() == [
        "apptainer is not installed",
        "singularity is not installed",
        "bwrap needs user namespaces, which are disabled on this machine",
    ]


def test_an_unknown_runtime_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="docker"):
        choose_runtime("dockre", make_host(), LAYERED)


@pytest.mark.parametrize(
    ("image", "runtime", "changes", "attach", "source"),
    [
        (LAYERED, "apptainer", {}, Attach.OVERLAY, "image"),
        (PLAIN, "apptainer", {}, Attach.FLAT, "image"),
        (replace(LAYERED, kind=ImageKind.TREE), "apptainer", {}, Attach.FLAT, "image"),
        (LAYERED, "apptainer", {"overlay": "no"}, Attach.BIND, "machine"),
        (LAYERED, "bwrap", {"overlay": "no"}, Attach.OVERLAY, "machine"),
        (LAYERED, "podman", {}, Attach.BIND, "machine"),
        (LAYERED, "apptainer", {"environment": {"APPTAINER_UNDERLAY": "1"}}, Attach.BIND, "environment"),
        (LAYERED, "singularity", {"environment": {"SINGULARITY_TMP_SANDBOX": "true"}}, Attach.BIND, "environment"),
        (LAYERED, "apptainer", {"environment": {"APPTAINER_UNSQUASH": "0"}}, Attach.OVERLAY, "image"),
    ],
)
def test_the_layer_attaches_as_the_runtime_will_have_it(
    image: Image, runtime: str, changes: dict[str, object], attach: Attach, source: str
) -> None:
    chosen, choice = choose_attach(image, make_host(**changes), load_runtime(runtime))
    assert (chosen, choice.value) == (attach, attach.value)
    assert source in {choice.source, "image"}


NVIDIA = tuple(Gpu("nvidia", index, f"/dev/nvidia{index}") for index in range(4))
DRIVER = "apptainer finds the driver"
AMD = (Gpu("amd", 0, "/dev/dri/renderD128"),)
INTEL = (Gpu("intel", 0, "/dev/dri/renderD128"),)


@pytest.mark.parametrize(
    ("gpus", "way", "why"),
    [
        ((), GpuMode.NONE, "no GPU found on this machine"),
        (NVIDIA, GpuMode.NV, "4 nvidia GPUs; apptainer finds the driver"),
        (AMD, GpuMode.ROCM, "1 amd GPU; apptainer finds the driver"),
        (INTEL, GpuMode.NONE, "1 intel GPU: available through /dev"),
        (NVIDIA + INTEL, GpuMode.NV, "4 nvidia GPUs, 1 intel GPU; apptainer finds the driver"),
    ],
)
def test_auto_chooses_by_the_visible_gpus(gpus: tuple[Gpu, ...], way: GpuMode, why: str) -> None:
    chosen, choice = choose_gpu_mode(GpuMode.AUTO, make_host(gpus=gpus), DRIVER)
    assert (chosen, choice.why) == (way, why)


@pytest.mark.parametrize(
    ("asked", "gpus", "looked"),
    [
        (GpuMode.NV, (), "/dev/nvidia0"),
        (GpuMode.NV, AMD, "/dev/nvidia0"),
        (GpuMode.NVCCLI, (), "/dev/nvidia0"),
        (GpuMode.ROCM, NVIDIA, "/dev/kfd"),
        (GpuMode.CDI, (), "0x8086"),
    ],
)
def test_requested_gpus_that_are_missing_stop_the_start(asked: GpuMode, gpus: tuple[Gpu, ...], looked: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        choose_gpu_mode(asked, make_host(gpus=gpus), DRIVER)
    assert "ctl" in caught.value.what
    assert looked in caught.value.evidence
    assert caught.value.code == 7


def test_no_gpu_option_at_a_site_that_avoids_it() -> None:
    avoids, wants, cpus = read_site("lumi-g"), read_site("mn5-acc"), read_site("mn5-gpp")
    assert gpu_at_sites(GpuMode.AUTO, "singularity", (wants, cpus)) is GpuMode.AUTO
    assert gpu_at_sites(GpuMode.AUTO, "singularity", (avoids,)) is GpuMode.NONE
    assert gpu_at_sites(GpuMode.AUTO, "singularity", (wants,)) is GpuMode.AUTO
    assert gpu_at_sites(GpuMode.ROCM, "singularity", (avoids,)) is GpuMode.ROCM
    assert gpu_at_sites(GpuMode.AUTO, "bwrap", (avoids,)) is GpuMode.AUTO


def test_gpu_none_wins_over_visible_gpus() -> None:
    assert choose_gpu_mode(GpuMode.NONE, make_host(gpus=NVIDIA), DRIVER)[0] is GpuMode.NONE


def test_a_layer_that_changes_system_folders_is_never_attached_partially() -> None:
    changed, apptainer = replace(LAYERED, system=True), load_runtime("apptainer")
    assert choose_attach(changed, make_host("apptainer", overlay="unknown"), apptainer)[0] is Attach.OVERLAY
    with pytest.raises(CheckFailed, match="cannot attach the whole layer") as caught:
        choose_attach(changed, make_host("apptainer", overlay="no"), apptainer)
    assert "argosy images export /a.sif --format sif" in caught.value.hint


@pytest.mark.parametrize(
    ("switches", "may"),
    [
        ({"user/max_user_namespaces": "100"}, True),
        ({"user/max_user_namespaces": "0"}, False),
        ({}, False),
        ({"user/max_user_namespaces": "100", "kernel/unprivileged_userns_clone": "0"}, False),
        ({"user/max_user_namespaces": "100", "kernel/apparmor_restrict_unprivileged_userns": "1"}, False),
        ({"user/max_user_namespaces": "100", "kernel/apparmor_restrict_unprivileged_userns": "0"}, True),
    ],
)
def test_each_switch_of_the_kernel_is_asked(
    monkeypatch: pytest.MonkeyPatch, switches: dict[str, str], *, may: bool
) -> None:
    monkeypatch.setattr(probe, "_read", lambda path: switches.get(str(path).removeprefix("/proc/sys/"), ""))
    assert probe.probe_host({}).user_namespaces == may


def test_containers_of_runtimes_that_argosy_chooses_show_the_current_directory() -> None:
    assert {name for name in RUNTIMES if load_runtime(name).traits.sees_cwd} == {*AUTOMATIC, "bare"}
