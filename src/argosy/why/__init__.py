"""Why a job failed: known errors, what they mean and what to do, found in what the job printed."""

from argosy.why.judging import Finding, judge_log, render_finding, render_findings
from argosy.why.signatures import SHIPPED, Signature, read_signatures, signature_files
from argosy.why.story import Explained, explain_job_end, explain_log

__all__ = [
    "SHIPPED",
    "Explained",
    "Finding",
    "Signature",
    "explain_job_end",
    "explain_log",
    "judge_log",
    "read_signatures",
    "render_finding",
    "render_findings",
    "signature_files",
]
