# shellcheck shell=bash
# The control groups Slurm tracks processes by: one per machine, below the caller's own, named by the fabric's pid.
# It sets no limit and touches no group but those it made.

# v1 where the freezer hierarchy is mounted (Slurm 22.05's v1 plug-in and 24.11's both work by it), else v2.
choose_cgroup() {
  if [ -n "${ARGOSY_LAB_CGROUP:-}" ]; then
    echo "$ARGOSY_LAB_CGROUP"
  elif cgroup_mount v1 > /dev/null; then
    echo v1
  else
    echo v2
  fi
}

cgroup_mount() {
  awk -v version="$1" '
    version == "v1" && $3 == "cgroup" && $4 ~ /(^|,)freezer(,|$)/ || version == "v2" && $3 == "cgroup2" { print $2; found = 1; exit }
    END { exit !found }' /proc/self/mounts
}

# Our own group, as a folder: nothing is taken out of a group that somebody put us into.
cgroup_home() {
  local mount path
  mount=$(cgroup_mount "$CGROUP") || die "no cgroup $CGROUP hierarchy is mounted here, and Slurm tracks processes by one"
  path=$(awk -F: -v version="$CGROUP" '
    version == "v1" && $2 ~ /(^|,)freezer(,|$)/ || version == "v2" && $1 == "0" { print $3 }' /proc/self/cgroup)
  echo "$mount${path%/}"
}

# Of machine $1, or of the whole cluster.
machine_cgroup() {
  local fabric
  read -r fabric _ < "$RUN/pid/fabric"
  echo "$(cgroup_home)/argosy-lab-$fabric${1:+/$1}"
}

join_cgroup() {
  mkdir -p "$1"
  echo 0 > "$1/cgroup.procs"
}

# In the machine: its own group is the root of what it sees.
mount_cgroup() {
  if [ "$CGROUP" = v2 ]; then
    mount -t cgroup2 cgroup "$1/sys/fs/cgroup"
    return
  fi
  mount -t tmpfs -o mode=755 cgroup "$1/sys/fs/cgroup"
  mkdir "$1/sys/fs/cgroup/freezer"
  mount -t cgroup -o freezer freezer "$1/sys/fs/cgroup/freezer"
}

# A process that Slurm has frozen (v1) ignores even SIGKILL.
thaw_cgroups() {
  find "$1" -name freezer.state 2> /dev/null | while read -r file; do echo THAWED > "$file"; done 2> /dev/null || :
}

# Groups empty a moment after their processes are gone; children go before parents.
remove_cgroups() {
  find "$1" -depth -type d -exec rmdir {} \; 2> /dev/null
  [ ! -d "$1" ]
}

# Groups of fabrics that are gone, crashed ones included.
sweep_cgroups() {
  local group
  for group in "$(cgroup_home)"/argosy-lab-*; do
    [ ! -d "$group" ] || [ -e "/proc/${group##*-}" ] || remove_cgroups "$group" || :
  done
}
