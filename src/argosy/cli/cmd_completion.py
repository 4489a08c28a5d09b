"""`argosy completion SHELL`: the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from argosy.cli.app import app


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: eval "$(argosy completion bash)"   in ~/.bashrc
    zsh:  eval "$(argosy completion zsh)"    in ~/.zshrc
    fish: argosy completion fish | source    in ~/.config/fish/config.fish
    """  # noqa: D301
    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(app, {}, "argosy", "_ARGOSY_COMPLETE").source())
