"""Carry a launch out: open the image, plan, write the script down, start or submit it, leave a record."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.containers import ContainerPlan, left_to_nodes, named_image
from argosy.entering import enter, refuse_missing_binds, refuse_missing_program, refuse_no_program
from argosy.errors import ArgosyError, SiteError, UsageError
from argosy.gpus import WAY_VENDOR
from argosy.launch.at_site import container_at_site, parse_torch_version, settle_site
from argosy.launch.plan import LaunchPlan, LaunchRequest, plan_launch
from argosy.launch.shape import choose_shape
from argosy.model import BARE_PREFIX, NO_WORDS, PROFILE, Bind, Choice, ContainerRequest, Gpu, GpuWay, Host, Image
from argosy.process import Command
from argosy.records import asdict, replace
from argosy.schedulers.slurm import parse_job_id
from argosy.session import Session
from argosy.sites import Site, read_site, search_path, whose_profile

KEPT_OF_SLURM = frozenset({"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"})
OUTER_JOB = re.compile(r"(SBATCH|SALLOC|SLURM|SLURMD|SRUN|PMI|PMIX)_")
"""Variables of an outer job, or of the user's defaults, which the plan has read: they would override #SBATCH lines."""


class Launched(msgspec.Struct, frozen=True):
    """A launch that was started.

    Attributes
    ----------
    code
        Exit code of the user's program where we waited for it, else 0.
    job
        The scheduler's id; empty where there is none.
    record
        Folder with the script and what is known of the run.
    """

    code: int
    job: str
    record: str


FILE_ENDINGS = (".sif", ".sqsh", ".squashfs")
"""A word that ends so means a file, also where it has no folder and is not here."""


class Grounds(msgspec.Struct, frozen=True):
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
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_WORDS)


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
        grounds = find_grounds(request, session, dry=dry, kept=kept, record=record, found=found)
        by = grounds.request, grounds.container, grounds.site, grounds.host
        return plan_launch(*by, record=record, versions=grounds.versions)


def find_grounds(
    request: LaunchRequest,
    session: Session,
    *,
    dry: bool = False,
    kept: bool = False,
    record: str = "",
    found: Image | None = None,
) -> Grounds:
    """Find what a launch is planned from; as `plan_here`."""
    host = session.host
    refuse_no_program(request.command, request.container, host)
    request = without_container(request)
    path, whose = whose_profile(request.site, search_path(host.environment, Path(host.cwd)))
    site = find_site(str(path), host)
    request = settle_request(request, site, host)
    if whose:
        request = replace(request, told=(*request.told, Choice(PROFILE, str(path), whose, "search path")))
    settled = settle_site(request, site, host)
    asked = in_folder(container_at_site(request.container, settled.site), request.options.chdir)
    wanted = with_log_folder(asked, request.logs)
    wanted = with_log_folder(wanted, record if site.scheduler == "slurm" else "")
    there, command = plan_target(request, settled.site, host), request.command
    if site.scheduler == "local":
        refuse_missing_binds(request.container)  # a folder for logs is made when it is needed
        if not (dry or kept):
            refuse_missing_program(request.command, wanted, host)
    else:
        if not (dry or kept or request.before or request.options.dependency):
            refuse_missing_program(request.command, asked, host, at_nodes=True)
        from argosy.launch.elsewhere import as_proved, assume_container, assume_host, assume_runtime, is_elsewhere  # noqa: PLC0415 - Slurm's sites only

        there = assume_runtime(site, there, wanted.runtime)
        is_here = found is None and _is_here(request.image, wanted.runtime, session)
        if (dry or kept) and is_elsewhere(site, host, image_is_here=is_here):
            there, command = assume_host(site, there, wanted.runtime), ()
            if not is_here:
                assumed = assume_container(request.image, wanted, site, there, kept=kept, found=found)
                return Grounds(request, assumed, site, there, versions_of(assumed.entry.image, request))
        there = as_proved(site, there, wanted.runtime)
    container = enter(wanted, request.image, replace(session, host=there), command=command, dry=dry)
    container = container if site.scheduler == "local" else left_to_nodes(container)
    return Grounds(request, container, site, there, versions_of(container.entry.image, request))


def versions_of(image: Image, request: LaunchRequest) -> dict[str, str]:
    """Give the versions that settings of sites may ask for: what the image lists, and before that what was said."""
    nccl = {"nccl": image.nccl} if image.nccl else {}
    return parse_torch_version(image.torch) | nccl | dict(request.image_has)


def settle_request(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Give a request with the shape that it means: an allocation's, a smoke run's, an elastic one's."""
    if request.here:
        from argosy.launch.in_allocation import in_allocation  # noqa: PLC0415 - where it is asked for

        request = in_allocation(request, site, host)
    if request.given and site.scheduler != "slurm":
        from argosy.launch.unused import without_slurm  # noqa: PLC0415 - where there is a project file

        request = without_slurm(request)
    if request.smoke:
        from argosy.launch.smoke import as_smoke  # noqa: PLC0415 - where it is asked for

        request = as_smoke(request, site)
    if request.elastic:
        from argosy.launch.wishes import with_elastic_nodes  # noqa: PLC0415 - likewise

        request = with_elastic_nodes(request)
    return request


def without_container(request: LaunchRequest) -> LaunchRequest:
    """Let a request for the machine's own software (``bare:``) have no container, whatever runtime the site has."""
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
        from argosy.binding import plan_masks  # noqa: PLC0415 - a local plan needs none

        with placed(name, host):
            plan_masks(site.node)
    return site


@contextmanager
def placed(name: str, host: Host) -> Iterator[None]:
    """Name the file and line of the profile's value that an error is about."""
    try:
        yield
    except ArgosyError as error:
        if error.key:
            from argosy.sites.telling import tell_site  # noqa: PLC0415 - only here

            rows = tell_site(name, search_path(host.environment, Path(host.cwd)))
            origin = next((row.origin for row in rows if row.key == error.key), "")
            error.evidence = "\n".join(filter(None, (error.evidence, origin and f"{origin}: {error.key}")))
            error.key = ""
        raise


def _is_here(reference: str, runtime: str, session: Session) -> bool:
    """Tell whether a plan can look into an image, or has nothing to look into.

    Names of the catalog are looked up; what a registry has is fetched by some runtimes, else at the site itself.
    """
    if "://" in reference:
        return named_image(reference, runtime) is not None or "sbatch" in session.host.programs
    if reference.startswith(BARE_PREFIX) or not ("/" in reference or reference.endswith(FILE_ENDINGS)):
        return True
    return any((at / Path(reference).expanduser()).exists() for at in (Path(), *session.places.images))


def in_folder(container: ContainerRequest, folder: str) -> ContainerRequest:
    """Let the program run in the folder of its job too, where the user names one for the job, and none inside."""
    if not folder or container.workdir or container.contain:
        return container
    return replace(container, workdir=folder, binds=(*container.binds, Bind(folder, folder)))


def with_log_folder(container: ContainerRequest, logs: str) -> ContainerRequest:
    """Let a folder that ranks write to be seen inside; what lies below a usual mount is there already."""
    return replace(container, binds=(*container.binds, Bind(logs, logs))) if logs else container


def plan_target(request: LaunchRequest, site: Site, host: Host) -> Host:
    """Give the machine that a job will run on, as far as plans need it: with the job's GPUs, not the login node's."""
    if site.scheduler == "local":
        return host
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
    if shape.gpus_per_node and not vendor and request.container.gpu is GpuWay.AUTO:
        raise SiteError(
            "GPUs were asked for, and nobody says of which kind",
            evidence=f"the profile {site.name} has no gpu_vendor in [node]",
            hint="add --gpu nv or --gpu rocm, or gpu_vendor to the profile",
        )
    return replace(host, gpus=tuple(Gpu(vendor, index, "") for index in range(shape.gpus_per_node if vendor else 0)))


def launch(request: LaunchRequest, session: Session) -> Launched:
    """Plan a launch, write it down, and start it here or submit it."""
    from argosy.launch.unused import noted_choices  # noqa: PLC0415 - a dry run needs none
    from argosy.store import explained  # noqa: PLC0415 - likewise

    site, here = find_site(request.site, session.host), request.here
    folder = runs_folder(session)
    plan = plan_here(request, session, record=str(folder))
    if request.logs:
        with explained(Path(request.logs)):
            Path(request.logs).mkdir(parents=True, exist_ok=True)
    say_where(session, site, here=here)
    for line in noted_choices(plan.choices):
        session.reporter.note(line)
    keep_record(plan, folder)
    return start_kept(plan, folder, session, site, request)


def start_kept(plan: LaunchPlan, folder: Path, session: Session, site: Site, request: LaunchRequest) -> Launched:
    """Start the script of a record here, or submit it."""
    from argosy.store import write_text  # noqa: PLC0415 - a dry run writes nothing

    script, here = folder / "job.sh", request.here
    words = tuple(word.replace("{script}", str(script)) for word in plan.submit)
    profile = absolute_profile(request.site, session.host)
    if here or plan.scheduler == "local":
        words = ("sh", str(script))
        if here:
            note_job(plan, folder, session.host.environment["SLURM_JOB_ID"], profile=profile, here="yes")
        code = _carry_out(Command(words, env=dict(session.host.environment)), session, site)
        write_text(folder / "end.json", json.dumps({"code": code}) + "\n")
        return Launched(code, "", str(folder))
    return submit(plan, words, folder, session, site, profile=profile)


def note_job(plan: LaunchPlan, folder: Path, job: str, *, profile: str, here: str = "", **more: str) -> None:
    """Note in a record which job it is of; `here` where it is steps of an allocation that had been there before."""
    from argosy.store import write_text  # noqa: PLC0415 - likewise

    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    output = "" if here else plan.output
    told = {"job": job, "output": output, "site": plan.site, "profile": profile, "time": now, "here": here}
    told |= more
    write_text(folder / "submitted.json", json.dumps(told) + "\n")


def launch_after_smoke(request: LaunchRequest, session: Session) -> tuple[Launched, Launched]:
    """Submit a smoke run, and the launch itself to start when that ended well; Slurm removes it where it did not.

    Both are planned before the first is submitted, so that what cannot be meant submits neither.
    """
    plan_here(request, session, dry=True)
    smoke = launch(replace(request, smoke=True), session)
    after = ",".join(filter(None, (request.options.dependency, f"afterok:{smoke.job}")))
    extra = (*request.extra, "--kill-on-invalid-dep=yes")
    return smoke, launch(replace(request, options=replace(request.options, dependency=after), extra=extra), session)


def _carry_out(command: Command, session: Session, site: Site) -> int:
    """Run a script here and now; of several ranks the code of the one that failed first, where they tell it.

    srun's own code is the highest of all, so 143 of the ranks that it ended hides the code of the one that failed.
    """
    if site.scheduler != "slurm":
        return session.runner.hand_over(command)
    from argosy.launch.ending import judge_end  # noqa: PLC0415 - where there is Slurm
    from argosy.launch.jobs import LAST_BYTES  # noqa: PLC0415 - likewise

    last = bytearray()

    def keep(block: bytes) -> None:
        last.extend(block)
        del last[:-LAST_BYTES]

    code = session.runner.hand_over(command, keep)
    first = judge_end(last.decode(errors="replace")) if code else None
    if first:
        session.reporter.note(first.text)
    return first.code if first else code


def runs_folder(session: Session) -> Path:
    """Give a name for the record of a new run; nothing is made."""
    return session.places.state / "runs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def keep_record(plan: LaunchPlan, folder: Path) -> Path:
    """Write a plan down before it is carried out; give its script."""
    from argosy.launch.attach import NAME as ATTACH  # noqa: PLC0415 - a dry run writes nothing
    from argosy.launch.recording import END_FILE, RANK_FILE, render_end, render_rank  # noqa: PLC0415 - likewise
    from argosy.store import explained, write_text  # noqa: PLC0415 - likewise

    with explained(folder):
        folder.mkdir(parents=True)
        script = folder / "job.sh"
        write_text(script, plan.script)
        write_text(folder / "job.json", render_record(plan))
        own = {END_FILE: render_end(plan.cores), RANK_FILE: render_rank()} if plan.scheduler == "slurm" else {}
        for name, text in {ATTACH: plan.attach, **own}.items():
            if text:
                write_text(folder / name, text)
    return script


def say_where(session: Session, site: Site, *, here: bool) -> None:
    """Say what happens where another thing may be meant: in an allocation, and on a login node without a site."""
    job = session.host.environment.get("SLURM_JOB_ID", "")
    if here:
        session.reporter.note(f"carried out as steps of job {job}")
    elif job and site.scheduler == "slurm":
        session.reporter.note(f"inside job {job}: submitted as a job of its own; --here would use this one")
    elif not job and site.name == "local" and "sbatch" in session.host.programs:
        from argosy.sites.here import sites_here  # noqa: PLC0415 - profiles take 0.1 s to read

        names = [each.name for each in sites_here(session.host)]
        known = f"--site {names[0]}" if len(names) == 1 else "--site NAME ('argosy sites ls')"
        session.reporter.note(f"this runs on {session.host.hostname} itself; a job of Slurm is what {known} makes")


def absolute_profile(name: str, host: Host) -> str:
    """Give the name of a profile, or the whole path of its file, so that it is found again from elsewhere."""
    return str(Path(host.cwd, name)) if name.endswith(".toml") else name


def submit(
    plan: LaunchPlan, words: tuple[str, ...], folder: Path, session: Session, site: Site, *, profile: str
) -> Launched:
    """Submit a plan whose record lies in a folder.

    Raises
    ------
    ArgosyError
        In Slurm's own words, where it refuses.
    """
    from argosy.launch.advice import warn_before  # noqa: PLC0415 - likewise
    from argosy.launch.jobs import run_slurm  # noqa: PLC0415 - likewise
    from argosy.launch.places import make_output_folders, refuse_missing_chdir  # noqa: PLC0415 - likewise
    from argosy.launch.refusal import explain_sbatch  # noqa: PLC0415 - likewise

    make_output_folders(plan, session.host.person.name)
    refuse_missing_chdir(plan)
    for line in warn_before(plan, session.host.cwd):
        session.reporter.note(line)
    command = Command(words, env=submission_environment(session))
    reply = run_slurm(session, command)
    if reply.code != 0:
        raise explain_sbatch(command, reply, site)
    job = parse_job_id(reply.stdout)
    for line in reply.stderr.splitlines():
        session.reporter.note(line)
    note_job(plan, folder, job, profile=profile)
    return Launched(0, job, str(folder))


def submission_environment(session: Session) -> dict[str, str]:
    """Give the environment of sbatch: the caller's, less what an outer job or the defaults would change."""
    return {
        name: value
        for name, value in session.host.environment.items()
        if name in KEPT_OF_SLURM or not OUTER_JOB.match(name)
    }


def render_record(plan: LaunchPlan) -> str:
    """Render the plan as the record that stays of a run; the script lies beside it."""
    return (
        json.dumps(asdict(replace(plan, script="", attach="", versions=dict(plan.versions))), indent=1, sort_keys=True)
        + "\n"
    )


def write_script(plan: LaunchPlan, path: Path) -> None:
    """Write the script where the user wants it."""
    from argosy.refusals import refuse_folder  # noqa: PLC0415 - likewise
    from argosy.store import explained, write_text  # noqa: PLC0415 - likewise

    refuse_folder(path.parent)
    with explained(path.parent):
        write_text(path, plan.script)
        path.chmod(0o755)
