argosy_here=$PWD
case $PWD in @system@) argosy_here="" ;; esac
for argosy_place in "$argosy_here" "${TMPDIR-}" "${HOME-}"; do
    [ -d "$argosy_place" ] || continue
    case $argosy_place in
    /var/tmp | /var/tmp/*) ;;
    @apart@) @place@ ;;
    esac
done
