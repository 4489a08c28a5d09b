"""Prove a site: plan the job, submit and follow it, read what it found; put that into a profile of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from argosy.core.errors import SiteError, ToolFailed, UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.diagnostics.validate.merge import Merged, Result, merge_result, read_result
from argosy.diagnostics.validate.plan import ValidationPlan, plan_validation, validation_request
from argosy.jobs.logs import follow_job
from argosy.launch.resolve import resolve_launch
from argosy.launch.submit import absolute_profile, new_record_folder, submit, write_record
from argosy.sites.detect import sites_here
from argosy.sites.load import load_profile
from argosy.sites.read import find_profile, read_site, search_path, user_profiles
from argosy.slurm.text import JobOptions


class Validation(msgspec.Struct, frozen=True):
    """A proving job that ended, and what it found."""

    job: str
    file: str
    result: Result


def site_here(session: Session, asked: str) -> str:
    """Return the name of the site: the one asked for, else the one that this machine belongs to.

    Raises
    ------
    SiteError
        When several profiles fit this machine, or none.
    """
    if asked:
        return asked
    found = sites_here(session.host)
    if len(found) == 1:
        return found[0].name
    raise SiteError(
        "it is not known which site this is",
        evidence=f"profiles that fit: {', '.join(each.name for each in found) or 'none'}",
        hint="name it, as in: argosy sites validate my-site.toml; 'argosy sites ls' lists them",
    )


def _plan_job(
    session: Session,
    site: str,
    *,
    image: str,
    options: JobOptions,
    gpus: int,
    kept: bool = False,
    record: str = "",
) -> ValidationPlan:
    """Plan the job that tries what plans assume of a site.

    Parameters
    ----------
    image
        Whose container is tried, too; empty for none.
    gpus
        GPUs of each node; negative for those that the profile says.
    kept
        The script is only written, for somebody to submit: neither the image nor Slurm need be here.

    Raises
    ------
    UsageError
        For a site without Slurm.
    """
    profile = load_profile(site, session.host)
    if not profile.site.has_slurm:
        hint = "argosy doctor looks at this machine"
        raise UsageError(f"{profile.site.name} has no Slurm, and so no job to try it by", hint=hint)
    request = validation_request(profile.site, image, options, gpus, site)
    return plan_validation(resolve_launch(request, session, profile=profile, script_only=kept, record=record))


def validate_site(
    session: Session,
    site: str,
    *,
    image: str,
    options: JobOptions,
    gpus: int,
    stream: BinaryIO | None = None,
) -> Validation:
    """Submit the job, follow it to its end, and read what it found.

    Parameters
    ----------
    image, gpus
        As of `_plan_job`.
    stream
        Gets what the job prints; standard output by default.

    Raises
    ------
    ToolFailed
        When the job ended without a result.
    """
    folder = new_record_folder(session)
    plan = _plan_job(session, site, image=image, options=options, gpus=gpus, record=str(folder))
    launch = replace(plan.launch, script=plan.script, attach="")
    script = write_record(launch, folder)
    launched = submit(launch, folder, session, profile=absolute_profile(site, session.host))
    session.reporter.note(f"job {launched.job} is submitted; its script: {script}")
    facts = follow_job(session, launched.job, pause=launch.polling_seconds, stream=stream)
    file = Path(session.host.cwd, f"argosy-validate-{launched.job}.json")
    if not file.is_file():
        raise ToolFailed(
            f"job {launched.job} left no result",
            evidence=f"it {facts.meaning}\n{facts.output}",
            hint="see its output; without --image it tries all but containers",
        )
    return Validation(launched.job, str(file), read_result(file))


def write_validation(session: Session, site: str, path: Path, *, image: str, options: JobOptions, gpus: int) -> None:
    """Write the job script to a file, to be submitted elsewhere; parameters as of `_plan_job`."""
    plan = _plan_job(session, site, image=image, options=options, gpus=gpus, kept=True)
    with translate_os_errors(path.parent):
        write_text(path, plan.script)
        path.chmod(0o755)


def merge_into_profile(session: Session, file: str, *, into: str, accept: bool) -> tuple[Path, Merged]:
    """Put a result into a profile: the user's own of that name, which begins as a copy, or the one of a path.

    Raises
    ------
    SiteError
        When there is no such profile.
    """
    result = read_result(Path(file))
    host = session.host
    folders = search_path(host.environment, Path(host.cwd))
    source = find_profile(into or result.site, folders)
    user = user_profiles(host.environment) or Path("/etc/argosy/sites")
    place = source if into.endswith(".toml") or source.parent in {folders[0], user} else user / source.name
    site = read_site(str(source), (source.parent, *folders))
    if site.name != result.site:
        raise SiteError(
            f"{file} is of another site",
            evidence=f"it was run at {result.site}; {source} is {site.name}",
            hint="name the profile that it belongs to with --into",
        )
    merged = merge_result(source.read_text(encoding="utf-8"), site, result, accept=accept)
    with translate_os_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, merged.text)
    return place, merged
