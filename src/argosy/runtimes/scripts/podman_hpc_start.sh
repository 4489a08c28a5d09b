# shellcheck shell=sh
# Start podman-hpc with the umask of this shell.  Arguments: the flags of podman-hpc in one argument, then those of podman.
# podman-hpc reads no flags of its own after `--`, not even among the program's arguments.
argosy_flags=$1
shift
# shellcheck disable=SC2086 # none or several flags
exec podman-hpc run $argosy_flags -- --umask="$(umask)" "$@"
