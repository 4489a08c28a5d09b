case $PWD in
@system@) ;;
*) set -- --pwd "$PWD" "$@" ;;
esac
