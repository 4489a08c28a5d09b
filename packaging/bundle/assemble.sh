#!/bin/sh
# Put Argosy and its dependencies into the tree, add licences, check the C library that it needs, and pack it.
set -eu
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
uv=$TOOLCHAIN/venv/bin/uv
version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$repo/src/argosy/version.py")
tree=$WORK/$ARCH/argosy-$version
note "$ARCH: packing Argosy $version"

rm -rf "$tree"
mkdir -p "$tree/bin" "$tree/share/licences" "$repo/dist"
cp -a "$STAGE/python" "$STAGE/tools" "$tree"
cp "$here/argosy.sh" "$tree/bin/argosy"
chmod 755 "$tree/bin/argosy"

# Parts of Python that no installation of Argosy uses.
library=$tree/python/lib/python$PYTHON_MINOR
rm -rf "$tree/python/include" "$tree/python/share" "$tree/python/lib/pkgconfig" "$library"/config-* "$library/idlelib" \
    "$library/turtledemo" "$library/tkinter" "$library/test" "$library/pydoc_data" "$library/ensurepip"
find "$tree/python/bin" -mindepth 1 ! -name python3 ! -name "python$PYTHON_MINOR" -delete

# The wheel of this checkout, and its dependencies as wheels for the target.
wheels=$WORK/$ARCH/wheels
rm -rf "$wheels"
"$TOOLCHAIN/venv/bin/python" -m build -q --wheel -o "$wheels" "$repo" > "$BUILD/wheel.log" 2>&1 || {
    tail -20 "$BUILD/wheel.log" >&2
    die "cannot build the wheel; the whole output: $BUILD/wheel.log"
}
packages=$library/site-packages
install() {
    "$uv" pip install -q --no-config --only-binary :all: --python-version "$PYTHON_MINOR" --target "$packages" --link-mode copy "$@"
}
install --python-platform "$ARCH-manylinux_2_28" "$wheels"/*.whl
# The static uv starts in any image, so builds without a network need no other one.
installed=$(basename "$packages"/uv-*.dist-info .dist-info)
install --python-platform "$ARCH-unknown-linux-musl" --no-deps --reinstall-package uv "uv==${installed#uv-}"
mv "$packages/bin/uv" "$tree/python/bin/uv"
rm -rf "${packages:?}/bin" "$packages/.lock"
cp "$here/sitecustomize.py" "$packages/sitecustomize.py"

# The byte code is never checked against the time of the source, which copying may change, nor written by users.
compiler=$WORK/$BUILD_ARCH/stage/python/bin/python3
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
"$compiler" -m compileall -q -j "$JOBS" --invalidation-mode unchecked-hash -s "$tree" -p /argosy "$library" > "$BUILD/compile.log" || true

# Licences, and where the sources of the programs are.
for package in "python$PYTHON_MINOR" openssl zlib libffi bzip2 xz-utils libzstd lz4 lzo2 squashfs-tools; do
    mkdir -p "$tree/share/licences/$package"
    find "$BUILD/$package" -maxdepth 1 \( -iname 'licen[cs]e*' -o -iname 'copying*' \) -type f -exec cp {} "$tree/share/licences/$package" \;
done
for package in proot libtalloc2; do
    mkdir -p "$tree/share/licences/$package"
    cp "$BUILD/proot/usr/share/doc/$package/copyright" "$tree/share/licences/$package"
done
cp "$repo/LICENSE" "$tree/share/licences/argosy"
{
    echo "The programs and libraries of this bundle were built from these source packages of Debian, with the patches of"
    echo "packaging/bundle/common.sh. Their sources: https://snapshot.debian.org/ and https://deb.debian.org/debian/"
    echo
    find "$SOURCES" -name '*.dsc' -printf '%f\n' | sed 's/\.dsc$//' | sort
    find "$SOURCES" -name "*_$DEBIAN_ARCH.deb" -printf '%f (as packaged by Debian)\n' | sort
} > "$tree/share/SOURCES"
"$here/../modulefiles" "$tree" "$version"
echo "$version linux-$ARCH" > "$tree/share/argosy-bundle"

# strip has to know the target; readelf knows all of them.
strip='strip'
[ "$ARCH" = "$BUILD_ARCH" ] || strip=$ARCH-linux-gnu-strip
if command -v "$strip" > /dev/null; then
    find "$tree/python/bin" "$library/lib-dynload" "$tree/tools" -type f ! -name uv -exec "$strip" {} \; 2> /dev/null || true
fi
newest=$(find "$tree" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/tools/*' \) -exec readelf -V {} + 2> /dev/null \
    | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
newest=${newest#GLIBC_}
[ "$(printf '%s\n2.28\n' "$newest" | sort -V | tail -1)" = 2.28 ] || die "the bundle needs glibc $newest; 2.28 is the newest that RHEL 8 has"

# One file: the script, then the archive.
archive=$WORK/$ARCH/payload.tar.gz
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git -C "$repo" log -1 --format=%ct)}" \
    -C "$tree" -cf - . | gzip -9n > "$archive"
output=$repo/dist/argosy-$version-linux-$ARCH.run
sed -e "s/@VERSION@/$version/g; s/@ARCH@/$ARCH/g; s/@GLIBC@/$newest/g" \
    -e "s/@SHA256@/$(sha256sum "$archive" | cut -d ' ' -f 1)/g; s/@LINES@/$(($(wc -l < "$here/install.sh") + 1))/" \
    "$here/install.sh" > "$output.new"
cat "$archive" >> "$output.new"
chmod 755 "$output.new"
mv "$output.new" "$output"
note "$output ($(du -m "$output" | cut -f 1) MB, needs glibc $newest)"
