"""Begin to write a SIF file before all of its content is known.

The base of an image is known before its packages are chosen, and the contents of all files before their tables are
joined. A thread copies these to their final positions meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from argosy.core.errors import ArgosyError
from argosy.core.locks import deferred_signals
from argosy.core.store import part_name
from argosy.images.sif.write import CHUNK, FileSlice, Piece, copy_slice, new_file

Copy = tuple[int, FileSlice]
"""A position in the new file, and the range of another file that belongs there."""


class BegunFile:
    """A file next to an output, with parts of the output's content at their final positions.

    Nothing is lost if the copy fails: the output is then written as a whole, and an error occurs again.
    """

    def __init__(self, output: Path) -> None:
        self._path = part_name(output)
        self._copies = frozenset[tuple[int, Piece]]()
        self._waiting = SimpleQueue[Copy | None]()
        """Copies to make; None after the last one."""
        self._stopped, self._is_complete = threading.Event(), False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Return the file, which does not exist yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop copying, and remove the file unless it was moved."""
        with deferred_signals():
            self._stopped.set()
            self._wait()
            self._path.unlink(missing_ok=True)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy ranges of other files to their positions while the caller continues, except ranges of earlier calls."""
        for copy in copies:
            if copy not in self._copies:
                self._waiting.put(copy)
        self._copies |= frozenset(copies)
        if self._thread is None:
            thread = threading.Thread(target=self._copy, daemon=True)
            thread.start()  # fails if the machine allows no more threads
            self._thread = thread

    def _copy(self) -> None:
        with contextlib.suppress(ArgosyError, OSError), new_file(self._path) as descriptor:
            while copy := self._waiting.get():
                offset, source = copy
                for done in range(0, source.length, CHUNK):
                    if self._stopped.is_set():
                        return
                    copy_slice(descriptor, source.slice_at(done, min(CHUNK, source.length - done)), offset + done)
                    # Linux begins to write a range back without waiting, so that little is left for the last fsync.
                    os.posix_fadvise(descriptor, offset + done, CHUNK, os.POSIX_FADV_DONTNEED)
            self._is_complete = True

    def move_to(self, path: Path, pieces: Collection[tuple[int, Piece]]) -> frozenset[tuple[int, Piece]]:
        """Move the file to another path in its folder, if all of its content belongs to the new file.

        Parameters
        ----------
        pieces
            The whole content of the new file, with its positions.

        Returns
        -------
        The pieces that the file contains; nothing if it was not moved.
        """
        self._wait()
        if not self._is_complete or not self._copies <= {pair for pair in pieces if not isinstance(pair[1], bytes)}:
            return frozenset()
        self._path.rename(path)
        return self._copies

    def _wait(self) -> None:
        if self._thread:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
