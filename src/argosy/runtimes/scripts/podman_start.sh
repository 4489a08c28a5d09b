# shellcheck shell=sh
# Start podman with the umask and limits of this shell; the arguments are options of podman run.
# Without the options, podman raises both limits.
limit() { sed -n "s/^Max $1 *[^ ]* *\([^ ]*\).*/\1/p" /proc/self/limits; }
[ ! -t 0 ] || [ ! -t 1 ] || [ ! -t 2 ] || set -- --tty "$@"
processes=$(limit processes) most=$(cat /proc/sys/kernel/pid_max)
[ "$processes" != unlimited ] && [ "$processes" -le "$most" ] || processes=$most
# The first podman of a user creates the user namespace and runs in a child.  podman 4.3 may end on SIGTERM or SIGINT
# before it passes the signal on, and the container stays.  A later podman joins the namespace and has no such parent.
[ "$(id -u)" = 0 ] || [ -e "${XDG_RUNTIME_DIR:-}/libpod/tmp/pause.pid" ] || podman unshare true > /dev/null 2>&1 || :
exec podman run --umask="$(umask)" --ulimit="nofile=$(limit 'open files')" --ulimit="nproc=$processes" "$@"
