"""Translate pip's settings and a recipe's pip options into uv's arguments and variables; it touches no disk.

pip looks at all indexes as one and takes the best version; uv takes the first index that knows the package unless it
is told ``--index-strategy unsafe-best-match``.  Credentials never become arguments, which every user of a machine can
read in the process list: uv takes them as ``UV_INDEX_<NAME>_USERNAME`` and ``…_PASSWORD``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

import msgspec

from argosy.pip_config.fold import Wishes, bad_setting, fold_config, fold_recipe
from argosy.pip_config.read import PipConfig
from argosy.recipe.records import PYPI, Recipe
from argosy.scrub import STARS, scrub, split_login


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
    wishes = fold_recipe(fold_config(config), recipe)
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
    lines = [scrub(" ".join(settings.arguments))] if settings.arguments else []
    for name, value in settings.environment:
        secret = name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))
        lines.append(f"{name}={STARS if secret else scrub(value)}")
    lines += [f"note: {note}" for note in settings.notes]
    return "\n".join(lines)


def _plan_indexes(wishes: Wishes, config: PipConfig) -> UvSettings:
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


def _plan_links(wishes: Wishes, config: PipConfig) -> UvSettings:
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


def _plan_choices(wishes: Wishes, recipe: Recipe) -> UvSettings:
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
                raise bad_setting(
                    setting, "names a file that is not there" if path else "names no file of this machine"
                )
            arguments += [option, path]
            paths.append(path)
    return UvSettings(tuple(arguments), (), tuple(paths))


def _plan_network(wishes: Wishes, config: PipConfig) -> UvSettings:
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
            raise bad_setting(setting, "names a file that is not there")
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
            raise bad_setting(setting, "is no number") from error
        if number < 0:
            raise bad_setting(setting, "is less than nothing")
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
