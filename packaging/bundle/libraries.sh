#!/bin/sh
# Build the static libraries of Python and of the squashfs tools.
set -eu
. "$(dirname "$0")/common.sh"
mkdir -p "$SYSROOT/lib" "$SYSROOT/include" "$BUILD"

# once NAME: build a library in a process of its own, in which an error ends the build, unless it is built already
once() {
    [ -e "$SYSROOT/.$1" ] && return
    note "$ARCH: $1"
    sh "$0" "$1" > "$BUILD/$1.log" 2>&1 || {
        tail -20 "$BUILD/$1.log" >&2
        die "cannot build $1; the whole output: $BUILD/$1.log"
    }
    touch "$SYSROOT/.$1"
}
configure() { ./configure --host="$HOST" --prefix="$SYSROOT" --libdir="$SYSROOT/lib" --disable-shared --enable-static "$@"; }

build_zlib() {
    cd "$(fresh_source zlib)"
    ./configure --static --prefix="$SYSROOT"
    make -j"$JOBS" libz.a
    make install
}
build_bzip2() {
    cd "$(fresh_source bzip2)"
    make -j"$JOBS" CC="$CC" AR="$AR" RANLIB="$RANLIB" CFLAGS="$CFLAGS -D_FILE_OFFSET_BITS=64" libbz2.a
    cp libbz2.a "$SYSROOT/lib"
    cp bzlib.h "$SYSROOT/include"
}
build_xz() {
    cd "$(fresh_source xz-utils)"
    configure --disable-xz --disable-xzdec --disable-lzmadec --disable-lzmainfo --disable-scripts --disable-doc --disable-nls
    make -j"$JOBS"
    make install
}
build_libffi() {
    cd "$(fresh_source libffi)"
    autoreconf -i # Debian's archive is the repository, without the generated configure
    configure --disable-docs --disable-exec-static-tramp
    make -j"$JOBS"
    make install
}
build_openssl() {
    cd "$(fresh_source openssl)"
    # The folder of certificates is the system's; the command `argosy` of the bundle finds the file of other systems.
    ./Configure "$OPENSSL_TARGET" no-shared no-tests no-apps no-docs no-module no-afalgeng \
        --prefix="$SYSROOT" --libdir=lib --openssldir=/etc/ssl
    make -j"$JOBS" build_libs
    make install_dev
}
build_zstd() {
    cd "$(fresh_source libzstd)/lib"
    make -j"$JOBS" libzstd.a
    cp libzstd.a "$SYSROOT/lib"
    cp zstd.h zdict.h zstd_errors.h "$SYSROOT/include"
}
build_lz4() {
    cd "$(fresh_source lz4)/lib"
    make -j"$JOBS" liblz4.a
    cp liblz4.a "$SYSROOT/lib"
    cp lz4*.h "$SYSROOT/include"
}
build_lzo() {
    cd "$(fresh_source lzo2)"
    configure
    make -j"$JOBS"
    make install
}

if [ $# = 1 ]; then
    "build_$1"
    exit
fi
for library in openssl zlib bzip2 xz libffi zstd lz4 lzo; do once "$library"; done
