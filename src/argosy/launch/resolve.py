"""Resolve the context of a launch: the site's profile, the allocation, the job's machine, its shape, its container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from argosy.core.errors import SiteError, UsageError
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
)
from argosy.core.parse import parse_int
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.gpus import MODE_VENDOR
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.complete import COUNTS, complete_request
from argosy.launch.context import LaunchContext, LaunchTarget, choose_target
from argosy.launch.elsewhere import (
    assume_container,
    assume_host,
    from_submit_folder,
    is_elsewhere,
    is_here,
    must_be_file,
    refuse_unpacked_elsewhere,
    with_image_of_folder,
)
from argosy.launch.image_checks import (
    check_torch_build,
    note_changed_files,
    note_missing_import,
    note_missing_program,
    read_program,
    refuse_missing_import,
)
from argosy.launch.launchers.launcher import NEEDED
from argosy.launch.model import LaunchRequest, ProgramImports, Purpose
from argosy.launch.notes import note_site
from argosy.launch.plan import plan_launch
from argosy.launch.request import locate_given_values
from argosy.launch.site_settings import container_at_site, parse_torch_version, validated_overlay_mode
from argosy.recipes.option_row import PROJECT_FILE
from argosy.runtimes.command_check import (
    refuse_host_program,
    refuse_missing_program,
    refuse_no_image,
    refuse_no_program,
    refuse_unknown_program,
    refuse_unusable_binds,
    refuse_without_python,
    refuse_without_shell,
)
from argosy.runtimes.container_plan import ContainerPlan, left_to_nodes
from argosy.runtimes.open_container import open_container
from argosy.runtimes.runtime import load_runtime
from argosy.sites.load import LoadedSite, load_profile, locate_profile_errors, machine_here
from argosy.sites.profile import Site
from argosy.slurm.calls import run_slurm
from argosy.slurm.option_checks import named_cluster
from argosy.slurm.queries import parse_scontrol_job
from argosy.slurm.sbatch import JobOptions

GPU_COUNT = re.compile(r"(?:^|[,/:])gpu(?:[:/][A-Za-z][\w.-]*)?[:=](\d+)")
"""The GPUs in a list of resources: ``gres/gpu:a100:4``, ``gres:gpu:4``, ``gpu:4`` or ``cpu=8,gres/gpu=4``."""

OF_NODE = ("TresPerNode",)
OF_JOB = ("TresPerJob", "AllocTRES", "TRES")
"""Fields of ``scontrol show job`` with the resources of a node and of the job; AllocTRES is TRES before Slurm 23.02."""


def prepare_launch(
    request: LaunchRequest,
    session: Session,
    *,
    profile: LoadedSite | None = None,
    purpose: Purpose = Purpose.START,
    record: str = "",
    remote_image: Image | None = None,
) -> LaunchPlan:
    """Resolve and plan a launch; parameters and errors as `resolve_launch` and `plan_launch`."""
    with locate_given_values(request):
        context = resolve_launch(
            request, session, profile=profile, purpose=purpose, record=record, remote_image=remote_image
        )
        with locate_profile_errors(request.site, session.host):
            return plan_launch(context)


def resolve_launch(
    request: LaunchRequest,
    session: Session,
    *,
    profile: LoadedSite | None,
    purpose: Purpose,
    record: str,
    remote_image: Image | None = None,
) -> LaunchContext:
    """Return everything that a launch is planned from; this function asks this machine and the image.

    Parameters
    ----------
    profile
        The site's profile, if it was read already.
    record
        Folder of the job's record; empty for a script without a record.
    remote_image
        The image at the site, if it was read over ssh.

    Raises
    ------
    UsageError, SiteError
        If the request is not valid, or the site does not support it.
    ImageError, CheckFailed
        If the image cannot be opened, its torch cannot use the GPUs of the job, or it lacks a framework that the
        program imports.
    """
    host = session.host
    _refuse_incomplete(request, host)
    profile = profile or load_profile(request.site, host)
    if purpose is Purpose.START:
        note_site(session, profile, request.sources)
    host = with_allocated_gpus(session) if request.in_allocation else host
    with locate_profile_errors(request.site, host):
        request, site = complete_request(_without_own_cluster(request, host), profile.site, host)
        request = _with_profile_row(request, profile)
        target = choose_target(request, site, host)
        request = _without_gpus(request, target)
        if not target.is_job:
            job_host, container = _resolve_local(request, target, session, purpose)
        elif purpose is not Purpose.START and is_elsewhere(request, target.site, session, remote_image=remote_image):
            if purpose is Purpose.SHOW:
                request = from_submit_folder(request, host.cwd)
                target = _with_paths(target, request.options)
            job_host, container = _assume_job(
                request, target, session, purpose, record=record, remote_image=remote_image
            )
        else:
            job_host, container = _resolve_job(request, target, session, purpose, record=record)
        if remote_image is None:
            container = _check_program(request, target, container, purpose, host.cwd)
    is_read = remote_image is None and target.shape.ranks > 1
    program = read_program(request, host.cwd) if is_read else ProgramImports()
    versions = _versions_of(container.entry.image, request)
    return LaunchContext(request, target, container, job_host, versions, record, program)


def _refuse_incomplete(request: LaunchRequest, host: Host) -> None:
    """Refuse a request that cannot be planned at any site: without image, command or program."""
    refuse_no_image(request.image, request.command)
    _refuse_no_command(request, host)
    refuse_no_program(request.command, request.container, host)
    if not request.image.startswith(BARE_PREFIX):
        refuse_host_program(request.command)


def _with_profile_row(request: LaunchRequest, profile: LoadedSite) -> LaunchRequest:
    """Add the file of a profile that is not the shipped one to the choices."""
    if not profile.note:
        return request
    row = Choice(ChoiceKey.PROFILE, profile.path, profile.note, "search path")
    return replace(request, choices=(*request.choices, row))


def _with_paths(target: LaunchTarget, options: JobOptions) -> LaunchTarget:
    """Return the target with the folder and output files of other options."""
    paths = replace(target.options, chdir=options.chdir, output=options.output, error=options.error)
    return replace(target, options=paths)


def _check_program(
    request: LaunchRequest, target: LaunchTarget, container: ContainerPlan, purpose: Purpose, folder: str
) -> ContainerPlan:
    """Refuse a program that the image cannot run; return the container with notes on what the program may lack.

    Only a real start is refused for a framework that the program imports: a preview notes it.
    """
    container = note_changed_files(container, folder)
    if not request.no_check:
        refuse_unknown_program(request.command, container.entry)
        if request.launcher in NEEDED:
            refuse_without_python(request.launcher, container.entry)
        if target.is_job:
            refuse_without_shell(container.entry)
    if purpose is not Purpose.START:
        return note_missing_import(request, container, folder)
    refuse_missing_import(request, container, folder)
    return note_missing_program(request, container, folder)


def _refuse_no_command(request: LaunchRequest, host: Host) -> None:
    """Refuse a launch without a command; without a project file, ``argosy launch NAME`` names no job."""
    if any(request.command[:1]):
        return
    is_name = not Path(request.image).suffix and "/" not in request.image
    no_project = f"{request.image!r} is not a job: there is no {PROJECT_FILE} in {host.cwd}"
    raise UsageError(
        "no command to launch",
        evidence=no_project if is_name and not Path(host.cwd, PROJECT_FILE).is_file() else "",
        hint="write it after --, for example: argosy launch IMAGE -- python train.py",
    )


def _resolve_local(
    request: LaunchRequest, target: LaunchTarget, session: Session, purpose: Purpose
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a launch on this machine."""
    asked = _in_folder(container_at_site(request.container, target.site), request.options.chdir)
    wanted = _with_written_folders(asked, request.logs)
    host = replace(session.host, gpus=()) if request.container.gpu is GpuMode.NONE else session.host
    refuse_unusable_binds(request.container)  # the folder for logs is created later
    if purpose is Purpose.START and not request.no_check:
        refuse_missing_program(request.command, wanted, session.host)
    session = replace(session, host=host)
    dry = purpose is Purpose.SHOW
    site, command = target.site, request.command
    return host, open_container(wanted, request.image, session, command=command, dry=dry, site=site, for_job=True)


def _resolve_job(
    request: LaunchRequest, target: LaunchTarget, session: Session, purpose: Purpose, *, record: str
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a job on this machine, which is at the site, with the GPUs of the job."""
    site = target.site
    wanted, job_host = _container_request(request, site, record), _with_gpus_of_nodes(request, target, session.host)
    if purpose is Purpose.START and not (request.before or request.options.dependency or request.no_check):
        refuse_missing_program(request.command, wanted, session.host, at_nodes=True)
    job_host = _at_nodes(site, job_host, wanted.runtime)
    dry = purpose is Purpose.SHOW
    job_host, container = _open_at_nodes(request, wanted, site, job_host, session, command=request.command, dry=dry)
    return job_host, check_torch_build(request, container, site, _vendor_of(job_host), session, purpose)


def _assume_job(
    request: LaunchRequest,
    target: LaunchTarget,
    session: Session,
    purpose: Purpose,
    *,
    record: str,
    remote_image: Image | None,
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a job on the machine that the site's profile describes.

    The contents of an image that cannot be opened here are assumed.
    """
    site = target.site
    wanted, job_host = _container_request(request, site, record), _with_gpus_of_nodes(request, target, session.host)
    job_host = assume_host(site, job_host, wanted.runtime)
    if remote_image is None and is_here(request.image, wanted.runtime, session):
        job_host, container = _open_at_nodes(request, wanted, site, job_host, session, command=(), dry=True)
        if purpose is not Purpose.SHOW and container.entry.image.reference:
            raise must_be_file(request.image, site)
        if purpose is Purpose.SHOW:
            container = with_image_of_folder(container, session.host.cwd, request.options.chdir)
    else:
        container = assume_container(request, wanted, site, job_host, purpose, remote_image=remote_image)
    refuse_unpacked_elsewhere(container, site)
    return job_host, check_torch_build(request, container, site, _vendor_of(job_host), session, Purpose.SHOW)


def _container_request(request: LaunchRequest, site: Site, record: str) -> ContainerRequest:
    """Return the container that a job requests: with the site's settings, its folder, and those that ranks write to."""
    asked = _in_folder(container_at_site(request.container, site), request.options.chdir)
    return _with_written_folders(asked, request.logs, record)


def _vendor_of(host: Host) -> str:
    """Return the vendor of the GPUs of a machine; empty without GPUs."""
    return host.gpus[0].vendor if host.gpus else ""


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
    job_host: Host,
    session: Session,
    *,
    command: tuple[str, ...],
    dry: bool,
) -> tuple[Host, ContainerPlan]:
    """Open the image on this machine, and plan its container on a machine with the job's GPUs."""
    job_host = with_validated_overlay(site, job_host, wanted.runtime)
    container = open_container(
        wanted, request.image, session, command=command, dry=dry, site=site, job_host=job_host, for_job=True
    )
    return job_host, left_to_nodes(container)


def _versions_of(image: Image, request: LaunchRequest) -> Mapping[str, str]:
    """Return the versions that conditions of profiles compare: those of the user, else those that the image lists."""
    nccl = {"nccl": image.nccl} if image.nccl else {}
    return parse_torch_version(image.torch) | nccl | dict(request.image_has)


def _in_folder(container: ContainerRequest, folder: str) -> ContainerRequest:
    """Start the program in the job's folder (``--chdir``), unless a folder in the container was requested."""
    if not folder.startswith("/") or container.workdir or container.contain:
        return container
    return replace(container, workdir=folder, binds=(*container.binds, Bind(folder, folder)))


def _with_written_folders(container: ContainerRequest, *folders: str) -> ContainerRequest:
    """Bind the absolute folders that ranks write to; the plan drops a bind if another one contains its folder."""
    binds = (Bind(folder, folder) for folder in folders if folder.startswith("/"))
    return replace(container, binds=(*container.binds, *binds))


def _without_gpus(request: LaunchRequest, target: LaunchTarget) -> LaunchRequest:
    """Return the request without GPUs in the container, if the nodes of its partition have none."""
    partition = target.site.partition(target.partition)
    has_none = partition is not None and partition.gpus == 0 and not target.shape.gpus_per_node
    if not has_none or request.container.gpu is not GpuMode.AUTO:
        return request
    return replace(request, container=replace(request.container, gpu=GpuMode.NONE))


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
            f"the job does not request GPUs, but jobs of {site.name} pass GPUs into the container",
            evidence=f"its profile has gpu = {mode.value!r} in [runtime]",
            hint=f"add --gpus-per-node {site.node.gpus or 1}; or --gpu none for a job without GPUs",
            key="runtime.gpu",
        )
    has_unknown_number = site.node.gpu_vendor and not site.node.gpus
    if not gpus and has_unknown_number and request.container.gpu is GpuMode.AUTO:
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


def _at_nodes(site: Site, host: Host, runtime: str) -> Host:
    """Return this machine with the nodes' architecture, and the job's runtime: a module may provide it only there."""
    programs = {load_runtime(runtime).program: "", **host.programs} if runtime else host.programs
    return replace(host, arch=site.node.architecture or host.arch, programs=programs)


def with_validated_overlay(site: Site, host: Host, runtime: str) -> Host:
    """Return the machine with the overlay mode that a run at the site showed, which overrides its configuration."""
    shown = validated_overlay_mode(site, runtime)
    return replace(host, overlay=shown) if shown else host


def with_allocated_gpus(session: Session) -> Host:
    """Return this machine with the GPUs of its allocation in ``SLURM_GPUS_PER_NODE``.

    salloc sets that variable only for the option of the same name, and a shell on the login node has no
    ``SLURM_GPUS_ON_NODE``.
    """
    host = session.host
    job = host.environment.get("SLURM_JOB_ID", "")
    if not job or any(host.environment.get(name) for name in COUNTS["gpus_per_node"]):
        return host
    reply = run_slurm(session, Command(("scontrol", "show", "job", "--oneliner", job)))
    gpus = gpus_per_node(parse_scontrol_job(reply.stdout)) if reply.code == 0 else 0
    return replace(host, environment={**host.environment, "SLURM_GPUS_PER_NODE": str(gpus)}) if gpus else host


def gpus_per_node(facts: Mapping[str, str]) -> int:
    """Return the GPUs on each node of a job, from the fields of ``scontrol show job``; 0 if they are not shown."""
    nodes = max(1, parse_int(facts.get("NumNodes", "").partition("-")[0]))
    for names, over in ((OF_NODE, 1), (OF_JOB, nodes)):
        for name in names:
            if found := GPU_COUNT.search(facts.get(name, "")):
                return int(found[1]) // over
    return 0
