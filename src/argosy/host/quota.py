"""Read a user's quotas with the command of the file system: Lustre, Spectrum Scale (GPFS), or quota."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from argosy.core.parse import parse_int
from argosy.core.process import Argv

KIB = 1024

GPFS_KINDS = frozenset({"USR", "GRP", "FILESET"})


class Quota(msgspec.Struct, frozen=True):
    """The use of a file system, and its limits."""

    place: str
    """The file system, or the folder where it is mounted."""
    used: int
    limit: int
    """Bytes; a limit of 0 means none."""
    files: int
    file_limit: int
    """Number of files."""

    @property
    def share(self) -> float:
        """The share of the tighter limit that is used, from 0; 0 without a limit."""
        pairs = ((self.used, self.limit), (self.files, self.file_limit))
        return max((used / limit for used, limit in pairs if limit > 0), default=0.0)


def quota_command(kind: str, user: str, path: str) -> Argv:
    """Return the command that prints the quotas of a user for a folder.

    Parameters
    ----------
    kind
        Type of the file system, as in ``/proc/mounts``.
    """
    if kind == "lustre":
        return ("lfs", "quota", "-u", user, path)
    if kind == "gpfs":
        return ("mmlsquota", "-Y", "-u", user)
    return ("quota", "-w", "-p")


def parse_quotas(kind: str, text: str) -> tuple[Quota, ...]:
    """Parse the output of `quota_command`; lines of another form are left out."""
    return tuple(_parse_gpfs(text) if kind == "gpfs" else _parse_columns(text))


def _parse_columns(text: str) -> Iterator[Quota]:
    """Parse the table of ``quota -w -p`` (Linux DiskQuota) and ``lfs quota`` (Lustre manual, "Setting up quotas").

    Columns: file system, KiB used, soft limit, hard limit, grace, files, soft limit, hard limit, grace. ``lfs quota``
    breaks the line after a long name, marks an exceeded limit by ``*``, and puts values that are not exact in brackets.
    """
    rest: list[str] = []
    for line in text.splitlines():
        words = rest + line.split()
        rest = words if len(words) == 1 and words[0].startswith("/") else []
        numbers = [re.sub(r"[*\[\]]", "", word) for word in (*words[1:4], *words[5:8])]
        if len(numbers) == 6 and all(number.isdigit() for number in numbers):  # noqa: PLR2004 - the columns above
            used, soft, hard, files, soft_files, hard_files = map(int, numbers)
            yield Quota(words[0], used * KIB, (soft or hard) * KIB, files, soft_files or hard_files)


def _parse_gpfs(text: str) -> Iterator[Quota]:
    """Parse ``mmlsquota -Y``: fields between colons, which a header names; sizes are in KiB."""
    names: list[str] = []
    for line in text.splitlines():
        fields = line.split(":")
        if "HEADER" in fields:
            names = fields
            continue
        row = dict(zip(names, fields, strict=False))
        if row.get("quotaType") not in GPFS_KINDS or not row.get("blockUsage", "").isdigit():
            continue
        keys = ("blockUsage", "blockQuota", "blockLimit", "filesUsage", "filesQuota", "filesLimit")
        used, soft, hard, files, soft_files, hard_files = (parse_int(row.get(key, "")) for key in keys)
        yield Quota(row.get("filesystemName", ""), used * KIB, (soft or hard) * KIB, files, soft_files or hard_files)
