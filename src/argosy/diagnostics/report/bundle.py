"""Pack the report of a job with its script, records and output for a support ticket."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from argosy.core.redact import hide, redact
from argosy.core.store import atomic_file
from argosy.diagnostics.report.model import Report
from argosy.diagnostics.report.page import render_page
from argosy.jobs.outputs import can_read, read_ends_of

MOST_FILES = 200
"""Files of the record that are packed; a large job has one network log for each node."""


def write_bundle(path: Path, report: Report) -> None:
    """Write a tar.gz archive: ``report.html``, the files of the record, and the ends of the outputs.

    Credentials of URLs, and the secrets of `Case.secrets`, are removed from each file.

    Raises
    ------
    OSError
        When the archive cannot be written; nothing is left then.
    """
    facts = report.case.facts
    folder = f"job-{facts.id}"
    secrets = report.case.secrets
    with atomic_file(path, force=True) as beside, tarfile.open(beside, "w:gz") as archive:
        _add(archive, f"{folder}/report.html", render_page(report))
        record = Path(facts.record) if facts.record else None
        for file in sorted(record.iterdir())[:MOST_FILES] if record else ():
            if file.is_file():
                _add(archive, f"{folder}/record/{file.name}", hide(redact(read_ends_of(str(file))), secrets))
        for output in facts.outputs or (facts.output,):
            if output and can_read(output):
                _add(archive, f"{folder}/output/{Path(output).name}", hide(redact(read_ends_of(output)), secrets))


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode(errors="surrogateescape")
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))
