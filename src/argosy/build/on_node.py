"""Build on a compute node: read the profile -> download where nodes cannot -> srun, or sbatch and its record."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.build.bundling import bundle
from argosy.build.for_site import site_named
from argosy.build.node_plan import NodeWishes, plan_node_options, plan_node_words, render_node_script
from argosy.build.report import BuildRequest
from argosy.errors import UsageError
from argosy.launch.refusal import explain_sbatch
from argosy.launch.slurm_calls import run_slurm
from argosy.launch.story import make_private, runs_folder, submission_environment
from argosy.process import Command, Words
from argosy.records import replace
from argosy.refusals import refuse_folder
from argosy.schedulers.slurm import may_be_done, parse_job_id
from argosy.session import Session
from argosy.sites import Site
from argosy.store import explained, refuse_existing, write_text


class Submitted(msgspec.Struct, frozen=True):
    """A job that will build an image.

    Attributes
    ----------
    job
        Its number, for ``argosy logs`` and ``argosy launch --after``.
    output
        The file that it writes to.
    """

    job: str
    output: str
    record: str


def build_on_node(words: Sequence[str], wishes: NodeWishes, request: BuildRequest, session: Session) -> int:
    """Build on a node now, and show what it says; give its exit code.

    Parameters
    ----------
    words
        The command line behind ``argosy build``, as it was typed.
    """
    site = find_build_site(request, session)
    options = plan_node_options(wishes, site, session.host.environment)
    refuse_existing(request.output, force=request.force)
    refuse_folder(request.output.parent)
    with _downloaded(site, request, session) as archive:
        command = _plan_command(words, site, archive)
        return session.runner.hand_over(Command(("srun", *options, *command), env=_node_environment(session)))


def submit_build(words: Sequence[str], wishes: NodeWishes, request: BuildRequest, session: Session) -> Submitted:
    """Submit the build as a job; its record is where those of launches are.

    Raises
    ------
    SiteError, ToolFailed
        With what Slurm said, when it refuses the job.
    """
    site = find_build_site(request, session)
    options = plan_node_options(wishes, site, session.host.environment)
    refuse_existing(request.output, force=request.force)
    refuse_folder(request.output.parent)
    archive = ""
    if needs_download(site, request):
        archive = _download(request, session)
    folder = runs_folder(session)
    output = f"{session.host.cwd}/argosy-build-%j.out"
    command = _plan_command(words, site, archive)
    title = f"Builds {request.output.name}; made by argosy build --submit."
    script = render_node_script(options, command, output=output, title=title, bundle=archive, unload=site.build.unload)
    with explained(folder):
        make_private(folder)
        write_text(folder / "job.sh", script)
    submit = Command(("sbatch", "--parsable", str(folder / "job.sh")), env=_node_environment(session))
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    told = {"job": "", "output": output, "site": site.name, "profile": request.site, "time": now}
    write_text(folder / "submitted.json", json.dumps(told) + "\n")  # as in a launch: it is found by its script
    reply = run_slurm(session, submit)
    if reply.code != 0:
        Path(archive).unlink() if archive and not may_be_done(reply.stderr) else None
        raise explain_sbatch(submit, reply, site)
    job = parse_job_id(reply.stdout)
    told |= {"job": job, "output": output.replace("%j", job)}
    write_text(folder / "submitted.json", json.dumps(told) + "\n")
    return Submitted(job, told["output"], str(folder))


def find_build_site(request: BuildRequest, session: Session) -> Site:
    """Read the profile that says where builds run.

    Raises
    ------
    UsageError
        When no site is named.
    """
    if not request.site:
        raise UsageError("--on-node and --submit need the site", hint="add --site NAME; see 'argosy sites ls'")
    return site_named(request.site, session.host)


def needs_download(site: Site, request: BuildRequest) -> bool:
    """Tell whether a build must be prepared here: the site's compute nodes reach no network."""
    return site.build.network is False and request.bundle is None


@contextmanager
def _downloaded(site: Site, request: BuildRequest, session: Session) -> Iterator[str]:
    """Give the bundle that a node builds from, while it does; empty where nodes download themselves."""
    archive = _download(request, session) if needs_download(site, request) else ""
    try:
        yield archive
    finally:
        if archive:
            Path(archive).unlink(missing_ok=True)


def _download(request: BuildRequest, session: Session) -> str:
    archive = request.output.with_name(f".{request.output.name}.{os.getpid()}.bundle")
    session.reporter.note("compute nodes of the site have no network: base and packages are fetched here")
    bundle(replace(request, output=archive), session)
    return str(archive)


def _plan_command(words: Sequence[str], site: Site, archive: str) -> Words:
    """Give the command that a node runs: this Argosy, by this Python."""
    work_dir = "" if any(word.partition("=")[0] == "--work-dir" for word in words) else site.build.work_dir
    return (
        sys.executable,
        "-P",
        "-m",
        "argosy.cli",
        "build",
        *plan_node_words(words, work_dir=work_dir, bundle=archive),
    )


BUILDS_WITHOUT = ("APPTAINER_BIND", "SINGULARITY_BIND", "LD_LIBRARY_PATH", "LD_PRELOAD", "CONDA_", "_CONDA_")
"""What modules and shells set for programs of the host: no build gets it."""


def _node_environment(session: Session) -> dict[str, str]:
    """Give the environment of the job: the caller's, less an outer job's and what must not reach a build."""
    kept = submission_environment(session)
    return {name: value for name, value in kept.items() if not name.startswith(BUILDS_WITHOUT)}
