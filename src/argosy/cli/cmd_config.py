"""`argosy config`: show and change the defaults of options; `argosy completion`: the script that a shell sources."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from argosy.cli.app import app
from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option
from argosy.cli.output import fit_table, output_width, print_json, print_report
from argosy.cli.parameters import KEY
from argosy.core.errors import CheckFailed
from argosy.core.locks import Owner
from argosy.launch.request import configured_settings, make_request
from argosy.recipes.project_file import project_schema
from argosy.recipes.user_config import (
    KEYS,
    ConfigSetting,
    describe_unused_settings,
    expand_folders,
    refuse_unknown_key,
    write_config,
)
from argosy.sites.load import load_site
from argosy.slurm.option_checks import refuse_invalid_options

BASH = Path(__file__).with_name("templates") / "completion.bash"
"""The script for bash. Unlike click's, it offers files in addition to names, and removes no completions."""


@click.group(cls=WholeLines, invoke_without_command=True)
@json_option
@click.pass_context
def config(ctx: click.Context, /, *, as_json: bool) -> None:
    """Show the defaults of options and where each comes from, or change your own.

    A value comes from the first of these that sets it: the option, the variable ARGOSY_KEY, argosy.toml, Slurm's
    variable SBATCH_KEY, ~/.config/argosy/config.toml, /etc/argosy/config.toml, the site's profile.

    \b
    argosy config
    argosy config set site lumi-g
    argosy config set account project_465000001
    argosy config unset account
    """
    if ctx.invoked_subcommand:
        return
    found = configured_settings(open_session(quiet=True).host)
    table = fit_table([(setting.key, setting.value, setting.source) for setting in found.values()])
    missing = f"not set: {', '.join(key for key in KEYS if key not in found)}"
    filled = textwrap.fill(missing, output_width(), subsequent_indent="  ")
    print_report([*found.values()], "\n".join(filter(None, (table, filled))), as_json=as_json)
    if unused := describe_unused_settings():
        click.echo(unused, err=True)


@config.command("get")
@click.argument("key", type=KEY)
@json_option
def get_value(key: str, *, as_json: bool) -> None:
    """Print the value of KEY. The exit code is 7 if it is not set."""
    refuse_unknown_key(key)
    setting = configured_settings(open_session(quiet=True).host).get(key)
    if setting is None:
        raise CheckFailed(f"{key} is not set", hint=f"set it with: argosy config set {key} VALUE")
    print_report(setting, setting.value, as_json=as_json)


@config.command("set")
@click.argument("key", type=KEY)
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Write KEY to your configuration file, ~/.config/argosy/config.toml; '' unsets the system's value."""
    refuse_unknown_key(key)
    expand_folders(ConfigSetting(key, value, "argosy config set"), os.environ)
    if key == "site" and value:
        load_site(value, open_session(quiet=True).host)
    request = make_request({key: value}, open_session(quiet=True).host)
    refuse_invalid_options(request.options, sources={key: (value, "argosy config set")})
    path = write_config(os.environ, key, value, waiting=_report_wait)
    click.echo(f"{path}: {key} = {value}".rstrip())
    setting = configured_settings(open_session(quiet=True).host).get(key)
    if setting is not None and setting.value != value:
        click.echo(f"{setting.source} takes precedence here: {setting.value}", err=True)


@config.command("unset")
@click.argument("key", type=KEY)
def unset_value(key: str) -> None:
    """Remove KEY from your configuration file."""
    path = write_config(os.environ, key, None, waiting=_report_wait)
    click.echo(f"{path}: removed {key}")


def _report_wait(owner: Owner) -> None:
    """Report that another process edits the file; `Session.waiting` is of no use, since a session reads the file."""
    click.echo(f"waiting for {owner}", err=True)


@config.command("schema")
def schema() -> None:
    """Print the JSON schema of argosy.toml, for editors."""
    print_json(project_schema())


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: eval "$(argosy completion bash)"   in ~/.bashrc
    zsh:  eval "$(argosy completion zsh)"    in ~/.zshrc
    fish: argosy completion fish | source    in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    if shell == "bash":
        click.echo(BASH.read_text(encoding="utf-8"), nl=False)
    elif kind is not None:
        click.echo(kind(app, {}, "argosy", "_ARGOSY_COMPLETE").source())
