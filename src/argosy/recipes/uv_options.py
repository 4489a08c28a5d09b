"""Translate pip's settings and a recipe's pip options into arguments and variables for uv.

pip chooses the best version from all indexes. uv chooses the first index that has the package, except with
``--index-strategy unsafe-best-match``. Credentials are never arguments, which all users of a machine can see in the
process list; uv reads them from ``UV_INDEX_<NAME>_USERNAME`` and ``…_PASSWORD``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.redact import redact, split_login
from argosy.recipes.pip_settings import LISTS, PipConfig, PipSetting
from argosy.recipes.recipe import PYPI, PipOption, Recipe

NOT_TRANSLATED = {
    "prefer-binary": "uv has no such option; use 'only-binary'",
    "keyring-provider": "builds cannot access a keyring; use ~/.netrc",
    "no-build-isolation": "use --no-build-isolation NAME of argosy",
    "no-deps": "an environment needs its dependencies",
    "target": "the folder of packages in an image is fixed",
    "prefix": "the folder of packages in an image is fixed",
    "root": "the folder of packages in an image is fixed",
    "user": "the folder of packages in an image is fixed",
    "platform": "packages are chosen for the base",
    "python-version": "packages are chosen for the base",
    "use-feature": "it concerns pip only",
    "exclude-newer": "use a lock file to pin versions",
    "index-strategy": "the best version of all indexes is used, as in pip",
    "override": "write overrides into a pyproject.toml",
    "resolution": "the newest versions are used",
    "torch-backend": "use --torch-backend of argosy",
    "config-file": "of uv's configuration, only variables are used",
    "uploaded-prior-to": "use a lock file to pin versions",
}
"""Settings that are ignored, each with the reason or a replacement."""

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


class PipOptions(msgspec.Struct, frozen=True):
    """The merged pip options."""

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
    """Convert the machine's configuration to options."""
    value = {setting.key: setting.value for setting in config.settings}
    words = {key: tuple(value.get(key, "").split()) for key in LISTS}
    no_index = _flag(config.find("no-index"))
    no_binary, only_binary = _fold_formats((), (), value.get("no-binary", ""))
    only_binary, no_binary = _fold_formats(only_binary, no_binary, value.get("only-binary", ""))
    notes = [
        f"{setting.source}: '{setting.key}' is ignored: {NOT_TRANSLATED[setting.key]}"
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
    """Remove missing folders, for which pip warns and uv fails."""
    present: list[str] = []
    notes: list[str] = []
    for link in links:
        path = config.local_path(link)
        if not path or path in config.folders:
            present.append(link)
            continue
        why = "it is a file, and uv needs a folder" if path in config.files else "no such folder"
        notes.append(f"find-links {path} is ignored: {why}")
    return tuple(present), tuple(notes)


def _flag(setting: PipSetting | None) -> bool:
    if setting is None or setting.value.lower() in _FALSE:
        return False
    if setting.value.lower() not in _TRUE:
        raise _bad_setting(setting, "must be yes or no")
    return True


def _bad_setting(setting: PipSetting, why: str) -> UsageError:
    """Return the error for an invalid setting, with its source."""
    evidence = f"{setting.source}: {setting.key} = {redact(setting.value)}"
    hint = "correct the value there, or remove the setting"
    return UsageError(f"pip's setting '{setting.key}' {why}", evidence=evidence, hint=hint)


def _fold_formats(
    target: tuple[str, ...], other: tuple[str, ...], value: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add a value of ``no-binary`` or ``only-binary`` to its list, and remove it from the other list."""
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


def _fold_recipe(options: PipOptions, recipe: Recipe) -> PipOptions:
    """Apply a recipe's options in the order of its files."""
    for option in recipe.options:
        if fold := FOLDS.get(option.name):
            options = fold(options, option)
        elif option.name in NOT_TRANSLATED:
            note = f"{option.where}: '--{option.name}' is ignored: {NOT_TRANSLATED[option.name]}"
            options = replace(options, notes=(*options.notes, note))
    return options


def _replace_indexes(options: PipOptions, option: PipOption) -> PipOptions:
    """Replace all earlier indexes by a file's ``--index-url``, as pip does, and note the replaced ones."""
    if options.no_index:
        return options
    dropped = [redact(index) for index in options.indexes if index not in (PYPI, option.value)]
    note = f"{option.where}: --index-url replaces {', '.join(dropped)}, as in pip"
    return replace(options, indexes=(option.value,), notes=(*options.notes, note) if dropped else options.notes)


def _take_links(options: PipOptions, option: PipOption) -> PipOptions:
    """Replace PyPI by a folder or page of links."""
    others = tuple(index for index in options.indexes if index != PYPI)
    return replace(options, indexes=others, links=(*options.links, option.value))


def _add_index(options: PipOptions, option: PipOption) -> PipOptions:
    return options if options.no_index else replace(options, indexes=(*options.indexes, option.value))


def _add_no_binary(options: PipOptions, option: PipOption) -> PipOptions:
    no_binary, only_binary = _fold_formats(options.no_binary, options.only_binary, option.value)
    return replace(options, no_binary=no_binary, only_binary=only_binary)


def _add_only_binary(options: PipOptions, option: PipOption) -> PipOptions:
    only_binary, no_binary = _fold_formats(options.only_binary, options.no_binary, option.value)
    return replace(options, no_binary=no_binary, only_binary=only_binary)


FOLDS: Mapping[str, Callable[[PipOptions, PipOption], PipOptions]] = {
    "no-index": lambda options, _: replace(options, no_index=True, indexes=()),
    "index-url": _replace_indexes,
    "extra-index-url": _add_index,
    "find-links": lambda options, option: replace(options, links=(*options.links, option.value)),
    "default-links": _take_links,
    "own-index": lambda options, option: replace(options, own_indexes=(*options.own_indexes, option.value)),
    "own-links": lambda options, option: replace(options, own_links=(*options.own_links, option.value)),
    "trusted-host": lambda options, option: replace(options, hosts=(*options.hosts, option.value)),
    "pre": lambda options, _: replace(options, pre=True),
    "require-hashes": lambda options, _: replace(options, hashes=True),
    "no-binary": _add_no_binary,
    "only-binary": _add_only_binary,
}


class UvSettings(msgspec.Struct, frozen=True):
    """Arguments and variables for uv.

    Attributes
    ----------
    arguments
        Arguments for ``uv pip install`` and ``uv pip compile``, without secrets.
    environment
        Variables, possibly with secrets; never print them.
    local_paths
        Folders and files that must be visible where uv runs.
    notes
        Differences from pip and ignored settings.
    own
        More arguments for the installation: indexes that serve only packages that name them.
    """

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    local_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Render without the variables, which may contain secrets."""
        return f"UvSettings(arguments={self.arguments!r}, notes={self.notes!r})"


def plan_uv_settings(config: PipConfig, recipe: Recipe) -> UvSettings:
    """Convert the machine's pip configuration and the recipe's options to settings for uv."""
    options = _fold_recipe(_fold_config(config), recipe)
    parts = (
        _plan_indexes(options, config),
        _plan_links(options, config),
        _plan_choices(options, recipe),
        _plan_constraints(config),
        _plan_network(options, config),
        _plan_packages(recipe),
    )
    return UvSettings(
        arguments=tuple(word for part in parts for word in part.arguments),
        environment=tuple(pair for part in parts for pair in part.environment),
        local_paths=tuple(dict.fromkeys(path for part in parts for path in part.local_paths)),
        notes=(*options.notes, *(note for part in parts for note in part.notes)),
        own=tuple(word for part in parts for word in part.own),
    )


def _plan_indexes(options: PipOptions, config: PipConfig) -> UvSettings:
    indexes = tuple(dict.fromkeys(options.indexes or options.own_indexes))
    if options.no_index or not indexes:
        return UvSettings(("--no-index",))
    own = tuple(index for index in dict.fromkeys(options.own_indexes) if index not in indexes)
    usual, more = _name_indexes(indexes, config), _name_indexes(own, config, first=len(indexes))
    arguments = () if indexes == (PYPI,) else usual.arguments  # uv's default
    several = ("--index-strategy", "unsafe-best-match")
    return UvSettings(
        (*arguments, *(several if len(indexes) > 1 else ())),
        (*usual.environment, *more.environment),
        (*usual.local_paths, *more.local_paths),
        own=(*more.arguments, *(several if own and len(indexes) == 1 else ())),
    )


def _name_indexes(indexes: tuple[str, ...], config: PipConfig, *, first: int = 0) -> UvSettings:
    """Return arguments for the indexes, of which number 0 is the default, variables with logins, and local folders."""
    arguments: list[str] = []
    environment: list[tuple[str, str]] = []
    paths: list[str] = []
    for number, index in enumerate(indexes, first):
        path = config.local_path(index)
        # A mirror's pages link to ../../packages, next to its simple/.
        paths += [path.removesuffix("/simple") or "/"] if path else []
        bare, user, password = split_login(_file_url(path) if path else index)
        if user or password:
            environment.append((f"UV_INDEX_ARGOSY_{number}_USERNAME", user))
            environment.append((f"UV_INDEX_ARGOSY_{number}_PASSWORD", password))
            bare = f"argosy-{number}={bare}"
        arguments += ["--index" if number else "--default-index", bare]
    return UvSettings(tuple(arguments), tuple(environment), tuple(paths))


def _plan_links(options: PipOptions, config: PipConfig) -> UvSettings:
    paths = [path for link in (*options.links, *options.own_links) if (path := config.local_path(link))]
    urls, own = (_links_urls(links, config) for links in (options.links, options.own_links))
    if any(split_login(url)[1] for url in (*urls, *own)):
        return UvSettings((), (("UV_FIND_LINKS", ",".join((*urls, *own))),), tuple(paths))
    named, of_own = (tuple(_repeat("--find-links", links)) for links in (urls, own))
    return UvSettings(named, (), tuple(paths), own=of_own)


def _links_urls(links: tuple[str, ...], config: PipConfig) -> list[str]:
    # uv splits --find-links at commas, so they are encoded. It fails for a missing folder (uv 0.13).
    urls = (_file_url(path) if (path := config.local_path(link)) else link.replace(",", "%2C") for link in links)
    return list(dict.fromkeys(urls))


def _file_url(path: str) -> str:
    return "file://" + quote(path)


def _repeat(name: str, values: list[str] | tuple[str, ...]) -> Iterator[str]:
    for value in values:
        yield from (name, value)


def _plan_choices(options: PipOptions, recipe: Recipe) -> UvSettings:
    arguments = [*_repeat("--no-binary", options.no_binary), *_repeat("--only-binary", options.only_binary)]
    if options.pre:
        arguments += ["--prerelease", "allow"]
    # pip requires hashes of all packages if one line has a hash.
    if options.hashes or any(package.hashes for package in recipe.pip):
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
                raise _bad_setting(setting, "names a missing file" if path else "must name a local file")
            arguments += [option, path]
            paths.append(path)
    return UvSettings(tuple(arguments), (), tuple(paths))


def _plan_network(options: PipOptions, config: PipConfig) -> UvSettings:
    environment = [*_certificates(config), *_proxies(config), *_numbers(config)]
    paths = [value for name, value in environment if name.startswith("SSL_")]
    if config.netrc:
        environment.append(("NETRC", config.netrc))
        paths.append(config.netrc)
    hosts = tuple(_repeat("--allow-insecure-host", tuple(dict.fromkeys(options.hosts))))
    return UvSettings(hosts, tuple(environment), tuple(paths))


def _certificates(config: PipConfig) -> Iterator[tuple[str, str]]:
    for key, name in (("cert", "SSL_CERT_FILE"), ("client-cert", "SSL_CLIENT_CERT")):
        if (setting := config.find(key)) is None:
            continue
        path = config.absolute(setting.value)
        if path not in config.files | config.folders:
            raise _bad_setting(setting, "names a missing file")
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
            raise _bad_setting(setting, "must be a number") from error
        if number < 0:
            raise _bad_setting(setting, "cannot be negative")
        yield name, str(number)


def _plan_packages(recipe: Recipe) -> UvSettings:
    """Return the settings of single packages: build settings and local paths."""
    settings = [f"{line.name}:{item}" for line in recipe.pip for item in line.settings if line.name]
    nameless = [line for line in recipe.pip if line.settings and not line.name]
    notes = tuple(f"{line.where}: --config-settings is ignored; write NAME @ ADDRESS" for line in nameless)
    paths = tuple(path for line in recipe.pip for path in (line.path, *_repository(line.spec)) if path)
    # The folder is known. If a project names the package as a workspace member, uv would search above its copy.
    placed = sorted({line.name for line in recipe.pip if line.path and line.name})
    arguments = (
        *_repeat("--config-settings-package", settings),
        *_repeat("--no-build-isolation-package", recipe.unisolated),
        *_repeat("--no-sources-package", placed),
    )
    return UvSettings(arguments, (), paths, notes)


def _repository(spec: str) -> tuple[str, ...]:
    """Return the folder of a local repository, with and without the text after ``@``, which may be a revision."""
    address = (spec if spec.startswith("git+") else spec.partition(" @ ")[2]).partition(" ;")[0].strip()
    if not address.startswith("git+file://"):
        return ()
    path = unquote(urlsplit(address).path)
    return tuple({path, path.rpartition("@")[0] or path})
