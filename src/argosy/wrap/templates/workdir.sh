case $argosy_start in
@system@) ;;
*) set -- --pwd "$argosy_start" "$@" ;;
esac
