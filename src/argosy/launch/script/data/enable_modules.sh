# shellcheck shell=sh
# A batch job's plain sh may not know the command module; modules fail under 'set -eu'.
enable_modules() {
    set +eu
    # shellcheck disable=SC1091
    command -v module > /dev/null || . /etc/profile
}
