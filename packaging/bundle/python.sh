#!/bin/sh
# Build a relocatable CPython that needs nothing but an old glibc: OpenSSL, libffi and the compression libraries are in
# its modules. Modules that Argosy does not use (curses, readline, sqlite3, tkinter, dbm) are left out.
set -eu
. "$(dirname "$0")/common.sh"

python=$STAGE/python
[ -x "$python/bin/python3" ] && exit 0

build_python() {
    cd "$(fresh_source "python$PYTHON_MINOR")"
    # A cross compilation runs parts of the standard library with a Python of the same version: the one for this machine.
    build_python=
    [ "$ARCH" = "$BUILD_ARCH" ] || build_python=--with-build-python=$WORK/$BUILD_ARCH/stage/python/bin/python3
    # These answers need a program to run, which a cross compilation cannot do. glibc has had a correct getaddrinfo since 2.3.
    cross='ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no ac_cv_buggy_getaddrinfo=no'
    absent=
    for module in _curses _curses_panel readline _sqlite3 _tkinter _dbm _gdbm _uuid; do
        absent="$absent py_cv_module_$module=n/a"
    done
    # shellcheck disable=SC2086  # lists of options
    PKG_CONFIG_LIBDIR=$SYSROOT/lib/pkgconfig ./configure --build="$BUILD_ARCH-linux-gnu" --host="$HOST" --prefix="$python" \
        --with-openssl="$SYSROOT" --without-ensurepip --disable-test-modules --without-static-libpython $build_python \
        $cross $absent
    make -j"$JOBS"
    make install
}
if [ $# = 1 ]; then
    "build_$1"
    exit
fi
note "$ARCH: Python"
sh "$0" python > "$BUILD/python.log" 2>&1 || {
    rm -rf "$python"
    tail -30 "$BUILD/python.log" >&2
    die "cannot build Python; the whole output: $BUILD/python.log"
}
