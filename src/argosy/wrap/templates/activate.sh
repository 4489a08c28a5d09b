# shellcheck shell=sh
# Put the commands of this folder first on PATH:  . @script@
# To undo:  deactivate      Written by Argosy @argosy@, which this script does not need.
# A Python venv that is activated later has its own function deactivate; argosy_deactivate then undoes this script.
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
    [ -z "${argosy_activated-}" ] || argosy_deactivate
    argosy_activated=yes
    argosy_venv=${VIRTUAL_ENV-}
    ARGOSY_ACTIVE=$argosy_dir
    PATH=$ARGOSY_ACTIVE/bin:$PATH
    export ARGOSY_ACTIVE PATH
    if [ -z "${VIRTUAL_ENV_DISABLE_PROMPT-}" ] && [ -n "${PS1-}" ]; then
        argosy_prompt=$PS1
        PS1=@prompt@$PS1
    fi
    argosy_deactivate() {
        # A profile or "module purge" may have reset PATH.
        case :$PATH: in
        *":$ARGOSY_ACTIVE/bin:"*)
            PATH=:$PATH:
            PATH=${PATH%%":$ARGOSY_ACTIVE/bin:"*}:${PATH#*":$ARGOSY_ACTIVE/bin:"}
            PATH=${PATH#:}
            PATH=${PATH%:}
            ;;
        esac
        PS1=${argosy_prompt-${PS1-}}
        # In another venv than before, the function deactivate belongs to that venv.
        [ "${VIRTUAL_ENV-}" != "$argosy_venv" ] || unset -f deactivate 2> /dev/null || :
        unset -v ARGOSY_ACTIVE argosy_activated argosy_prompt argosy_venv
        unset -f argosy_deactivate
        hash -r 2> /dev/null || :
    }
    deactivate() { argosy_deactivate; }
    hash -r 2> /dev/null || :
else
    echo "argosy: cannot find the commands beside this script; the folder may have been moved" >&2
    echo "  -> use bash or zsh, or add the folder's bin to PATH" >&2
fi
unset -v argosy_dir
