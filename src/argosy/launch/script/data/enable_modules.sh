# shellcheck shell=sh
# The sh of a batch job may not define the command module, and modules fail under 'set -eu'.
enable_modules() {
    set +eu
    # shellcheck disable=SC1091
    command -v module > /dev/null || . /etc/profile
}
