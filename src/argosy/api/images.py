"""Manage images and the cache: images and cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from argosy.api.session import use_session
from argosy.builder import freeze
from argosy.builder import freeze as compare
from argosy.builder.output import export, push
from argosy.core.session import Session
from argosy.diagnostics import scan
from argosy.diagnostics.check.catalog import check_entries
from argosy.images import cache, catalog, describe, find, pull, send, signatures, superseded
from argosy.images.describe import parse_requirements
from argosy.images.formats import OutputFormat
from argosy.images.open import inspect_squashfs, open_image
from argosy.recipes import sbom
from argosy.recipes.lock import Lock
from argosy.runtimes import unused_files
from argosy.runtimes.container_plan import parse_signer


def list_images(
    *, packages: Sequence[str] = (), check: str = "", session: Session | None = None
) -> list[describe.CatalogEntry]:
    """List the images of the catalog, as ``argosy images ls`` does.

    Parameters
    ----------
    packages
        Only images that contain all of these, for example ``numpy>=2``.
    check
        Site against which each image is checked; empty for none.
    """
    here, wanted = use_session(session), parse_requirements(tuple(packages))
    found = [describe.describe_catalog_image(held, wanted) for held in catalog.list_catalog(here)]
    found = [entry for entry in found if entry.found] if wanted else found
    return check_entries(found, check, here) if check else found


def pull_image(
    image: str, name: str = "", *, output: str | Path | None = None, force: bool = False,
    session: Session | None = None,
) -> Path:  # fmt: skip
    """Copy an image into the catalog or to a file, as ``argosy images pull`` does, and return its path."""
    path = Path(output).absolute() if output else None
    return pull.pull_image(pull.PullRequest(image, name or None, path, force=force), use_session(session))


def push_image(image: str, target: str, *, session: Session | None = None) -> push.PushReport:
    """Copy an image into a registry (``docker://…`` or ``oras://…``), as ``argosy images push`` does."""
    return push.push_image(image, target, use_session(session))


def send_image(
    image: str, target: str, *, base: str = "", force: bool = False, session: Session | None = None
) -> send.SendReport:
    """Copy an image to ``HOST:PATH`` by ssh, as ``argosy images send`` does.

    Parameters
    ----------
    base
        An image on the host with the same base: then only the layer is copied.
    """
    return send.send_image(image, target, use_session(session), base=base, force=force)


def tag_image(image: str, alias: str, *, session: Session | None = None) -> tuple[Path, Path]:
    """Add an alias for an image, as ``argosy images tag`` does; return the link and its target."""
    return catalog.tag_image(image, alias, use_session(session))


def remove_image(name: str, *, session: Session | None = None) -> catalog.Removed:
    """Remove an image and its aliases from the catalog, as ``argosy images rm`` does."""
    return catalog.remove_image(name, use_session(session))


def clean_images(
    *, older_than: float = 30 * 86400.0, dry_run: bool = False, session: Session | None = None
) -> tuple[superseded.SupersededImage, ...]:
    """Remove superseded versions of images from the catalog, as ``argosy images gc`` does, and return them.

    Parameters
    ----------
    older_than
        Seconds since the version was written.
    dry_run
        Whether nothing is removed.
    """
    return superseded.remove_superseded(time.time() - older_than, use_session(session), dry=dry_run)


def verify_image(
    image: str, *, keys: Sequence[str] = (), session: Session | None = None
) -> tuple[signatures.Signer, ...]:
    """Check the signatures of an image, as ``argosy images verify`` does, and return the signers.

    Parameters
    ----------
    keys
        Fingerprints of the keys that are accepted; none: every key of your keyring.
    """
    return signatures.verify_image(image, tuple(map(parse_signer, keys)), use_session(session))


def describe_image(image: str, *, session: Session | None = None) -> describe.ImageDescription:
    """Return base, layers, sizes and packages of an image, as ``argosy images info`` does."""
    here = use_session(session)
    return describe.describe_image(inspect_squashfs(open_image(find.find_image(image, here)), here))


def freeze_image(image: str, *, session: Session | None = None) -> Lock:
    """Return the packages of an image as a lock, as ``argosy images freeze`` does."""
    return freeze.freeze(image, use_session(session))


def scan_image(image: str, *, session: Session | None = None) -> scan.Scan:
    """Find known vulnerabilities of the Python packages in an image, as ``argosy images scan`` does."""
    return scan.scan_image(image, use_session(session))


def render_sbom(image: str, *, session: Session | None = None) -> str:
    """Return the bill of materials of an image as CycloneDX, as ``argosy images sbom`` does."""
    return sbom.render_sbom(freeze_image(image, session=session))


def slim_image(image: str, command: Sequence[str], *, session: Session | None = None) -> unused_files.Slimming:
    """Run a command in an image and return what it never opens, as ``argosy images slim`` does."""
    return unused_files.slim_image(image, tuple(command), use_session(session))


def diff_images(first: str, second: str, *, session: Session | None = None) -> compare.Comparison:
    """Compare packages, settings and files of two images, as ``argosy images diff`` does."""
    return compare.compare_images(first, second, use_session(session))


def export_image(
    image: str, output: str | Path, *, format: str, force: bool = False,  # noqa: A002 - the option's name
    session: Session | None = None,
) -> export.ExportReport:  # fmt: skip
    """Write an image in another format, as ``argosy images export`` does."""
    request = export.ExportRequest(image, OutputFormat(format), Path(output).absolute(), force=force)
    return export.export_image(request, use_session(session))


def list_cache(*, session: Session | None = None) -> tuple[cache.CacheEntry, ...]:
    """List the entries of the cache, as ``argosy cache info`` does."""
    return cache.list_entries(use_session(session))


def clean_cache(
    *, older_than: float = 30 * 86400.0, keep: int = -1, dry_run: bool = False, session: Session | None = None
) -> tuple[cache.CacheEntry, ...]:
    """Remove unused entries of the cache, as ``argosy cache gc`` does, and return them.

    Parameters
    ----------
    older_than
        Seconds since the last use.
    keep
        Bytes to which the cache is reduced; -1: no limit.
    dry_run
        Whether nothing is removed.
    """
    return cache.collect(cache.Limits(time.time() - older_than, keep), use_session(session), dry=dry_run)
