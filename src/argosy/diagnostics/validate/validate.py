"""Validate a site: plan the job, submit and follow it, read its result, and merge the result into a profile."""

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
from argosy.jobs.record import new_record_folder
from argosy.launch.model import Purpose
from argosy.launch.resolve import resolve_launch
from argosy.launch.submit import submit, write_record
from argosy.sites.load import load_profile, sites_here
from argosy.sites.read import SYSTEM, find_profile, profile_folders, read_site, user_profiles
from argosy.slurm.sbatch import JobOptions


class Validation(msgspec.Struct, frozen=True):
    """A validation job that ended, and its result."""

    job: str
    file: str
    result: Result


def site_here(session: Session, asked: str) -> str:
    """Return the name of the site: the requested one, else that of this machine.

    Raises
    ------
    SiteError
        When several profiles match this machine, or none.
    """
    if asked:
        return asked
    found = sites_here(session.host)
    if len(found) == 1:
        return found[0].name
    raise SiteError(
        "cannot tell which site this machine belongs to",
        evidence=f"matching profiles: {', '.join(each.name for each in found) or 'none'}",
        hint="name the site, for example: argosy sites validate my-site.toml; 'argosy sites ls' lists the shipped ones",
    )


def _prepare_job(
    session: Session,
    site: str,
    *,
    image: str,
    options: JobOptions,
    gpus: int,
    kept: bool = False,
    record: str = "",
) -> ValidationPlan:
    """Plan the job that validates a site.

    Parameters
    ----------
    image
        Image whose container is tested, too; empty for none.
    gpus
        GPUs of each node; negative: the number in the profile.
    kept
        Whether the script is only written, to be submitted later: this machine needs neither the image nor Slurm.

    Raises
    ------
    UsageError
        For a site without Slurm.
    """
    profile = load_profile(site, session.host)
    if not profile.site.has_slurm:
        hint = "check this machine with 'argosy doctor'"
        raise UsageError(f"cannot validate {profile.site.name}: it has no Slurm", hint=hint)
    request = validation_request(profile.site, image, options, gpus, site)
    purpose = Purpose.SUBMIT_ELSEWHERE if kept else Purpose.START
    return plan_validation(resolve_launch(request, session, profile=profile, purpose=purpose, record=record))


def validate_site(
    session: Session,
    site: str,
    *,
    image: str,
    options: JobOptions,
    gpus: int,
    stream: BinaryIO | None,
) -> Validation:
    """Submit the job, follow it to its end, and read its result.

    Parameters
    ----------
    image, gpus
        As of `_prepare_job`.
    stream
        Stream for the output of the job; default: standard output.

    Raises
    ------
    ToolFailed
        When the job ended without a result.
    """
    folder = new_record_folder(session)
    plan = _prepare_job(session, site, image=image, options=options, gpus=gpus, record=str(folder))
    launch = replace(plan.launch, script=plan.script, attach="")
    script = write_record(launch, folder, session)
    launched = submit(launch, folder, session, profile=site)
    session.reporter.note(f"job {launched.job} is submitted; its script: {script}")
    facts = follow_job(session, launched.job, pause=launch.polling_seconds, stream=stream)
    file = Path(session.host.cwd, f"argosy-validate-{launched.job}.json")
    if not file.is_file():
        raise ToolFailed(
            f"job {launched.job} wrote no result",
            evidence=f"it {facts.meaning}\n{facts.output}",
            hint="see its output; without --image, containers are not tested",
        )
    return Validation(launched.job, str(file), read_result(file))


def write_validation(session: Session, site: str, path: Path, *, image: str, options: JobOptions, gpus: int) -> None:
    """Write the job script to a file, to be submitted elsewhere; parameters as of `_prepare_job`."""
    plan = _prepare_job(session, site, image=image, options=options, gpus=gpus, kept=True)
    with translate_os_errors(path.parent):
        write_text(path, plan.script)
        path.chmod(0o755)


def merge_into_profile(session: Session, file: str, *, into: str, accept: bool) -> tuple[Path, Merged]:
    """Merge a result into a profile: the one of a path, else the user's own profile, which is copied first if needed.

    Raises
    ------
    SiteError
        When there is no such profile.
    """
    result = read_result(Path(file))
    host = session.host
    folders = profile_folders(host)
    source = find_profile(into or result.site, folders)
    user = user_profiles(host.environment) or SYSTEM
    place = source if into.endswith(".toml") or source.parent in {folders[0], user} else user / source.name
    site = read_site(str(source), (source.parent, *folders))
    if site.name != result.site:
        raise SiteError(
            f"{file} is a result from another site",
            evidence=f"the job ran at {result.site}, and {source} is the profile of {site.name}",
            hint="choose the profile with --into",
        )
    merged = merge_result(source.read_text(encoding="utf-8"), site, result, accept=accept)
    with translate_os_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, merged.text)
    return place, merged
