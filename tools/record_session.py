# noqa: INP001 - a program, not a package
"""Record the quickstart of the README in a terminal, and write it to docs/session.svg.

Run it after a change of the output of `init`, `build` or `launch`. The commands are run for real, in an empty folder.

Usage: python tools/record_session.py
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "session.svg"
WIDTH = 116
TITLE = "From an empty folder to a job script for LUMI"
DESCRIPTION = (
    "A terminal session: argosy init, argosy build and argosy launch train on a laptop, "
    "then the head of the job script that argosy launch train --site lumi-g --dry-run prints."
)
COMMANDS = (
    "argosy init hello --template hello",
    "cd hello",
    "argosy build",
    "argosy launch train",
    (
        "argosy launch train --site lumi-g --nodes 2 --gpus-per-node 8 --ranks 16 "
        "--account project_465000001 --time 10:00 --dry-run | head -n 18"
    ),
)
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>%s</title>
<desc>%s</desc>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
CONTROL = re.compile(r"\x1b\[(\?25[lh]|2K|1?K|\d*A|\d*G)|\r|\n|\x1b\[[\d;]*m|\x1b\].*?(?:\x07|\x1b\\)|[^\x1b\r\n]+")


def main() -> None:
    """Run the commands and write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory(prefix="argosy-record-") as name:
        folder = Path(name)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (shorten(command), "bold")))
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
                continue
            for line in settle(run(command, folder)):
                console.print(Text.from_ansi(line.replace(name, "/home/ada")))
            console.print()
    template = TEMPLATE % (TITLE, DESCRIPTION)
    svg = console.export_svg(title=TITLE, code_format=template, unique_id="session")
    TARGET.write_text("\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n", encoding="utf-8")


def run(command: str, folder: Path) -> str:
    """Run a command on a terminal of its own and return what it wrote."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": "50"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    main_end, terminal = pty.openpty()
    with subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        written = b""
        try:
            while chunk := os.read(main_end, 65536):
                written += chunk
        except OSError:  # Linux reports the end of a terminal as EIO
            pass
        os.close(main_end)
    if process.returncode:
        sys.exit(f"{shlex.quote(command)} failed:\n{written.decode()}")
    return written.decode()


def settle(written: str) -> list[str]:
    """Return the lines that remain on the screen: progress that was written over is dropped."""
    lines, row, fresh = [""], 0, False
    for found in CONTROL.finditer(written):
        text = found[0]
        if text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
            fresh = False
        elif text == "\r":
            fresh = True
        elif text.startswith("\x1b[") and text.endswith("K"):
            lines[row] = ""
        elif text.startswith("\x1b[") and text.endswith("A"):
            row = max(0, row - int(text[2:-1] or 1))
            fresh = True
        elif text.endswith(("l", "h", "G")) and text.startswith("\x1b["):
            fresh = fresh or text.endswith("G")
        else:
            lines[row] = text if fresh else lines[row] + text
            fresh = False
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def shorten(command: str) -> str:
    """Break a long command for the picture, as a reader would type it."""
    return command.replace(" --account", " \\\n    --account")


if __name__ == "__main__":
    main()
