#!/bin/sh
# Download source packages from Debian with apt, which checks their signatures. It needs no root.
# ARGOSY_BUNDLE_MIRROR names another mirror than deb.debian.org.
set -eu
. "$(dirname "$0")/common.sh"
suite=trixie
old_suite=bullseye # its programs run with an old glibc
mirror=${ARGOSY_BUNDLE_MIRROR:-http://deb.debian.org/debian}
packages="python$PYTHON_MINOR openssl zlib libffi bzip2 xz-utils libzstd lz4 lzo2 squashfs-tools"
binaries="proot libtalloc2"

missing=
for package in $packages; do
    [ -e "$SOURCES/.$package" ] || missing="$missing $package"
done
for package in $binaries; do
    [ -e "$SOURCES/.$package-$ARCH" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

note "downloading$missing"
apt=$WORK/apt/$ARCH
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$SOURCES"
signed="Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
cat > "$apt/debian.sources" << LIST
Types: deb-src
URIs: $mirror
Suites: $suite $suite-updates
$signed

Types: deb-src
URIs: ${mirror%/debian}/debian-security
Suites: $suite-security
$signed

Types: deb
URIs: $mirror
Suites: $old_suite
$signed
LIST
# An archived release has an index that has expired.
run_apt() {
    program=$1
    shift
    "$program" -qq -o APT::Architecture="$DEBIAN_ARCH" -o APT::Architectures="$DEBIAN_ARCH" -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Check-Valid-Until=false -o Dir::Etc::sourcelist="$apt/debian.sources" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache" "$@"
}
run_apt apt-get update
cd "$SOURCES"
for package in $packages; do
    [ -e ".$package" ] && continue
    # A mirror may lag behind its index of security updates; the release itself is the second choice.
    run_apt apt-get source --only-source --download-only "$package" > /dev/null 2> "$apt/errors" \
        || run_apt apt-get source --only-source --download-only "$package/$suite" > /dev/null 2>> "$apt/errors" \
        || die "cannot download the source of $package: $(cat "$apt/errors")"
    touch ".$package"
done
for package in $binaries; do
    [ -e ".$package-$ARCH" ] && continue
    run_apt apt-get download "$package" 2> "$apt/errors" || die "cannot download $package: $(cat "$apt/errors")"
    touch ".$package-$ARCH"
done
