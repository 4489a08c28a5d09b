"""The command lines of tykky: their words to requests of `argosy wrap`, which does the work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from argosy.cli.compat.tykky import MODES, plan_advanced, plan_new, plan_settings, plan_update
from argosy.cli.compat.tykky_site import Conf, merge_conf, read_conf, read_variants
from argosy.cli.compat.tykky_words import Words, parse_words, render_help
from argosy.core.errors import UsageError
from argosy.core.records import replace

SITE_FILE = "CW_GLOBAL_YAML"
"""Variable of tykky that names a site's configuration."""


def _command(name: str) -> click.Command:
    """Make the command of a name: all of its words are read by tykky's own rules, `--help` included."""

    @click.command(name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> None:
        if not words:
            click.echo(render_help(name), nl=False)
            return
        try:
            read = parse_words(name, list(words))
        except SystemExit:
            return  # --help was printed
        answer(read)

    return command


conda_containerize = _command("conda-containerize")
pip_containerize = _command("pip-containerize")
wrap_container = _command("wrap-container")
wrap_install = _command("wrap-install")


def answer(words: Words) -> None:
    """Do what the words ask for, and tell it as `argosy wrap` does."""
    from argosy.cli.cmd_wrap import render_report  # noqa: PLC0415 - --help does nothing
    from argosy.cli.common import open_session  # noqa: PLC0415 - likewise
    from argosy.core.store import work_folder  # noqa: PLC0415 - likewise
    from argosy.wrap.prefix import update, wrap  # noqa: PLC0415 - likewise
    from argosy.wrap.request import script_paths  # noqa: PLC0415 - likewise
    from argosy.wrap.versions import open_prefix  # noqa: PLC0415 - likewise

    cwd = Path.cwd()
    ways = read_variants(os.environ)
    for note in (*words.notes, *ways.notes):
        click.echo(note, err=True)
    session = open_session(verbose=ways.verbose, quiet=ways.quiet, work=ways.work)
    if words.action == "update":
        request = plan_update(words, cwd, read_text)
        _refuse_tykkys_own(request.prefix, words.program)
        script_paths(tuple(Path(file) for file in request.after))
        old = open_prefix(request.prefix)
        report = update(request, plan_settings(words, Conf(), old.settings, old.recipe, read_text), session)
    else:
        conf = _read_confs(words)
        words = plan_advanced(words, conf) if words.action == "advanced" else words
        with work_folder(session.work_parent()) as work:
            asked = plan_new(name_files(words, work), conf, cwd, read_text)
            _need(asked.recipe.sources)
            script_paths(tuple(Path(file) for file in (*asked.recipe.before, *asked.recipe.after)))
            report = wrap(replace(asked, prefix=asked.prefix.absolute()), session)
    click.echo(render_report(report, Path(report.prefix)))


def name_files(words: Words, work: Path) -> Words:
    """Copy files whose names do not tell their kind, such as a shell's pipe, to names that do, as tykky takes them."""
    kind = "environment.yml" if words.program == MODES["conda"] else "requirements.txt"
    if words.program not in MODES.values():
        return words
    what = _named(words.what, kind, work)
    return replace(words, what=what, requirements=_named(words.requirements, "requirements.txt", work))


def _named(file: str, name: str, work: Path) -> str:
    path = Path(file)
    if not file or path.suffix or not path.exists() or path.is_dir():
        return file
    text = read_text(file)
    copy = work / ("explicit.txt" if "@EXPLICIT" in text.split() else name)
    copy.write_text(text, encoding="utf-8")
    return str(copy)


def _read_confs(words: Words) -> Conf:
    """Read the site's configuration and the user's."""
    site = _read_yaml(os.environ.get(SITE_FILE, ""))
    user = _read_yaml(words.what if words.action == "advanced" else words.yaml)
    conf = read_conf(merge_conf(site, user), dict(os.environ))
    return replace(conf, prefix="") if Path(conf.prefix or ".").absolute() == Path.cwd() else conf


def _read_yaml(file: str) -> dict[str, Any]:
    """Read a configuration; nothing where no file is named."""
    if not file:
        return {}
    from argosy.core.yaml_text import load_yaml  # noqa: PLC0415 - only who has a configuration waits for it

    found = load_yaml(read_text(file), file) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{file} holds no keys", hint="write KEY: VALUE")
    return found


def read_text(file: str) -> str:
    """Read a file that the words name."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read", evidence=str(error), hint="check the path") from error


def _refuse_tykkys_own(prefix: Path, program: str) -> None:
    """Say what becomes of an environment that tykky itself made: its image is seen by its own wrappers alone."""
    if (prefix / "share/conf.yaml").is_file() and (prefix / "common.sh").is_file():
        given = sorted(str(file) for file in (prefix / "share/previous_input").rglob("*") if file.is_file())
        raise UsageError(
            f"{prefix} was made by tykky, whose image only its own wrappers can read",
            evidence=f"what it was made of: {', '.join(given)}" if given else "",
            hint=f"make it anew: {program} new --prefix DIR {given[-1] if given else 'FILE'}",
        )


def _need(sources: tuple[str, ...]) -> None:
    for source in sources:
        if "://" not in source and not Path(source).exists():
            raise UsageError(f"there is no {source}", hint="check the path")
