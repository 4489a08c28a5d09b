"""Collect everything that a build depends on: the user's files, the site's profile, this machine's settings.

A definition file among the sources is the base.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.builder.bases.choose import find_needs, refuse_base_around
from argosy.builder.bases.definitions import definition_format
from argosy.builder.inputs import BuildInputs, read_inputs, read_lock
from argosy.builder.python.sources import GitAccess, find_git_access
from argosy.builder.records import BuildRequest
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import Host
from argosy.core.os_errors import CHECK, missing_file
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.host.architectures import MACHINES, emulating, machine_named
from argosy.images.catalog import IMAGE_SUFFIXES
from argosy.images.identify import Kind, identify_file
from argosy.recipes.build_options import DEFAULT_BASE
from argosy.recipes.lock import Lock
from argosy.recipes.pip_settings import PipConfig, read_pip_config
from argosy.recipes.read import split_extras
from argosy.sites.bases import render_bases
from argosy.sites.load import load_site
from argosy.sites.profile import Site


class BuildContext(msgspec.Struct, frozen=True):
    """The facts that a build is planned from."""

    request: BuildRequest
    """The request, completed by the definition file among the sources."""
    session: Session
    """The session for the machines that the image is for; their programs may run under an emulator here."""
    inputs: BuildInputs
    """The packages and steps in the user's files or the lock."""
    needs: tuple[str, ...]
    """Debian packages that the recipe needs in its base."""
    site: Site | None
    """The site that the image is for, or None."""
    pip: PipConfig
    """The settings of pip's configuration files and variables."""
    git: GitAccess
    """The user's ssh agent, ssh configuration and known hosts."""


def resolve_build(request: BuildRequest, session: Session) -> BuildContext:
    """Read the user's files and ask this machine for everything that a build is planned from."""
    request = complete_request(request, session.host)
    site = load_site(request.site, session.host) if request.site else None
    lock = read_lock(request.locked, session) if request.locked else None
    session = resolve_target_session(request, session, site, lock)
    inputs = read_inputs(request, session, lock)
    _suggest_site_bases(request, site, session)
    refuse_base_around(inputs.base, request.output, session, request.engine)
    for stage in inputs.project.table.stage if inputs.project else ():
        refuse_base_around(stage.base, request.output, session)
    return BuildContext(
        request=request,
        session=session,
        inputs=inputs,
        needs=find_needs(inputs.recipe),
        site=site,
        pip=read_pip_config(session.host.environment, Path(session.host.person.home)),
        git=find_git_access(session.host),
    )


NOT_PACKAGE_LISTS = frozenset({Kind.SIF, Kind.SQUASHFS, Kind.TAR, Kind.DOCKER_ARCHIVE, Kind.OCI_ARCHIVE})
"""Images that users of other tools pass as the source of a build."""


def complete_request(request: BuildRequest, host: Host) -> BuildRequest:
    """Use the definition file or Dockerfile among the sources as the base, or without any base the default one."""
    _refuse_sources(request.sources, Path(host.cwd), f"listed in {request.project.shown}" if request.project else "")
    described = [source for source in request.sources if definition_format(source, request.engine.dockerfile)]
    if len(described) > 1:
        raise UsageError(
            "two files describe a base, but an image has one",
            evidence=", ".join(map(str, described)),
            hint="build one of them first, and use its image as the base of the other",
        )
    if described and request.base:
        raise UsageError(
            f"{described[0]} describes the base, but --base names another one",
            evidence=f"--base {request.base}",
            hint="remove one of them",
        )
    base = request.base or (str(described[0]) if described else "")
    sources = tuple(source for source in request.sources if source not in described)
    is_described = bool(base) and definition_format(Path(host.cwd, base), request.engine.dockerfile) is not None
    if request.engine.arguments and not (is_described or request.locked):
        raise UsageError(
            "--build-arg needs a definition file or a Dockerfile",
            evidence=f"--build-arg {request.engine.arguments[0]}",
            hint="remove it, or give the file among the sources",
        )
    if base or request.locked:  # the lock names the base
        return replace(request, sources=sources, base=base)
    return replace(request, sources=sources, base=DEFAULT_BASE, default_base=True)


RECIPE_NAMES = ("Dockerfile", "Containerfile", "Singularity")
"""Beginnings of the names of files that a package cannot have."""


def _hint_for_missing(file: str) -> str:
    """Return the hint for a source that does not exist: it may be the image to build, or a package."""
    if file == "-":
        return "write it to a file: argosy build does not read its standard input"
    if file.endswith(IMAGE_SUFFIXES):
        return f"for the image to build, write -o {quote(file)}; for a base, check the path"
    is_package = not file.startswith(RECIPE_NAMES) and re.fullmatch(r"[\w-]+([=<>~!].*)?", file)
    return f"packages go into a file: echo {quote(file)} > requirements.txt" if is_package else CHECK


def _refuse_sources(sources: Sequence[Path], cwd: Path, because: str) -> None:
    """Refuse sources that do not exist or are images; this error comes before errors about the base."""
    for source in sources:
        if str(source).startswith("debian:"):
            raise UsageError(f"{source} is a base, not a source", hint=f"use --base {source}")
        file, _ = split_extras(str(source))
        if not (cwd / file).exists():
            missing = missing_file(file, cwd, because)
            if missing.hint == CHECK:
                missing.hint = _hint_for_missing(file)
            raise missing
        found = identify_file(cwd / file)
        if found.kind in NOT_PACKAGE_LISTS:
            raise UsageError(
                f"{source} is an image, not a list of packages",
                evidence=f"it is {found.description}",
                hint=f"add --base {quote(file)}; to convert it alone: argosy images pull {quote(file)} -o IMAGE",
            )


def resolve_target_session(request: BuildRequest, session: Session, site: Site | None, lock: Lock | None) -> Session:
    """Return a session for the architecture that the image is for: the requested one, or that of the lock or the site.

    Raises
    ------
    UsageError
        If the architecture is unknown, or is not the site's.
    CheckFailed
        If this machine cannot run programs for it.
    """
    host = session.host
    locked = machine_named(lock.base.arch) if lock else ""
    asked, there = _architecture(request.arch) or locked, site.node.architecture if site else ""
    if site and asked and there and asked != there:
        raise UsageError(f"--arch is {asked}, but {site.name} is {there}", hint="remove --arch")
    wanted = asked or there or host.arch
    try:
        aimed_at = emulating(host, wanted)
    except CheckFailed as error:
        if site and not asked:
            error.what = f"{site.name} is {there}: {error.what}"
            error.hint += "; --on-node --dry-run shows the plan from here"
        raise
    if aimed_at.emulated:
        session.reporter.note(f"programs for {wanted} run in an emulator on this machine, which is slow")
    return replace(session, host=aimed_at)


def _architecture(word: str) -> str:
    machine = machine_named(word)
    if machine and machine not in MACHINES.values():
        raise UsageError(f"unknown architecture {word!r}", hint=f"use one of {', '.join(sorted(MACHINES.values()))}")
    return machine


def _suggest_site_bases(request: BuildRequest, site: Site | None, session: Session) -> None:
    """Report the bases in the site's profile if the request uses the default base."""
    if request.default_base and site and site.images.bases:
        lines = (f"bases of {site.name}, alternatives to {request.base}: --base NAME", *render_bases(site.images.bases))
        session.reporter.note("\n  ".join(lines))
