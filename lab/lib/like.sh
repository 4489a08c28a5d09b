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
  case " $REQUIRED " in *" time "*) echo JobSubmitPlugins=require_timelimit ;; esac
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
  [ -z "$REQUIRED" ] || install_sbatch "$root"
}

# `module` as a function of login shells, as sites have it.  It says what it was told; loading brings the host's mpiexec.
install_module() {
  cat > "$1/etc/profile.d/lab-module.sh" << END
module() {
  echo "module \$*" >&2
  [ "\$1" != load ] || [ -z "$MPIEXEC" ] || PATH=/opt/lab-modules/bin:\$PATH
}
END
  mkdir -p "$1/opt/lab-modules/bin"
  [ -n "$MPIEXEC" ] || return 0
  # No link: hydra looks for its helpers beside the name that it was started by.
  printf '#!/bin/sh\nexec /usr/bin/mpiexec.%s "$@"\n' "$MPIEXEC" > "$1/opt/lab-modules/bin/mpiexec"
  chmod 755 "$1/opt/lab-modules/bin/mpiexec"
}

# Refuse a job without the options that the site demands, as its job_submit plug-in does there.
install_sbatch() {
  cat > "$1/usr/local/bin/sbatch" << END
#!/bin/sh
# Stand-in of a site's job_submit plug-in: these options must be named, by a word or a line of the script.
for option in $REQUIRED; do
  case " \$* " in *" --\$option="* | *" --\$option "*) continue ;; esac
  for word; do [ ! -f "\$word" ] || ! grep -q "^#SBATCH --\$option=" "\$word" || continue 2; done
  echo "sbatch: error: this site demands --\$option" >&2 && exit 1
done
exec /usr/bin/sbatch "\$@"
END
  chmod 755 "$1/usr/local/bin/sbatch"
}
