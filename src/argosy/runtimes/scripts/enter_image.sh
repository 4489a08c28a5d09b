# shellcheck shell=sh
# In the container. Arguments: LIBRARIES, count and VARIABLES, then the command. The image's environment comes first.
argosy_libraries=$1 argosy_count=$2
shift 2
# shellcheck disable=SC2123
PATH=@DEFAULT_PATH@
export PATH
argosy_environment() {
    # shellcheck disable=SC1090
    for argosy_script in /.singularity.d/env/*.sh; do [ ! -r "$argosy_script" ] || . "$argosy_script"; done
}
argosy_environment
# As Apptainer does: an image may set a search path without the usual folders.
argosy_path=@DEFAULT_PATH@:
while [ -n "$argosy_path" ]; do
    case ":$PATH:" in *":${argosy_path%%:*}:"*) ;; *) PATH=$PATH:${argosy_path%%:*} ;; esac
    argosy_path=${argosy_path#*:}
done
if [ -n "$argosy_libraries" ]; then
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$argosy_libraries"
fi
while [ "$argosy_count" -gt 0 ]; do
    case $1 in
        *=*) export "${1?}" ;;
        # sh reads a variable by a computed name with eval only. Argosy checks the names.
        *)
            eval "export $1=\"\$ARGOSYENV_$1\""
            unset -v "ARGOSYENV_$1"
            ;;
    esac
    shift
    argosy_count=$((argosy_count - 1))
done
unset -v argosy_libraries argosy_count argosy_script argosy_path
exec "$@"
