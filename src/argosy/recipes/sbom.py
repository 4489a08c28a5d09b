"""Render a lock as a CycloneDX 1.6 bill of materials.

The same lock gives the same bytes: the serial number is computed from the content, and the time is that of the lock.
Importing this module loads cyclonedx-python-lib, so import it only when a bill of materials is written.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from argosy.core.redact import redact
from argosy.recipes.lock import Lock, LockedPackage, PackageKind, SourceKind


def render_sbom(lock: Lock) -> str:
    """Render the bill of materials of an image as JSON; the same lock gives the same bytes."""
    image = Component(
        name="argosy-image",
        type=ComponentType.CONTAINER,
        version=lock.content,
        bom_ref="image",
        hashes=[_sha256(lock.content)],
    )
    parts = [_base(lock), *({(package.kind, package.name): _package(package) for package in lock.packages}.values())]
    metadata = BomMetaData(
        timestamp=datetime.fromtimestamp(lock.time, tz=UTC),
        component=image,
        tools=ToolRepository(components=_tools(lock)),
    )
    bom = Bom(serial_number=_serial_number(lock), metadata=metadata, components=parts)
    bom.register_dependency(image, parts)
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return outputter.output_as_string(indent=2) + "\n"


def _serial_number(lock: Lock) -> UUID:
    """Return a UUID of version 8 (RFC 9562: application-specific bits) computed from content, base and time."""
    text = f"{lock.content}\n{lock.base.digest}\n{lock.time}\n"
    raw = bytearray(hashlib.sha256(text.encode()).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return UUID(bytes=bytes(raw))


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))


def _base(lock: Lock) -> Component:
    properties = [Property(name="argosy:arch", value=lock.base.arch), Property(name="argosy:python", value=lock.python)]
    return Component(
        name=redact(lock.base.reference),
        type=ComponentType.OPERATING_SYSTEM,
        version=lock.base.digest,
        description=lock.base.system or None,
        bom_ref="base",
        hashes=[_sha256(lock.base.digest)],
        properties=[one for one in properties if one.value],
    )


def _package(package: LockedPackage) -> Component:
    purl = PackageURL(str(package.kind), name=package.name, version=package.version, qualifiers=_qualifiers(package))
    return Component(
        name=package.name,
        type=ComponentType.LIBRARY,
        version=package.version,
        bom_ref=f"{package.kind}:{package.name}@{package.version}",
        purl=purl,
        hashes=[_sha256(digest) for digest in package.sha256],
    )


def _qualifiers(package: LockedPackage) -> dict[str, str]:
    """Return the qualifiers of the purl specification that distinguish packages of the same name and version."""
    if package.kind is PackageKind.PYPI:
        return {} if package.source is SourceKind.INDEX else {"argosy_source": str(package.source)}
    # …/CHANNEL/SUBDIR/NAME-VERSION-BUILD.conda
    channel, _, rest = redact(package.url).rpartition("/")[0].rpartition("/")
    end = "conda" if package.url.endswith(".conda") else "tar.bz2"
    return {"build": package.build, "channel": channel, "subdir": rest, "type": end}


def _tools(lock: Lock) -> list[Component]:
    tools = (
        *(("argosy", lock.tools.argosy), ("uv", lock.tools.uv)),
        *(("mksquashfs", lock.tools.mksquashfs), ("py-rattler", lock.tools.rattler)),
    )
    return [
        Component(name=name, type=ComponentType.APPLICATION, version=version, bom_ref=f"tool:{name}")
        for name, version in tools
        if version
    ]
