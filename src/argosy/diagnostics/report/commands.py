"""List the commands that are useful in addition to the next steps of a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from argosy.core.findings import has_failed
from argosy.core.shell import quote
from argosy.diagnostics.report.model import Case
from argosy.slurm.text import ENDED


def list_commands(case: Case) -> Iterator[tuple[str, str]]:
    """Yield command lines, the most useful first: purpose and line."""
    facts, plan = case.facts, case.plan
    script = quote(str(Path(facts.record) / "job.sh"))
    if plan and not plan.is_job:
        yield "Run it again", f"sh {script}"
        return
    if facts.kind != ENDED:
        yield "Cancel the job", f"argosy cancel {facts.id}"
    elif plan and facts.record and not case.typed and not facts.code and not has_failed(case.findings):
        yield "Launch it again", f"sbatch {script}"
    yield "See the whole output", f"argosy logs {facts.id}"
    if not case.findings:
        yield "Check network, GPUs and cores", f"argosy verify {facts.id}"
    if plan:
        yield "Show why each setting has its value", f"argosy explain {facts.id}"
