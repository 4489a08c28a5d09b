"""Build on a compute node: run the same command line with srun, or submit it with sbatch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from argosy.builder.bundle import bundle
from argosy.builder.image_cache import replace_own_output
from argosy.builder.records import BuildRequest
from argosy.builder.request import refuse_no_output
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.locks import files_beside
from argosy.core.os_errors import refuse_unwritable_folder, translate_os_errors
from argosy.core.process import Argv, Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import refuse_existing, write_text
from argosy.jobs.record import (
    RECORD_NAME,
    SCRIPT,
    discard_record,
    make_private_folder,
    new_record_folder,
    new_submission,
    write_submission,
)
from argosy.launch.notes import answering_site
from argosy.launch.script.helpers import render_script_functions
from argosy.launch.script.parts import render_modules, script_shell
from argosy.launch.site_settings import refuse_missing_options
from argosy.launch.submit import submission_environment
from argosy.recipes.build_options import BUILD_ROWS, NODE_ROWS, PACKAGE_ROWS, BuildOptions
from argosy.recipes.option_row import option_names, types
from argosy.recipes.user_config import fill_options
from argosy.sites.conditions import Facts
from argosy.sites.load import load_site
from argosy.sites.partitions import PartitionNeeds, choose_partition
from argosy.sites.profile import Site
from argosy.slurm.calls import explain_sbatch, run_slurm, without_filters
from argosy.slurm.option_checks import refuse_invalid_options
from argosy.slurm.queries import parse_squeue_scripts, plan_squeue_scripts
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions, choose_defaults, parse_job_id, render_directive
from argosy.slurm.times import slurm_time

USUAL_TIME = "01:00:00"
"""Default time limit of a build (HH:MM:SS)."""

FLAGS = frozenset({"--on-node", "--submit"})
VALUED = option_names(NODE_ROWS)
"""Options of the job, which the build on the node does not get."""

OF_THE_RECIPE = option_names(
    PACKAGE_ROWS | {name: BUILD_ROWS[name] for name in ("base", "file", "build_arg", "locked", "bundle")}
)
"""Options that a bundle replaces."""


NO_PROGRAM = 127
"""Exit code of timeout(1) if the program is missing."""


class NodeOptions(msgspec.Struct, frozen=True):
    """The user's job options; empty values use ``SBATCH_*`` variables, then the profile."""

    account: str = ""
    partition: str = ""
    qos: str = ""
    time: str = ""
    mem: str = ""
    cpus: int = 0
    """Cores; 0 uses the profile."""


def plan_node_options(wanted: NodeOptions, site: Site, environment: Mapping[str, str]) -> Argv:
    """Return the options of srun or sbatch for a build on one node.

    Raises
    ------
    UsageError
        If the site has no Slurm.
    SiteError
        If a required option is missing.
    """
    if not site.has_slurm:
        raise UsageError(
            f"cannot build on a node: {site.name} has no Slurm",
            hint="select a site with --site, or remove --on-node or --submit to build on this machine",
        )
    defaults = site.build
    asked = JobOptions(wanted.account, wanted.partition, wanted.qos, wanted.time, wanted.mem)
    asked = replace(asked, **choose_defaults(asked, environment))  # type: ignore[arg-type]  # names of text fields
    # The site's QOS may not be valid in another partition.
    own_partition = bool(asked.partition)
    options = replace(
        asked,
        partition=asked.partition or defaults.partition or _gpu_partition(site, asked.time or defaults.time),
        qos=asked.qos or ("" if own_partition else defaults.qos),
        time=asked.time or defaults.time or USUAL_TIME,
        mem=asked.mem or defaults.mem,
        exclusive=defaults.exclusive,
    )
    refuse_invalid_options(options)
    refuse_missing_options(options, site, Facts(nodes="1", partition=options.partition))
    cpus = wanted.cpus or defaults.cpus
    return (
        "--job-name=argosy-build",
        *("--nodes=1", "--ntasks=1"),
        *((f"--cpus-per-task={cpus}",) if cpus else ()),
        *site.slurm.request_gpus(site.build.gpus),
        *options.lines(),
    )


def _gpu_partition(site: Site, time: str) -> str:
    """Return the partition of a build that needs GPUs, if the profile lists partitions; else an empty text."""
    if not site.build.gpus:
        return ""
    partition, _ = choose_partition(site, "", PartitionNeeds(1, site.build.gpus, time))
    return partition.name if partition else ""


def plan_node_arguments(arguments: Sequence[str], *, work_dir: str = "", bundle: str = "") -> Argv:
    """Return the arguments of `argosy build` on the node: those of the user, without the options of the job.

    Parameters
    ----------
    bundle
        The bundle that was downloaded on this machine; empty if the node downloads.
    """
    kept = _without(arguments, FLAGS, VALUED)
    if bundle:
        kept = (*_without(kept, frozenset({"--no-cache"}), OF_THE_RECIPE, sources=False), "--bundle", bundle)
    return (*kept, *(("--work-dir", work_dir) if work_dir else ()))


WITHOUT_VALUE = option_names({name: BUILD_ROWS[name] for name, kind in types(BuildOptions).items() if kind is bool})
TAKES_ONE = frozenset({"-o", "--output"}) | (option_names(BUILD_ROWS) - WITHOUT_VALUE)
MAY_TAKE_ONE = "--locked"
"""Takes the next argument as its value, unless that is an option."""


def _without(arguments: Sequence[str], flags: frozenset[str], valued: frozenset[str], *, sources: bool = True) -> Argv:
    """Remove options and their values; `sources` tells whether other arguments stay."""
    kept: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, _ = argument.partition("=")
        alone = equals or not rest or (name == MAY_TAKE_ONE and rest[0].startswith("-"))
        value = [rest.pop(0)] if name in TAKES_ONE | valued and not alone else []
        if name not in flags | valued and (sources or argument.startswith("-")):
            kept += [argument, *value]
    return tuple(kept)


def render_node_script(options: Argv, command: Argv, site: Site, *, output: str, title: str, bundle: str = "") -> str:
    """Render the job script of a build, which removes `bundle` at the end."""
    run = " ".join(map(quote, command))
    directives = (*options, f"--output={output}", *(("--no-requeue",) if bundle else ()))  # a second run has no bundle
    lines = [
        f"#!{script_shell(site.modules)}",
        *map(render_directive, directives),
        f"# {' '.join(title.split())}",
        "set -eu",
        # A cancelled job gets SIGTERM.
        *((f"trap {quote(f'rm -f {quote(bundle)}')} EXIT", "trap 'exit 143' TERM") if bundle else ()),
        'echo "on $(hostname): $(date)"',
        *_render_modules(site),
        run if bundle else f"exec {run}",
    ]
    return "\n".join(lines) + "\n"


def plan_step(options: Argv, command: Argv, site: Site) -> Argv:
    """Return the srun command of a build that runs now."""
    modules = "\n".join(_render_modules(site))
    inside = ("bash", "-c", f'{modules}\nexec "$@"', "bash", *command) if modules else command
    return ("srun", *options, *inside)


def _render_modules(site: Site) -> Iterator[str]:
    """Render the lines that load the modules of the site, and unload those that break builds."""
    # Without purge: the Python of Argosy may come from a module of the user.
    loads = tuple(render_modules(replace(site.modules, purge=False)))
    if loads:
        yield from render_script_functions("\n".join(loads))
        yield from loads
    if site.build.unload:
        names = " ".join(map(quote, site.build.unload))
        yield "# The variables of these modules refer to folders that an image does not have, which breaks builds."
        yield f"if command -v module >/dev/null 2>&1; then module unload {names} || :; fi"


class Submitted(msgspec.Struct, frozen=True):
    """A submitted build."""

    job: str
    """The job id, for ``argosy logs`` and ``argosy launch --after``."""
    output: str
    """The file of the job's output."""
    record: str


def build_on_node(arguments: Sequence[str], wanted: NodeOptions, request: BuildRequest, session: Session) -> int:
    """Build on a node now, show its output, and return its exit code."""
    site, options = _prepare_node_build(wanted, request, session)
    with _downloaded(site, request, session) as archive:
        command = _plan_command(arguments, site, archive)
        step = plan_step(options, command, site)
        return session.runner.run_foreground(Command(step, env=_node_environment(session)))


def _prepare_node_build(wanted: NodeOptions, request: BuildRequest, session: Session) -> tuple[Site, Argv]:
    """Return the site and the options of the job; refuse an output that the build could not write at its end."""
    site = find_build_site(request, session)
    options = plan_node_options(wanted, site, session.host.environment)
    refuse_no_output(request)
    refuse_existing(request.output, force=replace_own_output(request, session).force)
    refuse_unwritable_folder(request.output.parent)
    return site, options


def submit_build(arguments: Sequence[str], wanted: NodeOptions, request: BuildRequest, session: Session) -> Submitted:
    """Submit the build as a job, with a record next to those of launches.

    Raises
    ------
    SiteError, ToolFailed
        If Slurm refuses the job.
    """
    site, options = _prepare_node_build(wanted, request, session)
    folder, output = new_record_folder(session), f"{session.host.cwd}/argosy-build-%j.out"
    submission = new_submission(session.host, site=site.name, profile=request.site, output=output)
    with _bundle_of_job(site, request, session, folder) as archive:
        command = _plan_command(arguments, site, archive)
        title = f"Builds {request.output.name}; made by argosy build --submit."
        script = render_node_script(options, command, site, output=output, title=title, bundle=archive)
        with translate_os_errors(folder):
            make_private_folder(folder)
            write_text(folder / SCRIPT, script)
        # Written before sbatch, as for a launch, so that an interrupted submission can be found by its script.
        write_submission(folder, submission)
        submit = Command(("sbatch", "--parsable", str(folder / SCRIPT)), env=_node_environment(session))
        try:
            reply = run_slurm(session, submit)
        except ArgosyError:
            discard_record(folder)
            raise
        if reply.code != 0:
            discard_record(folder, reply)
            raise explain_sbatch(submit, reply, answering_site(site.name, session.host))
    job = parse_job_id(reply.stdout)
    output = output.replace("%j", job)
    write_submission(folder, replace(submission, job=job, output=output))
    return Submitted(job, output, str(folder))


@contextmanager
def _bundle_of_job(site: Site, request: BuildRequest, session: Session, folder: Path) -> Iterator[str]:
    """Provide the bundle of a submitted build, which its job removes; empty if the node downloads itself.

    Remove it if there is no job in the end, and remove those of earlier jobs that were cancelled while they waited.
    """
    if not needs_download(site, request):
        yield ""
        return
    for old in files_beside(request.output, rf"\.{re.escape(request.output.name)}\.{RECORD_NAME}\.bundle"):
        record = old.name.removeprefix(f".{request.output.name}.").removesuffix(".bundle")
        if not _may_be_queued(folder.with_name(record), session):
            old.unlink(missing_ok=True)
    archive = request.output.with_name(f".{request.output.name}.{folder.name}.bundle")
    try:
        _download(request, archive, session)
        yield str(archive)
    except BaseException:
        if archive.exists() and not _may_be_queued(folder, session):
            archive.unlink()
        raise


def _may_be_queued(folder: Path, session: Session) -> bool:
    """Return whether the job of a record waits or runs; also if squeue fails."""
    reply = session.runner.run(without_filters(session, Command(plan_squeue_scripts(session.host.person.name))))
    return reply.code not in {0, NO_PROGRAM} or bool(parse_squeue_scripts(reply.stdout, str(folder / SCRIPT)))


def find_build_site(request: BuildRequest, session: Session) -> Site:
    """Read the profile of the site where the build runs."""
    if not request.site:
        raise UsageError("--on-node and --submit need a site", hint="add --site NAME; see 'argosy sites ls'")
    return load_site(request.site, session.host)


def needs_download(site: Site, request: BuildRequest) -> bool:
    """Return whether this machine must download everything first, because the compute nodes have no network."""
    return site.build.network is False and request.bundle is None


@contextmanager
def _downloaded(site: Site, request: BuildRequest, session: Session) -> Iterator[str]:
    """Provide the bundle for a build on a node; empty if the node downloads itself."""
    if not needs_download(site, request):
        yield ""
        return
    archive = request.output.with_name(f".{request.output.name}.{os.getpid()}.bundle")
    try:
        _download(request, archive, session)
        yield str(archive)
    finally:
        archive.unlink(missing_ok=True)


def _download(request: BuildRequest, archive: Path, session: Session) -> None:
    session.reporter.note("the compute nodes have no network; this machine downloads the base and the packages")
    bundle(replace(request, output=archive), session)


def _plan_command(arguments: Sequence[str], site: Site, archive: str) -> Argv:
    """Return the command that a node runs: this Argosy with this Python."""
    work_dir = "" if any(argument.partition("=")[0] == "--work-dir" for argument in arguments) else site.build.work_dir
    inside = plan_node_arguments(arguments, work_dir=work_dir, bundle=archive)
    return (sys.executable, "-P", "-m", "argosy.cli", "build", *inside)


BUILDS_WITHOUT = ("APPTAINER_BIND", "SINGULARITY_BIND", "LD_LIBRARY_PATH", "LD_PRELOAD", "CONDA_", "_CONDA_")
"""Prefixes of variables that modules and shells set for programs of the host; a build does not get them."""


def _node_environment(session: Session) -> dict[str, str]:
    """Return the environment of the job, without variables of an outer job or those that affect the build."""
    kept = submission_environment(session)
    return {name: value for name, value in kept.items() if not name.startswith(BUILDS_WITHOUT)}


def make_node_options(given: Mapping[str, Any], environment: Mapping[str, str]) -> NodeOptions:
    """Return the options of the job in which an image is built (see `NodeJobOptions`), with configured defaults."""
    preset = [name for name, variable in USER_DEFAULTS.items() if environment.get(variable)]
    complete = fill_options(given, NODE_ROWS, environment, preset)
    options = {name: complete[name] for name in NODE_ROWS if complete.get(name)}
    if "time" in options:
        options["time"] = slurm_time(options["time"])
    return NodeOptions(**options)
