"""One job of `argosy sites validate` on two real nodes tries each assumption, and its result is merged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

EXPECTED = {
    "node.cores": "8",
    "node.gpus": "2",
    "node.tmp": "tmpfs",
    "gpus.vendor": "nvidia",
    "gpus.device_nodes": "2",
    "gpus.inside": "2",
    "master.resolves": "yes",
    "cores.of_two": "0,1",
    "mask.asked": "0",
    "mask.read_back": "0",
    "exit.own": "3",
    "exit.killed": "137",
    "exit.container": "3",
    "arguments.one": "131000",
    "arguments.all": "524000",
    "arguments.container": "524000",
    "signal.to_job": "task",
    "signal.to_batch": "batch",
    "signal.in_container": "task",
    "mpi.pmix_folder_inside": "yes",
    "image.starts": "0",
    "runtime.mode": "user namespace",
    "attach.overlay": "yes",
    "attach.bind": "yes",
    "env.plain": "no",
    "env.forced": "yes",
    "env.verbatim": "yes",
    "network.all_reduce": "gloo True",
}
"""What the lab shows; the table in lab/README.md says what it cannot."""


def test_a_site_is_validated_by_one_job_and_its_profile_shows_it(desk: Desk, torch_image: Path) -> None:
    plain = (desk.cluster.shared / "gpu-site.toml").read_text()
    site = desk.write("desk.toml", plain.replace("cores = 8", "cores = 16"))
    image = desk.with_image(torch_image).image
    said = desk.argosy("sites", "validate", site, "--image", image, "--json", timeout=PATIENCE_S)
    (file,) = desk.here.glob("argosy-validate-*.json")
    facts = {fact["name"]: fact["value"] for fact in json.loads(said.stdout)["facts"]}
    expected = EXPECTED if desk.cluster.has_mpi("pmix") else EXPECTED | {"mpi.pmix_folder_inside": ""}
    assert {name: facts.get(name) for name in expected} == expected, said.stderr
    assert 20000 <= int(facts["port.free"]) < 30000

    merged = desk.argosy("sites", "merge", file.name, "--into", site, check=False)
    assert merged.code == 7
    assert "the profile has 16, the run found 8" in merged.stdout
    shown = json.loads(desk.argosy("sites", "show", site, "--json").stdout)["values"]
    proofs = {value["key"]: value["proof"] for value in shown}
    assert (proofs["node.gpus"], proofs["node.cores"]) == ("validated", "documented")
