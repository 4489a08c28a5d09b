"""The command line: options become one request, and errors become a message and an exit code."""

from __future__ import annotations

import gettext
import os
import signal
import sys

# Python puts the folder of a console script first on sys.path and would search it for every module. On a shared file
# system these calls dominate the time of a start.
if len(sys.path) > 1 and os.path.isabs(sys.argv[0]) and sys.path[0] == os.path.dirname(sys.argv[0]):  # noqa: PTH117, PTH120 - pathlib is not loaded yet
    del sys.path[0]

# click translates its messages but ships no translations: under en_US.UTF-8, each message costs four file searches.
gettext.gettext = str  # type: ignore[assignment]

# Until all modules are imported, an interrupt ends Argosy silently, as it ends other programs.
_is_program = sys.argv[0] == "-m" or os.path.basename(sys.argv[0]) == "argosy"  # noqa: PTH119 - pathlib is not loaded yet
if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
