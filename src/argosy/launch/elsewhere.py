"""Plan a job on a machine that is not its site: what the plan assumes, and paths from the submit folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from argosy.core.errors import SiteError, UsageError
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import (
    APPTAINER_FAMILIES,
    BARE_PREFIX,
    Bind,
    Choice,
    ChoiceKey,
    ContainerRequest,
    Host,
    Image,
    ImageKind,
    Mark,
)
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.catalog import IMAGE_SUFFIXES
from argosy.launch.model import LaunchRequest, Purpose, as_pattern
from argosy.launch.site_settings import container_at_site
from argosy.runtimes.container_plan import ContainerPlan, fileless_image, plan_container
from argosy.runtimes.open_container import plan_entry
from argosy.runtimes.runtime import FILES, load_runtime
from argosy.sites.profile import Site


def is_elsewhere(request: LaunchRequest, site: Site, session: Session, *, remote_image: Image | None) -> bool:
    """Return whether this machine is not the site: sbatch or the image is missing here."""
    runtime = container_at_site(request.container, site).runtime
    here = remote_image is None and is_here(request.image, runtime, session)
    return not (here and "sbatch" in session.host.programs)


def is_here(reference: str, runtime: str, session: Session) -> bool:
    """Return whether the image can be opened on this machine.

    Names in the catalog and archives are always looked up.  An image in a registry counts as present if the runtime
    pulls it itself, or if this machine is at the site and can pull it.
    """
    if "://" in reference:
        return fileless_image(reference, runtime) is not None or "sbatch" in session.host.programs
    if ":" in reference:
        from argosy.images.registry.references import is_reference  # noqa: PLC0415 - most images are files

        if is_reference(reference):
            return True
    if reference.startswith(BARE_PREFIX) or not ("/" in reference or reference.endswith(IMAGE_SUFFIXES)):
        return True
    return any((at / parse_path(reference)).exists() for at in (Path(), *session.paths.images))


def from_submit_folder(request: LaunchRequest, folder: str) -> LaunchRequest:
    """Return the request with paths below the current folder relative to the folder of the job at the site.

    The job starts in the folder from which it is submitted, or in ``--chdir`` below it.  Its container has this folder,
    so that binds below it are not needed.

    Raises
    ------
    UsageError
        If the folder of the program is relative.
    """
    options, container = request.options, request.container
    if container.workdir and not container.workdir.startswith("/"):
        raise UsageError(
            f"the folder of --workdir {container.workdir} is known only where the job is submitted",
            hint="write an absolute path",
        )
    chdir = _relative(options.chdir, folder, folder)
    job_folder = folder if chdir.startswith("/") or not chdir else options.chdir
    output, error = (
        _relative(path, as_pattern(job_folder), as_pattern(folder)) for path in (options.output, options.error)
    )
    checkpoint = _relative(request.checkpoint, job_folder, folder)
    return replace(
        request,
        image=_relative(request.image, folder, folder),
        options=replace(options, chdir=chdir, output=output, error=error),
        logs=_relative(request.logs, job_folder, folder),
        checkpoint=checkpoint if checkpoint.startswith("/") or not checkpoint else f"./{checkpoint}",
        container=container if chdir or container.contain else replace(container, binds=_without_own(container.binds)),
    )


def _relative(path: str, start: str, folder: str) -> str:
    """Return a path below a folder relative to `start`; any other path unchanged."""
    return os.path.relpath(path, start) if path and Path(path).is_relative_to(folder) else path


def with_image_of_folder(container: ContainerPlan, folder: str, chdir: str) -> ContainerPlan:
    """Return the container with an image below the current folder as a path from the job's folder at the site.

    An archive, whose image is in the cache of this machine, first becomes a file in the submit folder.
    """
    image, rows = container.entry.image, container.choices
    path = _relative(image.path, folder, folder)
    if image.reference:
        path = _pulled_name(image.reference, Path(path).suffix)
        rows = (*rows, _pull_first(image.reference, path, "then"))
    if image.kind not in FILES or path.startswith("/"):
        return container
    image = replace(image, path=_from_job_folder(path, chdir))
    return replace(container, entry=replace(container.entry, image=image), choices=rows)


def _without_own(binds: tuple[Bind, ...]) -> tuple[Bind, ...]:
    """Leave out the binds of folders below the job's folder, which the container has."""
    return tuple(each for each in binds if each.source != each.target or each.source.startswith(("/", "..", "~")))


FROM_CALLER = ("SBATCH_", "OMP_NUM_THREADS")
"""Prefixes of the caller's variables that a plan for another machine still reads: the user's defaults."""


def assume_host(site: Site, host: Host, runtime: str) -> Host:
    """Return the machine that the site's profile describes; home and current directory are left to the job.

    Raises
    ------
    SiteError
        If the runtime is not known.
    """
    if not runtime:
        raise SiteError(
            f"cannot plan a job for {site.name}: its container runtime is not known",
            evidence="; ".join(q for q in site.open_questions if "runtime" in q) or "its profile does not name one",
            hint='select it with --runtime; or for all jobs, set name = "…" in [runtime] of the site\'s profile',
        )
    names = (*NOT_FROM_CALLER, *(f"{family}_{key}" for family in APPTAINER_FAMILIES for key in ("BIND", "BINDPATH")))
    kept = {name: value for name, value in host.environment.items() if name.startswith(FROM_CALLER)}
    return replace(
        host,
        hostname=site.name,
        arch=site.node.architecture or host.arch,
        person=replace(host.person, home=""),
        cwd="",
        programs={load_runtime(runtime).program: ""},
        overlay="unknown",
        user_namespaces=site.runtime.user_namespaces is not False,
        environment=dict.fromkeys(names, "") | kept,
    )


def assume_container(
    request: LaunchRequest,
    wanted: ContainerRequest,
    site: Site,
    host: Host,
    purpose: Purpose,
    *,
    remote_image: Image | None,
) -> ContainerPlan:
    """Plan a container for an image that is not on this machine, and list the assumptions: an image with torch.

    Parameters
    ----------
    remote_image
        The image, if it was read over ssh; without a lock, it is assumed to contain torch.

    Raises
    ------
    UsageError
        If the plan is carried out, and the image is in a registry.
    """
    reference = request.image
    signed = _not_verified(wanted, remote_image)
    if remote_image is not None and remote_image.argosy:
        plan = plan_entry(plan_container(wanted, remote_image, host), wanted, reference, lambda: (site,))
        return replace(plan, choices=(*plan.choices, *signed))
    fileless = fileless_image(reference, wanted.runtime)
    unfetched = "://" in reference and fileless is None
    if unfetched and purpose is not Purpose.SHOW:
        raise must_be_file(reference, site)
    path = _pulled_name(reference) if unfetched else reference
    kind = ImageKind.SIF if path.endswith(".sif") else ImageKind.SQUASHFS
    image = remote_image or fileless or Image(_from_job_folder(path, request.options.chdir), kind, digest="", arch="")
    plan = plan_container(wanted, replace(image, packages=frozenset({"torch"})), host)
    plan = plan_entry(plan, wanted, reference, lambda: (site,))
    assumed = (
        *_assumptions(path, image, request, site, fetched_first=unfetched),
        Choice("home and current folder", f"those of {site.name}", "instead of those of this machine", "assumed"),
    )
    return replace(plan, choices=(*plan.choices, *signed, *assumed))


def must_be_file(reference: str, site: Site) -> UsageError:
    """Return the error for an image in a registry or an archive, whose job is submitted on another machine."""
    return UsageError(
        f"the image must be a file at {site.name}",
        evidence=f"{reference} is an image {'in a registry' if '://' in reference else 'archive'}",
        hint=f"run 'argosy images pull {reference} -o {_pulled_name(reference)}', send the file there with "
        "'argosy images send', and pass its path",
    )


def refuse_unpacked_elsewhere(container: ContainerPlan, site: Site) -> None:
    """Refuse a runtime that starts unpacked images: this machine cannot unpack an image file for the site."""
    runtime, image = container.runtime, container.entry.image
    if runtime.traits.unpacks and image.kind in {ImageKind.SIF, ImageKind.SQUASHFS}:
        raise UsageError(
            f"cannot plan a job with {runtime.name} for {site.name} on this machine",
            evidence=f"it starts unpacked images, and only a machine of the site that has {image.shown} can unpack it",
            hint=f"use argosy launch at {site.name}, or choose another runtime with --runtime",
        )


def _pulled_name(reference: str, suffix: str = ".sif") -> str:
    """Return the name of a file for an image, in the submit folder."""
    from argosy.images.registry.references import file_for  # noqa: PLC0415 - most images are files

    return Path(file_for(reference, suffix)).name


def _pull_first(reference: str, path: str, when: str) -> Choice:
    """Return the command that must make the image's file before the job can start."""
    why = f"{when} copy {path} to the folder from which you submit the job"
    return Choice(
        ChoiceKey.PULL, f"argosy images pull {quote(reference)} -o {quote(path)}", why, "assumed", mark=Mark.FIRST
    )


def _from_job_folder(path: str, chdir: str) -> str:
    """Return the path of an image from the job's folder, if this folder is below the submit folder."""
    is_below = bool(chdir) and not chdir.startswith("/")
    return os.path.relpath(path, chdir) if is_below and not path.startswith(("/", "~")) and "://" not in path else path


def _assumptions(
    path: str, image: Image, request: LaunchRequest, site: Site, *, fetched_first: bool
) -> Iterator[Choice]:
    """Yield what a plan assumes about an image that is not here, and what must be done before its job can start."""
    if fetched_first:
        yield _pull_first(request.image, path, "on a machine with internet access; then")
    is_file = image.kind in FILES
    doubt = ""
    if is_file and not path.endswith(IMAGE_SUFFIXES):
        doubt = f"; a folder of 'argosy wrap' needs another script, which a dry run at {site.name} prints"
    elif is_file and request.options.chdir.startswith("/") and not path.startswith("/"):
        doubt = f"; the job looks for it in {request.options.chdir} (--chdir): write its absolute path"
    mark = Mark.DOUBTFUL if doubt else Mark.NONE
    why = f"the image is not on this machine, and is assumed to contain PyTorch{doubt}"
    yield Choice(ChoiceKey.ASSUMED, path, why, "assumed", mark=mark)


def _not_verified(request: ContainerRequest, found: Image | None) -> tuple[Choice, ...]:
    """Return the choice that tells where a required signature is verified."""
    if not request.signed_by:
        return ()
    why = (
        "verified at the site before the start"
        if found
        else "not verified: the image is not here; run apptainer verify"
    )
    return (Choice(ChoiceKey.SIGNED_BY, " or ".join(request.signed_by), why, "option"),)
