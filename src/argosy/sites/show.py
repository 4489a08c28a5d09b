"""List the values of a profile, each with its reason, source, date, proof, file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.records import asdict, replace
from argosy.core.toml_lines import find_line
from argosy.sites.conditions import render_condition
from argosy.sites.job_settings import DATE, full_address, proof_of
from argosy.sites.profile import Partition, Site
from argosy.sites.profile_parts import Conditional, Evident
from argosy.sites.read import DATA, find_profile, fragment_files, read_site, read_table

EVIDENCE = Conditional.__struct_fields__


class ProfileValue(msgspec.Struct, frozen=True):
    """One value of a profile."""

    key: str
    """Dotted key: ``slurm.gpu_option``, ``settings.NCCL_SOCKET_IFNAME``."""
    value: str
    when: str
    why: str
    source: str
    checked: str
    proof: str
    origin: str = ""
    """File and line of the value."""


def explain_site(name: str, folders: Sequence[Path] = (DATA,)) -> tuple[ProfileValue, ...]:
    """Return every value of a site's profile, with file and line."""
    path = find_profile(name, folders)
    paths = [path, *reversed(fragment_files(path, folders))]
    texts = [(place, place.read_text(encoding="utf-8"), read_table(place)) for place in paths]
    return tuple(_with_origin(row, texts) for row in rows_of(read_site(name, folders)))


def rows_of(site: Site) -> Iterator[ProfileValue]:
    """Yield every value that a site's profile sets."""
    for field in site.__struct_fields__:
        value = getattr(site, field)
        if isinstance(value, Evident):
            yield from _section_rows(site, field, value)
        elif isinstance(value, dict) and field == "modes":
            for name, mode in value.items():
                yield _row(site, f"modes.{name}", _short(mode), mode)
        elif isinstance(value, tuple) and value and isinstance(value[0], Evident):
            for part in value:
                yield _row(site, f"{field}.{_name(asdict(part))}", _short(part), part)
    for name, value in site.validated.facts.items():
        why = f"argosy sites validate, job {site.validated.job}"
        yield ProfileValue(f"validated.{name}", value, "", why, "", site.validated.date, "validated")


def _section_rows(site: Site, section: str, part: Evident) -> Iterator[ProfileValue]:
    empty = type(part)()
    for key in part.__struct_fields__:
        value = getattr(part, key)
        if isinstance(value, tuple) and value and isinstance(value[0], Evident):
            for each in value:
                yield _row(site, f"{section}.{key}.{_name(asdict(each))}", _short(each), each)
        elif key not in EVIDENCE and value != getattr(empty, key):
            source = part.sources.get(key, part.source)
            row = _row(site, f"{section}.{key}", _text(value), part, source=source)
            shown = proof_of(site, part, key)
            validated = {"proof": "validated", "checked": shown[:DATE], "source": f"{row.source} ({shown})"}
            yield replace(row, **validated) if shown else row


def _row(site: Site, key: str, value: str, part: Evident, *, source: str | None = None) -> ProfileValue:
    when = render_condition(part.when) if isinstance(part, Conditional) else ""
    address = full_address(site, part.source if source is None else source)
    return ProfileValue(key, value, when, part.why, address, part.checked or site.checked, part.proof)


def _name(part: Mapping[str, Any]) -> str:
    for key in ("name", "word"):
        if key in part:
            return str(part[key])
    return "+".join(part.get("variables", ())) or "+".join(part.get("paths", ()))[:40]


def _short(part: Evident) -> str:
    empty = {key: getattr(part, key) for key in part.__struct_fields__ if key not in (*EVIDENCE, "name")}
    values = {key: value for key, value in empty.items() if value not in ("", (), 0, False, None, {})}
    if isinstance(part, Partition):
        values |= {"gpus": 0} if part.gpus == 0 else {}
    elif len(values) == 1:
        return _text(next(iter(values.values())))
    return ", ".join(f"{key} {_text(value)}" if value is not True else key for key, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, msgspec.Struct):
        return ", ".join(f"{key} {_text(getattr(value, key))}" for key in value.__struct_fields__ if key != "source")
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def _with_origin(row: ProfileValue, texts: list[tuple[Path, str, dict[str, Any]]]) -> ProfileValue:
    """Add file and line of a value: those of the profile, else of the last fragment that contains it."""
    section, _, key = row.key.partition(".")
    for path, text, table in texts:
        part = table.get(section)
        inner, _, named = key.partition(".")
        if named and isinstance(part, dict) and isinstance(part.get(inner), list):
            part, section, key = part[inner], f"{section}.{inner}", named
        if isinstance(part, dict) and key in part:
            keys: tuple[str, ...] = (section, key)
        elif isinstance(part, list):
            names = [_name(each) for each in part]
            if key not in names:
                continue
            keys = (*section.split("."), str(names.index(key)))
        else:
            continue
        return ProfileValue(**{**asdict(row), "origin": f"{path}:{find_line(text, keys)}"})
    return row


def diff_sites(first: Site, second: Site) -> tuple[tuple[str, str, str], ...]:
    """Return key and both values for each difference of two profiles; empty for a value that one does not set."""
    left, right = ({row.key: row.value for row in rows_of(site)} for site in (first, second))
    keys = [*left, *(key for key in right if key not in left)]
    return tuple((key, left.get(key, ""), right.get(key, "")) for key in keys if left.get(key) != right.get(key))


def profile_schema() -> dict[str, Any]:
    """Return the JSON schema of profiles, for editors."""
    schema = msgspec.json.schema(Site)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Argosy site profile", **schema}
