"""Find settings that are stale, contradictory or dangerous, in site profiles and in users' own job scripts; pure.

A rule is a function and a row: what it finds, why that hurts, and who says so.
"""

from __future__ import annotations

from argosy.lint.against_site import SITE_RULES
from argosy.lint.findings import Finding, Rule
from argosy.lint.profiles import PROFILE_RULES, lint_profile
from argosy.lint.scripts import SCRIPT_RULES, lint_script

__all__ = ["PROFILE_RULES", "SCRIPT_RULES", "SITE_RULES", "Finding", "Rule", "lint_profile", "lint_script"]
