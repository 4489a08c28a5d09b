"""Translate pip's settings and a recipe's pip options into uv's arguments and variables; it touches no disk.

pip looks at all indexes as one and takes the best version; uv takes the first index that knows the package unless it
is told ``--index-strategy unsafe-best-match``.  Credentials never become arguments, which every user of a machine can
read in the process list: uv takes them as ``UV_INDEX_<NAME>_USERNAME`` and ``…_PASSWORD``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.redact import STARS, redact, split_login
from argosy.recipes.pip_settings import LISTS, PipConfig, PipSetting
from argosy.recipes.recipe import PYPI, PipOption, Recipe

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


class PipOptions(msgspec.Struct, frozen=True):
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


def _fold_config(config: PipConfig) -> PipOptions:
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
    return PipOptions(
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
        raise _bad_setting(setting, "is no yes or no")
    return True


def _bad_setting(setting: PipSetting, why: str) -> UsageError:
    """Make the error for a setting that cannot be meant, with who set it."""
    evidence = f"{setting.source}: {setting.key} = {redact(setting.value)}"
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


def _fold_recipe(wishes: PipOptions, recipe: Recipe) -> PipOptions:
    """Add a recipe's options, in the order of its files."""
    for option in recipe.options:
        if fold := FOLDS.get(option.name):
            wishes = fold(wishes, option)
        elif option.name in NOT_TRANSLATED:
            note = f"{option.where}: '--{option.name}' is not followed: {NOT_TRANSLATED[option.name]}"
            wishes = replace(wishes, notes=(*wishes.notes, note))
    return wishes


def _replace_indexes(wishes: PipOptions, option: PipOption) -> PipOptions:
    """Take a file's ``--index-url`` for all indexes before it, as pip does, and say what that drops."""
    if wishes.no_index:
        return wishes
    dropped = [redact(index) for index in wishes.indexes if index not in (PYPI, option.value)]
    note = f"{option.where}: --index-url replaces {', '.join(dropped)}, as in pip"
    return replace(wishes, indexes=(option.value,), notes=(*wishes.notes, note) if dropped else wishes.notes)


def _take_links(wishes: PipOptions, option: PipOption) -> PipOptions:
    """Let folders or pages of links stand in PyPI's place."""
    others = tuple(index for index in wishes.indexes if index != PYPI)
    return replace(wishes, indexes=others, links=(*wishes.links, option.value))


def _add_index(wishes: PipOptions, option: PipOption) -> PipOptions:
    return wishes if wishes.no_index else replace(wishes, indexes=(*wishes.indexes, option.value))


def _add_no_binary(wishes: PipOptions, option: PipOption) -> PipOptions:
    no_binary, only_binary = _fold_formats(wishes.no_binary, wishes.only_binary, option.value)
    return replace(wishes, no_binary=no_binary, only_binary=only_binary)


def _add_only_binary(wishes: PipOptions, option: PipOption) -> PipOptions:
    only_binary, no_binary = _fold_formats(wishes.only_binary, wishes.no_binary, option.value)
    return replace(wishes, no_binary=no_binary, only_binary=only_binary)


FOLDS: Mapping[str, Callable[[PipOptions, PipOption], PipOptions]] = MappingProxyType(
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


class UvSettings(msgspec.Struct, frozen=True):
    """What uv is started with.

    Attributes
    ----------
    arguments
        For ``uv pip install`` and ``uv pip compile``; hold no secret.
    environment
        Variables; may hold secrets, so they are shown by `render_uv_settings` only.
    local_paths
        Folders and files that uv must see where it runs.
    notes
        What was left out or is otherwise than pip has it.
    own
        More arguments, for installing what was chosen: the indexes that only those packages come from which name them.
    """

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    local_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Leave the variables out: they may hold secrets."""
        return f"UvSettings(arguments={self.arguments!r}, notes={self.notes!r})"


def plan_uv_settings(config: PipConfig, recipe: Recipe) -> UvSettings:
    """Give uv all that pip would have gone by: the machine's configuration first, then the recipe's own options.

    Raises
    ------
    UsageError
        For a setting that pip would stop at too: a word that is no boolean or number, a file that is not there.
    """
    wishes = _fold_recipe(_fold_config(config), recipe)
    parts = (
        _plan_indexes(wishes, config),
        _plan_links(wishes, config),
        _plan_choices(wishes, recipe),
        _plan_constraints(config),
        _plan_network(wishes, config),
        _plan_packages(recipe),
    )
    return UvSettings(
        arguments=tuple(word for part in parts for word in part.arguments),
        environment=tuple(pair for part in parts for pair in part.environment),
        local_paths=tuple(dict.fromkeys(path for part in parts for path in part.local_paths)),
        notes=(*wishes.notes, *(note for part in parts for note in part.notes)),
        own=tuple(word for part in parts for word in part.own),
    )


def render_uv_settings(settings: UvSettings) -> str:
    """Render what ``--verbose`` shows: one setting a line, no secret."""
    lines = [redact(" ".join(settings.arguments))] if settings.arguments else []
    for name, value in settings.environment:
        secret = name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))
        lines.append(f"{name}={STARS if secret else redact(value)}")
    lines += [f"note: {note}" for note in settings.notes]
    return "\n".join(lines)


def _plan_indexes(wishes: PipOptions, config: PipConfig) -> UvSettings:
    indexes = tuple(dict.fromkeys(wishes.indexes or wishes.own_indexes))
    if wishes.no_index or not indexes:
        return UvSettings(("--no-index",))
    own = tuple(index for index in dict.fromkeys(wishes.own_indexes) if index not in indexes)
    arguments, environment, paths = _name_indexes(indexes + own, config)
    if indexes == (PYPI,):
        arguments[:2] = []
    split = len(arguments) - 2 * len(own)
    several = ("--index-strategy", "unsafe-best-match")
    return UvSettings(
        (*arguments[:split], *(several if len(indexes) > 1 else ())),
        tuple(environment),
        tuple(paths),
        own=(*arguments[split:], *(several if own and len(indexes) == 1 else ())),
    )


def _name_indexes(indexes: tuple[str, ...], config: PipConfig) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Give the arguments that name indexes, the first one as the default; their logins, as variables; their folders."""
    arguments: list[str] = []
    environment: list[tuple[str, str]] = []
    paths: list[str] = []
    for number, index in enumerate(indexes):
        path = config.local_path(index)
        # A mirror's pages link to ../../packages, beside its simple/.
        paths += [path.removesuffix("/simple") or "/"] if path else []
        bare, user, password = split_login(_file_url(path) if path else index)
        if user or password:
            environment.append((f"UV_INDEX_ARGOSY_{number}_USERNAME", user))
            environment.append((f"UV_INDEX_ARGOSY_{number}_PASSWORD", password))
            bare = f"argosy-{number}={bare}"
        arguments += ["--index" if number else "--default-index", bare]
    return arguments, environment, paths


def _plan_links(wishes: PipOptions, config: PipConfig) -> UvSettings:
    paths = [path for link in (*wishes.links, *wishes.own_links) if (path := config.local_path(link))]
    urls, own = (_links_urls(links, config) for links in (wishes.links, wishes.own_links))
    if any(split_login(url)[1] for url in (*urls, *own)):
        return UvSettings((), (("UV_FIND_LINKS", ",".join((*urls, *own))),), tuple(paths))
    named, of_own = (tuple(_repeat("--find-links", links)) for links in (urls, own))
    return UvSettings(named, (), tuple(paths), own=of_own)


def _links_urls(links: tuple[str, ...], config: PipConfig) -> list[str]:
    # uv takes a comma in --find-links for the end of one, so it is encoded; a missing folder stops it (uv 0.13).
    urls = (_file_url(path) if (path := config.local_path(link)) else link.replace(",", "%2C") for link in links)
    return list(dict.fromkeys(urls))


def _file_url(path: str) -> str:
    return "file://" + quote(path)


def _repeat(name: str, values: list[str] | tuple[str, ...]) -> Iterator[str]:
    for value in values:
        yield from (name, value)


def _plan_choices(wishes: PipOptions, recipe: Recipe) -> UvSettings:
    arguments = [*_repeat("--no-binary", wishes.no_binary), *_repeat("--only-binary", wishes.only_binary)]
    if wishes.pre:
        arguments += ["--prerelease", "allow"]
    # pip asks for all hashes as soon as one line has any.
    if wishes.hashes or any(package.hashes for package in recipe.pip):
        arguments.append("--require-hashes")
    return UvSettings(tuple(arguments))


def _plan_constraints(config: PipConfig) -> UvSettings:
    arguments: list[str] = []
    paths: list[str] = []
    for key, option in (("constraint", "--constraints"), ("build-constraint", "--build-constraints")):
        setting = config.find(key)
        for word in setting.value.split() if setting else ():
            path = config.local_path(word)
            if setting and path not in config.files:
                raise _bad_setting(
                    setting, "names a file that is not there" if path else "names no file of this machine"
                )
            arguments += [option, path]
            paths.append(path)
    return UvSettings(tuple(arguments), (), tuple(paths))


def _plan_network(wishes: PipOptions, config: PipConfig) -> UvSettings:
    environment = [*_certificates(config), *_proxies(config), *_numbers(config)]
    paths = [value for name, value in environment if name.startswith("SSL_")]
    if config.netrc:
        environment.append(("NETRC", config.netrc))
        paths.append(config.netrc)
    hosts = tuple(_repeat("--allow-insecure-host", tuple(dict.fromkeys(wishes.hosts))))
    return UvSettings(hosts, tuple(environment), tuple(paths))


def _certificates(config: PipConfig) -> Iterator[tuple[str, str]]:
    for key, name in (("cert", "SSL_CERT_FILE"), ("client-cert", "SSL_CLIENT_CERT")):
        if (setting := config.find(key)) is None:
            continue
        path = config.absolute(setting.value)
        if path not in config.files | config.folders:
            raise _bad_setting(setting, "names a file that is not there")
        yield ("SSL_CERT_DIR" if path in config.folders and key == "cert" else name), path


def _proxies(config: PipConfig) -> Iterator[tuple[str, str]]:
    if (setting := config.find("proxy")) is None:
        yield from config.proxies
        return
    url = setting.value if "://" in setting.value else f"http://{setting.value}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        yield name, url
    yield from (pair for pair in config.proxies if pair[0].lower() == "no_proxy")


def _numbers(config: PipConfig) -> Iterator[tuple[str, str]]:
    for key, name in (("timeout", "UV_HTTP_TIMEOUT"), ("retries", "UV_HTTP_RETRIES")):
        if (setting := config.find(key)) is None:
            continue
        try:
            number = math.ceil(float(setting.value))
        except (ValueError, OverflowError) as error:
            raise _bad_setting(setting, "is no number") from error
        if number < 0:
            raise _bad_setting(setting, "is less than nothing")
        yield name, str(number)


def _plan_packages(recipe: Recipe) -> UvSettings:
    """Give what single packages need: their build settings, and the local ones to be seen."""
    settings = [f"{line.name}:{item}" for line in recipe.pip for item in line.settings if line.name]
    nameless = [line for line in recipe.pip if line.settings and not line.name]
    notes = tuple(f"{line.where}: --config-settings need the package's name before its address" for line in nameless)
    paths = tuple(path for line in recipe.pip for path in (line.path, *_repository(line.spec)) if path)
    # Its folder is known: a project that names it as one of its workspace would look for that above its own copy.
    placed = sorted({line.name for line in recipe.pip if line.path and line.name})
    arguments = (
        *_repeat("--config-settings-package", settings),
        *_repeat("--no-build-isolation-package", recipe.unisolated),
        *_repeat("--no-sources-package", placed),
    )
    return UvSettings(arguments, (), paths, notes)


def _repository(spec: str) -> tuple[str, ...]:
    """Give the folder of a repository on this machine; with what may be a revision or a part of its name, too."""
    address = (spec if spec.startswith("git+") else spec.partition(" @ ")[2]).partition(" ;")[0].strip()
    if not address.startswith("git+file://"):
        return ()
    path = unquote(urlsplit(address).path)
    return tuple({path, path.rpartition("@")[0] or path})
