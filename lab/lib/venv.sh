# shellcheck shell=bash
# The Python that runs this checkout inside the lab: a tree with opt/argosy-dev, laid over the root file system.
# Its key is the list of dependencies, so that a changed one does not rebuild the root; it never holds Argosy itself.

readonly VENV=/opt/argosy-dev

project_dependencies() {
  awk '/^dependencies = \[/ { on = 1; next } on && /^\]/ { exit } on { print }' "$REPO/pyproject.toml" |
    sed -n 's/^ *"\([^"]*\)".*/\1/p' | sort
}

# The root's digest is part of the key: its python3 is the interpreter.
venv_path() {
  local key
  key=$(printf '%s\n' "${1##*/}" "$(project_dependencies)" | sha256sum | cut -c1-12)
  echo "$LAB/venv-$key"
}

ensure_venv() {
  local root=$1 path
  path=$(venv_path "$root")
  [ ! -d "$path" ] || return 0
  lock_building
  [ -d "$path" ] || build_venv "$root" "$path"
  unlock_building
}

# Built by the lab's own one-shot machine, at the path where it will be used: a venv holds its own path.
build_venv() {
  local root=$1 path=$2
  local -a packages
  mapfile -t packages < <(project_dependencies)
  say "installing Argosy's ${#packages[@]} dependencies for the lab"
  mkdir -p "$LAB/building/venv$VENV"
  # shellcheck disable=SC2016  # that sh expands its words
  LAB_ROOT=$root LAB_VENV="" run_builder "${path##*/}" "$REPO/lab/in" -u root -w / -b "$LAB/building/venv$VENV:$VENV" -- \
    /bin/sh -euc 'python3 -m venv "$0" && "$0/bin/pip" install --no-cache-dir "$@" && "$0/bin/python" -m compileall -q "$0"' \
    "$VENV" "${packages[@]}"
  mv -T "$LAB/building/venv" "$path"
}
