# shellcheck shell=bash
# Every machine of the lab gets these in addition to its file systems: names, index settings, this checkout's argosy.
# It writes only below the given root.

readonly LAB_USERS="alice:2001 bob:2002" # made by customize.sh

# The layers of a machine, top first: Argosy's Python (none while that is being built), enroot if it was asked for, the
# root file system.
layers_of() {
  local layer
  # shellcheck disable=SC2153  # LAB_ROOT is the name of its own that callers set
  for layer in "$LAB_VENV" "${LAB_ENROOT:-}" "$LAB_ROOT"; do [ -z "$layer" ] || echo "$layer"; done
}

# enroot is in no package: a folder with a built one is given.
read_enroot() {
  LAB_ENROOT=$(readlink -e "$1") || die "there is no folder $1"
  require_plain_path "$LAB_ENROOT"
  [ -x "$LAB_ENROOT/usr/bin/enroot" ] || die "$1 holds no enroot: there is no $1/usr/bin/enroot"
}

# Folders that a package of enroot and pyxis makes at the start of a machine.
install_enroot() {
  [ -z "${LAB_ENROOT:-}" ] || install -d -m 1777 "$1/run/enroot" "$1/run/pyxis"
}

install_argosy() {
  local root=$1 site
  bind_into "$root" "$REPO" "$REPO"
  [ -n "$LAB_VENV" ] || return 0
  for site in "$root$VENV"/lib/python3.*/site-packages; do echo "$REPO/src" > "$site/argosy.pth"; done
  cat > "$root/usr/local/bin/argosy" << END
#!$VENV/bin/python
import sys

from argosy.cli.__main__ import main

sys.exit(main())
END
  chmod 755 "$root/usr/local/bin/argosy"
}

install_indexes() {
  local root=$1 inside file user home bundle
  while IFS=: read -r inside file; do
    case $inside in
      @home/*)
        for user in root:0 $LAB_USERS; do
          home=$(home_of "${user%:*}")
          install_owned "$user" "$root$home" "${inside#@home/}" "$file"
        done
        ;;
      *) install -D -m 644 "$file" "$root$inside" ;;
    esac
  done < <(index_files)
  bundle=$(certificate_bundle)
  [ -z "$bundle" ] || bind_into "$root" "$(readlink -f "$bundle")" /etc/ssl/certs/ca-certificates.crt ro
  while read -r file; do
    [ "$file" = "$bundle" ] || [ ! -d "$file" ] || [ -d "$root$file" ] || bind_into "$root" "$file" "$file" ro
  done < <(index_folders)
}

# A settings file below a home belongs to the home's owner, the folders on the way too.
install_owned() {
  local uid=${1#*:} home=$2 folder=$3
  local -a folders=()
  install -D -m 644 -o "$uid" -g "$uid" "$4" "$home/$folder"
  while [ "${folder%/*}" != "$folder" ]; do
    folder=${folder%/*}
    folders+=("$home/$folder")
  done
  [ "$uid" = 0 ] || chown "$uid:$uid" "${folders[@]}"
}

home_of() { if [ "$1" = root ]; then echo /root; else echo "/home/$1"; fi; }
