"""Fold pip's settings and a recipe's options into one state, as pip would; it knows nothing of uv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
from packaging.utils import canonicalize_name

from argosy.errors import UsageError
from argosy.pip_config.read import LISTS, PipConfig, PipSetting
from argosy.recipe.records import PYPI, PipOption, Recipe
from argosy.records import replace
from argosy.scrub import scrub

NOT_TRANSLATED = {
    "prefer-binary": "uv has no such choice; 'only-binary' is understood",
    "keyring-provider": "no keyring is reached from a build; use ~/.netrc",
    "no-build-isolation": "packages are built apart from each other",
    "no-deps": "an environment without its dependencies would not start",
    "target": "an image has its own place for packages",
    "prefix": "an image has its own place for packages",
    "root": "an image has its own place for packages",
    "user": "an image has its own place for packages",
    "platform": "packages are chosen for the base",
    "python-version": "packages are chosen for the base",
    "use-feature": "it is about pip's own insides",
    "exclude-newer": "no time limit is set; a lock holds versions",
    "index-strategy": "the best version of all indexes is taken, as by pip",
    "override": "overrides are read from a pyproject.toml",
    "resolution": "the newest versions are chosen",
    "torch-backend": "say it with --torch-backend",
    "config-file": "no configuration of uv's is read but its variables",
    "uploaded-prior-to": "no time limit is set",
}

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


class Wishes(msgspec.Struct, frozen=True):
    """All settings folded into one state, as pip folds them."""

    indexes: tuple[str, ...] = (PYPI,)
    no_index: bool = False
    links: tuple[str, ...] = ()
    own_indexes: tuple[str, ...] = ()
    own_links: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    pre: bool = False
    hashes: bool = False
    notes: tuple[str, ...] = ()


def fold_config(config: PipConfig) -> Wishes:
    """Give what the machine's configuration says."""
    value = {setting.key: setting.value for setting in config.settings}
    words = {key: tuple(value.get(key, "").split()) for key in LISTS}
    no_index = _flag(config.find("no-index"))
    no_binary, only_binary = _fold_formats((), (), value.get("no-binary", ""))
    only_binary, no_binary = _fold_formats(only_binary, no_binary, value.get("only-binary", ""))
    notes = [
        f"{setting.source}: '{setting.key}' is not followed: {NOT_TRANSLATED[setting.key]}"
        for setting in config.settings
        if setting.key in NOT_TRANSLATED and setting.value.lower() not in _FALSE
    ]
    links, left_out = _present_links(words["find-links"], config)
    return Wishes(
        indexes=() if no_index else (value.get("index-url", PYPI), *words["extra-index-url"]),
        no_index=no_index,
        links=links,
        hosts=words["trusted-host"],
        no_binary=no_binary,
        only_binary=only_binary,
        pre=_flag(config.find("pre")),
        hashes=_flag(config.find("require-hashes")),
        notes=(*notes, *left_out),
    )


def _present_links(links: tuple[str, ...], config: PipConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Leave out the folders that are not there: pip warns and goes on, uv would stop."""
    present: list[str] = []
    notes: list[str] = []
    for link in links:
        path = config.local_path(link)
        if not path or path in config.folders:
            present.append(link)
            continue
        why = "it is a file, and uv takes folders" if path in config.files else "there is no such folder"
        notes.append(f"find-links {path} is left out: {why}")
    return tuple(present), tuple(notes)


def _flag(setting: PipSetting | None) -> bool:
    if setting is None or setting.value.lower() in _FALSE:
        return False
    if setting.value.lower() not in _TRUE:
        raise bad_setting(setting, "is no yes or no")
    return True


def bad_setting(setting: PipSetting, why: str) -> UsageError:
    """Make the error for a setting that cannot be meant, with who set it."""
    evidence = f"{setting.source}: {setting.key} = {scrub(setting.value)}"
    return UsageError(f"pip's setting '{setting.key}' {why}", evidence=evidence)


def _fold_formats(
    target: tuple[str, ...], other: tuple[str, ...], value: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add a value of ``no-binary`` or ``only-binary`` to its own list; what is in one leaves the other."""
    for word in filter(None, (word.strip() for word in value.split(","))):
        name = word if word in (":all:", ":none:") else canonicalize_name(word)
        if name == ":all:":
            target, other = (":all:",), ()
        elif name == ":none:":
            target = ()
        else:
            target = (*(one for one in target if one != name), name)
            other = tuple(one for one in other if one != name)
    return target, other


def fold_recipe(wishes: Wishes, recipe: Recipe) -> Wishes:
    """Add a recipe's options, in the order of its files."""
    for option in recipe.options:
        if fold := FOLDS.get(option.name):
            wishes = fold(wishes, option)
        elif option.name in NOT_TRANSLATED:
            note = f"{option.where}: '--{option.name}' is not followed: {NOT_TRANSLATED[option.name]}"
            wishes = replace(wishes, notes=(*wishes.notes, note))
    return wishes


def _replace_indexes(wishes: Wishes, option: PipOption) -> Wishes:
    """Take a file's ``--index-url`` for all indexes before it, as pip does, and say what that drops."""
    if wishes.no_index:
        return wishes
    dropped = [scrub(index) for index in wishes.indexes if index not in (PYPI, option.value)]
    note = f"{option.where}: --index-url replaces {', '.join(dropped)}, as in pip"
    return replace(wishes, indexes=(option.value,), notes=(*wishes.notes, note) if dropped else wishes.notes)


def _take_links(wishes: Wishes, option: PipOption) -> Wishes:
    """Let folders or pages of links stand in PyPI's place."""
    others = tuple(index for index in wishes.indexes if index != PYPI)
    return replace(wishes, indexes=others, links=(*wishes.links, option.value))


def _add_index(wishes: Wishes, option: PipOption) -> Wishes:
    return wishes if wishes.no_index else replace(wishes, indexes=(*wishes.indexes, option.value))


def _add_no_binary(wishes: Wishes, option: PipOption) -> Wishes:
    no_binary, only_binary = _fold_formats(wishes.no_binary, wishes.only_binary, option.value)
    return replace(wishes, no_binary=no_binary, only_binary=only_binary)


def _add_only_binary(wishes: Wishes, option: PipOption) -> Wishes:
    only_binary, no_binary = _fold_formats(wishes.only_binary, wishes.no_binary, option.value)
    return replace(wishes, no_binary=no_binary, only_binary=only_binary)


FOLDS: Mapping[str, Callable[[Wishes, PipOption], Wishes]] = MappingProxyType(
    {
        "no-index": lambda wishes, _: replace(wishes, no_index=True, indexes=()),
        "index-url": _replace_indexes,
        "extra-index-url": _add_index,
        "find-links": lambda wishes, option: replace(wishes, links=(*wishes.links, option.value)),
        "default-links": _take_links,
        "own-index": lambda wishes, option: replace(wishes, own_indexes=(*wishes.own_indexes, option.value)),
        "own-links": lambda wishes, option: replace(wishes, own_links=(*wishes.own_links, option.value)),
        "trusted-host": lambda wishes, option: replace(wishes, hosts=(*wishes.hosts, option.value)),
        "pre": lambda wishes, _: replace(wishes, pre=True),
        "require-hashes": lambda wishes, _: replace(wishes, hashes=True),
        "no-binary": _add_no_binary,
        "only-binary": _add_only_binary,
    }
)
