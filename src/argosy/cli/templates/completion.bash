# shellcheck shell=bash
# Completion for bash 4.4 or later; argosy itself lists the completions.
_argosy_completion() {
    local IFS=$'\n' type value word=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    while IFS=, read -r type value; do
        # shellcheck disable=SC2207  # one name per line
        case $type in
        plain) COMPREPLY+=("$value") ;;
        file) COMPREPLY+=($(compgen -f -- "$word")) && compopt -o filenames 2> /dev/null ;;
        dir) COMPREPLY+=($(compgen -d -- "$word")) && compopt -o filenames 2> /dev/null ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _ARGOSY_COMPLETE=bash_complete $1)
}
complete -o nosort -F _argosy_completion argosy
