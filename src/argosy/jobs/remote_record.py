"""Copy the record and the output of a job that was submitted by ssh to this machine."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from argosy.core.parse import parse_int
from argosy.core.process import Runner
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.ssh import OverSsh, parse_base64, parse_remote, render_block, run_text
from argosy.core.store import write_text
from argosy.jobs.record import read_submission

BLOCK_BYTES = 8 << 20
"""Bytes of an output that one command copies."""

OUTPUT = "output-"
"""Prefix of the name of a copied output in its record."""

MOST_LOGS, LOG_BYTES = 16, 262_144
"""Number of logs of the network library to copy, and bytes of each: it logs its choices first."""

NOTES = r"""
logs=0
for name in ends first first-output ranks-* nccl-*; do
    [ -f "$name" ] || continue
    size=$(($(wc -c < "$name")))
    [ "$size" -le $most_bytes ] || size=$most_bytes
    case $name in nccl-*) logs=$((logs + 1)); [ "$logs" -le $most_logs ] || break ;; esac
    case $known in *" $name:$size "*) continue ;; esac
    printf "%s %s\n" "$name" "$(head -c "$size" -- "$name" | base64 | tr -d "\n")"
done
"""
"""Prints each file of the record, and logs whose size differs from the copy here."""

NAME = re.compile(r"(?:ends|first|first-output|(?:ranks|nccl)-[\w.-]+)\Z")


def session_of(session: Session, record: Path | None) -> Session:
    """Return the session that reaches a job submitted by ssh."""
    host = read_submission(record).ssh
    return replace(session, runner=OverSsh(session.runner, parse_remote(host))) if host else session


def copy_notes(runner: Runner, record: Path) -> None:
    """Copy the files of a remote record, and logs that grew, into the local record.

    A file that could not be read there, or was cut by a lost connection, has no bytes: an earlier copy stays.
    """
    there = read_submission(record).there
    known = " ".join(f"{path.name}:{path.stat().st_size}" for path in record.glob("nccl-*"))
    settings = f"known={quote(f' {known} ')} most_bytes={LOG_BYTES} most_logs={MOST_LOGS}"
    for line in run_text(runner, f"cd -- {quote(there)} || exit 1\n{settings}\n{NOTES}").stdout.splitlines():
        name, _, data = line.partition(" ")
        copied = parse_base64(data)
        if copied and NAME.match(name):
            write_text(record / name, copied.decode(errors="replace"))


def copy_output(runner: Runner, record: Path, path: str) -> str:
    """Copy what was appended to a remote file since the last copy, and return the path of the copy.

    The path is empty if that of the remote file is.
    """
    if not path:
        return ""
    copy = record / f"{OUTPUT}{PurePosixPath(path).name}"
    while _copy_growth(runner, path, copy):
        pass
    return str(copy)


def _copy_growth(runner: Runner, path: str, copy: Path) -> bool:
    """Append new bytes of a remote file to its copy, and return whether there may be more.

    A file that is shorter than its copy was written again from the start.
    """
    have = copy.stat().st_size if copy.is_file() else 0
    block = render_block(path, have, BLOCK_BYTES)
    reply = run_text(runner, f"[ -f {quote(path)} ] || exit 0\nwc -c < {quote(path)}\n{block}")
    size, _, text = reply.stdout.partition("\n")
    length = parse_int(size, -1)
    if length < 0:
        return False
    if length < have:
        copy.unlink()
        return True
    data = parse_base64(text)
    with copy.open("ab") as file:
        file.write(data)
    return len(data) == BLOCK_BYTES
