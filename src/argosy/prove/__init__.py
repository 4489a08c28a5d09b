"""Try what plans assume of a site: one small job whose JSON becomes the evidence of the site's profile."""

from argosy.prove.merging import Merged, merge_result
from argosy.prove.plan import ProvePlan, plan_prove
from argosy.prove.result import Fact, Result, read_result
from argosy.prove.story import Proved, plan_prove_here, prove

__all__ = [
    "Fact",
    "Merged",
    "ProvePlan",
    "Proved",
    "Result",
    "merge_result",
    "plan_prove",
    "plan_prove_here",
    "prove",
    "read_result",
]
