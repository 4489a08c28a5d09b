"""Build one-off images for ``--with``: an image with a few further Python packages, cached by content."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path

from argosy.builder.base_layer import link_layer_tree
from argosy.builder.build import build_image, hiding_file
from argosy.builder.records import BuildRequest
from argosy.core.cache import pin_entry
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.locks import hold_lock
from argosy.core.model import ContainerRequest, ImageKind
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shared_folders import share_new
from argosy.core.shell import quote
from argosy.core.store import make_folder, write_text
from argosy.images.find import fetch_or_find_image
from argosy.images.formats import OutputFormat
from argosy.images.open import OpenedImage, inspect_squashfs, open_image, refuse_layer
from argosy.images.part_digest import describe_part
from argosy.launch.model import LaunchRequest
from argosy.runtimes.container_plan import fileless_image
from argosy.version import VERSION

FOLDER = "with"
"""Folder of the cache with one folder for each image and list of packages."""

LOCAL = re.compile(r"[./~-]|.*(/|\.whl\Z|\.txt\Z)")
"""Arguments that are paths or options instead of requirements; the content of a path may change."""


def add_packages(
    reference: str, packages: tuple[str, ...], session: Session, *, runtime: str = "", dry: bool = False
) -> str:
    """Return an image like `reference` that also contains `packages`; the image's own packages keep their versions.

    The first start builds the image. Later starts with the same image and the same list use it from the cache.

    Parameters
    ----------
    packages
        Requirements as pip accepts them, for example ``rich>=13``. With none, `reference` is returned.
    runtime
        The requested runtime: some pull images themselves, so that Argosy cannot add anything.
    dry
        Whether to return `reference` instead of building an image.

    Raises
    ------
    UsageError
        If a package is a path, or the reference is not an image that Argosy can open.
    ArgosyError
        If the build fails, for example because a package needs another version of one in the image.
    """
    if not packages:
        return reference
    _refuse_invalid(packages)
    if fileless_image(reference, runtime) is not None:
        raise UsageError(
            f"cannot add packages to {reference}: Argosy does not open this image itself",
            evidence=f"--with {' --with '.join(map(quote, packages))}",
            hint="build an image with the packages: argosy build requirements.txt --base IMAGE -o NEW.sif",
        )
    base = fetch_or_find_image(reference, session)
    opened = inspect_squashfs(open_image(base), session)
    refuse_layer(opened, session)
    key = _cache_key(opened, packages)
    folder = session.paths.cache / FOLDER / key
    form = OutputFormat.SQSH if opened.image.kind is ImageKind.SQUASHFS else OutputFormat.SIF
    output = folder / f"{base.stem}.{form.value}"
    pin_entry(session.paths.cache, f"{FOLDER}/{key}", waiting=session.waiting)
    if output.exists():
        return str(output)
    if dry:
        session.reporter.note(f"a real run starts {output}, built from {reference} and {', '.join(packages)}")
        return reference
    make_folder(folder)
    with hold_lock(folder.with_name(f"{key}.lease"), what=f"building {output.name}", waiting=session.waiting):
        if not output.exists():
            _build(base, packages, output, form, session)
            share_new(output)
            # Another machine may start the image, with another runtime.
            with suppress(ArgosyError):
                link_layer_tree(open_image(output), base, ContainerRequest(runtime=runtime), session, session)
    return str(output)


def extend_launch(
    request: LaunchRequest, packages: tuple[str, ...], session: Session, *, dry: bool = False
) -> LaunchRequest:
    """Return a launch of an image that also contains `packages`; parameters and errors as `add_packages`."""
    image = add_packages(request.image, packages, session, runtime=request.container.runtime, dry=dry)
    return replace(request, image=image)


def _refuse_invalid(packages: tuple[str, ...]) -> None:
    if not all(package.strip() for package in packages):
        raise UsageError("the name of a package is empty", hint="check that the shell variable is set")
    path = next((package for package in packages if LOCAL.match(package) and "@" not in package), "")
    if path:
        raise UsageError(
            f"invalid package {path!r}",
            evidence=f"--with {path}",
            hint="--with accepts requirements such as rich>=13; for your own code: argosy shell IMAGE --dev, and there "
            "pip install -e .; for jobs, build an image: argosy build requirements.txt --base IMAGE -o NEW.sif",
        )


def _cache_key(opened: OpenedImage, packages: tuple[str, ...]) -> str:
    """Return the name of the cache entry, from the content of the image if it records it, else from its file."""
    lock = opened.lock
    content = f"{lock.base.digest} {lock.content}" if lock else describe_part(opened.image.path, 0, 0).identity
    facts = [VERSION, opened.image.kind.value, content, sorted(set(packages))]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def _build(base: Path, packages: tuple[str, ...], output: Path, form: OutputFormat, session: Session) -> None:
    requirements = output.with_name("requirements.txt")
    write_text(requirements, "".join(f"{package}\n" for package in packages))
    with hiding_file(requirements, "--with", command="argosy build requirements.txt --base IMAGE -o NEW.sif"):
        build_image(BuildRequest((requirements,), str(base), output, form=form), session)
