# shellcheck shell=bash
# Render Slurm's configuration from the settings.  It writes nothing: the caller puts the text where it belongs.

# Lines of --slurm replace a default of the same name; Slurm itself complains about a name given twice.
render_slurm_conf() {
  {
    render_defaults
    [ -z "$ACCOUNTING" ] || render_accounting
    printf '%s\n' "$LINES"
    render_nodes
  } | awk '
    { key = $0; sub(/=.*/, "", key) }
    key == "NodeName" || key == "PartitionName" || !(key in value) { order[++count] = $0; value[key] = count; next }
    { order[value[key]] = $0 }
    END { for (i = 1; i <= count; i++) if (order[i] != "") print order[i] }'
}

# The comments stay here: the rendered file is for Slurm.
render_defaults() {
  cat << 'END'
ClusterName=lab
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/lab/slurmctld.log
SlurmdLogFile=/var/log/lab/slurmd.%h.log
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
JobRequeue=1
END
  echo "SelectTypeParameters=$SELECT"
  # As real sites track processes; linuxproc would signal every descendant, FUSE daemons included.
  echo ProctrackType=proctrack/cgroup
  # Also the time a requeued job must wait before it may start again, 120 s by default.
  echo AuthInfo=cred_expire=5
  # Believe this file about CPUs and memory, not the hardware.
  echo SlurmdParameters=config_overrides
  # Nodes fail and jobs end in seconds; below 10 s a busy computer makes false node failures.
  printf '%s\n' SlurmdTimeout=20 MessageTimeout=10 KillWait=3
  # Schedule at once, not every 30 s; finished jobs stay visible for the tests.
  printf '%s\n' SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0 MinJobAge=3600
  render_partitions
}

render_accounting() {
  printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=ctl AccountingStorageTRES=gres/gpu
}

render_nodes() {
  echo "NodeName=${NODES// /,} CPUs=$((SOCKETS * CORES * THREADS)) Boards=1 SocketsPerBoard=$SOCKETS" \
    "CoresPerSocket=$CORES ThreadsPerCore=$THREADS RealMemory=$MEMORY Gres=gpu:$GPUS State=UNKNOWN" \
    "${RESERVED:+CpuSpecList=$(abstract_cpus)}"
}

# Slurm counts CPUs core by core whatever Linux calls them (man slurm.conf, CpuSpecList: "abstract CPU IDs").
abstract_cpus() {
  local word core
  for word in ${RESERVED//,/ }; do
    for core in $(seq "${word%-*}" "${word#*-}"); do seq $((core * THREADS)) $((core * THREADS + THREADS - 1)); done
  done | paste -s -d ,
}

render_gres_conf() {
  [ "$GPUS" = 0 ] || echo "Name=gpu File=/dev/nvidia[0-$((GPUS - 1))]"
}

render_cgroup_conf() {
  echo "CgroupPlugin=cgroup/$CGROUP"
  [ "$CGROUP" != v2 ] || echo IgnoreSystemd=yes
}

render_slurmdbd_conf() {
  printf '%s\n' AuthType=auth/munge DbdHost=ctl SlurmUser=slurm StorageType=accounting_storage/mysql \
    StorageHost=localhost StorageUser=slurm StorageLoc=slurm_acct_db \
    LogFile=/var/log/lab/slurmdbd.log PidFile=/run/slurmdbd.pid
}

# The whole network: real machines have a resolver, here a name server would only cost its timeout.
render_hosts() {
  local name
  echo 127.0.0.1 localhost
  for name in $(machines); do echo "$(address_of "$name") $name"; done
}
