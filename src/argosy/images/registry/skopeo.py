"""The words for skopeo, and what its replies mean; it starts nothing.

skopeo finds its credentials itself: REGISTRY_AUTH_FILE, ``containers/auth.json`` in XDG_RUNTIME_DIR, and
``~/.docker/config.json`` (containers-auth.json(5)).  Written for skopeo 1.2 (Debian 11) and later.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import FULL_DISK_HINT, Argv, Command, Reply, shorten_command
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.images.open import GO_ARCH, wrong_arch
from argosy.images.registry.references import SLASHED, Reference, Transport

POLICIES = ("/etc/containers/policy.json", ".config/containers/policy.json")

RETRIES = 2
COPY_RETRIES = 4
"""skopeo waits 1, 2, 4, 8 s between; it takes up network errors and 5xx, and waits out 429 by the registry's word.
A copy goes on with the layers that it has, so more tries cost little there."""

INSECURE = "ARGOSY_INSECURE_REGISTRIES"


class SkopeoOptions(msgspec.Struct, frozen=True):
    """How skopeo is to be called on this machine.

    Attributes
    ----------
    arch
        Go's name of the architecture that is wanted where an image has several.
    insecure
        Registries, as ``host`` or ``host:port``, that may be asked without TLS or with a certificate of their own.
    no_policy
        Whether the machine has no ``containers-policy.json(5)``, without which skopeo refuses to copy.
    """

    arch: str
    temporary: str
    insecure: frozenset[str] = frozenset()
    no_policy: bool = False
    retries: int = RETRIES


class Manifest(msgspec.Struct, frozen=True):
    """What a manifest tells.

    Attributes
    ----------
    digest
        ``sha256:…`` of its bytes.
    chosen
        Of an image for several architectures: the digest of the manifest for this one; else empty.
    size
        Bytes to fetch; 0 where only the chosen manifest knows.
    """

    digest: str
    chosen: str = ""
    size: int = 0


class Fault(StrEnum):
    """Why a registry did not give an image."""

    FULL = "full"
    RATE = "rate"
    LOGIN = "login"
    MISSING = "missing"
    TLS = "tls"
    NETWORK = "network"
    SERVER = "server"
    ARCH = "arch"
    OTHER = "other"


NETWORK_WORDS = (
    r"connection refused|connection reset|no such host|timeout|timed out|no route to host|unreachable"
    r"|temporary failure in name resolution|server misbehaving|proxyconnect|unexpected EOF|: EOF\b"
)
PATTERNS = (
    (Fault.FULL, r"no space left on device|disk quota exceeded"),
    (Fault.RATE, r"toomanyrequests|too many requests|\b429\b"),
    (Fault.ARCH, r"no image found in (manifest list|image index)"),
    (Fault.MISSING, r"manifest unknown|name unknown|repository name not known|\bnot found\b|\b404\b"),
    (Fault.LOGIN, r"unauthorized|authentication required|denied|invalid username/password|\b40[13]\b"),
    (Fault.TLS, r"x509:|certificate|HTTP response to HTTPS client|\btls: "),
    (Fault.NETWORK, NETWORK_WORDS),
    (Fault.SERVER, r"\b5\d\d\b"),
)
"""In this order: a message may hold several of these words, and the first is the reason."""

AWAY = frozenset({Fault.NETWORK, Fault.SERVER, Fault.RATE})
"""Faults that pass: an image fetched before may be used meanwhile."""

_PULL = re.compile(
    r"initializing source|reading manifest|conveyor failed to get|source metadata for|pull access denied|/v2/"
)
"""What buildah and podman, apptainer, and docker say of an image that they cannot fetch."""

_PULLED = re.compile(r"(?:initializing source docker://|source metadata for |pull access denied for )(?P<name>\S+)")
_ASKED = re.compile(r"https?://(?P<host>[^/\s\"]+)/v2/")
_ADDRESS = re.compile(r"docker://\S+|https?://\S+")
_OF_REGISTRIES = (Fault.RATE, Fault.MISSING, Fault.LOGIN, Fault.TLS, Fault.NETWORK, Fault.SERVER)


def parse_insecure(environment: Mapping[str, str]) -> frozenset[str]:
    """Read the registries that may be asked without TLS, from ARGOSY_INSECURE_REGISTRIES=host[:port],…."""
    return frozenset(word.strip() for word in environment.get(INSECURE, "").split(",") if word.strip())


def render_source(reference: Reference) -> str:
    """Say a reference to skopeo, which takes a tag or a digest, and not both."""
    if reference.transport in SLASHED:
        end = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
        return f"{reference.transport}://{reference.name}{end}"
    return f"{reference.transport}:{reference.name}" + (f":{reference.tag}" if reference.tag else "")


def plan_manifest(reference: Reference, way: SkopeoOptions) -> Command:
    """Give the command that prints an image's manifest, byte for byte."""
    return Command((*_start(way, "inspect"), "--raw", *_tls(reference, way, "--tls-verify"), render_source(reference)))


def plan_config(reference: Reference, way: SkopeoOptions) -> Command:
    """Give the command that prints an image's configuration, byte for byte."""
    options = ("--config", "--raw", *_tls(reference, way, "--tls-verify"))
    return Command((*_start(way, "inspect"), *options, render_source(reference)))


def plan_copy(reference: Reference, way: SkopeoOptions, layout: str) -> Command:
    """Give the command that fetches an image into the OCI layout ``DIR:TAG``."""
    # Never with --dest-oci-accept-uncompressed-layers: skopeo 1.9 calls the layers of an archive gzip all the same.
    options = _tls(reference, way, "--src-tls-verify")
    return Command(
        (*_start(replace(way, retries=COPY_RETRIES), "copy"), *options, render_source(reference), f"oci:{layout}")
    )


def plan_push(layout: str, reference: Reference, way: SkopeoOptions, *, digest_file: str) -> Command:
    """Give the command that puts the image of an OCI layout ``DIR:TAG`` into a registry, and writes its digest."""
    options = _tls(reference, way, "--dest-tls-verify")
    # A SIF file must arrive as it is; layers of an image are compressed on the way.
    as_it_is = ("--preserve-digests",) if reference.transport is Transport.ORAS else ()
    words = (*as_it_is, *options, "--digestfile", digest_file, f"oci:{layout}", render_source(as_image(reference)))
    return Command((*_start(replace(way, retries=COPY_RETRIES), "copy"), *words))


def plan_files(reference: Reference, way: SkopeoOptions, folder: str) -> Command:
    """Give the command that fetches the blobs of an artifact as files, each by its digest, into a folder."""
    options = _tls(reference, way, "--src-tls-verify")
    start = _start(replace(way, retries=COPY_RETRIES), "copy")
    return Command((*start, *options, render_source(as_image(reference)), f"dir:{folder}"))


def as_image(reference: Reference) -> Reference:
    """Give the reference as skopeo knows it: a SIF file in a registry is an artifact like any image there."""
    return replace(reference, transport=Transport.DOCKER) if reference.transport is Transport.ORAS else reference


def plan_decompression(way: SkopeoOptions, source: str, *, folder: str, layout: str) -> tuple[Command, Command]:
    """Give the commands that copy a layout by way of a folder into another one, its layers then uncompressed."""
    start = _start(way, "copy")
    return (
        Command((*start, "--dest-decompress", f"oci:{source}", f"dir:{folder}")),
        Command((*start, "--dest-oci-accept-uncompressed-layers", f"dir:{folder}", f"oci:{layout}")),
    )


def _start(way: SkopeoOptions, verb: str) -> Argv:
    policy = ("--insecure-policy",) if way.no_policy else ()
    choice = ("--override-os", "linux", "--override-arch", way.arch, "--tmpdir", way.temporary)
    return ("skopeo", *policy, *choice, verb, "--retry-times", str(way.retries))


def _tls(reference: Reference, way: SkopeoOptions, option: str) -> Argv:
    return (f"{option}=false",) if is_insecure(reference, way.insecure) else ()


def is_insecure(reference: Reference, insecure: frozenset[str]) -> bool:
    """Tell whether a reference's registry may be asked without TLS."""
    registry = reference.registry
    return bool(registry) and not insecure.isdisjoint({registry, registry.rpartition(":")[0] or registry})


def parse_manifest(text: str, arch: str, name: str) -> Manifest:
    """Read a manifest or an index of several (OCI image specification; Docker's schema 2 and manifest list).

    Raises
    ------
    ImageError
        When it is neither, or an index holds nothing for `arch`.
    """
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    try:
        whole = json.loads(text)
        if "manifests" not in whole:
            sizes = [int(layer.get("size", 0)) for layer in whole.get("layers", ())]
            return Manifest(digest, size=sum(sizes))
        rows = [(_platform(entry), str(entry["digest"])) for entry in whole["manifests"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(
            f"{name} has no readable manifest", evidence=repr(error), hint="push the image anew"
        ) from error
    rows = [row for row in rows if row[0][0] == "linux" and row[0][1] != "unknown"]
    arches = tuple(dict.fromkeys(row[0][1] for row in rows))
    chosen = next((digest for (_, has), digest in rows if has == arch), "")
    if arches and not chosen:
        raise wrong_arch(name, ", ".join(arches), arch)
    return Manifest(digest, chosen)


def _platform(entry: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    platform = entry.get("platform") or {}
    return platform.get("os", ""), platform.get("architecture", "")


def classify_fault(said: str) -> Fault:
    """Tell why a registry did not give an image, by what skopeo or Apptainer said of it."""
    return next((fault for fault, pattern in PATTERNS if re.search(pattern, said, re.IGNORECASE)), Fault.OTHER)


def last_message(reply: Reply) -> str:
    """Give what a failed program said last, out of Go's log format and without credentials."""
    lines = [line for line in reply.stderr.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else reply.stdout.strip()[-400:]
    found = re.search(r'\bmsg=("(?:[^"\\]|\\.)*")', last)
    if found is not None:
        try:
            last = str(json.loads(found[1]))
        except ValueError:
            last = found[1].strip('"')
    return redact(last)


def explain_failure(reference: Reference, command: Command, reply: Reply, *, pushing: bool = False) -> ArgosyError:
    """Say why an image could not be fetched, or pushed: what, the program's last line, and the way out."""
    said = last_message(reply)
    evidence = f"$ {redact(shorten_command(command))}\n{said}\n(exit code {reply.code})"
    fault = classify_fault(said)
    if fault is Fault.FULL:
        doing = "pushing" if pushing else "fetching"
        return CheckFailed(f"no space left while {doing} {reference}", evidence=evidence, hint=FULL_DISK_HINT)
    if fault is Fault.ARCH:
        return ImageError(f"{reference} is for another kind of machine", evidence=evidence, hint="choose another image")
    if reference.in_file and re.search(rf"{re.escape(reference.name)}(/index\.json)?: no such file or directory", said):
        return UsageError(f"there is no image at {reference.name}", evidence=said, hint="check the path")
    if reference.in_file:
        several = r"more than one image|expected 1 item, got [2-9]|no descriptor found|not found"
        choose = re.search(several, said) is not None
        place = f"{reference.transport}:{reference.name}"
        hint = f"name one of the images in it: {place}:NAME" if choose else "check that it is whole"
        return ImageError(f"{reference} cannot be read", evidence=evidence, hint=hint)
    return _explain_registry(fault, reference, evidence, pushing=pushing)


def _explain_registry(fault: Fault, reference: Reference, evidence: str, *, pushing: bool) -> ArgosyError:
    registry = reference.registry
    kind = UsageError if fault is Fault.MISSING else ToolFailed
    if pushing and fault in {Fault.MISSING, Fault.LOGIN}:
        what = f"{registry} does not let us write {reference}"
        hint = f"'skopeo login {registry}' as one who may write there; some registries want the project made first"
        return ToolFailed(what, evidence=evidence, hint=hint)
    what, hint = _describe_fault(fault, registry, str(reference), reference.name)
    what = what or f"{reference} could not be {'pushed' if pushing else 'fetched'}"
    return kind(what, evidence=evidence, hint=hint)


def _describe_fault(fault: Fault, registry: str, image: str, name: str) -> tuple[str, str]:
    """Say what a fault is and what to do; two empty texts where neither is known."""
    login = f"'skopeo login {registry}'"
    texts = {
        Fault.MISSING: (
            f"there is no image {image} in the registry",
            f"check name and tag; 'skopeo list-tags docker://{name}' lists the tags",
        ),
        Fault.LOGIN: (
            f"{registry} does not let us read {image}",
            f"{login}, or check the spelling: some registries say the same of a name that does not exist",
        ),
        Fault.RATE: (
            f"{registry} answers no more for now: too many requests from here",
            f"wait, or raise the limit by {login}",
        ),
        Fault.TLS: (
            f"{registry} has no certificate that this machine trusts",
            f"put its authority into /etc/containers/certs.d/{registry}/, or without TLS set {INSECURE}={registry}",
        ),
        Fault.NETWORK: (f"{registry} cannot be reached", "check the registry's name, the network and https_proxy"),
        Fault.SERVER: (f"{registry} has trouble of its own", "try again later"),
    }
    return texts.get(fault, ("", ""))


def explain_pull(said: str) -> str:
    """Say why an engine could not fetch the image that a file builds upon, by its own words; empty where it did."""
    last = next((line for line in reversed(said.splitlines()) if _PULL.search(line)), "")
    fault = classify_fault(_ADDRESS.sub(" ", last))
    if not last or fault not in _OF_REGISTRIES:
        return ""
    named, asked = _PULLED.search(last), _ASKED.search(last)
    image = named["name"].rstrip(":,.") if named else ""
    first = image.partition("/")[0]
    its = first if "/" in image and re.search(r"[.:]|^localhost$", first) else "docker.io" if image else "the registry"
    what, hint = _describe_fault(
        fault, asked["host"] if asked else its, image or "the base", re.sub(r"[:@][^/]*$", "", image)
    )
    return f"the base could not be fetched: {what}; {hint}"


def skopeo_options(session: Session) -> SkopeoOptions:
    """Give how skopeo is called here; its folder for temporary files is made."""
    host = session.host
    policies = [Path(host.person.home) / place for place in POLICIES]
    temporary = session.work_parent()
    with translate_os_errors(temporary):
        temporary.mkdir(parents=True, exist_ok=True)
    return SkopeoOptions(
        arch=GO_ARCH.get(host.target, host.target),
        temporary=str(temporary),
        insecure=parse_insecure(host.environment),
        no_policy=not any(path.is_file() for path in policies),
    )
