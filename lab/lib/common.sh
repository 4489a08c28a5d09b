# shellcheck shell=bash
# What every lab program shares: where things are and how it stops.  It never changes the machine.

REPO=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd -P)
LAB=${ARGOSY_LAB:-/var/tmp/argosy-lab}
LAB_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
readonly REPO LAB LAB_PATH
export PATH=$LAB_PATH LC_ALL=C.UTF-8

say() { printf '%s\n' "${0##*/}: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# Bind mounts shadow what is below their target, and some mount options have no escape for these characters.
require_plain_path() {
  case $1 in
    /*[[:space:],:\\]* | [!/]* | '') die "a path of the lab must be absolute, without blank, comma, colon or backslash: '$1'" ;;
  esac
}

# The checkout is bound as a whole and is in no list of mount options: only a variable like PYTHONPATH splits its path.
require_checkout_path() {
  case $1 in
    *[:\\]* | *$'\n'*) die "a checkout's path must be without colon, backslash and line break: '$1'" ;;
  esac
}

require_program() {
  command -v "$1" > /dev/null || die "$1 is missing: apt-get install $2"
}

# One line that says what is missing beats a failure in the middle.
require_machine() {
  [ "$(id -u)" = 0 ] || die "the lab needs root (it mounts file systems and makes namespaces)"
  require_program unshare util-linux
  require_program flock util-linux
  require_program setpriv util-linux
  require_plain_path "$LAB"
  require_checkout_path "$REPO"
  mkdir -p "$LAB/log" "$LAB/mnt"
}
