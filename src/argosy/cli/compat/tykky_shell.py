"""Render the shell code of tykky: the function `tykky`, and the completion of its commands."""

from __future__ import annotations

from argosy.cli.compat.tykky_arguments import ACTIONS, OPTIONS, Option, options_of
from argosy.core.shell import quote

ACTIVATE = "tykky.sh"
COMPLETE = "tykky-completion.bash"
FISH = "tykky.fish"


FIND = """\
tykky_find() {
    tykky_rest=${TYKKY_PATH-}:.:
    case $1 in
    "") echo "tykky: no environment is given; use: tykky activate NAME|DIR" >&2 && return 1 ;;
    */*) tykky_rest=:: ;;
    esac
    while [ -n "$tykky_rest" ]; do
        tykky_in=${tykky_rest%%:*} tykky_rest=${tykky_rest#*:}
        case $1 in */*) tykky_place=${1%/} ;; *) tykky_place=${tykky_in:-.}/${1%/} ;; esac
        if [ -r "$tykky_place/activate" ]; then
            CDPATH="" cd -- "$tykky_place" && pwd
            return
        fi
        if [ -r "$tykky_place/common.sh" ]; then
            echo "tykky: $tykky_place was made by tykky itself: make it again, or add its bin to PATH" >&2
            return 1
        fi
    done
    echo "tykky: there is no environment $1" >&2
    echo "  -> give its folder, or add the folder above it to TYKKY_PATH=${TYKKY_PATH-}" >&2
    return 1
}
"""
"""A shell function that prints the folder of an environment."""


TYKKY = """\
tykky() {
    case ${1-} in
    activate)
        tykky_found=$(tykky_find "${2-}") || return 1
        # shellcheck disable=SC1091
        if [ "${TYKKY_CHANGE_PS1-}" = 0 ] && [ -z "${VIRTUAL_ENV_DISABLE_PROMPT-}" ]; then
            VIRTUAL_ENV_DISABLE_PROMPT=1
            . "$tykky_found/activate"
            unset -v VIRTUAL_ENV_DISABLE_PROMPT
        else
            . "$tykky_found/activate"
        fi
        unset -v tykky_found
        export TYKKY_PREFIX="$ARGOSY_ACTIVE"
        ;;
    deactivate)
        if [ -n "${argosy_activated-}" ]; then
            deactivate
        else
            # Activated by a shell above this one.
            case :$PATH: in
            *":${TYKKY_PREFIX-/}/bin:"*)
                PATH=:$PATH:
                PATH=${PATH%%":$TYKKY_PREFIX/bin:"*}:${PATH#*":$TYKKY_PREFIX/bin:"}
                PATH=${PATH#:}
                PATH=${PATH%:}
                ;;
            esac
            unset -v ARGOSY_ACTIVE
        fi
        unset -v TYKKY_PREFIX
        ;;
    *)
        echo "tykky activate NAME|DIR"
        echo "tykky deactivate"
        ;;
    esac
}
"""
"""A shell function that activates an environment by its own script, and deactivates it."""


def render_files(folder: str) -> dict[str, str]:
    """Render the files that are installed next to tykky's commands: name -> text.

    Parameters
    ----------
    folder
        Absolute path of their folder.
    """
    return {
        ACTIVATE: render_activate(f"{folder}/{COMPLETE}"),
        COMPLETE: _render_completion(),
        FISH: _render_fish(),
    }


def render_activate(completion: str) -> str:
    """Render the function `tykky` for sh, bash and zsh."""
    return f"""\
# shellcheck shell=sh
# Source this file in your shell:  . {ACTIVATE}      tykky activate NAME|DIR; tykky deactivate      Written by Argosy.
# tykky searches a NAME in the folders of TYKKY_PATH, then in the current folder.
{FIND}{TYKKY}case $-:${{BASH_VERSION-}}${{ZSH_VERSION-}} in
*i*:?*) [ ! -r {quote(completion)} ] || . {quote(completion)} ;;
esac
"""


def _render_completion() -> str:
    """Render the completion of tykky's commands for bash and zsh."""
    rows = []
    for program, actions in ACTIONS.items():
        rows += [f"    {program}:{action or '*'}) words={quote(_flags(program, action))} ;;" for action in actions]
    values = "|".join(flag for option in OPTIONS if option.value for flag in option.flags)
    first = "|".join(program for program, actions in ACTIONS.items() if "" not in actions)
    known = " ".join(next(actions for actions in ACTIONS.values() if "" not in actions))
    return f"""\
# shellcheck shell=bash
# Completion of tykky's commands for bash and zsh; {ACTIVATE} sources this file.  Written by Argosy.
_argosy_tykky() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
    local program=${{COMP_WORDS[0]##*/}} words="" place
    COMPREPLY=()
    case $before in {values}) return ;; esac
    case $program:${{COMP_WORDS[1]-}} in
{chr(10).join(rows)}
    esac
    case $COMP_CWORD:$program in
    1:tykky) words="activate deactivate" ;;
    2:tykky)
        while read -r -d : place; do
            for place in "${{place:-.}}"/*/activate; do
                [ ! -r "$place" ] || {{ place=${{place%/activate}} && words="$words ${{place##*/}}"; }}
            done
        done <<< "${{TYKKY_PATH-}}:.:"
        ;;
    1:{first.replace("|", "|1:")}) words="{known} --help" ;;
    *) case $word in -*) ;; *) return ;; esac ;;
    esac
    for place in $words; do
        [[ $place != "$word"* ]] || COMPREPLY+=("$place")
    done
}}
if [ -n "${{ZSH_VERSION-}}" ]; then
    type compdef > /dev/null 2>&1 || {{ autoload -Uz compinit && compinit; }}
    autoload -Uz bashcompinit && bashcompinit
fi
complete -o default -F _argosy_tykky {" ".join(ACTIONS)} tykky
"""


def _flags(program: str, action: str) -> str:
    return " ".join([*(flag for option in options_of(program, action) for flag in option.flags), "--help"])


def _render_fish() -> str:
    """Render the function `tykky` and the completion of its commands for fish."""
    rows = []
    for program, actions in ACTIONS.items():
        if "" not in actions:
            rows.append(f"complete -c {program} -n __fish_use_subcommand -x -a {quote(' '.join(actions))}")
        for action in actions:
            where = f" -n {quote(f'__fish_seen_subcommand_from {action}')}" if action else ""
            rows += [f"complete -c {program}{where} {_fish(option)}" for option in options_of(program, action)]
    return f"""\
# Source this file in fish:  source {FISH}      tykky activate NAME|DIR; tykky deactivate      Written by Argosy.
function tykky
    switch "$argv[1]"
        case activate
            if test -z "$argv[2]"
                echo "tykky: no environment is given; use: tykky activate NAME|DIR" >&2
                return 1
            end
            for place in (string split : -- "$TYKKY_PATH")/$argv[2] $argv[2]
                if test -r "$place/activate"
                    tykky deactivate
                    set -gx TYKKY_PREFIX (realpath "$place")
                    set -gx PATH $TYKKY_PREFIX/bin $PATH
                    return
                end
            end
            echo "tykky: there is no environment $argv[2]" >&2
            return 1
        case deactivate
            if set -q TYKKY_PREFIX
                set -gx PATH (string match -v -- "$TYKKY_PREFIX/bin" $PATH)
                set -e TYKKY_PREFIX
            end
        case '*'
            echo "tykky activate NAME|DIR"
            echo "tykky deactivate"
    end
end
complete -c tykky -n __fish_use_subcommand -x -a 'activate deactivate'
{chr(10).join(rows)}
"""


def _fish(option: Option) -> str:
    words = []
    for flag in option.flags:
        words += ["-l", flag[2:]] if flag.startswith("--") else ["-s", flag[1:]]
    return " ".join([*words, *(["-r"] if option.value else []), "-d", quote(option.help)])
