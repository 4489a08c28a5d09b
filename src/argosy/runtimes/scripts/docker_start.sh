# shellcheck shell=sh
# Start docker; the arguments are options of docker run. Variables of ranks and of the network are passed by name.
# Groups, limits and umask are those of this shell: without the options, the daemon uses its own.
for name in $(env | sed -nE "s/^((@PREFIXES@)[A-Za-z0-9_]*)=.*/\1/p
    s/^(@NAMES@)=.*/\1/p"); do
    set -- --env "$name" "$@"
done
for group in $(id -G); do set -- --group-add "$group" "$@"; done
limit() { sed -n "s/unlimited/-1/g; s/^Max $1 *\([^ ]*\) *\([^ ]*\).*/$2=\1:\2/p" /proc/self/limits; }
[ ! -t 0 ] || [ ! -t 1 ] || [ ! -t 2 ] || set -- --tty "$@"
set -- --ulimit "$(limit 'core file size' core)" --ulimit "$(limit 'locked memory' memlock)" "$@"
set -- --ulimit "$(limit 'open files' nofile)" --ulimit "$(limit processes nproc)" "$@"
exec docker run --ulimit "$(limit 'stack size' stack)" --env ARGOSY_UMASK="$(umask)" "$@"
