"""The plan in the record of a job, as a launch writes it."""

from __future__ import annotations

import json

import msgspec

from argosy.jobs.launch_plan import NO_PLAN, LaunchPlan

CHOICE = {"key": "", "value": "", "why": "", "source": ""}
EMPTY = {
    "name": "",
    "site": "",
    "scheduler": "",
    "image": "",
    "digest": "",
    "shape": {"nodes": 0, "ranks_per_node": 0},
    "submit": [],
    "choices": [],
}


def plan_text(**values: object) -> str:
    """Return the text of a plan's file with these values; the others are empty."""
    return json.dumps(EMPTY | values)


def make_plan(**values: object) -> LaunchPlan:
    """Return a plan with these values as they are in its file; the others are empty."""
    return msgspec.convert(EMPTY | {"script": ""} | values, LaunchPlan) if values else NO_PLAN
