"""Fetch the image that a reference names, or convert an archive, into an image file of the cache.

::

    docker://x:tag ──inspect──> manifest ──> configuration's digest ──> cache/fetched/DIGEST…/image.sif
                                                                            │ absent: skopeo copy, umoci unpack,
    cache/references/KEY: the manifest's digest at the last request         ▼ scripts, mksquashfs, SIF

A pinned image in the cache needs no request. For a tag, Argosy asks the registry again; if the registry does not
answer, Argosy uses the image fetched before, and prints a note. One process fetches an image; others wait for it.

Argosy reads images of the local Docker with docker itself, which knows its daemon: DOCKER_HOST, contexts and daemons
without root. The skopeo of Debian 12 uses an API version that Docker 25 dropped (docs.docker.com, release notes 25.0).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import msgspec

from argosy.core.cache import BUILD, fill_once, pin_entry, read_memo, write_memo
from argosy.core.errors import ArgosyError, ToolMissing, UsageError
from argosy.core.model import APPTAINERS
from argosy.core.os_errors import refuse_special_file, translate_os_errors
from argosy.core.process import Command
from argosy.core.progress import watch_growth
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.store import make_folder, work_folder
from argosy.core.suggest import did_you_mean
from argosy.core.tool_errors import run_checked, tool_error
from argosy.host.architectures import go_arch
from argosy.images.identify import Kind, identify_file
from argosy.images.oci import OciConfig, parse_config
from argosy.images.open import wrong_arch
from argosy.images.registry.convert import (
    FORMAT,
    IMAGE_NAME,
    convert_layers,
    fetch_sif,
    file_state,
    pack_root_tar,
    parse_sif_layer,
    run_skopeo,
)
from argosy.images.registry.references import Reference, Transport, file_reference
from argosy.images.registry.skopeo import (
    AWAY,
    RETRIES,
    Manifest,
    SkopeoOptions,
    as_image,
    classify_fault,
    explain_failure,
    is_insecure,
    last_message,
    parse_insecure,
    parse_manifest,
    plan_config,
    plan_manifest,
    skopeo_options,
)
from argosy.images.sif.read import verify_sif

NO_ENTRY = re.compile(r"(?i)permission denied while trying to connect to the docker|dial unix .*permission denied")
NO_DAEMON = re.compile(r"(?i)cannot connect to the docker daemon|failed to connect to the docker api")
"""Messages of docker 20.10 and 28."""


class Fetched(msgspec.Struct, frozen=True):
    """An image in the cache."""

    path: Path
    reference: str
    """The requested reference, pinned to a digest if it is in a registry."""


class Known(msgspec.Struct, frozen=True):
    """The result of the last request for a reference, stored as JSON."""

    reference: str
    digest: str
    """Digest of the manifest; for Docker's images, the image id."""
    entry: str
    """Folder of the image in the cache."""


def local_image(path: Path, session: Session) -> Path:
    """Return the image file for a path: the path itself, or a file in the cache for an image archive or a tar file.

    Raises
    ------
    ArgosyError
        As raised by `fetch_image`; ImageError for a tar file without a root file system.
    """
    found = identify_file(path)
    reference = file_reference(found.kind, path)
    if reference is not None:
        return fetch_image(reference, session).path
    return pack_root_tar(path, found, session) if found.kind is Kind.TAR else path


def fetch_image(reference: Reference, session: Session) -> Fetched:
    """Return the image that a reference names, as a SIF file in the cache; fetch it if necessary.

    Raises
    ------
    UsageError
        If the registry has no such image.
    ImageError
        If the image is for another architecture, or an archive is damaged.
    ToolMissing, ToolFailed, CheckFailed
        If no installed program can fetch it, the registry denies access or cannot be reached, or the disk is full.
    """
    pin_entry(session.paths.cache, BUILD, waiting=session.waiting)  # until its entry is known
    fetched = _fetch(reference, session)
    pin_entry(session.paths.cache, f"fetched/{fetched.path.parent.name}", waiting=session.waiting)
    return fetched


def _fetch(reference: Reference, session: Session) -> Fetched:
    if reference.in_file:
        _refuse_special_files(Path(reference.name))
    memo = session.paths.cache / "references" / f"{_memo_key(reference, session)}.json"
    known = _read_known(memo)
    if reference.transport is Transport.DOCKER_DAEMON:
        return _fetch_from_docker(reference, memo, known, session)
    if known is not None and _is_final(reference):
        return _result_of(reference, known)
    if "skopeo" not in session.host.programs:
        return _fetch_by_runtime(reference, memo.stem, session)
    return _fetch_by_skopeo(reference, memo, known, session)


def _refuse_special_files(path: Path) -> None:
    """Refuse an archive or a layout with a pipe or a device, which skopeo would read for ever."""
    for file in (path, *(sorted(path.rglob("*")) if path.is_dir() else ())):
        refuse_special_file(file)


def _fetch_from_docker(reference: Reference, memo: Path, known: Known | None, session: Session) -> Fetched:
    """Let docker write the image to an archive, unless the cache has the image with this id."""
    identity = ask_image_id(reference, session)
    if known is None or known.digest != identity:
        with work_folder(session.work_parent()) as work:
            archive = work / "image.tar"
            with session.step("save", str(reference)), watch_growth(session.meter("saving"), archive):
                command = Command(("docker", "save", "-o", str(archive), _image_name(reference)))
                run_checked(session.runner, command, doing=f"saving {reference}")
            image = _fetch(Reference(Transport.DOCKER_ARCHIVE, str(archive)), session)
        known = Known(str(reference), identity, str(image.path.parent))
        write_memo(memo, known)
    return _result_of(reference, known)


def _is_final(reference: Reference) -> bool:
    """Return whether a reference always names the same content: by its digest, or as a file."""
    return bool(reference.digest) or reference.in_file


def _memo_key(reference: Reference, session: Session) -> str:
    facts = [str(reference), session.host.target, session.host.can_mount, FORMAT]
    if reference.in_file:
        path = Path(reference.name)
        facts.append(file_state(path / "index.json" if path.is_dir() else path))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read_known(memo: Path) -> Known | None:
    """Read the result of the last request, of any user; None if its image is no longer in the cache."""
    known = read_memo(memo, Known, trust_others=True)
    return known if known and (Path(known.entry) / IMAGE_NAME).is_file() else None


def _result_of(reference: Reference, known: Known) -> Fetched:
    pinned = reference.pinned_to(known.digest) if known.digest else reference
    return Fetched(Path(known.entry) / IMAGE_NAME, str(pinned))


def _fetch_by_skopeo(reference: Reference, memo: Path, known: Known | None, session: Session) -> Fetched:
    # With an image in the cache, retries would only delay its use.
    settings = replace(skopeo_options(session), retries=RETRIES if known is None else 0)
    source = as_image(replace(reference, name=str(_without_colon(reference, session))))
    command = plan_manifest(source, settings)
    reply = session.runner.run(command)
    if reply.code != 0:
        if known is not None and classify_fault(last_message(reply)) in AWAY:
            session.reporter.note(f"{reference.registry} does not answer; using {reference} from the cache")
            return _result_of(reference, known)
        raise explain_failure(reference, command, reply)
    manifest = parse_manifest(reply.stdout, settings.arch, str(reference))
    if known is not None and known.digest == manifest.digest:
        return _result_of(reference, known)
    chosen = source.pinned_to(manifest.chosen or manifest.digest)
    file = parse_sif_layer(reply.stdout, reference)
    if file is not None:
        now = Known(str(reference), manifest.digest, str(fetch_sif(reference, chosen, file, settings, session).parent))
        write_memo(memo, now)
        return _result_of(reference, now)
    config = _ask_config(reference, chosen, settings, session)
    now = Known(str(reference), manifest.digest, str(_entry_of(config, session)))
    _fill_entry(reference, chosen, manifest, config, Path(now.entry), session)
    write_memo(memo, now)
    return _result_of(reference, now)


def _without_colon(reference: Reference, session: Session) -> Path | str:
    """Return a link to a file whose name contains a colon, which skopeo would take for the separator of a tag."""
    if not reference.in_file or ":" not in reference.name:
        return reference.name
    link = session.paths.cache / "links" / hashlib.sha256(reference.name.encode()).hexdigest()[:16]
    with translate_os_errors(link.parent):
        make_folder(link.parent)
        if not link.is_symlink():
            link.symlink_to(Path(reference.name).absolute())
    return link


def _ask_config(reference: Reference, chosen: Reference, settings: SkopeoOptions, session: Session) -> OciConfig:
    reply = run_skopeo(plan_config(chosen, settings), reference, session)
    config = parse_config(reply.stdout, str(reference))
    if config.arch != settings.arch:
        raise wrong_arch(str(reference), config.arch, settings.arch)
    return config


def _entry_of(config: OciConfig, session: Session) -> Path:
    owners = "owners" if session.host.can_mount else "root"
    return session.paths.cache / "fetched" / f"{config.digest.removeprefix('sha256:')}-{owners}-{FORMAT}"


def _fill_entry(
    reference: Reference, chosen: Reference, manifest: Manifest, config: OciConfig, entry: Path, session: Session
) -> None:
    with fill_once(entry, what=f"fetching {reference}", waiting=session.waiting, shared=True) as folder:
        if folder is None:
            return
        whole = _size(chosen, manifest, session)
        size = render_size(whole) if whole else ""
        with session.step("fetch", f"{reference} {size}".strip()) as step, work_folder(session.work_parent()) as work:
            if not {"umoci", "mksquashfs"} <= set(session.host.programs):
                _build_by_runtime(chosen, folder / IMAGE_NAME, session, work, missing="umoci and mksquashfs")
            else:
                convert_layers(reference, chosen, config, work, folder / IMAGE_NAME, session, step, whole)


def _size(chosen: Reference, manifest: Manifest, session: Session) -> int:
    """Return the bytes of the download; 0 if the registry does not tell them.

    The index of an image for several architectures does not contain them.
    """
    size = manifest.size
    if manifest.chosen and chosen.digest:
        settings = skopeo_options(session)
        reply = session.runner.run(plan_manifest(chosen, settings))
        size = parse_manifest(reply.stdout, settings.arch, str(chosen)).size if reply.code == 0 else 0
    return size


def _fetch_by_runtime(reference: Reference, key: str, session: Session) -> Fetched:
    """Fetch with Apptainer or SingularityCE. They report no digest, so the reference is the key in the cache."""
    entry = session.paths.cache / "fetched" / f"by-reference-{key}"
    made = False
    with fill_once(entry, what=f"fetching {reference}", waiting=session.waiting, shared=True) as folder:
        if folder is not None:
            made = True
            with session.step("fetch", str(reference)), work_folder(session.work_parent()) as work:
                missing = "skopeo" if reference.transport is Transport.ORAS else "skopeo and umoci"
                _build_by_runtime(reference, folder / IMAGE_NAME, session, work, missing=missing)
    if not made and not _is_final(reference):
        session.reporter.note(f"using {reference} from the cache; remove {entry} to fetch it again")
    return Fetched(entry / IMAGE_NAME, str(reference))


def _build_by_runtime(reference: Reference, out: Path, session: Session, work: Path, *, missing: str) -> None:
    program = next((name for name in APPTAINERS if name in session.host.programs), None)
    if program is None:
        lacking = [name for name in missing.split(" and ") if name not in session.host.programs]
        raise ToolMissing(
            f"cannot fetch {reference}: no suitable program is installed",
            evidence=f"not found: {', '.join((*lacking, *APPTAINERS))}",
            hint=f"install {' and '.join(lacking)}, or apptainer",
        )
    insecure = ("--no-https",) if is_insecure(reference, parse_insecure(session.host.environment)) else ()
    source = str(replace(reference, tag="")) if reference.digest else str(reference)
    # Argosy caches the image itself, and Apptainer's cache would fill the quota of the home folder.
    foreign = ("--arch", go_arch(session.host.emulated)) if session.host.emulated else ()
    argv = (program, "build", "--disable-cache", *foreign, *insecure, str(out), source)
    temporary = {f"{name.upper()}_TMPDIR": str(work) for name in APPTAINERS}
    command = Command(argv, env={**temporary, **session.host.environment})
    with watch_growth(session.meter("downloading and packing"), work):
        reply = session.runner.run(command)
    if reply.code != 0:
        error = explain_failure(reference, command, reply)
        if reference.in_file and reference.tag:
            # Apptainer 1.4 takes all of oci:DIR:TAG for a path; SingularityCE and Apptainer 1.3 do not.
            error.hint = "omit ':NAME', or install skopeo and umoci, which can select one of several images"
        raise error
    verify_sif(out)


def ask_image_id(reference: Reference, session: Session) -> str:
    """Return docker's id of an image. Images with the same content have the same id.

    Raises
    ------
    ToolMissing, UsageError, ToolFailed
        If docker is missing, has no such image, or its daemon does not answer.
    """
    name = _image_name(reference)
    if "docker" not in session.host.programs:
        raise ToolMissing(
            f"cannot read {reference}: docker is not installed on this machine",
            hint="on a machine with Docker, run 'docker save -o image.tar NAME' and pass the file",
        )
    command = Command(("docker", "image", "inspect", "--format", "{{.Id}}", name))
    reply = session.runner.run(command)
    if reply.code == 0:
        return reply.stdout.strip()
    silent = daemon_hint(reply.stderr)
    error = tool_error(command, reply, doing=f"asking docker for {name}", hint=silent)
    if silent or "no such image" not in reply.stderr.lower():
        raise error
    raise _no_image(name, error, session)


def _image_name(reference: Reference) -> str:
    return f"{reference.name}:{reference.tag}"


def daemon_hint(message: str) -> str:
    """Return the hint for a docker daemon that does not answer or denies access; empty for other messages."""
    if NO_ENTRY.search(message):
        return (
            "ask to be added to the group docker, then log in again ('id' lists your groups); "
            "or build without Docker: install buildah or podman"
        )
    if NO_DAEMON.search(message):
        return "start Docker, or set its address: DOCKER_HOST, or 'docker context use NAME'"
    return ""


def _no_image(name: str, error: ArgosyError, session: Session) -> UsageError:
    listed = session.runner.run(Command(("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")))
    hint = did_you_mean(name, listed.stdout.split(), "'docker images' lists the images", form="docker-daemon:{}")
    return UsageError(f"docker has no image {name}", evidence=error.evidence, hint=hint)
