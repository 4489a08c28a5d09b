"""The command lines of tykky (the LUMI container wrapper): their arguments to requests of `argosy wrap`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from argosy.cli.common import open_session
from argosy.cli.compat.tykky_arguments import Arguments, parse_arguments, render_help
from argosy.cli.compat.tykky_config import Conf, merge_conf, read_conf, read_log_settings
from argosy.core.errors import UsageError
from argosy.core.layout import ENV_PREFIX
from argosy.core.parse import load_yaml
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.core.store import work_folder
from argosy.recipes.build_options import DEFAULT_BASE
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind, Settings, UpdateRequest, WrapRequest
from argosy.wrap.prefix import create_prefix, update_prefix
from argosy.wrap.request import parse_environ, script_paths
from argosy.wrap.versions import open_prefix

INSTALLED = "/opt/argosy/installation"
"""Path in the container of an installation that stays where it is on the host."""

MODES: Mapping[str, str] = {"conda": "conda-containerize", "venv": "pip-containerize"}
"""Mode in a configuration file -> the command for it."""

SITE_FILE = "CW_GLOBAL_YAML"
"""Variable of tykky that contains the path of a site's configuration."""

Read = Callable[[str], str]
"""Returns the text of a file."""


def _command(name: str) -> click.Command:
    """Make a command whose arguments, including ``--help``, are parsed by tykky's own rules."""

    @click.command(name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        if not arguments:
            click.echo(render_help(name), nl=False)
            return
        try:
            parsed = parse_arguments(name, list(arguments))
        except SystemExit:
            return  # --help was printed
        answer(parsed)

    return command


conda_containerize = _command("conda-containerize")
pip_containerize = _command("pip-containerize")
wrap_container = _command("wrap-container")
wrap_install = _command("wrap-install")


def answer(arguments: Arguments) -> None:
    """Do what the arguments ask for, and print the report of `argosy wrap`."""
    from argosy.cli.cmd_wrap import render_report

    cwd = Path.cwd()
    log = read_log_settings(os.environ)
    for note in (*arguments.notes, *log.notes):
        click.echo(note, err=True)
    session = open_session(verbose=log.verbose, quiet=log.quiet, work=log.work)
    session = replace(session, show_all="set CW_LOG_LEVEL=3")
    if arguments.action == "update":
        request = plan_update(arguments, cwd, read_text)
        _refuse_prefix_of_tykky(request.prefix, arguments.program)
        script_paths(tuple(Path(file) for file in request.after))
        old = open_prefix(request.prefix)
        report = update_prefix(request, plan_settings(arguments, Conf(), old.settings, old.recipe, read_text), session)
    else:
        conf = _read_confs(arguments)
        arguments = plan_advanced(arguments, conf) if arguments.action == "advanced" else arguments
        with work_folder(session.work_parent()) as work:
            asked = plan_new(name_files(arguments, work), conf, cwd, read_text)
            _refuse_missing(asked.recipe.sources)
            script_paths(tuple(Path(file) for file in (*asked.recipe.before, *asked.recipe.after)))
            report = create_prefix(replace(asked, prefix=asked.prefix.absolute()), session)
    click.echo(render_report(report, Path(report.prefix)))


def name_files(arguments: Arguments, work: Path) -> Arguments:
    """Copy files whose names do not show their kind, such as a pipe of the shell, to names that do."""
    kind = "environment.yml" if arguments.program == MODES["conda"] else "requirements.txt"
    if arguments.program not in MODES.values():
        return arguments
    what = _copy_named(arguments.what, kind, work)
    return replace(arguments, what=what, requirements=_copy_named(arguments.requirements, "requirements.txt", work))


def _copy_named(file: str, name: str, work: Path) -> str:
    path = Path(file)
    if not file or path.suffix or not path.exists() or path.is_dir():
        return file
    text = read_text(file)
    copy = work / ("explicit.txt" if "@EXPLICIT" in text.split() else name)
    copy.write_text(text, encoding="utf-8")
    return str(copy)


def _read_confs(arguments: Arguments) -> Conf:
    """Read the site's configuration and the user's."""
    site = _read_yaml(os.environ.get(SITE_FILE, ""))
    user = _read_yaml(arguments.what if arguments.action == "advanced" else arguments.yaml)
    conf = read_conf(merge_conf(site, user), dict(os.environ))
    return replace(conf, prefix="") if Path(conf.prefix or ".").absolute() == Path.cwd() else conf


def _read_yaml(file: str) -> dict[str, Any]:
    """Read a configuration file; an empty name gives an empty configuration."""
    if not file:
        return {}
    found = load_yaml(read_text(file), file) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{file} contains no keys", hint="write KEY: VALUE")
    return found


def read_text(file: str) -> str:
    """Read a file that the arguments name."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}", evidence=str(error), hint="check the path") from error


def _refuse_prefix_of_tykky(prefix: Path, program: str) -> None:
    """Refuse to update an environment that tykky itself made: only tykky's wrappers can read its image."""
    if (prefix / "share/conf.yaml").is_file() and (prefix / "common.sh").is_file():
        inputs = sorted(str(file) for file in (prefix / "share/previous_input").rglob("*") if file.is_file())
        raise UsageError(
            f"cannot update {prefix}: tykky made it, and only its own wrappers can read its image",
            evidence=f"made from: {', '.join(inputs)}" if inputs else "",
            hint=f"make it again: {program} new --prefix DIR {inputs[-1] if inputs else 'FILE'}",
        )


def _refuse_missing(sources: tuple[str, ...]) -> None:
    for source in sources:
        if "://" not in source and not Path(source).exists():
            raise UsageError(f"{source} does not exist", hint="check the path")


def plan_advanced(arguments: Arguments, conf: Conf) -> Arguments:
    """Return the arguments that a configuration file replaces.

    Raises
    ------
    UsageError
        If the file names nothing to install, or its mode belongs to another command.
    """
    if conf.mode.endswith("_modify"):
        raise UsageError(f"{arguments.what} requests an update", hint=f"use: {arguments.program} update DIR")
    if MODES.get(conf.mode, arguments.program) != arguments.program:
        hint = f"use: {MODES[conf.mode]} advanced {quote(arguments.what)}"
        raise UsageError(f"mode: {conf.mode} is not for {arguments.program}", evidence=arguments.what, hint=hint)
    if not conf.files:
        is_conda = arguments.program == MODES["conda"]
        key = "env_file: environment.yml" if is_conda else "requirements_file: requirements.txt"
        raise UsageError(f"{arguments.what} names nothing to install", hint=f"add {key}")
    what, *more = conf.files
    return replace(arguments, action="new", what=what, requirements=next(iter(more), ""))


def plan_new(arguments: Arguments, conf: Conf, cwd: Path, read: Read) -> WrapRequest:
    """Return the request that makes the same prefix as tykky.

    Raises
    ------
    UsageError
        If an argument is missing, or a file contains settings that are not supported.
    """
    prefix = cwd / (arguments.prefix or conf.prefix)
    if prefix == cwd:
        raise UsageError("no prefix is given", hint="add --prefix DIR, a new or empty folder")
    if not arguments.what:
        raise UsageError("the name of the file is empty", hint="check that the shell variable is set")
    recipe = RECIPES[arguments.program](arguments, conf, cwd, read)
    before, after = _scripts((*conf.before, arguments.before), cwd), _scripts((*conf.after, arguments.after), cwd)
    recipe = replace(recipe, before=before, after=after)
    host = arguments.program == "conda-containerize" and not conf.isolate
    settings = Settings(binds=conf.binds, variables=conf.variables, host=host)
    return WrapRequest(prefix, recipe, plan_settings(arguments, conf, settings, recipe, read))


def plan_update(arguments: Arguments, cwd: Path, read: Read) -> UpdateRequest:
    """Return the request that adds packages to a prefix.

    Raises
    ------
    UsageError
        If the requirements contain options of pip, or a script is to run before the installation.
    """
    if arguments.before:
        raise UsageError(
            "--pre-install cannot be used with update",
            hint=f"use --post-install {quote(arguments.before)}, which runs after the installation",
        )
    rows = read(arguments.requirements).splitlines() if arguments.requirements else []
    packages = tuple(text for row in rows if (text := row.partition(" #")[0].strip()) and not text.startswith("#"))
    if any(text.startswith("-") for text in packages):
        hint = f"use: argosy wrap update {quote(arguments.what)} {quote(arguments.requirements)}"
        raise UsageError(f"{arguments.requirements} contains pip options", hint=hint)
    return UpdateRequest(cwd / arguments.what, packages, after=_scripts((arguments.after,), cwd))


def plan_settings(arguments: Arguments, conf: Conf, old: Settings, recipe: PrefixRecipe, read: Read) -> Settings:
    """Return how the commands start; new wrapper paths are added to those of the environment or the old version."""
    asked = tuple(_path_inside(path, arguments, recipe) for path in (*conf.paths, *arguments.paths))
    known = old.paths or ((f"{ENV_PREFIX}/bin",) if recipe.kind is PrefixSourceKind.FILES else ())
    variables = dict(old.variables)
    for file in filter(None, (*conf.environs, arguments.environ)):
        variables |= dict(parse_environ(read(file), file))
    paths = tuple(dict.fromkeys((*known, *asked))) if asked else old.paths
    return replace(old, paths=paths, variables=tuple(variables.items()))


def _path_inside(path: str, arguments: Arguments, recipe: PrefixRecipe) -> str:
    """Return a path in the container; paths of an environment or installation may be relative to it."""
    if recipe.kind is PrefixSourceKind.FILES and not path.startswith("/"):
        return f"{ENV_PREFIX}/{path}"
    if recipe.kind is PrefixSourceKind.FOLDER and not arguments.mask and path.startswith(f"{recipe.sources[0]}/"):
        return path.removeprefix(f"{recipe.sources[0]}/")
    return path


def _scripts(files: tuple[str, ...], cwd: Path) -> tuple[str, ...]:
    return tuple(str(cwd / file) for file in files if file)


def _conda(arguments: Arguments, conf: Conf, cwd: Path, read: Read) -> PrefixRecipe:
    if not arguments.what.endswith((".yml", ".yaml")) and "@EXPLICIT" not in read(arguments.what).split():
        raise UsageError(
            f"{arguments.what} is a list of conda packages without exact versions",
            hint="write the packages into an environment.yml, below 'dependencies:'",
        )
    return replace(_files(arguments, conf, cwd), own_python=True)


def _pip(arguments: Arguments, conf: Conf, cwd: Path, _read: Read) -> PrefixRecipe:
    if arguments.slim or arguments.python:
        tag = arguments.python if "slim" in arguments.python else f"{arguments.python or '3'}-slim"
        conf = replace(conf, base=f"docker://python:{tag}")
    return _files(arguments, conf, cwd)


def _files(arguments: Arguments, conf: Conf, cwd: Path) -> PrefixRecipe:
    files = tuple(str(cwd / file) for file in (arguments.what, arguments.requirements) if file)
    return PrefixRecipe(PrefixSourceKind.FILES, files, base=conf.base or DEFAULT_BASE, default_base=not conf.base)


def _container(arguments: Arguments, conf: Conf, cwd: Path, _read: Read) -> PrefixRecipe:
    image = arguments.what if "://" in arguments.what else str(cwd / arguments.what)
    return PrefixRecipe(PrefixSourceKind.IMAGE, (image,), copy=not conf.share)


def _installation(arguments: Arguments, conf: Conf, cwd: Path, _read: Read) -> PrefixRecipe:
    folder = str(cwd / arguments.what.rstrip("/"))
    at = folder if arguments.mask else INSTALLED
    return PrefixRecipe(
        PrefixSourceKind.FOLDER, (folder,), base=conf.base or DEFAULT_BASE, at=at, default_base=not conf.base
    )


RECIPES: Mapping[str, Callable[[Arguments, Conf, Path, Read], PrefixRecipe]] = {
    "conda-containerize": _conda,
    "pip-containerize": _pip,
    "wrap-container": _container,
    "wrap-install": _installation,
}
