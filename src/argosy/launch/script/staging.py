"""Stage an image on each node's own disk for one job: which path, and how it comes and goes; pure.

Thousands of ranks that read one image from a parallel file system load its servers; ``sbcast`` reads it once and passes
it on from node to node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import Choice, ChoiceKey, ImageKind
from argosy.core.shell import quote
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Site

OLD_DAYS = 3
"""Age of a staged image that a job left behind when it was killed, and that the next one removes."""


def check_stage(folder: str, container: ContainerPlan, site: Site) -> tuple[Choice, ...]:
    """Judge whether the image can be staged there, and say so.

    Raises
    ------
    UsageError
        When the folder is none, or the runtime does not start out of one image file.
    SiteError
        When a node's own file system is memory.
    """
    if not folder:
        return ()
    if not site.has_slurm:
        raise UsageError("--stage-to needs a site with Slurm", hint="leave it out: the image is on this machine")
    if not re.fullmatch(r"/[\w./-]*", folder):
        raise UsageError(
            f"{folder!r} is not a valid folder for --stage-to", hint="write an absolute path, as --stage-to=/local"
        )
    image, runtime = container.entry.image, container.runtime
    if image.kind is not ImageKind.SIF or runtime.program not in {"apptainer", "singularity"}:
        raise UsageError(
            "--stage-to needs a SIF image and Apptainer or SingularityCE",
            evidence=f"the image is of the kind {image.kind.value}, the runtime is {runtime.name}",
            hint="leave --stage-to out",
        )
    if site.node.tmp_in_memory and folder.split("/")[1] in {"tmp", "dev", "run"}:
        raise SiteError(
            f"{folder} is in memory on the nodes of {site.name}: a staged image would take it from the ranks",
            evidence="tmp_in_memory = true in its profile",
            key="node.tmp_in_memory",
            hint="leave --stage-to out" if not site.node.local_disk else "name the node's disk: --stage-to=DIR",
        )
    known = "the node's own disk" if site.node.local_disk else "asked for; the profile does not tell what disk that is"
    return (
        Choice(ChoiceKey.STAGE_TO, folder, f"{known}; the image is copied there once and removed at the end", "option"),
    )


def render_staging(folder: str, image: str, digest: str) -> Iterator[str]:
    """Copy the image to every node, into a new folder that only the job's owner may enter."""
    name = digest.removeprefix("sha256:")[:16] or "image"
    yield f"stage_image {quote(folder)} {quote(image)} {name}.sif"
