# shellcheck shell=sh
# Start enroot; the arguments are those of enroot start. Variables of ranks, GPUs and the network are passed by name.
for name in $(env | sed -nE "s/^((@PREFIXES@)[A-Za-z0-9_]*)=.*/\1/p
    s/^(@NAMES@|HOME|USER|LOGNAME)=.*/\1/p"); do
    set -- --env "$name" "$@"
done
# By default enroot starts a login shell, which reads the profile in the mounted home.
ENROOT_LOGIN_SHELL=no
export ENROOT_LOGIN_SHELL
exec enroot start "$@"
