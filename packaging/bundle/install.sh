#!/bin/sh
# Install Argosy @VERSION@ for linux-@ARCH@. The archive is appended to this script. No root and no network are needed.
#
# sh argosy-@VERSION@-linux-@ARCH@.run [OPTION]...
#   --prefix DIR   install into DIR (default: ~/.local/share/argosy)
#   --link DIR     link the command into DIR (default: ~/.local/bin if there is no --prefix, else no link)
#   --check        only check that the file is complete
#   --help         print this text
set -eu

fail() {
    echo "argosy: $*" >&2
    exit 1
}
prefix='' link='' check=''
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --link)
            [ $# -gt 1 ] || fail "$1 needs a folder"
            [ "$1" = --prefix ] && prefix=$2 || link=$2
            shift
            ;;
        --check) check=yes ;;
        --help | -h)
            sed -n '2,8s/^# \{0,1\}//p' "$0"
            exit
            ;;
        *) fail "unknown option '$1'; see --help" ;;
    esac
    shift
done

payload() { tail -n +@LINES@ "$0"; }

digest=$(payload | sha256sum | cut -d ' ' -f 1)
[ "$digest" = @SHA256@ ] || fail "this file is damaged: the archive has the SHA-256 $digest instead of @SHA256@; copy it again"
[ -z "$check" ] || {
    echo "complete: Argosy @VERSION@ for linux-@ARCH@"
    exit
}
[ "$(uname -m)" = @ARCH@ ] || fail "this file is for @ARCH@, and this machine is $(uname -m)"

if [ -z "$prefix" ]; then
    prefix=${HOME:?}/.local/share/argosy
    link=${link:-$HOME/.local/bin}
fi
# A prefix that holds anything else is never replaced.
if [ -e "$prefix" ] && [ ! -e "$prefix/share/argosy-bundle" ] && ! rmdir "$prefix" 2> /dev/null; then
    fail "cannot install: $prefix exists and is not an installation of Argosy; name another folder with --prefix"
fi
mkdir -p "$(dirname "$prefix")"
prefix=$(cd "$(dirname "$prefix")" && pwd)/$(basename "$prefix")

# Unpack next to the prefix, then rename: an interrupted installation leaves the old one as it was.
new=$prefix.new.$$
trap 'rm -rf "$new"' EXIT
trap 'exit 130' HUP INT TERM
mkdir "$new"
payload | tar -xzf - -C "$new" || fail "cannot unpack into $new; see whether the disk or your quota is full"
"$new/bin/argosy" --version > /dev/null || fail "the installed program does not start on this machine (see above); it needs glibc @GLIBC@ or later"
if [ -e "$prefix" ]; then
    mv "$prefix" "$prefix.old.$$"
    mv "$new" "$prefix"
    rm -rf "$prefix.old.$$"
else
    mv "$new" "$prefix"
fi
echo "installed: $prefix/bin/argosy ($("$prefix/bin/argosy" --version))"

if [ -n "$link" ]; then
    mkdir -p "$link"
    ln -sf "$prefix/bin/argosy" "$link/argosy"
    case :$PATH: in
        *:"$link":*) ;;
        *) echo "add the command to your PATH: export PATH=\"$link:\$PATH\"" ;;
    esac
fi
exit
