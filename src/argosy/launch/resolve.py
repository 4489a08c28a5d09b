"""Find what a launch is planned from: the request, completed; the site, its machine, and the container there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, SiteError, UsageError
from argosy.core.model import BARE_PREFIX, NO_VALUES, PROFILE, Bind, Choice, ContainerRequest, Gpu, GpuMode, Host, Image
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.gpus import WAY_VENDOR
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.launch.plan import plan_launch
from argosy.launch.shape import choose_shape
from argosy.launch.site_overrides import container_at_site, parse_torch_version, resolve_site_overrides, with_gpus
from argosy.runtimes.command_check import refuse_missing_binds, refuse_missing_program, refuse_no_program
from argosy.runtimes.container_plan import ContainerPlan, fileless_image, left_to_nodes
from argosy.runtimes.open_container import open_container
from argosy.sites.profile import Site
from argosy.sites.read import read_site, search_path, whose_profile

FILE_ENDINGS = (".sif", ".sqsh", ".squashfs")
"""A word that ends so means a file, also where it has no folder and is not here."""


class LaunchContext(msgspec.Struct, frozen=True):
    """What a launch is planned from: the request, completed; the container; the site and its machine.

    Attributes
    ----------
    versions
        Of torch, ROCm, CUDA and NCCL in the image, as far as it tells them.
    """

    request: LaunchRequest
    container: ContainerPlan
    site: Site
    host: Host
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)


def plan_here(
    request: LaunchRequest,
    session: Session,
    *,
    dry: bool = False,
    kept: bool = False,
    record: str = "",
    found: Image | None = None,
) -> LaunchPlan:
    """Plan a launch with this machine's facts; with `dry`, nothing on disk changes.

    Parameters
    ----------
    dry, kept
        The script is only shown, or is kept for somebody to submit: neither needs the site's image or tools here.
    found
        The image at a site elsewhere, where it was looked at there.
    """
    with placed(request.site, session.host):
        context = resolve_launch(request, session, dry=dry, kept=kept, record=record, found=found)
        by = context.request, context.container, context.site, context.host
        return plan_launch(*by, record=record, versions=context.versions)


def resolve_launch(
    request: LaunchRequest,
    session: Session,
    *,
    dry: bool = False,
    kept: bool,
    record: str,
    found: Image | None = None,
) -> LaunchContext:
    """Find what a launch is planned from; as `plan_here`."""
    host = session.host
    refuse_no_program(request.command, request.container, host)
    request = _without_container(request)
    path, whose = whose_profile(request.site, search_path(host.environment, Path(host.cwd)))
    site = find_site(str(path), host)
    request = complete_request(_in_own_cluster(request, host), site, host)
    if whose:
        request = replace(request, choices=(*request.choices, Choice(PROFILE, str(path), whose, "search path")))
    overrides = resolve_site_overrides(request, site, host)
    asked = _in_folder(container_at_site(request.container, overrides.site), request.options.chdir)
    wanted = _with_log_folder(asked, request.logs)
    there = _plan_target(request, overrides.site, host)
    if site.scheduler == "local":
        refuse_missing_binds(request.container)  # a folder for logs is made when it is needed
        if not (dry or kept):
            refuse_missing_program(request.command, wanted, host)
        container = open_container(
            wanted, request.image, replace(session, host=there), command=request.command, dry=dry
        )
    else:
        if not (dry or kept or request.before or request.options.dependency):
            refuse_missing_program(request.command, asked, host, at_nodes=True)
        wanted = _with_log_folder(wanted, record)
        there, container = _enter_at_nodes(request, wanted, site, there, session, dry=dry, kept=kept, found=found)
        if there.gpus:
            from argosy.launch.torch_check import check_torch_build  # noqa: PLC0415 - jobs with GPUs only

            starts, is_here = not (dry or kept), found is None
            vendor = there.gpus[0].vendor
            container = check_torch_build(request, container, site, vendor, session, start=starts, here=is_here)
    return LaunchContext(request, container, site, there, _versions_of(container.entry.image, request))


def _in_own_cluster(request: LaunchRequest, host: Host) -> LaunchRequest:
    """Leave out ``--clusters`` where it names the one that is here: with it Slurm asks a database."""
    if not request.extra:
        return request
    from argosy.sites.detect import machine_here  # noqa: PLC0415 - likewise
    from argosy.slurm.option_checks import named_cluster  # noqa: PLC0415 - few launches have words for sbatch

    named = {word: cluster for word in request.extra if (cluster := named_cluster(word))}
    own = machine_here(host).cluster if named else ""
    return replace(request, extra=tuple(word for word in request.extra if not own or named.get(word) != own))


def _enter_at_nodes(
    request: LaunchRequest,
    wanted: ContainerRequest,
    site: Site,
    there: Host,
    session: Session,
    *,
    dry: bool,
    kept: bool,
    found: Image | None,
) -> tuple[Host, ContainerPlan]:
    """Plan the container of a job; give it with the machine that it was planned for.

    A plan that starts nothing may be made away from the site: then the machine is what the profile tells, and an
    image that cannot be opened here is assumed.
    """
    from argosy.launch.resolve_elsewhere import (  # noqa: PLC0415 - Slurm's sites only
        as_proved,
        assume_container,
        assume_host,
        assume_runtime,
        is_elsewhere,
    )

    there = assume_runtime(site, there, wanted.runtime)
    is_here = found is None and _is_here(request.image, wanted.runtime, session)
    assumed = (dry or kept) and is_elsewhere(site, session.host, image_is_here=is_here)
    if assumed:
        there = assume_host(site, there, wanted.runtime)
    if assumed and not is_here:
        return there, assume_container(request.image, wanted, site, there, kept=kept, found=found)
    there = as_proved(site, there, wanted.runtime)
    command = () if assumed else request.command
    container = open_container(wanted, request.image, replace(session, host=there), command=command, dry=dry)
    return there, left_to_nodes(container)


def _versions_of(image: Image, request: LaunchRequest) -> dict[str, str]:
    """Give the versions that conditions of profiles compare: as the user said, else as the image lists them."""
    nccl = {"nccl": image.nccl} if image.nccl else {}
    return parse_torch_version(image.torch) | nccl | dict(request.image_has)


def complete_request(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Apply what changes a request as a whole: ``--in-allocation``, ``--smoke``, ``--elastic``, and the site's GPUs."""
    if request.in_allocation:
        from argosy.launch.allocation import in_allocation  # noqa: PLC0415 - where it is asked for

        request = in_allocation(request, site, host)
    if request.given and site.scheduler != "slurm":
        from argosy.launch.option_checks import without_slurm  # noqa: PLC0415 - where there is a project file

        request = without_slurm(request)
    if request.smoke:
        from argosy.launch.smoke import as_smoke  # noqa: PLC0415 - where it is asked for

        request = as_smoke(request, site)
    if request.elastic:
        from argosy.launch.option_checks import with_elastic_nodes  # noqa: PLC0415 - likewise

        request = with_elastic_nodes(request)
    return with_gpus(request, site, host)


def _without_container(request: LaunchRequest) -> LaunchRequest:
    """Choose the runtime ``bare`` for the machine's own software (``bare:``), whatever runtime the site has."""
    if not request.image.startswith(BARE_PREFIX) or request.container.runtime:
        return request
    return replace(request, container=replace(request.container, runtime="bare"))


def find_site(name: str, host: Host) -> Site:
    """Read a site's profile: the project's own before the user's, the system's and the shipped one.

    Raises
    ------
    SiteError
        When there is none, it is not valid, or its map of cores contradicts its node.
    """
    site = read_site(name, search_path(host.environment, Path(host.cwd)))
    if site.node.gpu_cpus:
        from argosy.sites.binding import plan_masks  # noqa: PLC0415 - a local plan needs none

        with placed(name, host):
            plan_masks(site.node)
    return site


@contextmanager
def placed(name: str, host: Host) -> Iterator[None]:
    """Add file and line to an error that names a value of the profile (`ArgosyError.key`)."""
    try:
        yield
    except ArgosyError as error:
        if error.key:
            from argosy.sites.show import tell_site  # noqa: PLC0415 - only here

            rows = tell_site(name, search_path(host.environment, Path(host.cwd)))
            origin = next((row.origin for row in rows if row.key == error.key), "")
            error.evidence = "\n".join(filter(None, (error.evidence, origin and f"{origin}: {error.key}")))
            error.key = ""
        raise


def _is_here(reference: str, runtime: str, session: Session) -> bool:
    """Tell whether a plan need not assume what the image is: it can be opened here, or there is nothing to open.

    Names of the catalog are always looked up.  An image of a registry counts as here where a runtime fetches it by
    itself, or where this is the site, which can fetch it.
    """
    if "://" in reference:
        return fileless_image(reference, runtime) is not None or "sbatch" in session.host.programs
    if reference.startswith(BARE_PREFIX) or not ("/" in reference or reference.endswith(FILE_ENDINGS)):
        return True
    return any((at / Path(reference).expanduser()).exists() for at in (Path(), *session.paths.images))


def _in_folder(container: ContainerRequest, folder: str) -> ContainerRequest:
    """Run the program in the job's folder (``--chdir``), too, where no folder inside is asked for."""
    if not folder or container.workdir or container.contain:
        return container
    return replace(container, workdir=folder, binds=(*container.binds, Bind(folder, folder)))


def _with_log_folder(container: ContainerRequest, logs: str) -> ContainerRequest:
    """Mount a folder that ranks write to; a plan drops the mount where a usual one shows it already."""
    return replace(container, binds=(*container.binds, Bind(logs, logs))) if logs else container


def _plan_target(request: LaunchRequest, site: Site, host: Host) -> Host:
    """Give this machine with the GPUs of the job's nodes in the place of its own: plans need no more of a node."""
    if site.scheduler == "local":
        return replace(host, gpus=()) if request.container.gpu is GpuMode.NONE else host
    shape, _ = choose_shape(request.wanted, site, host)
    way = container_at_site(request.container, site).gpu
    if not shape.gpus_per_node and way is not request.container.gpu and WAY_VENDOR.get(way):
        count = site.node.gpus or 1
        raise UsageError(
            f"no GPU was asked for, and jobs of {site.name} pass GPUs into the container",
            evidence=f"its profile has gpu = {way.value!r} in [runtime]",
            hint=f"add --gpus-per-node {count}; or --gpu none for a job without GPUs",
            key="runtime.gpu",
        )
    vendor = WAY_VENDOR.get(request.container.gpu) or site.node.gpu_vendor
    if shape.gpus_per_node and not vendor and request.container.gpu is GpuMode.AUTO:
        raise SiteError(
            "GPUs were asked for, and nobody says of which kind",
            evidence=f"the profile {site.name} has no gpu_vendor in [node]",
            hint="add --gpu nv or --gpu rocm, or gpu_vendor to the profile",
        )
    return replace(host, gpus=tuple(Gpu(vendor, index, "") for index in range(shape.gpus_per_node if vendor else 0)))
