"""Translate pip's settings and the pip part of a recipe into arguments, variables and files for uv.

pip chooses the best version from all indexes. uv chooses the first index that has the package, except with
``--index-strategy unsafe-best-match``. Credentials are never arguments, which all users of a machine can see in the
process list; uv reads them from ``UV_INDEX_<NAME>_USERNAME`` and ``…_PASSWORD``. The text of the files may contain
secrets, too (a token in a URL, expanded from a variable): write it only to private work folders, never to an image. The
same recipe gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.redact import redact, split_login
from argosy.recipes.merge import joined
from argosy.recipes.pip_settings import LISTS, PipConfig, PipSetting
from argosy.recipes.recipe import PYPI, PipIndex, PipKind, PipLine, Recipe

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
_FLAGS = ("no-index", "pre", "require-hashes")


class _Options:
    """The options of the machine and of a recipe, merged in pip's order."""

    def __init__(self) -> None:
        self.indexes, self.no_index = [PYPI], False
        self.flags: set[str] = set()
        self.lists: dict[str, list[str]] = {
            name: [] for name in ("find-links", "own-index", "own-links", "trusted-host", "no-binary", "only-binary")
        }
        self.notes: list[str] = []

    def apply(self, name: str, value: str, source: object) -> None:
        """Apply an option under pip's name, or one of `argosy.recipes.recipe.PipOption`; `source` is for notes."""
        match name:
            case "no-index":
                self.no_index, self.indexes = True, []
            case "index-url" | "extra-index-url" if self.no_index:
                pass
            case "index-url":
                dropped = [redact(index) for index in self.indexes if index not in (PYPI, value)]
                self.indexes = [value]
                self.notes += [f"{source}: --index-url replaces {', '.join(dropped)}, as in pip"] if dropped else []
            case "extra-index-url":
                self.indexes.append(value)
            case "default-links":  # a folder or page of links in PyPI's place
                self.indexes = [index for index in self.indexes if index != PYPI]
                self.lists["find-links"].append(value)
            case "no-binary" | "only-binary":
                other = "only-binary" if name == "no-binary" else "no-binary"
                _add_format(value, self.lists[name], self.lists[other])
            case _ if name in self.lists:
                self.lists[name].append(value)
            case _:
                self.flags.add(name)

    def apply_setting(self, setting: PipSetting, config: PipConfig) -> None:
        """Apply a setting of the machine; pip warns for a missing folder, and uv fails."""
        source, key = setting.source, setting.key
        if key in NOT_TRANSLATED and setting.value.lower() not in _FALSE:
            self.notes.append(f"{source}: '{key}' is ignored: {NOT_TRANSLATED[key]}")
        if key in _FLAGS and not _is_true(setting):
            return
        for value in setting.value.split() if key in LISTS else [setting.value]:
            path = config.local_path(value) if key == "find-links" else ""
            if path and path not in config.folders:
                why = "it is a file, and uv needs a folder" if path in config.files else "no such folder"
                self.notes.append(f"find-links {path} is ignored: {why}")
            else:
                self.apply(key, value, source)


def _merge(config: PipConfig, recipe: Recipe) -> _Options:
    """Apply the machine's configuration, then the recipe's options in the order of its files."""
    options, first = _Options(), ("no-index", "index-url")
    for setting in sorted(config.settings, key=lambda each: each.key not in first):
        options.apply_setting(setting, config)
    for option in recipe.options:
        if option.name in NOT_TRANSLATED:
            note = f"{option.where}: '--{option.name}' is ignored: {NOT_TRANSLATED[option.name]}"
            options.notes.append(note)
        options.apply(option.name, option.value, option.where)
    return options


def _is_true(setting: PipSetting) -> bool:
    if setting.value.lower() not in (*_TRUE, *_FALSE):
        raise _bad_setting(setting, "must be yes or no")
    return setting.value.lower() in _TRUE


def _bad_setting(setting: PipSetting, why: str) -> UsageError:
    """Return the error for an invalid setting, with its source."""
    evidence = f"{setting.source}: {setting.key} = {redact(setting.value)}"
    hint = "correct the value there, or remove the setting"
    return UsageError(f"pip's setting '{setting.key}' {why}", evidence=evidence, hint=hint)


def _add_format(value: str, target: list[str], other: list[str]) -> None:
    """Add a value of ``no-binary`` or ``only-binary`` to its list, and remove it from the other list."""
    for word in filter(None, (word.strip() for word in value.split(","))):
        name = word if word in (":all:", ":none:") else canonicalize_name(word)
        if name == ":all:":
            target[:], other[:] = [":all:"], []
        elif name == ":none:":
            target.clear()
        else:
            target[:] = [*(one for one in target if one != name), name]
            other[:] = [one for one in other if one != name]


class UvSettings(msgspec.Struct, frozen=True):
    """Arguments and variables for uv."""

    arguments: tuple[str, ...] = ()
    """Arguments for ``uv pip install`` and ``uv pip compile``, without secrets."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables, possibly with secrets; never print them."""
    local_paths: tuple[str, ...] = ()
    """Folders and files that must be visible where uv runs."""
    notes: tuple[str, ...] = ()
    """Differences from pip and ignored settings."""
    own: tuple[str, ...] = ()
    """More arguments for the installation: indexes that serve only packages that name them."""

    def __repr__(self) -> str:
        """Render without the variables, which may contain secrets."""
        return f"UvSettings(arguments={self.arguments!r}, notes={self.notes!r})"


def plan_uv_settings(config: PipConfig, recipe: Recipe) -> UvSettings:
    """Convert the machine's pip configuration and the recipe's options to settings for uv."""
    options = _merge(config, recipe)
    parts = (
        _plan_indexes(options, config),
        _plan_links(options, config),
        UvSettings(tuple(_choices(options, recipe))),
        _plan_constraints(config),
        _plan_network(options, config),
        _plan_packages(recipe),
    )
    return UvSettings(
        arguments=joined(part.arguments for part in parts),
        environment=joined(part.environment for part in parts),
        local_paths=tuple(dict.fromkeys(joined(part.local_paths for part in parts))),
        notes=(*options.notes, *joined(part.notes for part in parts)),
        own=joined(part.own for part in parts),
    )


def _plan_indexes(options: _Options, config: PipConfig) -> UvSettings:
    indexes = tuple(dict.fromkeys(options.indexes or options.lists["own-index"]))
    if options.no_index or not indexes:
        return UvSettings(("--no-index",))
    own = tuple(index for index in dict.fromkeys(options.lists["own-index"]) if index not in indexes)
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


def _plan_links(options: _Options, config: PipConfig) -> UvSettings:
    paths = tuple(
        path
        for link in (*options.lists["find-links"], *options.lists["own-links"])
        if (path := config.local_path(link))
    )
    urls, own = (_links_urls(links, config) for links in (options.lists["find-links"], options.lists["own-links"]))
    if any(split_login(url)[1] for url in (*urls, *own)):
        return UvSettings(environment=(("UV_FIND_LINKS", ",".join((*urls, *own))),), local_paths=paths)
    return UvSettings(_repeat("--find-links", urls), local_paths=paths, own=_repeat("--find-links", own))


def _links_urls(links: Iterable[str], config: PipConfig) -> list[str]:
    # uv splits --find-links at commas, so they are encoded. It fails for a missing folder (uv 0.13).
    urls = (_file_url(path) if (path := config.local_path(link)) else link.replace(",", "%2C") for link in links)
    return list(dict.fromkeys(urls))


def _file_url(path: str) -> str:
    return "file://" + quote(path)


def _repeat(name: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (name, value))


def _choices(options: _Options, recipe: Recipe) -> Iterator[str]:
    for name in ("no-binary", "only-binary"):
        yield from _repeat(f"--{name}", options.lists[name])
    yield from ("--prerelease", "allow") if "pre" in options.flags else ()
    # pip requires hashes of all packages if one line has a hash.
    yield from (
        ("--require-hashes",)
        if "require-hashes" in options.flags or any(package.hashes for package in recipe.pip)
        else ()
    )


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
    return UvSettings(tuple(arguments), local_paths=tuple(paths))


def _plan_network(options: _Options, config: PipConfig) -> UvSettings:
    environment = [*_certificates(config), *_proxies(config), *_numbers(config)]
    paths = [value for name, value in environment if name.startswith("SSL_")]
    if config.netrc:
        environment.append(("NETRC", config.netrc))
        paths.append(config.netrc)
    hosts = _repeat("--allow-insecure-host", dict.fromkeys(options.lists["trusted-host"]))
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


def render_requirements(recipe: Recipe) -> str:
    """Render the packages, each below a comment with its position.

    Options are passed as arguments (see ``plan_uv_settings``), and `render_project` renders packages with their own
    index.
    """
    return "".join(_lines(line for line in recipe.pip if not line.index))


def render_project(asked: Iterable[str], indexes: Mapping[str, PipIndex]) -> str:
    """Render requirements that have their own index as a project, the only form that uv accepts; empty if none.

    `indexes` has the index of each package by the package's name.
    """
    wanted = "".join(f"  {json.dumps(text)},\n" for text in asked)
    if not wanted:
        return ""
    rows = "".join(
        f"[[tool.uv.index]]\nname = {json.dumps(name)}\nurl = {json.dumps(index.address)}\nexplicit = true\n"
        + ('format = "flat"\n' if index.flat else "")
        + f"[tool.uv.sources.{name}]\nindex = {json.dumps(name)}\n"
        for name, index in sorted(indexes.items())
    )
    return f'[project]\nname = "argosy-asks"\nversion = "0"\ndependencies = [\n{wanted}]\n{rows}'


def render_constraints(recipe: Recipe) -> str:
    """Render the constraints of ``-c`` files; may be empty.

    Local paths are omitted: uv ignores them as constraints.
    """
    return "".join(_lines(line for line in recipe.constraints if line.kind is not PipKind.LOCAL))


def render_overrides(recipe: Recipe, held: Container[str]) -> str:
    """Render the overrides except those of packages in `held`."""
    return "".join(
        _lines(line for line in recipe.overrides if line.kind is not PipKind.LOCAL and line.name not in held)
    )


def _lines(packages: Iterable[PipLine]) -> Iterator[str]:
    seen: set[str] = set()
    for package in packages:
        # uv requires hashes after the marker; pip accepts them anywhere.
        hashes = "".join(f" \\\n    --hash={item}" for item in sorted(package.hashes))
        text = f"{package.requirement}{hashes}\n"
        if text not in seen:
            seen.add(text)
            where = str(package.where).encode(errors="backslashreplace").decode()  # a file may have any name
            yield f"# {' '.join(where.split())}\n{text}"
