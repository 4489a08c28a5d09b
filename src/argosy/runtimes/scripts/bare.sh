# shellcheck shell=sh
# No container. Arguments: FOLDER PREFIX, then the command. Programs of PREFIX come first on PATH.
[ -z "$1" ] || cd -- "$1" || exit 125
if [ -n "$2" ]; then
    [ -x "$2/bin/python" ] || {
        printf "argosy: there is no %s/bin/python\n" "$2" >&2
        exit 6
    }
    unset PYTHONHOME
    PATH=$2/bin:$PATH
    if [ -e "$2/pyvenv.cfg" ]; then export PATH VIRTUAL_ENV="$2"; else export PATH CONDA_PREFIX="$2"; fi
fi
shift 2
exec "$@"
