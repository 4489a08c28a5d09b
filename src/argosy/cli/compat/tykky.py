"""What tykky (the LUMI container wrapper) is asked, as requests of `argosy wrap`; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from argosy.cli.compat.tykky_site import Conf
from argosy.cli.compat.tykky_words import Words
from argosy.core.errors import UsageError
from argosy.core.layout import ENV_PREFIX
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.wrap.model import Recipe, Settings, SourceKind, UpdateRequest, WrapRequest
from argosy.wrap.plan import parse_environ

DEFAULT_BASE = "debian:bookworm"
INSTALLED = "/opt/argosy/installation"
"""Where an installation that keeps its place on the host is seen inside."""

MODES: Mapping[str, str] = {"conda": "conda-containerize", "venv": "pip-containerize"}
"""What a configuration alone may ask for, and the command that does it."""

Read = Callable[[str], str]
"""Gives the text of a file."""


def plan_advanced(words: Words, conf: Conf) -> Words:
    """Give the words that say what a configuration alone says.

    Raises
    ------
    UsageError
        When it names no file to install, or asks for what another command does.
    """
    if conf.mode.endswith("_modify"):
        raise UsageError(f"{words.what} asks for an update", hint=f"{words.program} update DIR")
    if MODES.get(conf.mode, words.program) != words.program:
        hint = f"{MODES[conf.mode]} advanced {quote(words.what)}"
        raise UsageError(f"mode: {conf.mode} is not for {words.program}", evidence=words.what, hint=hint)
    if not conf.files:
        key = "env_file: environment.yml" if words.program == MODES["conda"] else "requirements_file: requirements.txt"
        raise UsageError(f"{words.what} names nothing to install", hint=key)
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
    if not words.what:
        raise UsageError("an empty word names no file", hint="is a variable of your shell not set?")
    recipe = RECIPES[words.program](words, conf, cwd, read)
    before, after = _scripts((*conf.before, words.before), cwd), _scripts((*conf.after, words.after), cwd)
    recipe = replace(recipe, before=before, after=after)
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
    return UpdateRequest(cwd / words.what, packages, after=_scripts((words.after,), cwd))


def plan_settings(words: Words, conf: Conf, old: Settings, recipe: Recipe, read: Read) -> Settings:
    """Give how commands start: tykky's paths come beside those of the environment, an update's beside the old ones."""
    asked = tuple(_inside(path, words, recipe) for path in (*conf.paths, *words.paths))
    known = old.paths or ((f"{ENV_PREFIX}/bin",) if recipe.kind is SourceKind.FILES else ())
    variables = dict(old.variables)
    for file in filter(None, (*conf.environs, words.environ)):
        variables |= dict(parse_environ(read(file), file))
    paths = tuple(dict.fromkeys((*known, *asked))) if asked else old.paths
    return replace(old, paths=paths, variables=tuple(variables.items()))


def _inside(path: str, words: Words, recipe: Recipe) -> str:
    """Give a path as it is found inside: one of an environment or installation may be relative to it."""
    if recipe.kind is SourceKind.FILES and not path.startswith("/"):
        return f"{ENV_PREFIX}/{path}"
    if recipe.kind is SourceKind.FOLDER and not words.mask and path.startswith(f"{recipe.sources[0]}/"):
        return path.removeprefix(f"{recipe.sources[0]}/")
    return path


def _scripts(files: tuple[str, ...], cwd: Path) -> tuple[str, ...]:
    return tuple(str(cwd / file) for file in files if file)


def _conda(words: Words, conf: Conf, cwd: Path, read: Read) -> Recipe:
    if not words.what.endswith((".yml", ".yaml")) and "@EXPLICIT" not in read(words.what).split():
        raise UsageError(
            f"{words.what} is a list of conda packages that leaves their versions open",
            hint="write them into an environment.yml, below 'dependencies:'",
        )
    return replace(_files(words, conf, cwd), own_python=True)


def _pip(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    if words.slim or words.python:
        tag = words.python if "slim" in words.python else f"{words.python or '3'}-slim"
        conf = replace(conf, base=f"docker://python:{tag}")
    return _files(words, conf, cwd)


def _files(words: Words, conf: Conf, cwd: Path) -> Recipe:
    files = tuple(str(cwd / file) for file in (words.what, words.requirements) if file)
    return Recipe(SourceKind.FILES, files, base=conf.base or DEFAULT_BASE, default_base=not conf.base)


def _container(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    remote = "://" in words.what
    return Recipe(SourceKind.IMAGE, (words.what if remote else str(cwd / words.what),), copy=not conf.share)


def _installation(words: Words, conf: Conf, cwd: Path, _read: Read) -> Recipe:
    folder = str(cwd / words.what.rstrip("/"))
    at = folder if words.mask else INSTALLED
    return Recipe(SourceKind.FOLDER, (folder,), base=conf.base or DEFAULT_BASE, at=at, default_base=not conf.base)


RECIPES: Mapping[str, Callable[[Words, Conf, Path, Read], Recipe]] = {
    "conda-containerize": _conda,
    "pip-containerize": _pip,
    "wrap-container": _container,
    "wrap-install": _installation,
}
