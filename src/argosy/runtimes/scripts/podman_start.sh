# shellcheck shell=sh
# Start podman with the umask and limits of this shell; the arguments are options of podman run.
# Without the options, podman raises both limits.
limit() { sed -n "s/^Max $1 *[^ ]* *\([^ ]*\).*/\1/p" /proc/self/limits; }
[ ! -t 0 ] || [ ! -t 1 ] || [ ! -t 2 ] || set -- --tty "$@"
processes=$(limit processes) most=$(cat /proc/sys/kernel/pid_max)
[ "$processes" != unlimited ] && [ "$processes" -le "$most" ] || processes=$most
exec podman run --umask="$(umask)" --ulimit="nofile=$(limit 'open files')" --ulimit="nproc=$processes" "$@"
