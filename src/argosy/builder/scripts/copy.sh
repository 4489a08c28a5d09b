#!/bin/sh
# Copy a file or folder ($1) into the image ($2) with the base's own cp, which follows the base's links.
set -eu
umask 022
case $2 in
*/) mkdir -p "$2" ;;
*) mkdir -p "$(dirname "$2")" ;;
esac
cp -a "$1" "$2"
