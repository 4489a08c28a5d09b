"""Explain what a variable of NCCL in the log of a job has to do with its network; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.findings import State
from argosy.diagnostics.report.compare import IN_LOG
from argosy.diagnostics.report.model import Case, Change
from argosy.diagnostics.report.source import find_setting
from argosy.diagnostics.report.summary import BANDWIDTH, join_names

MEANINGS = {
    "NCCL_IB_DISABLE": "1 switches InfiniBand off",
    "NCCL_IB_HCA": "names of the InfiniBand cards that NCCL may use",
    "NCCL_NET": "the network that NCCL uses",
    "NCCL_NET_PLUGIN": "the plugin for the network of NCCL",
    "NCCL_SOCKET_IFNAME": "the interfaces for NCCL's first contact and for TCP",
}
"""Variables of NCCL that choose the network (NCCL's documentation, Environment Variables)."""

CARDS = "NCCL_IB_HCA"
"""The variable that names cards."""


def allows_card(rule: str, card: str) -> bool:
    """Return whether a value of ``NCCL_IB_HCA`` allows a card.

    The value is a list of prefixes of names. ``=`` before the list requires whole names, ``^`` excludes the cards. A
    name may end with the number of a port; a rule that excludes one port still allows its card. Source: NCCL's
    documentation, Environment Variables.
    """
    excludes = rule.startswith("^")
    names = rule.removeprefix("^")
    exact = names.startswith("=")
    parts = [part.partition(":") for part in names.removeprefix("=").split(",") if part]
    listed = [name for name, _, port in parts if not (excludes and port)]
    matches = any(card == name if exact else card.startswith(name) for name in listed)
    return not parts or matches != excludes


def find_wrong_cards(case: Case) -> Change | None:
    """Return the change of ``NCCL_IB_HCA`` if it allows none of the cards that the last run that passed used."""
    cards = case.compared.cards
    for change in case.compared.observed:
        if change.name == f"{CARDS}{IN_LOG}" and change.now and cards:
            return None if any(allows_card(change.now, card) for card in cards) else change
    return None


def explain_settings(case: Case) -> Iterator[str]:
    """Yield what NCCL read in this job and not in the last run that passed, and what follows from it."""
    compared, wrong = case.compared, find_wrong_cards(case)
    for change in compared.observed:
        if not change.now:
            continue
        name = change.name.removesuffix(IN_LOG)
        meaning = f" ({MEANINGS[name]})" if name in MEANINGS else ""
        read = f"NCCL read {name}={change.now}{meaning}"
        found = find_setting(case, change)
        where = f"For '{found[2]}', line {found[0]} of the program contains this value of {name}. " if found else ""
        if change is wrong:
            yield f"{where}{read}, {_name_cards(change.now, case)}{_consequence(case)}"
        else:
            before = f"read {change.before}" if change.before else "does not mention it"
            yield f"{where}{read}; the log of job {compared.job} {before}"


def _name_cards(rule: str, case: Case) -> str:
    """Say that a rule allows no card of the last run that passed."""
    used = f"job {case.compared.job} used ({join_names(case.compared.cards)})"
    return (
        f"which excludes all cards that {used}" if rule.startswith("^") else f"but no card that {used} has such a name"
    )


def _consequence(case: Case) -> str:
    """Say what followed in this job if NCCL may use none of the cards."""
    if not case.net.slow:
        return ""
    low = any(each.what == BANDWIDTH and each.state is State.FAIL for each in case.findings)
    return ", so NCCL used TCP" + (", which explains the low bandwidth" if low else "")
