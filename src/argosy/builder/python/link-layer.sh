#!/bin/sh
# Make the layer's path a link into the folder that also holds the cache, then run the remaining arguments.
#   $1 root     the layer's path in the image, which must not exist yet
#   $2 target   the layer's folder below the shared mount
# Exit code 96: the link cannot be made.
[ ! -e "$1" ] && mkdir -p "${1%/*}" && ln -s "$2" "$1" || exit 96
shift 2
exec "$@"
