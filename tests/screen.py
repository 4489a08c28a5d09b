"""A program in a pseudo-terminal, and the screen that its user sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

import pyte
import pytest

from tests.patience import PATIENCE_S

ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


class Screen:
    """A program in a pseudo-terminal of its own."""

    def __init__(self, argv: Sequence[str], columns: int, lines: int, env: Mapping[str, str] | None = None) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self.code: int | None = None
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], list(argv), environment)  # noqa: S606
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def text(self) -> str:
        """The lines on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line that is not empty."""
        return [line.split() for line in self._screen.display if line.strip()]

    def read(self, seconds: float) -> bool:
        """Read what the program writes; return False once it has ended."""
        if select.select([self._fd], [], [], seconds)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # Linux reports EIO if no process has the terminal open
                data = b""
            if not data:
                return False
            self.written += data
            self._stream.feed(data)
        return True

    def until(self, *texts: str, timeout: float = PATIENCE_S) -> str:
        """Read until all texts are on the screen at once, and return the screen."""
        end = time.monotonic() + timeout
        while not all(text in self.text for text in texts):
            if not self.read(0.2) and not all(text in self.text for text in texts):
                pytest.fail(f"ended without {texts}:\n{self.text}")
            if time.monotonic() > end:
                pytest.fail(f"no {texts} within {timeout:g} s:\n{self.text}")
        return self.text

    def press(self, keys: str) -> None:
        """Type keys; ``\\x03`` is Ctrl-C."""
        os.write(self._fd, keys.encode())

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Read until all processes in the terminal have ended, and return the exit code of the first."""
        end = time.monotonic() + timeout
        while self.read(0.2):
            if time.monotonic() > end:
                pytest.fail(f"did not end within {timeout:g} s:\n{self.text}")
        _, status = os.waitpid(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def is_restored(self) -> bool:
        """Return whether the program left the normal screen with a visible cursor."""
        whole = self.written
        return whole.rfind(LEAVE_SCREEN) >= whole.rfind(ENTER_SCREEN) and whole.rfind(SHOW_CURSOR) >= whole.rfind(
            HIDE_CURSOR
        )

    def close(self) -> None:
        """End the program if it still runs."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


@contextlib.contextmanager
def open_screen(
    argv: Sequence[str], columns: int = 80, lines: int = 24, env: Mapping[str, str] | None = None
) -> Iterator[Screen]:
    """Run a program in a pseudo-terminal; it is ended at the end of the block."""
    screen = Screen(argv, columns, lines, env)
    try:
        yield screen
    finally:
        screen.close()
