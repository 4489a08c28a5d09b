"""What conda is asked and what it answers: channels, specifications, the machine solved for, errors in plain words.

Nothing here starts conda or loads rattler: a `CondaPlan` is a value, `argosy.conda_worker` carries it out, and
`parse_answer` reads what came of it.
"""

from __future__ import annotations

from argosy.conda.activation import parse_activation, render_ask_activation
from argosy.conda.answer import CondaPackage, parse_answer
from argosy.conda.condarc import Condarc, read_condarc
from argosy.conda.plan import CondaPlan, plan_conda, render_request, requested_specs
from argosy.conda.target import CondaTarget, parse_cuda, parse_glibc

__all__ = [
    "CondaPackage",
    "CondaPlan",
    "CondaTarget",
    "Condarc",
    "parse_activation",
    "parse_answer",
    "parse_cuda",
    "parse_glibc",
    "plan_conda",
    "read_condarc",
    "render_ask_activation",
    "render_request",
    "requested_specs",
]
