"""The command line: words become one request, errors become a message and an exit code; nothing else happens here."""

from __future__ import annotations

import gettext
import os
import signal
import sys

# A console script's own folder stands first on sys.path, and every import of the standard library would look there
# before it looks where the module is: a hundred calls a start, which on a shared file system are the start.
if len(sys.path) > 1 and os.path.isabs(sys.argv[0]) and sys.path[0] == os.path.dirname(sys.argv[0]):  # noqa: PTH117, PTH120 - pathlib is not loaded yet
    del sys.path[0]

# click asks for a translation of each of its words, and brings none: four looks into folders a word under en_US.UTF-8.
gettext.gettext = str  # type: ignore[assignment]

# Until all is imported nobody explains an interrupt: it ends us without a word, as it ends other programs.
_is_program = sys.argv[0] == "-m" or os.path.basename(sys.argv[0]) == "argosy"  # noqa: PTH119 - likewise
if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
