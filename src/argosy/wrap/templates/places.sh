# shellcheck disable=SC2043 # Argosy fills in the patterns
for argosy_place in @folders@; do
    case $argosy_place in @skipped@) continue ;; esac
    [ ! -d "$argosy_place" ] || @place@
done
