"""The digest of a base's bytes, taken while the build goes on: reading a vendor's image of 10 GB takes some 10 s."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from argosy.errors import ImageError
from argosy.images.opening import file_identity
from argosy.model import Image, ImageKind
from argosy.session import Session
from argosy.store import explained, write_text

READ_BYTES = 1 << 20


def digest_ahead(image: Image, session: Session) -> Callable[[], str]:
    """Begin to take the digest of the base's bytes; remembered by the file's identity, so that it is read once.

    Returns
    -------
    What waits for ``sha256:`` and 64 hexadecimal digits, and raises the `OSError` of reading, if there was one.
    """
    if image.kind is ImageKind.TREE:
        raise ImageError(f"{image.path} is a folder", hint="this is a defect: a folder is packed before it is a base")
    memo = session.places.cache / "digests" / file_identity(image, image.base_offset)[:32]
    if memo.is_file():
        known = memo.read_text(encoding="utf-8").strip()
        return lambda: known
    future = Future[str]()

    def work() -> None:
        try:
            future.set_result(_digest_of(image, memo))
        except BaseException as error:  # noqa: BLE001 - told where it is waited for
            future.set_exception(error)

    # A daemon: a build that ends before does not wait for it.
    threading.Thread(target=work, daemon=True).start()
    return future.result


def _digest_of(image: Image, memo: Path) -> str:
    digest = f"sha256:{_hash_slice(Path(image.path), image.base_offset, image.base_size)}"
    with explained(memo.parent):
        memo.parent.mkdir(parents=True, exist_ok=True)
        write_text(memo, digest + "\n")
    return digest


def _hash_slice(path: Path, offset: int, size: int) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(offset)
        while size > 0 and (block := file.read(min(size, READ_BYTES))):
            total.update(block)
            size -= len(block)
    return total.hexdigest()
