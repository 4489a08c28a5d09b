# shellcheck shell=sh
# Arguments: FD WORKDIR LIBRARIES, count and VARIABLES, the command.
# sh reads a variable, or closes a descriptor, by a computed name with eval only. FD is a digit, and Argosy checks names.
eval "exec $1>&-"
cd -- "$2" 2> /dev/null || {
    printf "argosy: the container has no directory %s\n" "$2" >&2
    exit 125
}
argosy_libraries=$3 argosy_count=$4
shift 4
# shellcheck disable=SC2123
PATH=@DEFAULT_PATH@
export PATH
argosy_environment() {
    # shellcheck disable=SC1090
    for argosy_script in /.singularity.d/env/*.sh; do [ ! -r "$argosy_script" ] || . "$argosy_script"; done
}
argosy_environment
if [ -n "$argosy_libraries" ]; then
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$argosy_libraries"
fi
while [ "$argosy_count" -gt 0 ]; do
    case $1 in
        *=*) export "${1?}" ;;
        *)
            eval "export $1=\"\$ARGOSYENV_$1\""
            unset -v "ARGOSYENV_$1"
            ;;
    esac
    shift
    argosy_count=$((argosy_count - 1))
done
unset -v argosy_libraries argosy_count argosy_script
exec "$@"
