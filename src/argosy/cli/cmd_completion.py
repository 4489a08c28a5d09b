"""`argosy completion`: print the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from argosy.cli.app import app


class Bash(BashComplete):
    """The script for bash: unlike click's, it offers files in addition to names."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' type value word=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
        plain) COMPREPLY+=("$value") ;;
        file) compopt -o filenames && COMPREPLY+=($(compgen -f -- "$word")) ;;
        dir) compopt -o filenames && COMPREPLY+=($(compgen -d -- "$word")) ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: eval "$(argosy completion bash)"   in ~/.bashrc
    zsh:  eval "$(argosy completion zsh)"    in ~/.zshrc
    fish: argosy completion fish | source    in ~/.config/fish/config.fish
    """  # noqa: D301
    kind = Bash if shell == "bash" else get_completion_class(shell)
    if kind is not None:
        click.echo(kind(app, {}, "argosy", "_ARGOSY_COMPLETE").source())
