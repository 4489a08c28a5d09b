"""`argosy completion`: print the script that a shell sources."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from argosy.cli.app import app

BASH = Path(__file__).with_name("templates") / "completion.bash"
"""The script for bash. Unlike click's, it offers files in addition to names, and removes no completions."""


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
