"""Why a job waits, where it waits for somebody and not for its turn: what to do then; pure."""

from __future__ import annotations

import re

CLOSED = "the partition is closed: wait for the centre, or name another by --partition"
NOT_TAKEN = "its account or QOS is not taken there: 'argosy queues' shows yours"

STUCK = (
    (r"DependencyNeverSatisfied", "it will never start: the job that it waits for ended badly; argosy cancel {job}"),
    (r"JobHeldUser", "it is held: scontrol release {job}"),
    (r"JobHeldAdmin", "the centre holds it: ask its support team"),
    (r"launch.failed.requeued.held", "its start failed on a node, and it is held: scontrol release {job}"),
    (r"BadConstraints", "no node has what it asks for: cancel it, and ask for less"),
    (r"PartitionTimeLimit", "its --time is more than the partition gives: argosy cancel {job}, and ask for less"),
    (r"PartitionNodeLimit", "its --nodes are more than the partition gives: argosy cancel {job}, and ask for fewer"),
    (r"Partition(Down|Inactive)", CLOSED),
    (
        r"uid[ _]\d+[ _]not[ _]in[ _]group[ _].*",
        "you may not use that partition: argosy cancel {job}, and name another",
    ),
    (r"Invalid(Account|QOS)|(Account|QOS)NotAllowed", NOT_TAKEN),
    (r"(QOS|Assoc)Max\w+Per(Job|Node)\w*", "its QOS or account gives one job less than it asks for: 'argosy queues'"),
    (r"(QOS|Assoc)Grp(?!\w*Run)\w*Minutes\w*", "the account's budget is used up: ask its owner, or name another"),
)
"""Reasons that do not pass by themselves (squeue(1), JOB REASON CODES): pattern, what to do."""


def advise_waiting(reason: str, job: str) -> str:
    """Say what to do where a job waits for a reason that does not pass by itself; empty else."""
    word = reason.partition(",")[0]
    advice = next((text for pattern, text in STUCK if re.fullmatch(pattern, word)), "")
    return advice.replace("{job}", job)
