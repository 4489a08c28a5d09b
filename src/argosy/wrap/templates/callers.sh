# Mount nothing over the commands, and keep the runtime from mounting the current directory there.
# shellcheck disable=SC3013
if [ "$argosy_start" != "$PWD" ] || [ . -ef "$argosy_prefix" ] || [ . -ef "$argosy_prefix/bin" ]; then
    set -- --no-mount cwd "$@"
else
    case $PWD in
    @system@) ;;
    *) [ ! -d "$PWD" ] || @here@ ;;
    esac
fi
for argosy_place in "${TMPDIR-}" "${HOME-}"; do
    case $argosy_place in "" | /) continue ;; esac
    [ ! -d "$argosy_place" ] || @place@
done
