"""Submit a job at a site by ssh: the plan is made here, and only the script runs there.

The local folder corresponds to a folder at the site: a path below the one is below the other.  The site needs no
Argosy.  The files of a job are copied from the site into its local record whenever a command reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, Interrupted, Stopped, Unreachable, UsageError
from argosy.core.model import BARE_PREFIX, Bind, Host, Person
from argosy.core.process import Command, Runner
from argosy.core.records import replace
from argosy.core.session import RUNS, Session
from argosy.core.shell import join, quote
from argosy.core.ssh import NO_CONNECTION, OverSsh, Remote, render_file, run_text
from argosy.core.store import work_folder
from argosy.images.catalog import IMAGE_SUFFIXES, PROJECT_FOLDER, parse_catalog_name
from argosy.images.open import OpenedImage
from argosy.images.remote import find_remote_image, open_remote
from argosy.images.signatures import find_signers
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import ATTACH, SCRIPT, discard_record, new_record_folder, new_submission, record_job
from argosy.launch.chains import refuse_shared_checkpoint
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.option_checks import plan_notes
from argosy.launch.resolve import prepare_launch
from argosy.launch.script.parts import END_FILE, OUTPUT_FILE, RANK_FILE
from argosy.launch.submit import Launched, output_folders, write_record
from argosy.recipes.option_row import PROJECT_FILE
from argosy.runtimes.runtime import AUTOMATIC
from argosy.sites.load import load_profile
from argosy.sites.profile import Site
from argosy.slurm.calls import explain_sbatch
from argosy.slurm.sbatch import option_value, parse_job_id

ASK = r"""
printf '%s=%s\n' cwd "$(pwd)" home "$HOME" user "$(id -un)" uid "$(id -u)" gid "$(id -g)" host "$(uname -n)" \
    arch "$(uname -m)" sbatch "$(command -v sbatch)" \
    state "${ARGOSY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/argosy}"
env | grep '^SBATCH_[A-Z_]*=' || :
"""

ASK_PROGRAMS = "".join(f"printf '%s=%s\\n' {name} \"$(command -v {name})\"\n" for name in AUTOMATIC)
"""Look for runtimes, in the order in which one is chosen if the site's profile does not name one."""

FORGET = r"""
for name in $(env | sed -n 's/^\(SBATCH_[A-Z_]*\)=.*/\1/p')
do unset "$name"
done
"""
"""The plan has applied the user's SBATCH_* variables; sbatch would let them override the script."""


class RemoteSite(msgspec.Struct, frozen=True):
    """A login node that is reached by ssh."""

    name: str
    cwd: str
    """The remote folder that corresponds to the local one."""
    state: str
    """Folder for records there."""
    host: Host
    runner: Runner


def probe_remote(session: Session, remote: Remote) -> RemoteSite:
    """Ask a login node for its facts.

    Raises
    ------
    Unreachable
        If ssh cannot connect.
    CheckFailed
        If Slurm is not installed there.
    """
    reply = run_text(OverSsh(session.runner, remote), ASK + ASK_PROGRAMS)
    facts = dict(line.partition("=")[::2] for line in reply.stdout.splitlines())
    if not facts.get("sbatch"):
        raise CheckFailed(
            f"Slurm is not installed at {remote.host}",
            evidence=f"ssh {remote.host} finds no sbatch on {facts.get('host', 'it')}",
            hint="use a login node of the cluster; its /etc/profile is read if sbatch is not on PATH",
        )
    host = replace(
        session.host,
        hostname=facts["host"],
        arch=facts["arch"],
        person=Person(int(facts["uid"]), int(facts["gid"]), facts["user"], facts["home"]),
        programs=MappingProxyType({name: facts[name] for name in AUTOMATIC if facts.get(name)}),
        gpus=(),
        environment=MappingProxyType(
            {name: value for name, value in session.host.environment.items() if name.startswith("ARGOSY_")}
            | {name: value for name, value in facts.items() if name.startswith("SBATCH_")}
        ),
    )
    runner = OverSsh(session.runner, Remote(remote.host, facts["cwd"]))
    return RemoteSite(remote.host, facts["cwd"], facts["state"], host, runner)


def _prepare_by_ssh(
    request: LaunchRequest, session: Session, remote_site: RemoteSite, *, record: str = ""
) -> LaunchPlan:
    """Plan a launch for the site there, with the profiles and files of this machine; its paths become those there.

    Raises
    ------
    UsageError
        If the site does not have Slurm, or the image does not exist there.
    CheckFailed, ImageError
        As `find_signers`, unless the launch is only previewed.
    """
    profile = load_profile(request.site, session.host)
    site = profile.site
    if not site.has_slurm:
        raise UsageError(
            f"--ssh submits to Slurm, which the site {site.name} does not have",
            hint="select the profile of the cluster with --site; 'argosy sites ls' lists them",
        )
    typed, request = request.image, with_remote_paths(request, session.host.cwd, remote_site.cwd)
    opened = _look_at_image(typed, request.image, site, remote_site, session)
    if opened:
        request = replace(request, image=opened.image.path)
    keys = request.container.signed_by or site.images.signed_by
    if keys and record:
        sif = opened.sif if opened else None
        find_signers(sif, request.image, keys, remote_site.runner, remote_site.host.programs)
    is_chosen = request.container.runtime or site.runtime.name or request.image.startswith(BARE_PREFIX)
    if not is_chosen and remote_site.host.programs:
        request = replace(request, container=replace(request.container, runtime=next(iter(remote_site.host.programs))))
    return prepare_launch(
        request,
        replace(session, host=replace(remote_site.host, cwd=session.host.cwd)),
        profile=profile,
        purpose=Purpose.SUBMIT_ELSEWHERE,
        record=record,
        remote_image=opened.image if opened else None,
    )


def preview(request: LaunchRequest, session: Session, remote: Remote) -> LaunchPlan:
    """Return the plan that would be submitted; nothing is written."""
    remote_site = probe_remote(session, remote)
    return _prepare_by_ssh(request, session, remote_site)


def launch_by_ssh(request: LaunchRequest, session: Session, remote: Remote) -> Launched:
    """Plan a launch here, and submit it there.

    Raises
    ------
    ArgosyError
        As `_prepare_by_ssh`; or with Slurm's message if it refuses the job.
    """
    remote_site = probe_remote(session, remote)
    folder = new_record_folder(session)
    record = str(PurePosixPath(remote_site.state, RUNS, folder.name))
    plan = _prepare_by_ssh(request, session, remote_site, record=record)
    if not request.no_check:
        refuse_shared_checkpoint(plan, replace(session, runner=remote_site.runner), ssh=remote.host)
    for line in plan_notes(plan.choices):
        session.reporter.note(line)
    write_record(plan, folder, session)
    try:
        reply = run_text(remote_site.runner, "".join(_submission(plan, remote_site, folder, record)))
    except Interrupted as stopped:
        raise Stopped(
            stopped.signal_number,
            f"stopped while the job was submitted at {remote.host}; it may be in the queue",
            hint=f"check with 'argosy jobs --ssh {remote.host}' before you launch it again",
        ) from stopped
    if reply.code == NO_CONNECTION and not reply.stdout.strip():
        raise Unreachable(
            f"the connection to {remote.host} was lost while the job was submitted",
            evidence=reply.stderr.strip(),
            hint=f"it may be in the queue: check with 'argosy jobs --ssh {remote.host}' before you submit it again",
        )
    if reply.code != 0:
        if discard_record(folder, reply):
            with contextlib.suppress(ArgosyError):  # the refusal counts
                run_text(remote_site.runner, join(("rm", "-rf", "--", record)))
        argv = (word.replace("{script}", f"{record}/{SCRIPT}") for word in plan.submit)
        raise explain_sbatch(Command(("ssh", remote.host, *argv)), reply, plan.site, plan.choices, ssh=remote.host)
    job = parse_job_id(reply.stdout)
    for line in reply.stderr.splitlines():
        session.reporter.note(line)
    output = str(PurePosixPath(remote_site.cwd, plan.output))
    submission = new_submission(session.host, site=plan.site, profile=request.site, output=output)
    record_job(session, folder, replace(submission, job=job, ssh=remote.host, there=record))
    return Launched(0, job, str(folder), plan.polling_seconds)


def _submission(plan: LaunchPlan, remote_site: RemoteSite, folder: Path, record: str) -> Iterator[str]:
    """Render the shell script that writes the record at the site and submits the job."""
    chdir = option_value(plan.directives, "--chdir")
    if chdir:
        message = quote(f"there is no folder {chdir} to run in")
        yield f"if [ ! -d {quote(chdir)} ]\nthen\n    echo {message} >&2\n    exit 1\nfi\n"
    folders = [str(each) for each in output_folders(plan, remote_site.host.person.name)]
    yield f"(umask 077; {join(('mkdir', '-p', '--', record))}) || exit 1\n"
    if folders or plan.logs:
        yield f"{join(('mkdir', '-p', '--', *folders, *filter(None, (plan.logs,))))} || exit 1\n"
    for name in (SCRIPT, ATTACH, END_FILE, OUTPUT_FILE, RANK_FILE):
        if (folder / name).is_file():
            yield f"{render_file(f'{record}/{name}', (folder / name).read_text(encoding='utf-8'))}\n"
    yield FORGET
    yield f"exec {join(word.replace('{script}', f'{record}/{SCRIPT}') for word in plan.submit)} < /dev/null\n"


def with_remote_paths(request: LaunchRequest, here: str, remote_site: str) -> LaunchRequest:
    """Return a request with the paths at the site: a path below the local folder is below the remote folder there."""

    def at(path: str) -> str:
        return remote_path(path, here, remote_site)

    def bound(bind: Bind) -> Bind:
        return replace(
            bind, source=at(bind.source), target=at(bind.target) if bind.target == bind.source else bind.target
        )

    options, container = request.options, request.container
    entered = replace(
        container, binds=tuple(map(bound, container.binds)), workdir=at(container.workdir) if container.workdir else ""
    )
    named = "://" in request.image or request.image.startswith(BARE_PREFIX)
    return replace(
        request,
        image=request.image if named else at(request.image),
        options=replace(options, output=at(options.output), error=at(options.error), chdir=at(options.chdir)),
        logs=at(request.logs),
        checkpoint=at(request.checkpoint),
        container=entered,
    )


def remote_path(path: str, here: str, remote_site: str) -> str:
    """Return a local path as a path at the site; an empty one stays empty."""
    pure = PurePosixPath(path)
    if not path or (pure.is_absolute() and not pure.is_relative_to(here)):
        return path
    return str(PurePosixPath(remote_site, pure.relative_to(here) if pure.is_absolute() else pure))


def _look_at_image(typed: str, path: str, site: Site, remote_site: RemoteSite, session: Session) -> OpenedImage | None:
    """Read an image at the site, from its first bytes and its lock; return None if the text is not a path or a name.

    Parameters
    ----------
    typed
        The image as the user typed it, which may be a name in the catalog of the site.
    path
        The file there that it means as a path.

    Raises
    ------
    UsageError, ImageError
        If the file does not exist, or is not an image.
    """
    if "://" in typed or typed.startswith(BARE_PREFIX):
        return None
    own = (str(PurePosixPath(remote_site.cwd, PROJECT_FOLDER)),) * Path(session.host.cwd, PROJECT_FILE).is_file()
    found = find_remote_image(remote_site.runner, typed, path, (*own, *site.images.folders))
    if found is None:
        is_name = parse_catalog_name(typed) and not typed.endswith(IMAGE_SUFFIXES)
        pure = PurePosixPath(path)
        raise UsageError(
            f"cannot find the image {path} at {remote_site.name}",
            evidence=f"the catalog there does not have the name {typed}, either" if is_name else "",
            hint=f"send it: argosy images send {quote(pure.name)} {quote(f'{remote_site.name}:{pure.parent}')}",
        )
    file, size = found
    if file != path:
        session.reporter.note(f"{typed} is {file}")
    with work_folder(session.work_parent()) as work:
        opened = open_remote(remote_site.runner, f"{remote_site.name}:{file}", file, size, work)
    return replace(opened, image=replace(opened.image, path=file))
