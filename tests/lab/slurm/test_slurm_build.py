"""`argosy build --on-node` and `--submit`: the image is made on a compute node, at the place that the profile names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

PLACE = '[build]\ntime = "10"\nmem = "500M"\ncpus = 1\n'
HOSTILE = {
    "SINGULARITY_BIND": "/not/there",
    "APPTAINER_BIND": "/not/there",
    "LD_LIBRARY_PATH": "/not/there",
    "CONDA_PREFIX": "/not/there",
    "SBATCH_TIMELIMIT": "20",
}


def place(desk: Desk, *more: str) -> str:
    """Write a profile beside the test whose nodes build images."""
    text = (desk.cluster.shared / "site.toml").read_text()
    desk.write("requirements.txt", "")
    return desk.write("site.toml", text + PLACE + f'work_dir = "{desk.folder}"\n' + "".join(more))


def test_an_image_is_built_on_a_node_and_its_output_comes_back(desk: Desk) -> None:
    words = ("requirements.txt", "--base", desk.image, "--site", place(desk), "--on-node")
    done = desk.argosy("build", *words, "-o", "new.sif", "-v", env=HOSTILE)
    assert "new.sif:" in done.stdout
    assert f"{desk.folder}/argosy-work-" in done.stderr
    assert desk.argosy("run", "new.sif", "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"
    again = desk.argosy("build", *words, "-o", "new.sif", check=False)
    assert again.code == 2
    assert "already exists" in again.stderr


DEFINITIONS = {
    "usual": ("Bootstrap: scratch\n%post\n  true\n", True),
    "header": ("bootstrap:scratch # comment\n# c\n\nFrom: x\\\ny\n%POST\n true\n", True),
    "indented-head": ("  Bootstrap: scratch\n%post\n true\n", True),
    "windows": ("Bootstrap: scratch\r\n%post\r\n true\r\n", True),
    "signs": ("Bootstrap: scratch\n%%post\n true\n", True),
    "app": ("Bootstrap: scratch\n%appinstall foo\n true\n", True),
    "stages": ("Bootstrap: scratch\nStage: a\n%post\n true\nBootstrap: scratch\nStage: b\n%files from a\n /x\n", True),
    "no-app": ("Bootstrap: scratch\n%appinstall\n true\n", False),
    "no-colon": ("Bootstrap: scratch\nnonsense\n%post\n true\n", False),
    "no-key": (": x\nBootstrap: scratch\n", False),
    "no-section": ("Bootstrap: scratch\n%\n true\n", False),
    "comment": ("\n# only\n", False),
    "head": ("Bootstrap: scratch\nFoo: bar\n%post\n true\n", False),
    "section": ("Bootstrap: scratch\n%foo\n true\n", False),
    "indented-section": ("Bootstrap: scratch\n  %post\n true\n", False),
    "script": ("Bootstrap: scratch\n%post\n printf \\\n %s\n", False),
    "here-document": ("Bootstrap: scratch\n%post\n cat <<EOF\nBootstrap: docker\nEOF\n", False),
}
"""Definition files, and whether they can be read."""


def test_argosy_refuses_the_definition_files_that_apptainer_cannot_read(desk: Desk) -> None:
    for name, (text, _) in DEFINITIONS.items():
        desk.write(f"{name}.def", text)
    theirs, ours = {}, {}
    for name in DEFINITIONS:
        said = desk.sh(f"apptainer build --sandbox {name} {name}.def", check=False).stderr
        theirs[name] = "while parsing definition" not in said
        ours[name] = desk.argosy("build", f"{name}.def", "-o", f"{name}.sif", "--dry-run", check=False).code == 0
    expected = {name: can_be_read for name, (_, can_be_read) in DEFINITIONS.items()}
    assert (theirs, ours) == (expected, expected)


def test_a_launch_waits_for_the_image_that_a_job_builds(desk: Desk) -> None:
    site = place(desk, "network = false\n")
    desk.sh(f"apptainer sif dump 2 {desk.image} > base.sqfs")
    words = ("requirements.txt", "--base", "base.sqfs", "--site", site, "--submit")
    job = desk.argosy("build", *words, "-o", "new.sif").stdout.strip()
    assert job.isdigit()
    assert desk.wait(job) == "COMPLETED"
    assert "new.sif:" in desk.argosy("logs", job).stdout
    assert not list(desk.here.glob(".new.sif*"))
    assert desk.argosy("run", "new.sif", "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"
