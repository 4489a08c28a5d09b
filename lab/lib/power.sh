# shellcheck shell=bash
# Switch a cluster and its machines on and off, pull and plug their network. Other files define their contents.

# Generous: the computer may be busy with other tests.
readonly POWER_SECONDS=60
handed_on=() # NAME=VALUE words for run_on

# $1 is the descriptor of --lifeline, if any.
start_fabric() {
  local lifeline=$1
  setsid env -i PATH="$LAB_PATH" ARGOSY_LAB="$LAB" \
    unshare --mount --net --pid --ipc --fork --kill-child --propagation private -- \
    /bin/bash "$REPO/lab/lib/fabric" "$RUN" "$lifeline" < /dev/null > "$RUN/log/fabric.log" 2>&1 &
  disown
  wait_until "$POWER_SECONDS" pid_of fabric > /dev/null || fail_with_logs "the fabric did not start"
}

start_machine() {
  local name=$1 fabric group
  pid_of "$name" > /dev/null && die "$name is up already"
  fabric=$(pid_of fabric) || die "the cluster in $RUN is down"
  group=$(machine_cgroup "$name")
  (
    join_cgroup "$group"
    # Descriptor 9 carries the fabric's network into the machine's namespaces, for its end of the cable.
    exec setsid nsenter -t "$fabric" -m -n -i -p -- env ARGOSY_LAB="$LAB" \
      unshare --mount --net --pid --ipc --uts --cgroup --fork --propagation private -- \
      /bin/bash "$REPO/lab/lib/node-setup" "$RUN" "$name" 9< "/proc/$fabric/ns/net"
  ) < /dev/null > "$RUN/log/$name.log" 2>&1 &
  disown
  wait_until "$POWER_SECONDS" pid_of "$name" > /dev/null || fail_with_logs "$name did not start"
}

# Power off: everything on it dies at once, as when a node's mains fail.
kill_machine() {
  local pid
  pid=$(pid_of "$1") || die "$1 is down already"
  power_off "$1" "$pid"
}

# power_off MACHINE PID.  The process may be dying already, after a crash or a signal of somebody else.
power_off() {
  local group
  group=$(machine_cgroup "${1#fabric}")
  kill -s KILL "$2" 2> /dev/null || :
  wait_until "$POWER_SECONDS" is_down "$1" "$group" || die "$1 (process $2) does not die"
}

is_down() {
  thaw_cgroups "$2"
  ! pid_of "$1" > /dev/null
}

# $1 = up or down.  The process tables go on: this is the split brain of a failed switch.
set_link() {
  local fabric
  fabric=$(pid_of fabric) || die "the cluster in $RUN is down"
  nsenter -t "$fabric" -n ip link set "$(cable_of "$2")" "$1"
}

# An interface's name is short (15 characters), a host's need not be.
cable_of() {
  local address
  address=$(address_of "$1")
  echo "cable${address##*.}"
}

all_idle() {
  local words
  read -ra words <<< "$NODES"
  [ "$(run_on ctl root / sinfo --noheader --Node --states=idle --format=%N 2> /dev/null | sort -u | wc -l)" = "${#words[@]}" ]
}

fail_with_logs() {
  say "$1; the ends of the logs and the processes of the cluster:"
  tail -n 5 "$RUN"/log/*.log >&2 || :
  ps -eo pid,ppid,stat,wchan:24,args | awk -v run="$RUN" 'index($0, run)' >&2
  stop_cluster
  exit 1
}

# One kill: the kernel ends every process, mount and cable of the fabric's namespaces.  Right after a crash as well.
stop_cluster() {
  local pid
  [ -r "$RUN/pid/fabric" ] || return 0
  if pid=$(pid_of fabric); then power_off fabric "$pid"; fi
  wait_until "$POWER_SECONDS" remove_cgroups "$(machine_cgroup)" || die "$(machine_cgroup) stays in use"
  rm -rf "$RUN/pid"
}

# run_on MACHINE USER FOLDER COMMAND…, in a clean environment plus ${handed_on[@]}; the words to start are in ${entry[@]}.
run_on() {
  enter_words "$@"
  "${entry[@]}"
}

enter_words() {
  local machine=$1 user=$2 folder=$3 pid home
  shift 3
  pid=$(pid_of "$machine") || die "$machine is down"
  home=$(home_of "$user")
  entry=(nsenter -t "$pid" -m -u -i -n -p -C -W "$folder" -- env -i PATH="$LAB_PATH" LANG=C.UTF-8 TERM="${TERM:-dumb}"
    HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash "${handed_on[@]}"
    setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps=-all --pdeathsig KILL -- "$@")
}
