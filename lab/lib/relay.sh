# shellcheck shell=bash
# Run a command as a child and be transparent: signals go to it, its exit code comes back.  It knows nothing of the lab.

readonly RELAYED_SIGNALS="HUP INT QUIT TERM USR1 USR2 CONT"

# run_relaying TARGET CMD…: TARGET is a function that is given the child's pid and a signal's name.
# The child reads this script's standard input and starts with default signals (bash would have it ignore INT and QUIT).
run_relaying() {
  local target=$1 child code=0 name
  shift
  env --default-signal "$@" <&0 &
  child=$!
  # shellcheck disable=SC2064  # the words are meant to be expanded now
  for name in $RELAYED_SIGNALS; do trap "relayed=1; $target $child $name" "$name"; done
  while :; do
    relayed=""
    wait "$child" && code=0 || code=$?
    [ -n "$relayed" ] || return "$code"
  done
}

to_child() { kill -s "$2" "$1" 2> /dev/null || :; }

# The child is nsenter, which waits for the command and passes nothing on.
to_only_child() {
  local first
  read -r first < "/proc/$1/task/$1/children" || : # the line has no end
  to_child "${first:-$1}" "$2"
} 2> /dev/null

# The child is unshare, which lets no signal through; the namespace's first process is its only child.
# Until that one has a handler the kernel keeps signals from it, so the whole namespace ends instead.
to_namespace() {
  local first mask
  read -r first < "/proc/$1/task/$1/children" || : # the line has no end
  mask=$(sed -n 's/^SigCgt:\t/0x/p' "/proc/${first:-self}/status")
  if [ -n "$first" ] && ((mask >> ($(kill -l "$2") - 1) & 1)); then
    kill -s "$2" "$first" || :
  else
    kill -s KILL "$1" || :
    wait "$1" || :
    exit $((128 + $(kill -l "$2")))
  fi 2> /dev/null
}
