"""Apptainer skips a layer without a word in several cases; then it is bound out of the image's own file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from argosy.core.model import Attach, GpuMode, Host, Image, ImageKind
from argosy.core.process import Command, RealRunner
from argosy.core.shell import literal_argv
from argosy.host.probe import parse_apptainer_conf
from argosy.runtimes.apptainer import APPTAINER

if TYPE_CHECKING:
    from tests.contract.conftest import Images, Stage

pytestmark = pytest.mark.lab

LAB_IN = Path(__file__).parents[2] / "lab" / "in"
CONF = "/etc/apptainer/apptainer.conf"
WITH_CONF = """\
sed -i "s/^enable overlay = .*/enable overlay = $1/; s/^enable underlay = .*/enable underlay = $2/" "$3"
cd "$4" && shift 4 && exec setpriv --reuid alice --regid alice --init-groups -- env HOME=/home/alice "$@"
"""
SKIPPING = ("APPTAINER_UNDERLAY", "APPTAINER_UNSQUASH", "SINGULARITY_UNDERLAY")
CONFIGURATIONS = (("no", "yes"), ("yes", "preferred"))


@pytest.fixture
def stage(stage_called: Callable[[str], Stage]) -> Stage:
    return stage_called("apptainer, lab")


@pytest.mark.parametrize("name", SKIPPING)
def test_with_an_option_that_skips_the_layer_bind_attaches_it(stage: Stage, name: str) -> None:
    around = f'{name}=1; export {name}; "$@"'
    assert stage.start(stage.entry(), ("hello",), around=around).code == 6
    bound = stage.start(stage.entry(attach=Attach.BIND), ("hello",), around=around)
    assert bound.stdout == "hello from /opt/argosy\n", bound.stderr


@pytest.mark.parametrize(("overlay", "underlay"), CONFIGURATIONS)
def test_under_a_configuration_that_skips_the_layer_bind_attaches_it(stage: Stage, overlay: str, underlay: str) -> None:
    def start(attach: Attach) -> tuple[str, int]:
        words = literal_argv(APPTAINER.argv(stage.entry(attach=attach), ("hello",)))
        lab = (str(LAB_IN), "-u", "root", "-b", str(stage.images.folder), "--", "sh", "-c", WITH_CONF, "sh")
        reply = RealRunner().run(Command((*lab, overlay, underlay, CONF, str(stage.work), *words)))
        return reply.stdout, reply.code

    assert start(Attach.OVERLAY) == ("", 6)
    assert start(Attach.BIND) == ("hello from /opt/argosy\n", 0)


def test_the_shipped_configuration_keeps_the_layer(stage: Stage) -> None:
    text = stage.outside(("cat", CONF), {}).stdout
    assert "enable overlay" in text
    assert parse_apptainer_conf(text) == "yes"


def test_an_image_with_an_odd_name_is_bound_too(stage: Stage, sif: Images) -> None:
    odd = sif.folder / "a, b: 'c' \"d\".sif"
    odd.write_bytes(sif.sif.read_bytes())
    image = Image(str(odd), ImageKind.SIF, "", "amd64", layer_offset=1, layer_part=sif.part, argosy=True)
    around = 'APPTAINER_UNDERLAY=1; export APPTAINER_UNDERLAY; "$@"'
    reply = stage.start(stage.entry(image=image, attach=Attach.BIND), ("hello",), around=around)
    assert reply.stdout == "hello from /opt/argosy\n", reply.stderr


@pytest.mark.parametrize("kind", ["sif", "squashfs", "tree"])
def test_every_kind_of_image_starts(stage: Stage, sif: Images, kind: str) -> None:
    path = {"sif": sif.sif, "squashfs": sif.folder / "base.sqfs", "tree": sif.base}[kind]
    image = Image(str(path), ImageKind(kind), "", "amd64")
    reply = stage.start(stage.entry(image=image, attach=Attach.FLAT), ("sh", "-c", 'echo "$FROM_IMAGE"'))
    assert reply.stdout == "yes\n", reply.stderr


def test_without_a_driver_nv_alone_starts_nothing_wrong(stage: Stage) -> None:
    """Apptainer goes on without GPUs: that is why planning stops before it."""
    entry = stage.entry(gpu=GpuMode.NV)
    host = Host("h", "x86_64", stage.person, "/", 1, 1, {}, user_namespaces=True, can_mount=False, fuse=True)
    assert APPTAINER.refusal(entry, host) == ""
    assert stage.start(entry, ("hello",)).stdout == "hello from /opt/argosy\n"
