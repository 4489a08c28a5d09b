"""The digest of a base's bytes, taken while the build goes on: reading a vendor's image of 10 GB takes some 10 s."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from argosy.errors import ImageError
from argosy.images.part_digest import describe_part, known_digest, part_digest
from argosy.model import Image, ImageKind
from argosy.session import Session


def digest_ahead(image: Image, session: Session) -> Callable[[], str]:
    """Begin to take the digest of the base's bytes; remembered by the file's identity, so that it is read once.

    Returns
    -------
    What waits for ``sha256:`` and 64 hexadecimal digits, and raises the `OSError` of reading, if there was one.
    """
    if image.kind is ImageKind.TREE:
        raise ImageError(f"{image.path} is a folder", hint="this is a defect: a folder is packed before it is a base")
    part, cache = describe_part(image.path, image.base_offset, image.base_size), session.places.cache
    known = known_digest(part, cache)
    if known:
        return lambda: known
    future = Future[str]()

    def work() -> None:
        try:
            future.set_result(part_digest(part, cache))
        except BaseException as error:  # noqa: BLE001 - told where it is waited for
            future.set_exception(error)

    # A daemon: a build that ends before does not wait for it.
    threading.Thread(target=work, daemon=True).start()
    return future.result
