#!/bin/sh
# The start of a container of enroot and pyxis: run the given command, or a shell.
[ "$#" -gt 0 ] || set -- /bin/sh
exec "$@"
