# shellcheck shell=sh
# Start podman-hpc with the umask of this shell.  Arguments: the flags of podman-hpc, `--`, then the options of podman.
# podman-hpc reads no flags of its own after `--`, not even among the program's arguments.
argosy_umask=--umask=$(umask)
for argosy_argument; do
    shift
    set -- "$@" "$argosy_argument"
    [ "$argosy_argument" = -- ] || continue
    set -- "$@" ${argosy_umask:+"$argosy_umask"}
    argosy_umask=
done
exec podman-hpc run "$@"
