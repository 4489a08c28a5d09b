#!/bin/sh
# Run a user's script by its first line, whether it is executable or not.
#   $1 folder   the folder to run it in
#   $2 script   the script
#   $3 before   a line of shell to run first
# A script without a "#!" line ends at the first command that fails.
eval "$3"
cd "$1" || exit 1
IFS= read -r argosy_first < "$2"
case $argosy_first in
"#!"*)
    [ ! -x "$2" ] || exec "$2"
    set -f
    # shellcheck disable=SC2086 # the first line may hold an option
    exec ${argosy_first#??} "$2"
    ;;
esac
! command -v bash > /dev/null || exec bash -e "$2"
exec /bin/sh -e "$2"
