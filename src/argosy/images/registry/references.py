"""Parse references to images in registries, archives and Docker's store. Nothing here uses the network or the disk.

===================================  ==========================================================
``docker://[REGISTRY/]NAME[:TAG]``   an image in a registry; ``@sha256:…`` pins its content
``oras://REGISTRY/NAME[:TAG]``       a SIF file in a registry
``docker-archive:FILE[:NAME]``       an archive of ``docker save``
``oci-archive:FILE[:TAG]``           an archive of podman, buildah or skopeo
``oci:DIR[:TAG]``                    an OCI layout
``docker-daemon:NAME[:TAG]``         an image in the local Docker
===================================  ==========================================================

Names follow the grammar of github.com/distribution/reference, as in all registries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import DIGEST
from argosy.core.redact import STARS
from argosy.core.suggest import suggest_word
from argosy.images.identify import Kind

FORMS = "docker://[REGISTRY/]NAME[:TAG][@sha256:…], oras://…, docker-archive:FILE, oci-archive:FILE, oci:DIR"


class Transport(StrEnum):
    """How to reach an image: the part of a reference before the colon."""

    DOCKER = "docker"
    ORAS = "oras"
    DOCKER_ARCHIVE = "docker-archive"
    OCI_ARCHIVE = "oci-archive"
    OCI = "oci"
    DOCKER_DAEMON = "docker-daemon"


IN_FILES = frozenset({Transport.DOCKER_ARCHIVE, Transport.OCI_ARCHIVE, Transport.OCI})
SLASHED = frozenset({Transport.DOCKER, Transport.ORAS})
"""Transports of registries, which have two slashes after the colon."""

OF_KIND: Mapping[Kind, Transport] = {
    Kind.DOCKER_ARCHIVE: Transport.DOCKER_ARCHIVE,
    Kind.OCI_ARCHIVE: Transport.OCI_ARCHIVE,
    Kind.OCI_LAYOUT: Transport.OCI,
}
ELSEWHERE: Mapping[str, str] = {
    "library": "fetch it with 'apptainer pull' and pass the SIF file",
    "shub": "Singularity Hub closed in 2021; search for the image on Docker Hub",
    "http": "download the file and pass its path",
    "https": "download the file and pass its path",
    "containers-storage": "write it to a file with 'podman save -o FILE NAME' and pass the file",
    "dockerd": "use docker-daemon:NAME, or 'docker save -o FILE NAME' and the file",
}
"""Schemes that Argosy does not fetch -> hint."""

DOCKER_HUB = "docker.io"
_SCHEMES = frozenset({*Transport, *ELSEWHERE})
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME = re.compile(rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9_+.-]*):(?P<slashes>/*)(?P<rest>.*)\Z", re.DOTALL)
_HUB_PAGE = re.compile(r"https?://hub\.docker\.com/(?:r/(?P<name>[^/?#]+/[^/?#]+)|_/(?P<official>[^/?#]+))")
_NEAR_ENOUGH = 0.8


class Reference(msgspec.Struct, frozen=True):
    """An image in a registry, an archive or Docker's store."""

    transport: Transport
    name: str
    """With its registry, as ``docker.io/library/debian``; or the path of a file or directory."""
    tag: str = ""
    """In a file: the name of one image among several; empty for the only one."""
    digest: str = ""
    """``sha256:…`` of the manifest; empty if only the tag says what is meant."""

    @property
    def registry(self) -> str:
        """The registry's host and port; empty for files and Docker's store."""
        return self.name.partition("/")[0] if self.transport in SLASHED else ""

    @property
    def in_file(self) -> bool:
        """Whether the image is a local file or folder."""
        return self.transport in IN_FILES

    def pinned_to(self, digest: str) -> Reference:
        """Return the reference with a digest. References without a registry have none and are returned unchanged."""
        return Reference(self.transport, self.name, self.tag, digest) if self.transport in SLASHED else self

    def __str__(self) -> str:
        """Render the reference in its short form, without Docker Hub's host name."""
        if self.transport not in SLASHED:
            return f"{self.transport}:{self.name}" + (f":{self.tag}" if self.tag else "")
        name = self.name.removeprefix(f"{DOCKER_HUB}/").removeprefix("library/")
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.transport}://{name}{tag}" + (f"@{self.digest}" if self.digest else "")


def is_reference(text: str) -> bool:
    """Return whether a text is meant as a reference: it contains ``://`` or a transport, perhaps misspelt."""
    found = _SCHEME.match(text)
    if found is None:
        return False
    return "://" in text or bool(_nearest_transport(found["scheme"]))


def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises
    ------
    UsageError
        If the text is not a valid reference. The hint is the most similar valid form; passwords are redacted.
    """
    found = _SCHEME.match(text)
    if found is None:
        raise _reference_error(
            text, "it has no docker:// or oras:// before it", f"write docker://{text}" if _is_name(text) else ""
        )
    scheme, slashes, rest = found["scheme"], found["slashes"], found["rest"]
    if scheme not in set(Transport):
        raise _unknown_scheme(text, scheme, rest)
    transport = Transport(scheme)
    if transport in SLASHED:
        if slashes != "//":
            raise _reference_error(
                text, f"{scheme}: must be followed by two slashes", f"write {scheme}://{_redact_login(rest)}"
            )
        return _parse_name(text, transport, rest)
    if transport is Transport.DOCKER_DAEMON:
        return _parse_daemon(text, rest)
    # Some tools write oci-archive:///path for the same path.
    path, _, tag = (("/" if slashes else "") + rest).partition(":")
    if not path:
        raise _reference_error(
            text, "there is no file name after the colon", f"write {scheme}:{'DIR' if scheme == 'oci' else 'FILE'}"
        )
    return Reference(transport, path, tag)


def file_reference(kind: Kind, path: Path) -> Reference | None:
    """Return the reference to a local image archive or layout; None for other kinds of files."""
    transport = OF_KIND.get(kind)
    return Reference(transport, str(path)) if transport else None


def file_for(text: str, suffix: str) -> str:
    """Return the file to write an image to: in the folder of a file, or with the name that ``apptainer pull`` uses.

    For example ``pytorch_24.04-py3.sif`` for ``docker://nvcr.io/nvidia/pytorch:24.04-py3``.

    Raises
    ------
    UsageError
        See `parse_reference`.
    """
    if not is_reference(text):
        return str(Path(text).with_suffix(suffix))
    reference = parse_reference(text)
    tag = "" if reference.in_file else f"_{reference.tag or reference.digest.replace(':', '.')}"
    name = Path(reference.name).stem if reference.in_file else Path(reference.name).name
    return f"{name}{tag}{suffix}"


def guess_reference(text: str) -> str:
    """Return the reference that an unknown image name, for example ``pytorch/pytorch:2.4``, may mean; empty if none."""
    looks = "/" in text or re.search(r"[a-z]:[a-z0-9]", text) is not None
    return f"docker://{text}" if looks and _is_name(text) else ""


def _is_name(text: str) -> bool:
    try:
        _parse_name(text, Transport.DOCKER, text)
    except UsageError:
        return False
    return True


def _parse_name(text: str, transport: Transport, rest: str) -> Reference:
    name, at, digest = rest.partition("@")
    if at and not digest.startswith("sha256:"):
        raise _odd_at(text, transport, rest)
    if at and not DIGEST.match(digest):
        raise _reference_error(text, "a digest is sha256: and 64 hexadecimal digits", "copy the complete digest")
    name, tag = _split_tag(name)
    if tag and not _TAG.match(tag):
        raise _reference_error(
            text, f"invalid tag {tag!r}", "a tag has at most 128 characters: letters, digits, '_', '.' and '-'"
        )
    whole = _whole_name(name)
    if whole is None:
        raise _reference_error(text, f"invalid image name {name!r}", _nearest_name(transport, name, tag))
    if transport is Transport.ORAS and whole.startswith(f"{DOCKER_HUB}/library/") and not name.startswith(DOCKER_HUB):
        raise _reference_error(text, "the registry is missing", f"write oras://REGISTRY/{name}")
    return Reference(transport, whole, tag or ("" if digest else "latest"), digest)


def _split_tag(name: str) -> tuple[str, str]:
    """Split a name at the last colon, unless a port follows it."""
    before, colon, after = name.rpartition(":")
    return (before, after) if colon and "/" not in after else (name, "")


def _whole_name(name: str) -> str | None:
    """Complete a name by Docker's rule.

    The first part is a registry if it contains a dot or a port, or is localhost.
    """
    first, slash, _ = name.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    found = _NAME.match(name if is_host else f"{DOCKER_HUB}/{name}")
    if found is None:
        return None
    host, path = (found["host"], found["path"]) if is_host else (DOCKER_HUB, name)
    if host in {"index.docker.io", "registry-1.docker.io"}:
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return f"{host}/{path}"


def _nearest_name(transport: Transport, name: str, tag: str) -> str:
    """Return a hint that corrects common mistakes: capital letters, enroot's '#', an empty part."""
    mended = re.sub(r"/+", "/", name.replace("#", "/")).strip("/")
    host, slash, path = mended.partition("/")
    mended = f"{host}{slash}{path.lower()}" if "." in host or ":" in host else mended.lower()
    if not mended or _whole_name(mended) is None:
        return f"the forms are {FORMS}"
    return f"did you mean {transport}://{mended}{f':{tag}' if tag else ''}?"


def _odd_at(text: str, transport: Transport, rest: str) -> UsageError:
    """Return the error for an ``@`` without a digest: a login before the host, or a tag in place of the digest."""
    before, _, after = rest.rpartition("@")
    if _is_login(before, after):
        return _reference_error(
            text,
            "a reference cannot contain a user name or password",
            f"log in once with 'skopeo login {after.partition('/')[0]}', then use {transport}://{after}",
        )
    return _reference_error(text, "a digest must follow '@'", f"for a tag, write {transport}://{before}:{after}")


def _is_login(before: str, after: str) -> bool:
    """Return whether the text before an at sign is a login: a host and a name follow it, or it contains a password."""
    return "/" in after or ":" in before.partition("/")[0]


def _redact_login(text: str) -> str:
    """Replace a login in a reference by stars."""
    found = _SCHEME.match(text)
    start = f"{found['scheme']}:{found['slashes']}" if found and found["scheme"] in _SCHEMES else ""
    rest = text.removeprefix(start)
    whole, at, digest = rest.rpartition("@")
    whole, end = (whole, at + digest) if digest.startswith("sha256:") else (rest, "")
    before, at, after = whole.rpartition("@")
    return f"{start}{STARS}@{after}{end}" if at and _is_login(before, after) else text


def _parse_daemon(text: str, rest: str) -> Reference:
    name, tag = _split_tag(rest)
    if _whole_name(name) is None or (tag and not _TAG.match(tag)):
        raise _reference_error(
            text, "docker-daemon: must be followed by NAME[:TAG], as 'docker images' prints it", "check the name"
        )
    return Reference(Transport.DOCKER_DAEMON, name, tag or "latest")


def _unknown_scheme(text: str, scheme: str, rest: str) -> UsageError:
    page = _HUB_PAGE.match(text)
    if page is not None:
        return _reference_error(
            text, "it is the address of a Docker Hub page", f"write docker://{page['name'] or page['official']}"
        )
    if scheme in ELSEWHERE:
        return _reference_error(text, f"Argosy cannot fetch {scheme} references", ELSEWHERE[scheme])
    near = _nearest_transport(scheme)
    mended = f"{near}:{'//' if near in SLASHED else ''}{_redact_login(rest)}"
    return _reference_error(text, f"unknown transport {scheme!r}", f"did you mean {mended}?" if near else "")


def _nearest_transport(scheme: str) -> str:
    return suggest_word(scheme.lower(), list(Transport), likeness=_NEAR_ENOUGH)


def _reference_error(text: str, why: str, hint: str) -> UsageError:
    shown = _redact_login(text)
    return UsageError(f"invalid image reference {shown!r}", evidence=why, hint=hint or f"the forms are {FORMS}")
