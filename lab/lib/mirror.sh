# shellcheck shell=bash
# Which Debian mirror this machine's apt uses, and with which download options.  It never writes and never downloads.

readonly DEFAULT_MIRROR=http://deb.debian.org/debian

# apt itself reads its sources (both formats); the entry of this Debian's own suite is the mirror.
find_mirror() {
  local codename
  if [ -n "${ARGOSY_LAB_MIRROR:-}" ]; then
    echo "$ARGOSY_LAB_MIRROR"
    return
  fi
  # shellcheck disable=SC2016  # apt expands the $(…) words
  codename=$(os_release ID VERSION_CODENAME) &&
    [ "${codename% *}" = debian ] &&
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2> /dev/null |
    awk -v suite="${codename#* }" -v usual="$DEFAULT_MIRROR" '
      $2 == suite && $3 == "main" && !found { sub("/$", "", $1); print $1; found = 1 }
      END { if (!found) print usual }' || echo "$DEFAULT_MIRROR"
}

os_release() { (
  # shellcheck disable=SC1091
  . /etc/os-release && echo "${!1:-} ${!2:-}"
); }

# A frozen mirror needs Check-Valid-Until, a closed network its proxy: the options of apt apply to the lab, too.
find_apt_options() {
  apt-config dump 2> /dev/null |
    grep -E '^Acquire::(Check-Valid-Until|Check-Date|https?::(Proxy|CAInfo|Verify-Peer)) ' |
    sed 's/;$//' || :
}
