# shellcheck shell=sh
# Source this file in your shell:  . tykky.sh      tykky activate NAME|DIR; tykky deactivate      Written by Argosy.
# tykky searches a NAME in the folders of TYKKY_PATH, then in the current folder.
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
            argosy_deactivate
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
case $-:${BASH_VERSION-}${ZSH_VERSION-} in
*i*:?*) [ ! -r @completion@ ] || . @completion@ ;;
esac
