# shellcheck shell=bash disable=SC2034  # the settings are read by other files
# Bring a cluster up: read the options, write what its machines read, start them, wait until Slurm calls all of them idle.

readonly IDLE_SECONDS=120

bring_up() {
  NODES="" SOCKETS=1 CORES=8 THREADS=1 NUMA=1 GPUS=2 MEMORY=16000 RESERVED="" VARIANT=$DEFAULT_VARIANT ACCOUNTING="" LAB_ENROOT="" BINDS="" LINES="" lifeline=""
  PARTITIONS="" DEVICES="" STANDINS="" REQUIRED="" MPIEXEC="" SELECT=CR_Core HOSTS="node%.0f"
  read_up_options "$@"
  pid_of fabric > /dev/null && die "the cluster in $RUN is up already"
  [ -z "$ACCOUNTING" ] || VARIANT=$(recipe_with_database "$VARIANT")
  ROOT=$(root_path "$VARIANT")
  ensure_root "$VARIANT"
  ensure_venv "$ROOT"
  VENV_TREE=$(venv_path "$ROOT")
  SHIM=""
  [ "$(pretended_cpus)" -le "$(real_cpus | wc -l)" ] || SHIM=$(ensure_shim)
  CGROUP=$(choose_cgroup)
  write_run_folder
  sweep_cgroups
  start_fabric "$lifeline"
  for name in $(machines); do start_machine "$name"; done
  wait_until "$IDLE_SECONDS" all_idle || fail_with_logs "not all nodes are idle after $IDLE_SECONDS s"
  compile_checkout
}

# Like an installed program: users cannot write to the folders of its modules, so each start would compile them.
compile_checkout() {
  run_on ctl root / "$VENV/bin/python" -m compileall -q "$REPO/src" > "$RUN/log/compileall.log" 2>&1 || :
}

read_up_options() {
  local count=2
  while [ $# -gt 0 ]; do
    case $1 in
      --accounting) ACCOUNTING=1 && shift && continue ;;
      --bookworm | --sid) VARIANT=${1#--} && shift && continue ;;
      --*) [ $# -ge 2 ] || die "up does not know '$1', or its value is missing; 'lab/cluster' lists the options" ;;&
      --like) read_like "$2" ;;
      --hosts) NODES=${2//,/ } ;;
      --cpus) read_cpus "$2" ;;
      --numa) require_number "$1" "$2" && NUMA=$2 ;;
      --gpus) require_number "$1" "$2" && GPUS=$2 ;;
      --mem) require_number "$1" "$2" && MEMORY=$2 ;;
      --reserved) read_reserved "$2" ;;
      --enroot) read_enroot "$2" ;;
      --bind) read_bind "$2" ;;
      --slurm) LINES+=$2$'\n' ;;
      --lifeline) require_number "$1" "$2" && lifeline=$2 ;;
      [0-9]*) require_number "the number of nodes" "$1" && count=$1 && shift && continue ;;
      *) die "up does not know '$1'; 'lab/cluster' lists the options" ;;
    esac
    shift 2
  done
  [ -n "$NODES" ] || NODES=$(seq -s ' ' -f "$HOSTS" "$count")
  require_shape
}

require_number() {
  case $2 in *[!0-9]* | '') die "$1 takes a number, not '$2'" ;; esac
}

read_cpus() {
  IFS=: read -r SOCKETS CORES THREADS <<< "$1"
  require_number --cpus "$SOCKETS"
  require_number --cpus "$CORES"
  require_number --cpus "$THREADS"
}

read_reserved() {
  case $1 in *[!0-9,-]*) die "--reserved takes core numbers such as 0,8-9, not '$1'" ;; esac
  RESERVED=$1
}

read_bind() {
  local source target mode
  IFS=: read -r source target mode <<< "$1"
  require_plain_path "$source"
  [ -e "$source" ] || die "there is no $source to bind"
  BINDS+=" $source:${target:-$source}:$mode"
}

require_shape() {
  local -a names
  read -ra names <<< "$NODES"
  ((${#names[@]} >= 1 && ${#names[@]} <= 240)) || die "a cluster has 1 to 240 compute nodes, not ${#names[@]}"
  [ $((SOCKETS * CORES * THREADS * NUMA)) -gt 0 ] || die "--cpus and --numa take numbers above 0"
  [ "$(pretended_cpus)" -le 1024 ] || die "the lab pretends at most 1024 CPUs, not $(pretended_cpus)"
  [ $((CORES % NUMA)) = 0 ] || die "$CORES cores do not divide into $NUMA NUMA nodes"
}

write_run_folder() {
  local user uid
  mkdir -p "$RUN"
  # Whatever folder --run names by mistake keeps its files.
  [ -e "$RUN/settings" ] || rmdir "$RUN" || die "$RUN holds something else than a cluster"
  rm -rf --one-file-system "${RUN:?}"/{pid,log,etc,home,shared,settings}
  mkdir -p "$RUN"/{pid,log,etc,home,shared}
  chmod 1777 "$RUN/log" "$RUN/shared"
  for user in $LAB_USERS; do
    uid=${user#*:}
    install -d -m 700 -o "$uid" -g "$uid" "$RUN/home/${user%:*}"
  done
  head -c 128 /dev/urandom > "$RUN/etc/munge.key"
  chmod 400 "$RUN/etc/munge.key"
  for file in hosts slurm.conf gres.conf cgroup.conf slurmdbd.conf job_submit.lua; do
    "render_$(tr . _ <<< "$file")" > "$RUN/etc/$file"
  done
  [ -z "$SHIM" ] || write_topology "$RUN/etc/sys"
  save_settings
}
