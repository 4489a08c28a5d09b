#!/bin/sh
# Finish a fresh root file system ($1): users, MPI and certificates.  It never downloads; its text is part of the digest.
set -eu
root=$1

for user in alice:2001 bob:2002; do
  chroot "$root" useradd --create-home --user-group --uid "${user#*:}" --shell /bin/bash "${user%:*}"
done

# mpi/pmix opens libpmix.so by this name, which Debian ships in libpmix-dev only.
pmix=$root/usr/lib/x86_64-linux-gnu/pmix2/lib
[ ! -e "$pmix/libpmix.so.2" ] || ln -sf libpmix.so.2 "$pmix/libpmix.so"

# OpenSSL reads cert.pem before its folder of hashes; the machine's own bundle is bound there at run time.
ln -sf /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"

# As root Apptainer asks for every capability there is, and dies where the machine itself (a container, say) lacks one.
conf=$root/etc/apptainer/apptainer.conf
[ ! -e "$conf" ] || sed -i 's/^root default capabilities = .*/root default capabilities = no/' "$conf"

mkdir -p "$root/opt/argosy-dev" "$root/shared"
rm -rf "$root/var/lib/apt/lists" "$root/var/cache/apt"
: > "$root/etc/machine-id"
