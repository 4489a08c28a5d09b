"""Resolve the context of a launch: the site's profile, the job's machine and shape, and the container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from argosy.core.errors import SiteError, UsageError
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import (
    BARE_PREFIX,
    Bind,
    Choice,
    ChoiceKey,
    ContainerRequest,
    Gpu,
    GpuMode,
    Host,
    Image,
    ImageKind,
    Mark,
)
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.gpus import MODE_VENDOR
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.complete import complete_request
from argosy.launch.context import LaunchContext, LaunchTarget, choose_target
from argosy.launch.model import LaunchRequest, as_pattern
from argosy.launch.plan import plan_launch
from argosy.launch.site_settings import container_at_site, parse_torch_version, validated_overlay_mode
from argosy.launch.torch_check import check_torch_build
from argosy.runtimes.apptainer import FAMILIES
from argosy.runtimes.command_check import (
    refuse_missing_binds,
    refuse_missing_program,
    refuse_no_image,
    refuse_no_program,
    refuse_starter,
)
from argosy.runtimes.container_plan import ContainerPlan, fileless_image, left_to_nodes, plan_container
from argosy.runtimes.image_entry import plan_entry
from argosy.runtimes.open_container import open_container
from argosy.runtimes.program_check import refuse_unknown_program
from argosy.runtimes.runtime import load_runtime
from argosy.sites.detect import machine_here
from argosy.sites.load import LoadedSite, load_profile, locate_profile_errors
from argosy.sites.profile import Site
from argosy.slurm.option_checks import named_cluster

IMAGE_SUFFIXES = (".sif", ".sqsh", ".squashfs")
"""An argument with one of these suffixes is a file path, even if the file does not exist."""


def prepare_launch(
    request: LaunchRequest,
    session: Session,
    *,
    profile: LoadedSite | None = None,
    dry: bool = False,
    script_only: bool = False,
    record: str = "",
    remote_image: Image | None = None,
) -> LaunchPlan:
    """Resolve and plan a launch; parameters and errors as `resolve_launch` and `plan_launch`."""
    context = resolve_launch(
        request,
        session,
        profile=profile,
        dry=dry,
        script_only=script_only,
        record=record,
        remote_image=remote_image,
    )
    with locate_profile_errors(request.site, session.host):
        return plan_launch(context)


def resolve_launch(
    request: LaunchRequest,
    session: Session,
    *,
    profile: LoadedSite | None = None,
    dry: bool = False,
    script_only: bool = False,
    record: str = "",
    remote_image: Image | None = None,
) -> LaunchContext:
    """Return everything that a launch is planned from; this function asks this machine and the image.

    Parameters
    ----------
    profile
        The site's profile, if it was read already.
    dry
        Whether the plan is only shown, so that nothing on disk may change.
    script_only
        Whether the script is submitted elsewhere, so that image and programs may be missing here.
    record
        Folder of the job's record; empty for a script without a record.
    remote_image
        The image at the site, if it was read over ssh.

    Raises
    ------
    UsageError, SiteError
        If the request is not valid, or the site does not support it.
    ImageError, CheckFailed
        If the image cannot be opened, or its torch cannot use the GPUs of the job.
    """
    host = session.host
    refuse_no_image(request.image, request.command)
    refuse_no_program(request.command, request.container, host)
    if not request.image.startswith(BARE_PREFIX):
        refuse_starter(request.command)
    profile = profile or load_profile(request.site, host)
    with locate_profile_errors(request.site, host):
        request = complete_request(_without_own_cluster(request, host), profile.site, host)
        if profile.note:
            row = Choice(ChoiceKey.PROFILE, profile.path, profile.note, "search path")
            request = replace(request, choices=(*request.choices, row))
        target = choose_target(request, profile.site, host)
        resolve = _resolve_job if target.is_job else _resolve_local
        there, container = resolve(
            request, target, session, dry=dry, script_only=script_only, record=record, remote_image=remote_image
        )
        if not there.cwd:
            request = _from_submit_folder(request, host.cwd)
        if remote_image is None and not request.no_check:
            refuse_unknown_program(request.command, container.entry)
    return LaunchContext(request, target, container, there, _versions_of(container.entry.image, request), record)


def _resolve_local(
    request: LaunchRequest,
    target: LaunchTarget,
    session: Session,
    *,
    dry: bool,
    script_only: bool,
    **_of_jobs: object,
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a launch on this machine."""
    asked = _in_folder(container_at_site(request.container, target.site), request.options.chdir)
    wanted = _with_log_folder(asked, request.logs)
    host = replace(session.host, gpus=()) if request.container.gpu is GpuMode.NONE else session.host
    refuse_missing_binds(request.container)  # the folder for logs is created later
    if not (dry or script_only):
        refuse_missing_program(request.command, wanted, session.host)
    session = replace(session, host=host)
    return host, open_container(wanted, request.image, session, command=request.command, dry=dry, site=target.site)


def _resolve_job(
    request: LaunchRequest,
    target: LaunchTarget,
    session: Session,
    *,
    dry: bool,
    script_only: bool,
    record: str,
    remote_image: Image | None,
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a job, with the machine that the job runs on."""
    site, starts = target.site, not (dry or script_only)
    asked = _in_folder(container_at_site(request.container, site), request.options.chdir)
    there = _with_gpus_of_nodes(request, target, session.host)
    if starts and not (request.before or request.options.dependency):
        refuse_missing_program(request.command, asked, session.host, at_nodes=True)
    wanted = _with_log_folder(_with_log_folder(asked, request.logs), record)
    there, container = _open_at_nodes(
        request, wanted, site, there, session, dry=dry, script_only=script_only, remote_image=remote_image
    )
    if there.gpus:
        vendor, is_here = there.gpus[0].vendor, remote_image is None
        container = check_torch_build(request, container, site, vendor, session, start=starts, here=is_here)
    return there, container


def _without_own_cluster(request: LaunchRequest, host: Host) -> LaunchRequest:
    """Remove ``--clusters`` if it names this cluster: with it, Slurm's commands query the accounting database."""
    if not request.extra:
        return request
    named = {word: cluster for word in request.extra if (cluster := named_cluster(word))}
    own = machine_here(host).cluster if named else ""
    return replace(request, extra=tuple(word for word in request.extra if not own or named.get(word) != own))


def _open_at_nodes(
    request: LaunchRequest,
    wanted: ContainerRequest,
    site: Site,
    there: Host,
    session: Session,
    *,
    dry: bool,
    script_only: bool,
    remote_image: Image | None,
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a job on a machine with the job's GPUs.

    A plan that starts nothing may be made on another machine.  It then uses the machine that the profile describes, and
    assumes the contents of an image that cannot be opened here.
    """
    there = _assume_runtime(site, there, wanted.runtime)
    is_here = remote_image is None and _is_here(request.image, wanted.runtime, session)
    assumed = (dry or script_only) and _is_elsewhere(session.host, image_is_here=is_here)
    if assumed:
        there = _assume_host(site, there, wanted.runtime)
    if assumed and not is_here:
        container = _assume_container(
            request.image, wanted, site, there, script_only=script_only, remote_image=remote_image
        )
        return there, container
    there = with_validated_overlay(site, there, wanted.runtime)
    command = () if assumed else request.command
    container = open_container(wanted, request.image, replace(session, host=there), command=command, dry=dry, site=site)
    return there, left_to_nodes(container)


def _versions_of(image: Image, request: LaunchRequest) -> Mapping[str, str]:
    """Return the versions that conditions of profiles compare: those of the user, else those that the image lists."""
    nccl = {"nccl": image.nccl} if image.nccl else {}
    return parse_torch_version(image.torch) | nccl | dict(request.image_has)


def _from_submit_folder(request: LaunchRequest, folder: str) -> LaunchRequest:
    """Return the request with output files relative to the submit folder, which is not this machine's."""
    options, here = request.options, as_pattern(folder).rstrip("/") + "/"
    output, error = options.output.removeprefix(here), options.error.removeprefix(here)
    return replace(request, options=replace(options, output=output, error=error))


def _is_here(reference: str, runtime: str, session: Session) -> bool:
    """Return whether the image can be opened on this machine.

    Names in the catalog are always looked up.  An image in a registry counts as present if the runtime pulls it itself,
    or if this machine is at the site and can pull it.
    """
    if "://" in reference:
        return fileless_image(reference, runtime) is not None or "sbatch" in session.host.programs
    if reference.startswith(BARE_PREFIX) or not ("/" in reference or reference.endswith(IMAGE_SUFFIXES)):
        return True
    return any((at / Path(reference).expanduser()).exists() for at in (Path(), *session.paths.images))


def _in_folder(container: ContainerRequest, folder: str) -> ContainerRequest:
    """Start the program in the job's folder (``--chdir``), unless a folder in the container was requested."""
    if not folder or container.workdir or container.contain:
        return container
    return replace(container, workdir=folder, binds=(*container.binds, Bind(folder, folder)))


def _with_log_folder(container: ContainerRequest, logs: str) -> ContainerRequest:
    """Bind a folder that ranks write to; the plan drops the bind if another one contains the folder."""
    return replace(container, binds=(*container.binds, Bind(logs, logs))) if logs else container


def _has_unknown_gpus(site: Site) -> bool:
    """Return whether the nodes have GPUs, but the profile does not contain their number."""
    return bool(site.node.gpu_vendor) and not site.node.gpus


def _with_gpus_of_nodes(request: LaunchRequest, target: LaunchTarget, host: Host) -> Host:
    """Return this machine with the GPUs that the job has on each node.

    Raises
    ------
    UsageError, SiteError
        If the profile passes GPUs to a job without GPUs, if the job requests none and the number of GPUs of a node is
        not known, or if the vendor of the GPUs is not known.
    """
    site, gpus = target.site, target.shape.gpus_per_node
    mode = container_at_site(request.container, site).gpu
    if not gpus and mode is not request.container.gpu and MODE_VENDOR.get(mode):
        raise UsageError(
            f"no GPU was requested, but jobs of {site.name} pass GPUs into the container",
            evidence=f"its profile has gpu = {mode.value!r} in [runtime]",
            hint=f"add --gpus-per-node {site.node.gpus or 1}; or --gpu none for a job without GPUs",
            key="runtime.gpu",
        )
    if not gpus and _has_unknown_gpus(site) and request.container.gpu is GpuMode.AUTO:
        raise UsageError(
            f"the job does not request GPUs, but the nodes of {site.name} have GPUs",
            evidence="its profile does not say how many GPUs a node has",
            hint="add --gpus-per-node N; or --gpu none for a job without GPUs",
        )
    vendor = MODE_VENDOR.get(request.container.gpu) or site.node.gpu_vendor
    if gpus and not vendor and request.container.gpu is GpuMode.AUTO:
        raise SiteError(
            "GPUs were requested, but the site's profile does not specify their vendor",
            evidence=f"the profile {site.name} has no gpu_vendor in [node]",
            hint="add --gpu nv or --gpu rocm, or gpu_vendor to the profile",
        )
    return replace(host, gpus=tuple(Gpu(vendor, index, "") for index in range(gpus if vendor else 0)))


FROM_CALLER = ("SBATCH_", "OMP_NUM_THREADS")
"""Prefixes of the caller's variables that a plan for another machine still reads: the user's defaults."""


def _is_elsewhere(host: Host, *, image_is_here: bool) -> bool:
    """Return whether this machine is not the site: sbatch or the image is missing here."""
    return not (image_is_here and "sbatch" in host.programs)


def _assume_host(site: Site, host: Host, runtime: str) -> Host:
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
            hint="select it with --runtime",
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


def _assume_runtime(site: Site, host: Host, runtime: str) -> Host:
    """Return this machine with the site's runtime, because a module may provide it only to the job."""
    if not runtime:
        return host
    program = load_runtime(runtime).program
    return replace(host, arch=site.node.arch or host.arch, programs={program: "", **host.programs})


def with_validated_overlay(site: Site, host: Host, runtime: str) -> Host:
    """Return the machine with the overlay mode that a run at the site showed, which overrides its configuration."""
    shown = validated_overlay_mode(site, runtime)
    return replace(host, overlay=shown) if shown else host


def _assume_container(
    reference: str,
    request: ContainerRequest,
    site: Site,
    host: Host,
    *,
    script_only: bool,
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
        If the script is written to a file, and the image is in a registry.
    """
    unfetched = "://" in reference
    if script_only and unfetched:
        raise UsageError(
            f"cannot write a script: the image must be a file at {site.name}",
            evidence=f"{reference} is pulled when a job is launched",
            hint="run 'argosy images pull' there, and pass the path of the file; or use --dry-run",
        )
    kind = ImageKind.SIF if reference.endswith(".sif") else ImageKind.SQUASHFS
    signed = _not_verified(request, remote_image)
    if remote_image is not None and remote_image.argosy:
        plan = plan_entry(plan_container(request, remote_image, host), request, reference, (site,))
        return replace(plan, choices=(*plan.choices, *signed))
    fileless = fileless_image(reference, request.runtime)
    doubt = "" if fileless else _doubt_about(reference, site)
    image = remote_image or fileless or Image(path=reference, kind=kind, digest="", arch="")
    plan = plan_container(request, replace(image, packages=frozenset({"torch"})), host)
    plan = plan_entry(plan, request, reference, (site,))
    assumed = (
        Choice(
            ChoiceKey.ASSUMED,
            reference,
            f"the image is not here: it is assumed to have torch, and no layer{doubt}",
            "assumed",
            mark=Mark.DOUBTFUL if doubt else Mark.NONE,
        ),
        Choice(ChoiceKey.ASSUMED, "home, folder", f"those of the job at {site.name}, not of this machine", "assumed"),
    )
    return replace(plan, choices=(*plan.choices, *signed, *assumed))


def _doubt_about(reference: str, site: Site) -> str:
    """Return why a script for an image that is not here may not run as it is; empty for a usual image file."""
    if "://" in reference:
        return (
            f"; the script cannot run as it is: a launch at {site.name} pulls the image and writes its path; "
            f"to write a script here, run 'argosy images pull {reference} -o NAME' there, and pass that path"
        )
    if not reference.endswith(IMAGE_SUFFIXES):
        return f"; a folder of 'argosy wrap' needs another script, which a dry run at {site.name} prints"
    return ""


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
