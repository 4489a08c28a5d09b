"""What the pages are run with: a shop with the images that they need, and the lab's cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from argosy.images.flat import base_source
from argosy.images.open import open_image
from argosy.images.sif.write import write_pieces
from argosy.images.squashfs.superblock import slices_of
from tests.docs.reading import REPO, Said, read_page
from tests.kept import LAB
from tests.lab import conftest as lab_fixtures
from tests.lab.slurm import conftest as slurm_fixtures
from tests.memory import scratch_folder
from tests.patience import PATIENCE_S
from tests.without_slurm import path_without_slurm

KEPT = LAB / "cache"
FOLDER_IN_DOCS = "/home/ada/project"
CATALOG_IN_DOCS = "/home/ada/.local/share/argosy/images"
PROGRAMS = ("bwrap", "mksquashfs", "unsquashfs", "mmdebstrap")
DIGITS = "argosy build examples/digits/environment.yml --base debian:bookworm -o digits.sif"
DELTA = "argosy build --locked digits.sif --format delta -o delta.sif"
TRAIN = "argosy launch digits.sif --ranks 2 --site local -- python examples/digits/train.py --epochs 20"
VENDOR_TORCH = "2.9.0a0+145a3a7bda.nv25.10"


@dataclass(slots=True)
class Shop:
    """What pages are run with: one cache, and the images that they need, each made once."""

    folder: Path
    built: dict[str, tuple[Path, Said]] = field(default_factory=dict)
    trained: Said | None = None

    def here(self, project: Path, words: str) -> Said:
        """Run a command on this machine; a build of the same words as before gives the same image again."""
        build = words.partition("\n")[2]
        if build == DIGITS:
            self.digits()
        if build in self.built:
            image, said = self.built[build]
            (project / image.name).symlink_to(image)
            return said
        if build != TRAIN:
            return self.start(project, words)
        if self.trained is None:  # two pages train the same for twenty epochs
            self.trained = self.start(project, words)
        return self.trained

    def start(self, project: Path, words: str) -> Said:
        """Run a command in a clean environment, and show paths as the pages do."""
        done = subprocess.run(
            ("/bin/sh", "-c", words),
            cwd=project,
            env=self.environment(project),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        shown = done.stdout.replace(str(project), FOLDER_IN_DOCS).replace(str(self.catalog(project)), CATALOG_IN_DOCS)
        return done.returncode, shown

    def catalog(self, project: Path) -> Path:
        """Return the folder of a page's images by name: pages must not find those of others, or of this machine."""
        return self.folder / "catalogs" / project.name

    def environment(self, project: Path) -> dict[str, str]:
        """Give the environment of a user; what this machine must know to reach an index is kept."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "ARGOSY_DEBIAN"))}
        return kept | {
            "PATH": f"{Path(sys.executable).parent}:{path_without_slurm(self.folder / 'programs')}",
            "HOME": os.environ["HOME"],
            "LANG": "C.UTF-8",
            "PWD": str(project),
            "ARGOSY_CACHE": str(self.folder / "cache"),
            "ARGOSY_STATE": str(self.folder / "state"),
            "ARGOSY_IMAGES": str(self.catalog(project)),
        }

    def places(self) -> dict[str, str]:
        """Map paths and names of this machine to those that readers of recorded outputs see."""
        return {
            str(KEPT): "/home/ada/.cache/argosy",
            str(self.folder / "cache"): "/home/ada/.cache/argosy",
            str(self.folder / "state"): "/home/ada/.local/state/argosy",
            str(self.folder): "/var/tmp/argosy",  # noqa: S108 - only shown
            str(Path(sys.executable).parent): "/home/ada/.local/bin",
            str(REPO): "/home/ada/argosy",
            os.environ["HOME"]: "/home/ada",
            "/home/alice": "/home/ada",
            os.uname().nodename: "laptop",
        }

    def put(self, name: str, project: Path) -> None:
        """Put what a page needs into its folder."""
        if name == "examples":
            shutil.copytree(REPO / "examples", project / name)
        elif name == "digits.sif":
            (project / name).symlink_to(self.digits())
        elif name == "delta.sif":
            (project / name).symlink_to(self.delta())
        elif name == "vendor.sqfs":
            (project / name).symlink_to(self.vendor())
        else:
            raise ValueError(f"no page can need {name!r}")

    def digits(self) -> Path:
        """Build the image of the tutorial with the tutorial's own words, once."""
        if DIGITS not in self.built:
            project = self.folder / "digits"
            project.mkdir()
            self.put("examples", project)
            said = self.start(project, DIGITS)
            assert said[0] == 0, said[1]
            self.built[DIGITS] = (project / "digits.sif", said)
        return self.built[DIGITS][0]

    def delta(self) -> Path:
        """Build the same image with base and layer as two partitions, once."""
        image = self.digits().with_name("delta.sif")
        if not image.exists():
            code, said = self.start(image.parent, DELTA)
            assert code == 0, said
        return image

    def vendor(self) -> Path:
        """Make a stand-in for a vendor's image: a Debian with a torch of its own, which computes nothing."""
        base = self.folder / "vendor.sqfs"
        if base.exists():
            return base
        debian, tree = self.folder / "debian.sqfs", self.folder / "vendor"
        write_pieces(debian, slices_of(base_source(open_image(self.digits()).image)))
        words = ("unsquashfs", "-quiet", "-no-progress", "-d", tree, debian)
        subprocess.run(words, check=True, capture_output=True)
        site = tree / "usr/local/lib/python3.11/dist-packages"
        info = site / f"torch-{VENDOR_TORCH}.dist-info"
        info.mkdir(parents=True)
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text(f'__version__ = "{VENDOR_TORCH}"\n')
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {VENDOR_TORCH}\n")
        (info / "RECORD").write_text("torch/__init__.py,,\n")
        packed = ("mksquashfs", tree, base, "-comp", "zstd", "-Xcompression-level", "1", "-quiet", "-no-progress")
        subprocess.run(packed, check=True, capture_output=True)
        shutil.rmtree(tree)
        return base


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    """Open the shop: bases, tools and downloads are kept on this machine, everything else is this run's own."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("the pages show what root sees")
    with scratch_folder("argosy-docs-") as folder:
        (folder / "cache").mkdir()
        for name in ("bases", "tools", "uv", "bytecode", "packed"):
            (KEPT / name).mkdir(parents=True, exist_ok=True)
            (folder / "cache" / name).symlink_to(KEPT / name)
        yield Shop(folder)


lab = lab_fixtures.lab
cluster = lab_fixtures.cluster


@pytest.fixture
def lab_image(shop: Shop) -> Callable[[str], Path]:
    """Give what finds an image that pages of the lab need by its name: the tutorial's, or an example's."""
    own = {"digits.sif": shop.digits, "delta.sif": shop.delta}
    return lambda name: own[name]() if name in own else slurm_fixtures.example_image(name.removesuffix(".sif"))


def pages(*, lab: bool) -> Sequence[Path]:
    """List the pages with console blocks: those that need the lab's cluster, or those that do not."""
    every = (
        REPO / "README.md",
        *sorted((REPO / "docs").rglob("*.md")),
        *sorted((REPO / "examples").rglob("README.md")),
    )
    read = ((path, read_page(path).commands) for path in every)
    return [path for path, commands in read if commands and any(command.lab for command in commands) == lab]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `page_here` or `page_in_lab` each such page."""
    for name, in_lab in (("page_here", False), ("page_in_lab", True)):
        if name in metafunc.fixturenames:
            found = pages(lab=in_lab)
            metafunc.parametrize(name, found, ids=[str(path.relative_to(REPO)) for path in found])
