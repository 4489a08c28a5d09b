"""Plan for another machine than this one: what is not here is assumed, and each assumption is said; pure."""

from __future__ import annotations

from argosy.core.errors import SiteError, UsageError
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, Host, Image, ImageKind
from argosy.core.records import replace
from argosy.launch.site_settings import validated_overlay_mode
from argosy.runtimes.apptainer import FAMILIES
from argosy.runtimes.container_plan import ContainerPlan, fileless_image, plan_container
from argosy.runtimes.runtime import load_runtime
from argosy.sites.profile import Site

FROM_CALLER = ("SBATCH_", "OMP_NUM_THREADS")
"""What a plan may still read of the caller's environment: the user's defaults."""


def is_elsewhere(host: Host, *, image_is_here: bool) -> bool:
    """Return whether a plan for a site with Slurm is made away from it: sbatch or the image is not here."""
    return not (image_is_here and "sbatch" in host.programs)


def assume_host(site: Site, host: Host, runtime: str) -> Host:
    """Return the site's machine as far as its profile tells; home and current directory are those of the job there.

    Raises
    ------
    SiteError
        When nobody says which runtime there is.
    """
    if not runtime:
        raise SiteError(
            f"it is not known which container runtime {site.name} has",
            evidence="; ".join(q for q in site.open_questions if "runtime" in q) or "its profile does not say",
            hint="name it with --runtime",
        )
    names = (*NOT_FROM_CALLER, *(f"{family}_{key}" for family in FAMILIES for key in ("BIND", "BINDPATH")))
    kept = {name: value for name, value in host.environment.items() if name.startswith(FROM_CALLER)}
    return replace(
        host,
        hostname=site.name,
        arch=site.node.arch or host.arch,
        person=replace(host.person, home=""),
        cwd="",
        programs={load_runtime(runtime).program: ""},
        overlay="unknown",
        user_namespaces=site.runtime.user_namespaces is not False,
        environment=dict.fromkeys(names, "") | kept,
    )


def assume_runtime(site: Site, host: Host, runtime: str) -> Host:
    """Return this machine with the site's runtime, which a module may bring to the job only."""
    if not runtime:
        return host
    program = load_runtime(runtime).program
    return replace(host, arch=site.node.arch or host.arch, programs={program: "", **host.programs})


def with_validated_overlay(site: Site, host: Host, runtime: str) -> Host:
    """Return the machine with what a run at the site showed of overlays: that beats what its configuration says."""
    shown = validated_overlay_mode(site, runtime)
    return replace(host, overlay=shown) if shown else host


def assume_container(
    reference: str,
    request: ContainerRequest,
    site: Site,
    host: Host,
    *,
    script_only: bool,
    remote_image: Image | None,
) -> ContainerPlan:
    """Plan a container for an image that is not here: one with torch, made by somebody else; and say so.

    Parameters
    ----------
    remote_image
        What the image is, where it was looked at from afar; one without a lock may still have torch.

    Raises
    ------
    UsageError
        When the script is kept for somebody to submit, and the image has yet to be fetched.
    """
    unfetched = "://" in reference
    if script_only and unfetched:
        raise UsageError(
            f"a script that is kept needs an image that is a file at {site.name}",
            evidence=f"{reference} is fetched where a job is launched",
            hint="fetch it there with 'argosy images pull', and give its name there; or see --dry-run",
        )
    kind = ImageKind.SIF if reference.endswith(".sif") else ImageKind.SQUASHFS
    signed = _not_verified(request, remote_image)
    if remote_image is not None and remote_image.argosy:
        plan = plan_container(request, remote_image, host)
        return replace(plan, choices=(*plan.choices, *signed))
    image = (
        remote_image
        or fileless_image(reference, request.runtime)
        or Image(path=reference, kind=kind, digest="", arch="")
    )
    plan = plan_container(request, replace(image, packages=frozenset({"torch"})), host)
    fetched = "; its file stands here where it is launched" if unfetched else ""
    said = (
        Choice(
            ChoiceKey.ASSUMED,
            reference,
            f"the image is not here: taken for one with torch, without a layer{fetched}",
            "assumed",
        ),
        Choice(ChoiceKey.ASSUMED, "home, folder", f"not this machine's: the job's own at {site.name}", "assumed"),
    )
    return replace(plan, choices=(*plan.choices, *signed, *said))


def _not_verified(request: ContainerRequest, found: Image | None) -> tuple[Choice, ...]:
    """Say that a required signature was not verified, and who does that."""
    if not request.signed_by:
        return ()
    why = "verified there at the start" if found else "not verified: the image is not here; there: apptainer verify"
    return (Choice(ChoiceKey.SIGNED_BY, " or ".join(request.signed_by), why, "option"),)
