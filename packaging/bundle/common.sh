# shellcheck shell=sh
# Settings of all parts of the bundle's build. Each part is started by ./build, which exports ARCH and WORK.
# shellcheck disable=SC2034  # the variables are for the parts

# The oldest C library that the bundle runs with: that of RHEL 7. Only py-rattler for aarch64 needs 2.28, that of RHEL 8.
GLIBC=2.17
PYTHON_MINOR=3.13

die() {
    echo "bundle: $*" >&2
    exit 1
}
note() { echo "bundle: $*" >&2; }

case $ARCH in
    x86_64) OPENSSL_TARGET=linux-x86_64 DEBIAN_ARCH=amd64 ;;
    aarch64) OPENSSL_TARGET=linux-aarch64 DEBIAN_ARCH=arm64 ;;
    *) die "unknown architecture '$ARCH'; use x86_64 or aarch64" ;;
esac
BUILD_ARCH=$(uname -m)
HOST=$ARCH-linux-gnu
SOURCES=$WORK/sources
TOOLCHAIN=$WORK/toolchain
SYSROOT=$WORK/$ARCH/sysroot # static libraries and their headers
BUILD=$WORK/$ARCH/build
STAGE=$WORK/$ARCH/stage # the tree that is packed into the bundle
JOBS=$(nproc)

CC=$TOOLCHAIN/bin/$ARCH-cc
CXX=false # no part needs C++, whose library Zig would have to build first
AR=$TOOLCHAIN/bin/ar
RANLIB=$TOOLCHAIN/bin/ranlib
CFLAGS="-O2 -fPIC -I$SYSROOT/include"
LDFLAGS="-L$SYSROOT/lib"
export CC CXX AR RANLIB CFLAGS LDFLAGS

# fresh_source PACKAGE: unpack a source package, apply Debian's patches, print the folder.
fresh_source() {
    archive=$(find "$SOURCES" -name "$1_*.orig.tar.*z")
    [ -n "$archive" ] || die "no source of $1 in $SOURCES"
    folder=$BUILD/$1
    rm -rf "$folder"
    mkdir -p "$folder/.debian"
    tar xf "$archive" -C "$folder" --strip-components=1
    tar xf "$(find "$SOURCES" -name "$1_*.debian.tar.*")" -C "$folder/.debian"
    patches=$folder/.debian/debian/patches
    wanted=.
    # Of Python only security fixes: the other patches move folders to the layout of Debian's packages.
    case $1 in python*) wanted='^(CVE-|ssl-|dict-use-after-free|traverse-managed-dicts)' ;; esac
    [ ! -e "$patches/series" ] || sed 's/#.*//' "$patches/series" | grep -E "$wanted" | while read -r name; do
        patch -s -p1 -d "$folder" < "$patches/$name" >&2 || die "cannot apply $name to $1"
    done
    echo "$folder"
}
