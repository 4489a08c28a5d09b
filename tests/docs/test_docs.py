"""What the documentation shows is what happens: every console block is run, and what it prints is compared."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.reading import RECORD, Page, Said, read_page, run_page
from tests.lab.far import reached_by_ssh
from tools.consoles import write_outputs

if TYPE_CHECKING:
    from tests.docs.conftest import Shop
    from tests.lab.conftest import Cluster

FAR = "ssh"
"""What a page needs whose cluster is reached from another machine."""


@pytest.mark.real
def test_every_command_of_a_page_prints_the_shown_output(page_here: Path, shop: Shop) -> None:
    page = read_page(page_here)
    project = Path(tempfile.mkdtemp(prefix="page-", dir=shop.folder))
    shop.digits()
    for name in page.needs:
        shop.put(name, project)
    write_files(page, project)
    record(page, run_page(page, lambda words: shop.here(project, words)), shop)


@pytest.mark.lab
def test_every_command_of_a_slurm_page_prints_the_shown_output(
    page_in_lab: Path,
    shop: Shop,
    cluster: Cluster,
    lab_image: Callable[[str], Path],
) -> None:
    page = read_page(page_in_lab)
    project = cluster.shared / page_in_lab.stem
    project.mkdir()
    for name in page.needs:
        if name.endswith(".sif"):
            if not (cluster.shared / name).exists():
                give(lab_image(name), cluster.shared / name)
            (project / name).symlink_to(f"../{name}")
        elif name != FAR:
            shop.put(name, project)
    write_files(page, project)
    for path in (project, *(path for path in project.rglob("*") if not path.is_symlink())):
        path.chmod(0o777)
    with reached_by_ssh(cluster, "mycluster") if FAR in page.needs else contextlib.nullcontext():
        whole = run_page(
            page, lambda words: shop.here(project, words), lambda words: on_the_cluster(cluster, project.name, words)
        )
    record(page, whole, shop)


def record(page: Page, whole: Sequence[tuple[str, str]], shop: Shop) -> None:
    """Store the whole outputs of a page for the website, if asked to; readers see the paths of a user named ada."""
    if RECORD and whole:
        write_outputs(page.path, whole, shop.places())


def give(image: Path, place: Path) -> None:
    """Put an image where all nodes see it; half a gigabyte is copied only where it cannot be linked."""
    try:
        os.link(image, place)
    except OSError:
        shutil.copy(image, place)


def write_files(page: Page, project: Path) -> None:
    """Write the files that a page shows."""
    for name, text in page.files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)


def on_the_cluster(cluster: Cluster, name: str, words: str) -> Said:
    """Run a command on the login node, and show paths as the pages do."""
    done = cluster.on("ctl", ["sh", "-c", f"exec 2>&1\n{words}"], cwd=f"/shared/{name}", check=False)
    return done.code, done.stdout.replace(f"/shared/{name}", "/home/ada/project")
