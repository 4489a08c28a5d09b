"""The words of tykky (the LUMI container wrapper) as requests of `argosy wrap`; pure.

Its words: https://github.com/CSCfi/hpc-container-wrapper, ``frontends/*.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from argosy.compat.tykky_site import Conf
from argosy.errors import UsageError
from argosy.layout import ENV_PREFIX
from argosy.shell import quote
from argosy.wrap.plan import parse_environ
from argosy.wrap.records import Recipe, Settings, SourceKind, UpdateRequest, WrapRequest

DEFAULT_BASE = "debian:bookworm"
INSTALLED = "/opt/argosy/installation"
"""Where an installation that keeps its place on the host is seen inside."""

OURS: Mapping[str, str] = {
    "conda-containerize": "argosy wrap environment.yml --prefix DIR",
    "pip-containerize": "argosy wrap requirements.txt --prefix DIR",
    "wrap-container": "argosy wrap IMAGE -w PATHS --prefix DIR",
    "wrap-install": "argosy wrap FOLDER --prefix DIR",
}
"""Each command, and ours in its place."""

NOTHING_TO_DO: Mapping[str, str] = {
    "mamba": "--mamba: nothing to do: conda packages are solved by a fast solver anyway",
    "uv": "--uv: nothing to do: pip packages are installed by uv anyway",
    "nocache": "--nocache: nothing to do: what was downloaded is checked before it is used again",
}

Read = Callable[[str], str]
"""Gives the text of a file."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors name our own command."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of leaving."""
        program = self.prog.split()[0]
        raise UsageError(f"{self.prog}: {message}", hint=f"{program} --help; with our own words: {OURS[program]}")


@dataclass(frozen=True, slots=True)
class Words:
    """What a command line says, whichever command it is; what a command does not have is empty.

    Attributes
    ----------
    action
        ``new``, ``update`` or ``advanced``.
    what
        The file, image, folder or prefix that is named.
    yaml
        A user's configuration.
    """

    program: str
    action: str
    what: str
    prefix: str = ""
    yaml: str = ""
    requirements: str = ""
    environ: str = ""
    paths: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    python: str = ""
    slim: bool = False
    mask: bool = False
    notes: tuple[str, ...] = ()


def parse_words(program: str, words: list[str]) -> Words:
    """Read a command line; options may be shortened, as tykky's users do.

    Raises
    ------
    UsageError
        For words that tykky does not have, or that we have no word for: what to use.
    """
    given = vars(_parser(program).parse_args(words))
    if given.get("system_site_packages"):
        raise UsageError(
            "--system-site-packages: packages of the host do not go into an image",
            hint="name an image that has them: argosy wrap FILE --base IMAGE --prefix DIR",
        )
    if given.get("uv") and program == "conda-containerize" and not given.get("mamba"):
        raise UsageError("--uv needs --mamba", hint="leave --uv away: pip packages are installed by uv anyway")
    names = Words.__dataclass_fields__
    taken = {name: value for name, value in given.items() if name in names and value is not None}
    taken["paths"] = tuple(part for part in (given.get("paths") or "").split(",") if part)
    notes = tuple(text for name, text in NOTHING_TO_DO.items() if given.get(name))
    return Words(program=program, notes=notes, **({"action": "new"} | taken))


def _parser(program: str) -> Parser:
    parser = Parser(prog=program, description=f"Answered by Argosy; with its own words: {OURS[program]}")
    if program in {"wrap-container", "wrap-install"}:
        parser.add_argument("what", metavar="CONTAINER" if program == "wrap-container" else "DIR")
        parser.add_argument("-y", "--yaml", help="keys of a tykky configuration")
        _base(parser, needs_paths=True)
        _prefix(parser)
        if program == "wrap-install":
            parser.add_argument("--mask", action="store_true", help="show it at its original path")
        return parser
    actions = parser.add_subparsers(dest="action", required=True, metavar="new|update|advanced")
    new, update = actions.add_parser("new"), actions.add_parser("update")
    new.add_argument("what", metavar="FILE", help="packages to install")
    update.add_argument("what", metavar="DIR", help="the prefix to change")
    actions.add_parser("advanced").add_argument("what", metavar="YAML")
    _base(new)
    _base(update)
    _prefix(new)
    for each in (new, update):
        each.add_argument("--nocache", action="store_true", help="nothing to do")
    new.add_argument("--uv", action="store_true", help="nothing to do")
    update.add_argument("-r", "--requirement", dest="requirements", metavar="FILE", help="packages for pip")
    if program == "conda-containerize":
        new.add_argument("-r", "--requirement", dest="requirements", metavar="FILE", help="packages for pip")
        new.add_argument("--mamba", action="store_true", help="nothing to do")
        return parser
    new.add_argument("--slim", action="store_true", help="over the image python:VERSION-slim")
    new.add_argument("--pyver", dest="python", metavar="VERSION", help="version of Python")
    new.add_argument("--system-site-packages", action="store_true", help="not taken over")
    return parser


def _base(parser: argparse.ArgumentParser, *, needs_paths: bool = False) -> None:
    parser.add_argument("--pre-install", dest="before", metavar="FILE", help="script to run before installing")
    parser.add_argument("--post-install", dest="after", metavar="FILE", help="script to run after installing")
    parser.add_argument("--environ", metavar="FILE", help="variables to set inside")
    text = "folders and programs inside to wrap"
    parser.add_argument("-w", "--wrapper-paths", dest="paths", metavar="PATH,PATH", required=needs_paths, help=text)


def _prefix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", metavar="DIR", help="folder to make")


def plan_advanced(words: Words, conf: Conf) -> Words:
    """Give the words that say what a configuration alone says.

    Raises
    ------
    UsageError
        When it names no file to install.
    """
    if not conf.files:
        raise UsageError(f"{words.what} names nothing to install", hint="installation_file_paths: [environment.yml]")
    what, *more = conf.files
    return replace(words, action="new", what=what, requirements=next(iter(more), ""))


def plan_new(words: Words, conf: Conf, cwd: Path, read: Read) -> WrapRequest:
    """Give the request that makes what tykky would.

    Raises
    ------
    UsageError
        When a file says what is not taken over.
    """
    prefix = cwd / (words.prefix or conf.prefix)
    if prefix == cwd:
        raise UsageError("no folder is named", hint="--prefix DIR, which is not there yet or empty")
    recipe = RECIPES[words.program](words, conf, cwd, read)
    recipe = replace(recipe, before=_scripts(words.before, cwd), after=_scripts(words.after, cwd))
    host = words.program == "conda-containerize" and not conf.isolate
    settings = Settings(binds=conf.binds, variables=conf.variables, host=host)
    return WrapRequest(prefix, recipe, plan_settings(words, conf, settings, recipe, read))


def plan_update(words: Words, cwd: Path, read: Read) -> UpdateRequest:
    """Give the request that adds to a prefix.

    Raises
    ------
    UsageError
        When the requirements have more than requirements in them, or a script is to run before.
    """
    if words.before:
        raise UsageError(
            "--pre-install: an update adds to what is there", hint=f"--post-install {quote(words.before)} runs after it"
        )
    rows = read(words.requirements).splitlines() if words.requirements else []
    packages = tuple(text for row in rows if (text := row.partition(" #")[0].strip()) and not text.startswith("#"))
    if any(text.startswith("-") for text in packages):
        hint = f"argosy wrap update {quote(words.what)} {quote(words.requirements)}"
        raise UsageError(f"{words.requirements} holds options of pip", hint=hint)
    return UpdateRequest(cwd / words.what, packages, after=_scripts(words.after, cwd))


def plan_settings(words: Words, conf: Conf, old: Settings, recipe: Recipe, read: Read) -> Settings:
    """Give how commands start: tykky's paths come beside those of the environment."""
    named = (*conf.paths, *words.paths)
    paths = tuple(_inside(path, words, recipe) for path in named)
    if paths and recipe.kind is SourceKind.FILES:
        paths = (f"{ENV_PREFIX}/bin", *paths)
    variables = dict(old.variables)
    if words.environ:
        variables |= dict(parse_environ(read(words.environ), words.environ))
    return replace(old, paths=paths or old.paths, variables=tuple(variables.items()))


def _inside(path: str, words: Words, recipe: Recipe) -> str:
    """Give a path as it is found inside: one of an environment or installation may be relative to it."""
    if recipe.kind is SourceKind.FILES and not path.startswith("/"):
        return f"{ENV_PREFIX}/{path}"
    if recipe.kind is SourceKind.FOLDER and not words.mask and path.startswith(f"{recipe.sources[0]}/"):
        return path.removeprefix(f"{recipe.sources[0]}/")
    return path


def _scripts(file: str, cwd: Path) -> tuple[str, ...]:
    return (str(cwd / file),) if file else ()


def _conda(words: Words, conf: Conf, cwd: Path, read: Read) -> Recipe:
    if not words.what.endswith((".yml", ".yaml")) and "@EXPLICIT" not in read(words.what).split():
        raise UsageError(
            f"{words.what} is a list of conda packages that leaves their versions open",
            hint="write them into an environment.yml, below 'dependencies:'",
        )
    return _files(words, conf, cwd)


def _pip(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    if words.slim or words.python:
        conf = replace(conf, base=f"docker://python:{words.python or '3'}-slim")
    return _files(words, conf, cwd)


def _files(words: Words, conf: Conf, cwd: Path) -> Recipe:
    files = tuple(str(cwd / file) for file in (words.what, words.requirements) if file)
    return Recipe(SourceKind.FILES, files, base=conf.base or DEFAULT_BASE)


def _container(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    remote = "://" in words.what
    return Recipe(SourceKind.IMAGE, (words.what if remote else str(cwd / words.what),), copy=not conf.share)


def _installation(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    folder = str(cwd / words.what.rstrip("/"))
    at = folder if words.mask else INSTALLED
    return Recipe(SourceKind.FOLDER, (folder,), base=conf.base or DEFAULT_BASE, at=at)


RECIPES: Mapping[str, Callable[[Words, Conf, Path, Read], Recipe]] = {
    "conda-containerize": _conda,
    "pip-containerize": _pip,
    "wrap-container": _container,
    "wrap-install": _installation,
}
