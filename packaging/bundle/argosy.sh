#!/bin/sh
# Start the Argosy of this bundle. The folder may be moved, and this file may be the target of symbolic links.
# -I: variables such as PYTHONPATH and PYTHONHOME, which modules set for other Pythons, have no effect.
root=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$root/python/bin/python3" -I -m argosy.cli "$@"
