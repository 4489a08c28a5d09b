# shellcheck shell=bash
# The cached trees: built in a temporary folder under one lock, renamed when complete, removed when unused.
# It never mounts anything in the machine's own mount namespace.

# Everything below $LAB/building belongs to whoever holds this lock; what is found there is left from a crash.
lock_building() {
  exec {building_lock}> "$LAB/building.lock"
  flock "$building_lock"
  rm -rf --one-file-system "$LAB/building"
  mkdir -p "$LAB/building"
}
unlock_building() {
  rm -rf --one-file-system "$LAB/building"
  exec {building_lock}>&-
}

# Run a builder that dies with this script, in namespaces that take its mounts along; its words go to a log.
run_builder() {
  local log=$LAB/log/$1.log
  shift
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --propagation private -- \
    "$@" < /dev/null > "$log" 2>&1 && return
  say "failed; the end of $log:"
  tail -n 20 "$log" >&2
  exit 1
}

root_path() {
  local digest
  digest=$(recipe_digest "$1") && echo "$LAB/root-$1-$digest"
}

# Not to be called in a command substitution: the builder shall die with this script, not with a subshell.
ensure_root() {
  local variant=$1 path
  path=$(root_path "$variant") || exit 1
  [ ! -d "$path" ] || return 0
  require_program mmdebstrap mmdebstrap
  lock_building
  [ -d "$path" ] || build_root "$variant" "$path"
  unlock_building
}

build_root() {
  local variant=$1 path=$2 mirror suite line
  local -a words=(mmdebstrap --quiet --variant=minbase --mode=root --format=directory)
  mirror=$(find_mirror)
  suite=$(recipe_suite "$variant")
  while read -r line; do words+=(--aptopt="$line"); done < <(recipe_apt_options "$variant" && find_apt_options)
  # With path-exclude=… mmdebstrap starts a Python for each essential package; dpkg takes a blank for the = as well.
  while read -r line; do
    words+=(--dpkgopt="${line/=/ }" --extract-hook="rm -rf \"\$1\"${line#*=}")
  done < <(recipe_dpkg_options)
  words+=(--include="$(recipe_packages "$variant" | tr -s ' \n' ',' | sed 's/,$//')")
  words+=(--customize-hook="$(printf %q "$REPO/lab/lib/customize.sh") \"\$1\"" "$suite" "$LAB/building/root")
  for line in "$suite" $(recipe_extra_suites "$variant"); do words+=("deb $mirror $line main"); done
  say "building $path from $mirror (about a minute)"
  run_builder "${path##*/}" "${words[@]}"
  mv -T "$LAB/building/root" "$path"
}

# A user of a tree holds its lock shared, so that remove_trees leaves it alone.  The descriptor is $tree_lock.
hold_tree() {
  exec {tree_lock}> "$LAB/${1##*/}.lock"
  flock --shared "$tree_lock"
  [ -d "$1" ] || die "$1 was removed a moment ago; start again"
}

remove_trees() {
  local tree kept=0
  lock_building
  for tree in "$LAB"/root-* "$LAB"/venv-*; do
    [ -d "$tree" ] || continue
    if flock --exclusive --nonblock "$LAB/${tree##*/}.lock" rm -rf --one-file-system "$tree"; then
      rm -f "$LAB/${tree##*/}.lock"
    else
      say "$tree is in use and stays"
      kept=1
    fi
  done
  unlock_building
  return "$kept"
}
