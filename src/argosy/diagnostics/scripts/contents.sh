# shellcheck shell=sh
say() { printf "argosy:%s\n" "$1=$2"; }
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null | tr -dc 0-9.)"
say entry "$([ -x /opt/argosy/enter ] && echo yes || echo no)"
for name in mpirun mpiexec; do ! command -v "$name" >/dev/null || say mpi "$("$name" --version 2>&1 | head -n 1)"; done
[ ! -d /opt/argosy/env ] || set -- "$@" /opt/argosy/env/lib
for pair in libfabric:libfabric.so plugin:libnccl-net plugin:librccl-net plugin:libaws-ofi \
    mpilib:libmpi.so openmpi:libmpi.so.40 mpich:libmpi.so.12 mpich:libmpich.so.12; do
    found=$(find /usr /opt /lib "$@" -xdev -name "${pair#*:}*" -print -quit 2>/dev/null)
    [ -z "$found" ] || say "${pair%%:*}" "$found"
done
for python in python python3; do
    command -v "$python" >/dev/null || continue
    say mpi4py "$("$python" -I -c 'import importlib.util as u; print("yes" if u.find_spec("mpi4py") else "")')"
    say torch "$("$python" -I -c "@ASK_TORCH@" | tail -n 1)"
    break
done
say end yes
