#!/bin/sh
# Join the base and a writable layer into the root file system of a new mount namespace, then start bubblewrap in it.
#   $1 scratch   an empty folder; everything is mounted below it
#   $2 image     the file with the base's squashfs, which begins at byte $3
#   $4 tree      the unpacked base; empty to mount the image
#   $5 changes   folder that keeps what programs change; empty to discard changes
#   the rest     arguments of bubblewrap
# Exit codes: 97 the base cannot be mounted here and must be unpacked first; 98 another mount failed.
scratch=$1 image=$2 offset=$3 tree=$4 changes=$5; shift 5
mount -t tmpfs -o mode=755 argosy "$scratch" && cd "$scratch" && mkdir -p lower names/etc up work root || exit 98
if [ -n "$tree" ]; then
    mount --bind "$tree" lower || exit 98
else
    mount -t squashfs -o "loop,ro,offset=$offset" "$image" lower 2>/dev/null ||
        squashfuse -o "offset=$offset" "$image" lower 2>/dev/null || exit 97
fi
# Copies of the machine's resolver files form a layer of their own: in the base they may be dangling links.
for name in resolv.conf hosts; do
    [ ! -r "/etc/$name" ] || cat "/etc/$name" > "names/etc/$name"
done
# Kept changes lie in a folder on disk.
[ -z "$changes" ] || { rmdir up work && ln -s "$changes/up" up && ln -s "$changes/work" work; } || exit 98
layers=lowerdir=names:lower,upperdir=up,workdir=work
mount -t overlay -o "$layers,userxattr" argosy root 2>/dev/null || fuse-overlayfs -o "$layers" root || exit 98
# The namespace has only one user: a seccomp filter reports success for every chown.
[ -z "$changes" ] || [ ! -r "$changes/owners.bpf" ] || { exec 9<"$changes/owners.bpf" && set -- --seccomp 9 "$@"; }
exec bwrap --bind "$scratch/root" / "$@"
