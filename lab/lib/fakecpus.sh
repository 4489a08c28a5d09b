# shellcheck shell=bash
# More CPUs and NUMA nodes than this computer has: the preloaded shim, and the files of /sys that describe them.
# It never touches /sys itself: the trees are bound over it inside the machines.

pretended_cpus() { echo $((SOCKETS * CORES * THREADS)); }

# The CPUs this process may use, one a line ("0-3,8" in the kernel's words).
real_cpus() {
  local word
  for word in $(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status | tr , ' '); do seq "${word%-*}" "${word#*-}"; done
}

# Compiled once per version of its source; needs gcc only where CPUs must be pretended.
ensure_shim() {
  local source=$REPO/lab/lib/fakecpus.c path
  path=$LAB/fakecpus-$(sha256sum < "$source" | cut -c1-12).so
  if [ ! -e "$path" ]; then
    require_program gcc gcc
    gcc -O2 -Wall -Wextra -shared -fPIC -o "$path.$$" "$source" || die "cannot compile $source"
    mv "$path.$$" "$path"
  fi
  echo "$path"
}

# /sys/devices/system/cpu and …/node of a machine with $SOCKETS x $CORES x $THREADS CPUs and $NUMA NUMA nodes a socket.
# As Linux counts on such machines: the second threads of all cores come after the first ones.
write_topology() {
  local -a folders
  mapfile -t folders < <(
    seq -f "$1/cpu/cpu%.0f/topology" 0 $(($(pretended_cpus) - 1))
    seq -f "$1/node/node%.0f" 0 $((SOCKETS * NUMA - 1))
  )
  mkdir -p "${folders[@]}"
  awk -v out="$1" -v sockets="$SOCKETS" -v cores="$CORES" -v threads="$THREADS" -v numa="$NUMA" -v memory="$MEMORY" \
    -f "$REPO/lab/lib/topology.awk"
}

# hwloc's words for the same machine, for slurmd.
render_hwloc_synthetic() {
  local core thread indexes=""
  for ((core = 0; core < SOCKETS * CORES; core++)); do
    for ((thread = 0; thread < THREADS; thread++)); do indexes+=,$((core + thread * SOCKETS * CORES)); done
  done
  echo "pack:$SOCKETS core:$CORES pu:$THREADS(indexes=${indexes#,})"
}

# In a machine's root: the shim for every program, also in Apptainer's containers, whose /etc is their own.
install_shim() {
  local root=$1 path
  install -m 644 "$SHIM" "$root/usr/lib/fakecpus.so"
  echo /usr/lib/fakecpus.so > "$root/etc/ld.so.preload"
  { pretended_cpus && real_cpus; } | paste -s -d ' ' > "$root/etc/fakecpus"
  install -d -m 1777 "$root/run/fakecpus"
  bind_into "$root" "$RUN/etc/sys/cpu" /sys/devices/system/cpu ro
  bind_into "$root" "$RUN/etc/sys/node" /sys/devices/system/node ro
  [ ! -e "$root/etc/apptainer/apptainer.conf" ] ||
    for path in /usr/lib/fakecpus.so /etc/ld.so.preload /etc/fakecpus /run/fakecpus; do
      echo "bind path = $path"
    done >> "$root/etc/apptainer/apptainer.conf"
}
