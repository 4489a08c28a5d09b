"""Refuse an image whose torch cannot use the GPUs of a job, before the job is submitted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from argosy.core.errors import ArgosyError, CheckFailed
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, GpuMode, Image, ImageKind, Mark
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import remember_text
from argosy.images.open import file_identity
from argosy.images.torch_build import (
    ASK_TORCH,
    BACKENDS,
    describe_old_driver,
    describe_wrong_build,
    parse_torch,
    torch_of_packages,
    torch_of_version,
)
from argosy.launch.model import LaunchRequest, Purpose
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import open_container, start_command
from argosy.runtimes.runtime import FILES
from argosy.sites.profile import Site

ASK = """\
for python in python python3
do ! command -v "$python" >/dev/null || exec "$python" -I -c "$1"
done
echo '{}'
"""


NAMES: Mapping[str, frozenset[str]] = {
    "nvidia": frozenset(("nvcr", "nvidia", "cuda")),
    "amd": frozenset(("rocm", "amdih")),
    "intel": frozenset(("intel", "oneapi", "xpu")),
}
"""GPU vendor -> words in the names of images that were made for its GPUs, for example ``nvcr.io/nvidia/pytorch``."""

BRANDS: Mapping[str, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}

CHECK_HINT = "check the image with: argosy check IMAGE --site SITE"


def check_torch_build(
    request: LaunchRequest,
    container: ContainerPlan,
    site: Site,
    vendor: str,
    session: Session,
    purpose: Purpose,
) -> ContainerPlan:
    """Refuse an image whose torch does not support the GPUs of the job; return the container.

    An image that cannot be started on this machine is not refused; a note says that it was not checked.  A plan that is
    only shown gets a choice that tells why a launch would be refused.

    Parameters
    ----------
    vendor
        Vendor of the job's GPUs; empty for a job without GPUs.
    purpose
        Unless the job starts, only the image's lock is read, and nothing is refused.

    Raises
    ------
    CheckFailed
        If torch was built for other GPUs.
    """
    image, named = container.entry.image, {variable.name for variable in request.container.variables}
    if request.no_check or vendor not in BACKENDS or image.kind is ImageKind.HOST or named & {"PATH", "PYTHONPATH"}:
        return container
    if image.complete and "torch" not in image.packages:
        return container
    listed = torch_of_version(image.torch)
    torch = listed or (_look(image, session) if purpose is Purpose.START else torch_of_packages(image))
    wrong = describe_wrong_build(torch, vendor)
    if wrong and purpose is not Purpose.START:
        why = f"{wrong}, and {site.name} has GPUs of {vendor}, so a launch would be refused"
        row = Choice(ChoiceKey.TORCH, image.torch, why, "image", mark=Mark.DOUBTFUL)
        return replace(container, choices=(*container.choices, row))
    if wrong:
        raise CheckFailed(
            f"the torch in this image cannot use the GPUs of {site.name}",
            evidence=f"{image.path}: {wrong}\n{site.name} has GPUs of {vendor}, which need {BACKENDS[vendor]}",
            hint=f"use an image that 'argosy build --site {site.name}' made; for a job without GPUs: --gpu none; "
            "--no-check launches this one anyway",
        )
    old = describe_old_driver(torch, site.node.cuda)
    if old:
        session.reporter.note(f"{old} on {site.name}: it may find no GPU, unless the image contains cuda-compat")
    return container if torch else _doubt_by_name(request.image, container, site, vendor)


def _doubt_by_name(reference: str, container: ContainerPlan, site: Site, vendor: str) -> ContainerPlan:
    """Add a doubt to the plan if the name of the image says that it was made for the GPUs of another vendor."""
    made_for = _vendor_of_name(reference)
    if made_for in {"", vendor}:
        return container
    why = (
        f"its name says that it was made for {BRANDS[made_for]} GPUs, and {site.name} has {BRANDS[vendor]} GPUs, which "
        f"the program would not find; 'argosy images ls --site {site.name}' lists images for this site"
    )
    row = Choice("image", reference, why, "image", mark=Mark.DOUBTFUL)
    return replace(container, choices=(*container.choices, row))


def _vendor_of_name(reference: str) -> str:
    """Return the GPU vendor in the name of an image; empty if it has none, or several.

    The folders of a file say nothing about the image.
    """
    name = reference if "://" in reference else PurePosixPath(reference).name
    words = set(re.findall(r"[a-z]+", name.lower()))
    found = [vendor for vendor, known in NAMES.items() if known & words]
    return found[0] if len(found) == 1 else ""


def _look(image: Image, session: Session) -> Mapping[str, str]:
    """Return the build of the image's torch, which is cached per file; empty, with a note, if unknown."""
    file = parse_path(image.path)
    if image.kind not in FILES or not file.exists():
        session.reporter.note(f"torch in {image.path} was not checked: the image is not a file on this machine")
        return {}
    memo = None
    if image.kind is not ImageKind.TREE:  # the time of a folder does not show changes below it
        memo = session.paths.cache / "torch" / f"{file_identity(image)[:32]}{image.enter}"
    try:
        return parse_torch(remember_text(memo, lambda: _ask(image, session)))
    except ArgosyError as error:
        session.reporter.note(f"torch in {image.path} was not checked, the image cannot be started here: {error.what}")
        return {}


def _ask(image: Image, session: Session) -> str:
    request = ContainerRequest(gpu=GpuMode.NONE, workdir="/", enter=image.enter or "exec")
    plan = open_container(request, image.path, session, dry=True)
    if plan.runtime.traits.unpacks and image.kind is not ImageKind.TREE:
        raise CheckFailed(f"{plan.runtime.name} would have to unpack the image first", hint=CHECK_HINT)
    plan = open_container(request, image.path, session)
    reply = session.runner.run(start_command(plan, ("/bin/sh", "-c", ASK, "sh", ASK_TORCH), session))
    if reply.code:
        message = (reply.stderr.strip() or f"code {reply.code}").splitlines()[-1]
        raise CheckFailed(f"{plan.runtime.program}: {message}", hint=CHECK_HINT)
    return reply.stdout
