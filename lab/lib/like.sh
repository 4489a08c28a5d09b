# shellcheck shell=bash disable=SC2034,SC2154  # the settings are read by other files
# A cluster of a site's shape: what its profile says of nodes and jobs, and stand-ins for what its nodes have.

# The settings that a profile gives; options of `up` that come after --like replace them.
read_like() {
  local text
  require_program python3 python3
  text=$(python3 "$REPO/lab/lib/like.py" "$1") || exit 1
  eval "$text"
}

render_partitions() {
  if [ -n "$PARTITIONS" ]; then printf '%s\n' "$PARTITIONS" EnforcePartLimits=ALL; else echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"; fi
  [ -z "$REQUIRED" ] || echo JobSubmitPlugins=lua
}

# In a machine's root: the device files, folders and commands of the site, empty where they do nothing here.
install_stand_ins() {
  local root=$1 path
  for path in $DEVICES; do
    if [ "$path" = dri ]; then mkdir -p "$root/dev/dri"; else make_device "$root/dev" "$path:1:3"; fi
  done
  for path in $STANDINS; do
    [ -e "$root$path" ] || case $path in
      *.so | *.so.*) mkdir -p "$root${path%/*}" && : > "$root$path" ;;
      *) mkdir -p "$root$path" ;;
    esac
  done
  install_module "$root"
}

# `module` as a function of login shells, for bash only, as some sites have it.  It prints its arguments; loading brings
# the host's mpiexec.
install_module() {
  cat > "$1/etc/profile.d/lab-module.sh" << END
module() {
  echo "module \$*" >&2
  [ "\$1" != load ] || [ -z "$MPIEXEC" ] || PATH=/opt/lab-modules/bin:\$PATH
}
export -f module
END
  mkdir -p "$1/opt/lab-modules/bin"
  [ -n "$MPIEXEC" ] || return 0
  # No link: hydra searches its helpers next to the path that started it.
  printf '#!/bin/sh\nexec /usr/bin/mpiexec.%s "$@"\n' "$MPIEXEC" > "$1/opt/lab-modules/bin/mpiexec"
  chmod 755 "$1/opt/lab-modules/bin/mpiexec"
}

# Refuse a job without the options that the site demands: Slurm's own plug-in, on the controller, as sites have it.
render_job_submit_lua() {
  echo "local demanded = \"$REQUIRED\""
  cat << 'END'
local function given(job)
  return {
    account = job.account, qos = job.qos, partition = job.partition,
    time = job.time_limit ~= slurm.NO_VAL and job.time_limit or nil,
  }
end
function slurm_job_submit(job, partitions, user)
  local has = given(job)
  for option in demanded:gmatch("%S+") do
    if has[option] == nil or has[option] == "" then
      slurm.log_user("this site demands --" .. option)
      return slurm.ERROR
    end
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, user) return slurm.SUCCESS end
END
}
