"""Plan skopeo commands, parse their output, and explain their failures.

skopeo finds its credentials itself: REGISTRY_AUTH_FILE, ``containers/auth.json`` in XDG_RUNTIME_DIR, and
``~/.docker/config.json`` (containers-auth.json(5)). The commands work with skopeo 1.2 (Debian 11) and later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.children import IDLE
from argosy.core.errors import ArgosyError, CheckFailed, ImageError, ToolFailed, UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import parse_json
from argosy.core.process import Argv, Command, Reply, shorten_command
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.tool_errors import FULL_DISK_HINT
from argosy.host.architectures import go_arch
from argosy.images.identify import identify_file
from argosy.images.oci import OciPlatform, parse_oci_manifest
from argosy.images.open import wrong_arch
from argosy.images.registry.references import SLASHED, Reference, Transport

POLICIES = ("/etc/containers/policy.json", ".config/containers/policy.json")

RETRIES = 2
COPY_RETRIES = 4
"""skopeo waits 1, 2, 4, 8 s between attempts. It retries network errors and 5xx, and obeys Retry-After on 429.

A retried copy skips the layers that it already has, so more attempts cost little.
"""

SILENCE_SECONDS = 90.0
"""A registry that sends no data for this time does not answer.

skopeo itself waits for ever. It pauses for at most 60 s, if a registry with too many requests demands it (Retry-After).
conda waits 60 s for data, pip 15 s, curl and podman for ever.
"""

INSECURE = "ARGOSY_INSECURE_REGISTRIES"


class SkopeoOptions(msgspec.Struct, frozen=True):
    """Options of all skopeo commands on this machine."""

    arch: str
    """Go's name of the architecture to choose from an image for several."""
    temporary: str
    insecure: frozenset[str] = frozenset()
    """Registries, as ``host`` or ``host:port``, that may be used without TLS or with an untrusted certificate."""
    no_policy: bool = False
    """Whether the machine lacks a ``containers-policy.json(5)``, without which skopeo refuses to copy."""
    retries: int = RETRIES


class Manifest(msgspec.Struct, frozen=True):
    """The facts in a manifest."""

    digest: str
    """``sha256:…`` of its bytes."""
    chosen: str = ""
    """In an index of several architectures, the digest of the manifest for this one. Empty for a manifest."""
    size: int = 0
    """Bytes to fetch; 0 for an index."""


class RegistryFault(StrEnum):
    """The reason why a registry did not deliver an image."""

    FULL = "full"
    SETTINGS = "settings"
    RATE = "rate"
    LOGIN = "login"
    MISSING = "missing"
    SILENT = "silent"
    TLS = "tls"
    NO_TLS = "no-tls"
    NETWORK = "network"
    SERVER = "server"
    ARCH = "arch"
    OTHER = "other"


NETWORK_WORDS = (
    r"connection refused|connection reset|no such host|timeout|timed out|no route to host|unreachable"
    r"|temporary failure in name resolution|server misbehaving|proxyconnect|unexpected EOF|: EOF\b"
)
PATTERNS = (
    (RegistryFault.SILENT, rf"{IDLE} for \d+ seconds"),
    (RegistryFault.FULL, r"no space left on device|disk quota exceeded"),
    (
        RegistryFault.SETTINGS,
        r"getting username and password|reading JSON file|loading registries configuration|auth\.json",
    ),
    (RegistryFault.RATE, r"toomanyrequests|too many requests|\b429\b"),
    (RegistryFault.ARCH, r"no image found in (manifest list|image index)"),
    (RegistryFault.MISSING, r"manifest unknown|name unknown|repository name not known|\bnot found\b|\b404\b"),
    (RegistryFault.LOGIN, r"unauthorized|authentication required|denied|invalid username/password|\b40[13]\b"),
    (RegistryFault.NO_TLS, r"HTTP response to HTTPS client"),
    (RegistryFault.TLS, r"x509:|certificate|\btls: "),
    (RegistryFault.NETWORK, NETWORK_WORDS),
    (RegistryFault.SERVER, r"\b5\d\d\b"),
)
"""Fault -> pattern, in this order: a message may match several patterns, and the first one counts."""

AWAY = frozenset({RegistryFault.SILENT, RegistryFault.NETWORK, RegistryFault.SERVER, RegistryFault.RATE})
"""Temporary faults: Argosy uses an image that was fetched before."""

_PULL = re.compile(
    r"initializing source|reading manifest|conveyor failed to get|source metadata for|pull access denied|/v2/"
)
"""Messages of buildah and podman, apptainer, and docker about an image that they cannot fetch."""

_PULLED = re.compile(r"(?:initializing source docker://|source metadata for |pull access denied for )(?P<name>\S+)")
_ASKED = re.compile(r"https?://(?P<host>[^/\s\"]+)/v2/")
_MANIFEST = re.compile(
    r"https?://(?P<host>[^/\s\"]+)/v2/(?P<name>[^\s\"]+)/manifests/(?P<tag>(?P<digest>sha256:)?[\w.-]+)"
)
"""Apptainer's message about a missing image."""
_HUB = r"^(?:index\.|registry-1\.)?docker\.io/(?:library/)?"
_ADDRESS = re.compile(r"docker://\S+|https?://\S+")
_OF_REGISTRIES = frozenset(RegistryFault) - {RegistryFault.FULL, RegistryFault.ARCH, RegistryFault.OTHER}


def parse_insecure(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the registries that may be used without TLS, from ARGOSY_INSECURE_REGISTRIES=host[:port],…."""
    return frozenset(word.strip() for word in environment.get(INSECURE, "").split(",") if word.strip())


def render_source(reference: Reference) -> str:
    """Render a reference for skopeo, which accepts a tag or a digest, but not both."""
    if reference.transport in SLASHED:
        end = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
        return f"{reference.transport}://{reference.name}{end}"
    return f"{reference.transport}:{reference.name}" + (f":{reference.tag}" if reference.tag else "")


def plan_manifest(reference: Reference, settings: SkopeoOptions) -> Command:
    """Return the command that prints an image's manifest, byte for byte."""
    return _inspection(reference, settings, "--raw")


def plan_config(reference: Reference, settings: SkopeoOptions) -> Command:
    """Return the command that prints an image's configuration, byte for byte."""
    return _inspection(reference, settings, "--config", "--raw")


def _inspection(reference: Reference, settings: SkopeoOptions, *options: str) -> Command:
    tls = _tls(reference, settings, "--tls-verify")
    return _reading((*_start(settings, "inspect"), *options, *tls, render_source(reference)), reference)


def plan_copy(reference: Reference, settings: SkopeoOptions, target: str) -> Command:
    """Return the command that copies an image into ``oci:DIR:TAG``, a layout, or the blobs of it into ``dir:DIR``."""
    # Without --dest-oci-accept-uncompressed-layers: skopeo 1.9 then labels uncompressed layers of an archive as gzip.
    options = _tls(reference, settings, "--src-tls-verify")
    start = _start(replace(settings, retries=COPY_RETRIES), "copy")
    return _reading((*start, *options, render_source(as_image(reference)), target), reference)


def plan_push(layout: str, reference: Reference, settings: SkopeoOptions, *, digest_file: str) -> Command:
    """Return the command that copies the image in an OCI layout ``DIR:TAG`` to a registry and writes its digest."""
    options = _tls(reference, settings, "--dest-tls-verify")
    # skopeo compresses the layers of an image while copying, but a SIF file must not change.
    as_it_is = ("--preserve-digests",) if reference.transport is Transport.ORAS else ()
    argv = (*as_it_is, *options, "--digestfile", digest_file, f"oci:{layout}", render_source(as_image(reference)))
    return Command((*_start(replace(settings, retries=COPY_RETRIES), "copy"), *argv))


def _reading(argv: Argv, reference: Reference) -> Command:
    """Return a command that ends if its registry is silent.

    A command that pushes does not: a registry may need minutes to store a large layer before it answers.
    """
    return Command(argv, idle=SILENCE_SECONDS if reference.registry else 0.0)


def as_image(reference: Reference) -> Reference:
    """Return the reference for skopeo: it treats a SIF file in a registry like any image."""
    return replace(reference, transport=Transport.DOCKER) if reference.transport is Transport.ORAS else reference


def plan_decompression(settings: SkopeoOptions, source: str, *, folder: str, layout: str) -> tuple[Command, Command]:
    """Return the commands that copy a layout through a folder into another layout with uncompressed layers."""
    start = _start(settings, "copy")
    return (
        Command((*start, "--dest-decompress", f"oci:{source}", f"dir:{folder}")),
        Command((*start, "--dest-oci-accept-uncompressed-layers", f"dir:{folder}", f"oci:{layout}")),
    )


def _start(settings: SkopeoOptions, verb: str) -> Argv:
    policy = ("--insecure-policy",) if settings.no_policy else ()
    choice = ("--override-os", "linux", "--override-arch", settings.arch, "--tmpdir", settings.temporary)
    return ("skopeo", *policy, *choice, verb, "--retry-times", str(settings.retries))


def _tls(reference: Reference, settings: SkopeoOptions, option: str) -> Argv:
    return (f"{option}=false",) if is_insecure(reference, settings.insecure) else ()


def is_insecure(reference: Reference, insecure: frozenset[str]) -> bool:
    """Return whether a reference's registry may be used without TLS."""
    registry = reference.registry
    return bool(registry) and not insecure.isdisjoint({registry, registry.rpartition(":")[0] or registry})


def parse_manifest(text: str, arch: str, name: str) -> Manifest:
    """Parse a manifest, or choose one of an index.

    Raises
    ------
    ImageError
        If the text is neither, or an index has no manifest for `arch`.
    """
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    whole = parse_oci_manifest(text, name)
    if whole.manifests is None:
        return Manifest(digest, size=sum(layer.size for layer in whole.layers or ()))
    rows = [(each.platform or OciPlatform(), each.digest) for each in whole.manifests]
    digests = {
        platform.architecture: found
        for platform, found in reversed(rows)
        if platform.os == "linux" and platform.architecture != "unknown"
    }
    if digests and not digests.get(arch):
        raise wrong_arch(name, ", ".join(reversed(digests)), arch)
    return Manifest(digest, digests.get(arch, ""))


def classify_fault(message: str) -> RegistryFault:
    """Classify the message of skopeo or Apptainer about a registry."""
    return next(
        (fault for fault, pattern in PATTERNS if re.search(pattern, message, re.IGNORECASE)), RegistryFault.OTHER
    )


def last_message(reply: Reply) -> str:
    """Return the last message of a failed program, without Go's log format and credentials."""
    lines = [line for line in reply.stderr.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else reply.stdout.strip()[-400:]
    found = re.search(r'\bmsg=("(?:[^"\\]|\\.)*")', last)
    if found is not None:
        try:
            last = str(parse_json(found[1]))
        except ValueError:
            last = found[1].strip('"')
    return redact(last)


def explain_failure(reference: Reference, command: Command, reply: Reply, *, pushing: bool = False) -> ArgosyError:
    """Return the error for an image that could not be fetched or pushed: cause, the program's last line, and hint."""
    message = last_message(reply)
    evidence = f"$ {redact(shorten_command(command))}\n{message}\n(exit code {reply.code})"
    fault = classify_fault(message)
    if fault is RegistryFault.FULL:
        doing = "pushing" if pushing else "fetching"
        return CheckFailed(f"the disk is full while {doing} {reference}", evidence=evidence, hint=FULL_DISK_HINT)
    if fault is RegistryFault.ARCH:
        return ImageError(f"{reference} is for another architecture", evidence=evidence, hint="choose another image")
    if reference.in_file and re.search(
        rf"{re.escape(reference.name)}(/index\.json)?: no such file or directory", message
    ):
        return UsageError(f"there is no image at {reference.name}", evidence=message, hint="check the path")
    if reference.in_file:
        several = r"more than one image|expected 1 item, got [2-9]|no descriptor found|not found"
        choose = re.search(several, message) is not None
        archive = f"{reference.transport}:{reference.name}"
        hint = f"name one of the images in it: {archive}:NAME" if choose else _check_archive(reference, message)
        return ImageError(f"cannot read {reference}", evidence=evidence, hint=hint)
    return _explain_registry(fault, reference, evidence, pushing=pushing)


def _check_archive(reference: Reference, message: str) -> str:
    """Return the hint for an archive that cannot be read; skopeo 1.9 (Debian 12) reads no compressed one of Docker."""
    packing = identify_file(reference.name).compression if "invalid tar header" in message else "none"
    if packing == "none" or reference.transport is not Transport.DOCKER_ARCHIVE:
        return "check that the file is complete"
    return (
        f"this skopeo may not read compressed archives of Docker; decompress it: {packing} -dk {quote(reference.name)}"
    )


def _explain_registry(fault: RegistryFault, reference: Reference, evidence: str, *, pushing: bool) -> ArgosyError:
    registry = reference.registry
    kind = UsageError if fault is RegistryFault.MISSING else ToolFailed
    if pushing and fault in {RegistryFault.MISSING, RegistryFault.LOGIN}:
        what = f"{registry} denies permission to write {reference}"
        hint = f"'skopeo login {registry}' as a user who may write; in some registries, create the project first"
        return ToolFailed(what, evidence=evidence, hint=hint)
    what, hint = _describe_fault(fault, registry, str(reference), reference.name)
    what = what or f"cannot {'push' if pushing else 'fetch'} {reference}"
    if re.search(r"/run/containers/\d+/auth\.json: permission denied", evidence):
        hint = NO_RUNTIME_FOLDER
    return kind(what, evidence=evidence, hint=hint)


NO_RUNTIME_FOLDER = (
    "without XDG_RUNTIME_DIR, skopeo keeps logins in a folder of root: export "
    'REGISTRY_AUTH_FILE="$HOME/.config/containers/auth.json", or set XDG_RUNTIME_DIR to a folder of your own'
)


def _describe_fault(fault: RegistryFault, registry: str, image: str, name: str) -> tuple[str, str]:
    """Return message and hint for a fault; two empty texts for an unknown one."""
    login = f"'skopeo login {registry}'"
    texts = {
        RegistryFault.SETTINGS: (
            f"skopeo cannot read its own files, which it needs for {image}",
            f"correct or remove the file in the message; {login} writes the file of logins again",
        ),
        RegistryFault.MISSING: (
            f"the registry has no image {image}" if name else "the registry does not have the image",
            "check the name and the tag" + (f"; 'skopeo list-tags docker://{name}' lists the tags" if name else ""),
        ),
        RegistryFault.LOGIN: (
            f"{registry} denies permission to read {image}",
            f"{login}, or check the name: some registries answer the same for a name that does not exist",
        ),
        RegistryFault.RATE: (
            f"{registry} refuses further requests for now: too many requests",
            f"wait, or log in for a higher limit: {login}",
        ),
        RegistryFault.TLS: (
            f"the certificate of {registry} is not trusted",
            f"add its authority to /etc/containers/certs.d/{registry}/, or disable TLS with {INSECURE}={registry}",
        ),
        RegistryFault.NO_TLS: (
            f"{registry} speaks HTTP, not HTTPS",
            f"if you trust the network between, allow it with {INSECURE}={registry}",
        ),
        RegistryFault.SILENT: (
            f"{registry} does not answer",
            "try again later; if it happens again, check the network and https_proxy, or use another registry",
        ),
        RegistryFault.NETWORK: (f"cannot reach {registry}", "check the registry's name, the network and https_proxy"),
        RegistryFault.SERVER: (f"{registry} reports an internal error", "try again later"),
    }
    return texts.get(fault, ("", ""))


def explain_pull(message: str, *, use: str = "") -> str:
    """Explain from an engine's output why it could not fetch the base of a build file; empty if it could.

    Parameters
    ----------
    use
        How the build file refers to an archive of the image, which the hint for a missing network suggests.
    """
    last = next((line for line in reversed(message.splitlines()) if _PULL.search(line)), "")
    fault = classify_fault(_ADDRESS.sub(" ", last))
    if not last or fault not in _OF_REGISTRIES:
        return ""
    named, asked = _PULLED.search(last), _ASKED.search(last)
    image = named["name"].rstrip(":,.") if named else _manifest_image(last)
    first = image.partition("/")[0]
    has_host = "/" in image and re.search(r"[.:]|^localhost$", first)
    registry = first if has_host else "docker.io" if image else "the registry"
    what, hint = _describe_fault(
        fault, asked["host"] if asked else registry, image or "the base", re.sub(r"[:@][^/]*$", "", image)
    )
    if use and image and fault in {RegistryFault.NETWORK, RegistryFault.SILENT}:
        whole = image if has_host else f"{registry}/{image}"
        hint += f"; or fetch it elsewhere, with 'skopeo copy docker://{whole} oci-archive:base.tar', and write '{use}'"
    return f"cannot fetch the base: {what}; {hint}"


def _manifest_image(line: str) -> str:
    """Return the image whose manifest an engine requested, as users write it; empty if the line has none."""
    asked = _MANIFEST.search(line)
    if asked is None:
        return ""
    return re.sub(_HUB, "", f"{asked['host']}/{asked['name']}{'@' if asked['digest'] else ':'}{asked['tag']}")


def skopeo_options(session: Session) -> SkopeoOptions:
    """Return the options of skopeo on this machine; create its folder for temporary files."""
    host = session.host
    policies = [Path(host.person.home) / archive for archive in POLICIES]
    temporary = session.work_parent()
    with translate_os_errors(temporary):
        temporary.mkdir(parents=True, exist_ok=True)
    return SkopeoOptions(
        arch=go_arch(host.target),
        temporary=str(temporary),
        insecure=parse_insecure(host.environment),
        no_policy=not any(path.is_file() for path in policies),
    )
