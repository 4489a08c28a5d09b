# shellcheck shell=bash
# Put together a machine's file systems in a mount namespace of its own.  It never runs outside one: the callers
# (in-setup, node-setup) are started by unshare with private propagation, so nothing shows up in the machine itself.

# An overlay whose writes go to a tmpfs that ends with the namespace.  $1 = mount point, then the layers, top first.
# The result is at $1/root.
mount_overlay() {
  local place=$1 layers
  shift
  layers=$(IFS=: && echo "$*")
  mount -t tmpfs -o mode=755 lab "$place"
  mkdir "$place/upper" "$place/work" "$place/root"
  mount -t overlay -o "lowerdir=$layers,upperdir=$place/upper,workdir=$place/work" lab "$place/root"
}

# Mount the kernel's file systems, and the folders that are empty in a new machine.
mount_system() {
  local root=$1
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 run "$root/run"
  mount -t tmpfs -o mode=1777 tmp "$root/tmp"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  mkdir "$root/dev/pts" "$root/dev/shm" "$root/run/lock"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  make_devices "$root/dev"
}

make_devices() {
  local word
  for word in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do # fuse: for Apptainer
    make_device "$1" "$word"
  done
  ln -s pts/ptmx "$1/ptmx"
  ln -s /proc/self/fd "$1/fd"
  ln -s fd/0 "$1/stdin"
  ln -s fd/1 "$1/stdout"
  ln -s fd/2 "$1/stderr"
}
make_device() {
  local name major minor
  IFS=: read -r name major minor <<< "$2"
  mknod -m 666 "$1/$name" c "$major" "$minor"
}

# $2 (a folder or file of the host, or of the namespace) at $3 in root $1; a fourth word "ro" makes it read-only.
bind_into() {
  local root=$1 source=$2 target=$1$3
  if [ -d "$source" ]; then
    [ -d "$target" ] || mkdir -p "$target"
  else
    [ -d "${target%/*}" ] || mkdir -p "${target%/*}"
    [ -e "$target" ] || : > "$target"
  fi
  mount --bind "$source" "$target"
  [ "${4:-}" != ro ] || mount -o remount,bind,ro "$target"
  # /root is closed to others in Debian; a checkout below it must be reachable by the lab's users.
  case $3 in /root/*) chmod 755 "$root/root" ;; esac
}

# Make $1 the root of this mount namespace and let go of the machine's own.
enter_root() {
  cd "$1" || exit
  pivot_root . .
  umount -l .
  cd /
}
