# shellcheck shell=bash
# Completion of tykky's commands for bash and zsh; tykky.sh sources this file.  Written by Argosy.
_argosy_tykky() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local program=${COMP_WORDS[0]##*/} words="" place
    COMPREPLY=()
    case $before in @valued@) return ;; esac
    case $program:${COMP_WORDS[1]-} in
@cases@
    esac
    case $COMP_CWORD:$program in
    1:tykky) words="activate deactivate" ;;
    2:tykky)
        while read -r -d : place; do
            for place in "${place:-.}"/*/activate; do
                [ ! -r "$place" ] || { place=${place%/activate} && words="$words ${place##*/}"; }
            done
        done <<< "${TYKKY_PATH-}:.:"
        ;;
    1:@programs@) words="@actions@ --help" ;;
    *) case $word in -*) ;; *) return ;; esac ;;
    esac
    for place in $words; do
        [[ $place != "$word"* ]] || COMPREPLY+=("$place")
    done
}
if [ -n "${ZSH_VERSION-}" ]; then
    type compdef > /dev/null 2>&1 || { autoload -Uz compinit && compinit; }
    autoload -Uz bashcompinit && bashcompinit
fi
complete -o default -F _argosy_tykky @commands@ tykky
