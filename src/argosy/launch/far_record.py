"""The record of a job that was submitted by ssh: who answers for it, and what it left there, copied here."""

from __future__ import annotations

import base64
import re
from pathlib import Path, PurePosixPath

from argosy.launch.record import read_submitted
from argosy.process import Runner
from argosy.records import replace
from argosy.session import Session
from argosy.shell import quote
from argosy.ssh import OverSsh, parse_remote, run_text
from argosy.store import write_text

BLOCK_BYTES = 8 << 20
"""Of an output, in one question."""

OUTPUT = "output-"
"""What the name of a copied output begins with in its record."""

MOST_LOGS, LOG_BYTES = 16, 262_144
"""Of the network library: how many ranks' logs are copied, and how much of each; it tells its choices first."""

NOTES = r"""
logs=0
for name in ends first ranks-* nccl-*; do
    [ -f "$name" ] || continue
    size=$(($(wc -c < "$name")))
    [ "$size" -le $most_bytes ] || size=$most_bytes
    case $name in nccl-*) logs=$((logs + 1)); [ "$logs" -le $most_logs ] || break ;; esac
    case $known in *" $name:$size "*) continue ;; esac
    printf "%s %s\n" "$name" "$(head -c "$size" -- "$name" | base64 | tr -d "\n")"
done
"""
"""Prints each note, and of the long logs those that have another size than is known here."""

NAME = re.compile(r"(?:ends|first|(?:ranks|nccl)-[\w.-]+)\Z")


def session_of(session: Session, record: Path | None) -> Session:
    """Give the session that reaches a job submitted by ssh."""
    host = read_submitted(record).get("ssh", "")
    return replace(session, runner=OverSsh(session.runner, parse_remote(host))) if host else session


def copy_notes(runner: Runner, record: Path) -> None:
    """Copy what a job noted, and logs that grew since the last time, into its record here; `runner` is there."""
    there = read_submitted(record).get("there", "")
    known = " ".join(f"{path.name}:{path.stat().st_size}" for path in record.glob("nccl-*"))
    settings = f"known={quote(f' {known} ')} most_bytes={LOG_BYTES} most_logs={MOST_LOGS}"
    for line in run_text(runner, f"cd -- {quote(there)} || exit 1\n{settings}\n{NOTES}").stdout.splitlines():
        name, _, data = line.partition(" ")
        if NAME.match(name):
            write_text(record / name, base64.b64decode(data).decode(errors="replace"))


def copy_output(runner: Runner, record: Path, path: str) -> str:
    """Copy what a file there has grown by since the last time, and give the copy in the record."""
    copy = record / f"{OUTPUT}{PurePosixPath(path).name}"
    while path and _copy_growth(runner, path, copy):
        pass
    return str(copy)


def _copy_growth(runner: Runner, path: str, copy: Path) -> bool:
    """Append to a copy what its original has grown by, and tell whether there may be more.

    A file that is shorter than its copy was begun anew.
    """
    have = copy.stat().st_size if copy.is_file() else 0
    block = f"tail -c +{have + 1} -- {quote(path)} | head -c {BLOCK_BYTES} | base64"
    reply = run_text(runner, f"[ -f {quote(path)} ] || exit 0\nwc -c < {quote(path)}\n{block}")
    size, _, text = reply.stdout.partition("\n")
    if not size.strip().isdigit():
        return False
    if int(size) < have:
        copy.unlink()
        return True
    data = base64.b64decode(text)
    with copy.open("ab") as file:
        file.write(data)
    return len(data) == BLOCK_BYTES
