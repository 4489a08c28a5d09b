# shellcheck shell=bash
# A cluster's record: its folder $RUN, its settings, its machines and whether they live.  It starts and ends nothing.
#
#   $RUN/settings   what `up` was given        $RUN/pid/NAME   "PID BIRTH" of the first process of a machine
#   $RUN/etc        files every machine gets  $RUN/log        logs of the machines and of Slurm
#   $RUN/home, $RUN/shared   the parallel file system (/home and /shared in every machine)

# Private addresses, known only inside the clusters' own network namespaces: every cluster has the same.
readonly NETWORK=10.77.0

readonly SETTINGS="NODES SOCKETS CORES THREADS NUMA GPUS MEMORY RESERVED VARIANT ACCOUNTING ROOT VENV_TREE LAB_ENROOT SHIM CGROUP BINDS LINES PARTITIONS DEVICES STANDINS REQUIRED MPIEXEC SELECT"

save_settings() {
  local name
  for name in $SETTINGS; do printf '%s=%q\n' "$name" "${!name}"; done > "$RUN/settings"
}

load_settings() {
  [ -r "$RUN/settings" ] || die "there is no cluster in $RUN: start one with lab/cluster up"
  # shellcheck disable=SC1091  # written by save_settings
  . "$RUN/settings"
  # shellcheck disable=SC2034  # the names that guest.sh knows
  LAB_ROOT=$ROOT LAB_VENV=$VENV_TREE
}

machines() { echo ctl "$NODES"; }

require_machine_name() {
  case " $(machines) " in
    *" $1 "*) ;;
    *) die "there is no machine '$1'; there are: $(machines)" ;;
  esac
}

address_of() {
  local name count=10
  [ "$1" != ctl ] || { echo "$NETWORK.1" && return; }
  for name in $NODES; do
    count=$((count + 1))
    [ "$name" != "$1" ] || echo "$NETWORK.$count"
  done
}

# When a process was born, in clock ticks since boot: tells a recycled pid from the recorded one.  Zombies do not count.
birth_of() {
  local line
  read -r line 2> /dev/null < "/proc/$1/stat" || return 0
  # shellcheck disable=SC2086  # the fields after the name, which alone may hold blanks
  set -- ${line##*) }
  [ "$1" = Z ] || echo "${20}"
}

# To be called by a machine's first process while /proc is still the one of this computer.
record_pid() {
  local pid
  read -r pid _ < /proc/self/stat
  echo "$pid $(birth_of "$pid")" > "$RUN/pid/.$1"
  mv "$RUN/pid/.$1" "$RUN/pid/$1"
}

pid_of() {
  local pid birth
  read -r pid birth 2> /dev/null < "$RUN/pid/$1" || return 1
  [ -n "$birth" ] && [ "$(birth_of "$pid")" = "$birth" ] && echo "$pid"
}

# wait_until SECONDS COMMAND…: ask every 50 ms.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}
