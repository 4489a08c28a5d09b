# shellcheck shell=sh
# Put the commands of this folder first on PATH:  . @script@
# To undo:  deactivate      Written by Argosy @argosy@, which this script does not need.
argosy_dir=@prefix@
if [ -n "${BASH_VERSION-}" ]; then
    # shellcheck disable=SC3028,SC3054
    argosy_dir=${BASH_SOURCE-}
elif [ -n "${ZSH_VERSION-}" ]; then
    eval 'argosy_dir=${(%):-%x}'
else
    argosy_dir=$argosy_dir/activate
fi
case $argosy_dir in */*) ;; *) argosy_dir=./$argosy_dir ;; esac
if argosy_dir=$(CDPATH="" cd -- "${argosy_dir%/*}" 2> /dev/null && pwd) && [ -d "$argosy_dir/bin" ]; then
    [ -z "${argosy_activated-}" ] || deactivate
    argosy_activated=yes
    ARGOSY_ACTIVE=$argosy_dir
    PATH=$ARGOSY_ACTIVE/bin:$PATH
    export ARGOSY_ACTIVE PATH
    if [ -z "${VIRTUAL_ENV_DISABLE_PROMPT-}" ] && [ -n "${PS1-}" ]; then
        argosy_prompt=$PS1
        PS1=@prompt@$PS1
    fi
    deactivate() {
        PATH=:$PATH:
        PATH=${PATH%%":$ARGOSY_ACTIVE/bin:"*}:${PATH#*":$ARGOSY_ACTIVE/bin:"}
        PATH=${PATH#:}
        PATH=${PATH%:}
        PS1=${argosy_prompt-${PS1-}}
        unset -v ARGOSY_ACTIVE argosy_activated argosy_prompt
        unset -f deactivate
        hash -r 2> /dev/null || :
    }
    hash -r 2> /dev/null || :
else
    echo "argosy: cannot find the commands beside this script; the folder may have been moved" >&2
    echo "  -> use bash or zsh, or add the folder's bin to PATH" >&2
fi
unset -v argosy_dir
