"""Write a draft down as a profile (TOML): readable, with the source of each value, open questions first.  Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from argosy.survey.records import Draft, Fact, Value

SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher")


def render_profile(name: str, draft: Draft, *, host: str, date: str) -> str:
    """Render the profile.

    Parameters
    ----------
    date
        Of the survey, as ``2026-11-20``.
    """
    cluster = next((fact.value for fact in draft.facts if fact.key == "clusters"), [])
    title = f"the Slurm cluster {cluster[0]}" if isinstance(cluster, list) and cluster else "a Slurm cluster"
    head = [
        f"# Asked of {host} on {date} by 'argosy sites new'.  Answer the open questions, then remove them.",
        f"name = {_word(name)}",
        f"title = {_word(title)}",
        'scheduler = "slurm"',
        f"checked = {_word(date)}",
        "open_questions = [",
        *(f"    {_word(question)}," for question in draft.questions),
        "]",
    ]
    sections = [line for section in SECTIONS for line in _section(section, draft)]
    options = [line for option in draft.options for line in _option(option)]
    rows = [line for row in draft.partitions for line in _partition(row, host)]
    return "\n".join([*head, *sections, *options, *rows]) + "\n"


def _section(section: str, draft: Draft) -> Iterator[str]:
    facts = [fact for fact in draft.facts if fact.section == section]
    if not facts:
        return
    usual = Counter(fact.source for fact in facts).most_common(1)[0][0]
    yield from ("", f"[{section}]")
    for fact in facts:
        yield f"{fact.key} = {_word(fact.value)}"
    whys = [f"{fact.key}: {fact.why}" for fact in facts if fact.why]
    yield from (f"why = {_word('; '.join(whys))}",) if whys else ()
    yield f"source = {_word(usual)}"
    others = [fact for fact in facts if fact.source != usual]
    if others:
        yield f"[{section}.sources]"
        yield from (f"{fact.key} = {_word(fact.source)}" for fact in others)


def _option(option: Fact) -> Iterator[str]:
    pairs = (("to", option.key), ("word", option.value), ("why", option.why), ("source", option.source))
    yield from ("", f"[[{option.section}]]", *(f"{name} = {_word(value)}" for name, value in pairs))


def _partition(row: Mapping[str, str | int | bool], host: str) -> Iterator[str]:
    yield from ("", "[[partitions]]")
    for key, value in row.items():
        if value:
            yield f"{key} = {_word(value)}"
    yield f"source = {_word(f'asked: scontrol show partition on {host}')}"


def _word(value: Value) -> str:
    """Write a value as TOML: JSON's strings, numbers, booleans and lists are TOML's too, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
