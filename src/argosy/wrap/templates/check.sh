#!/bin/sh
# Start a shell of the image through start.sh ($1), so that the check runs what users run.
#   $2 list   the script for that shell; the remaining arguments are its arguments
start=$1 list=$2
shift 2
argosy_self=$0 argosy_name=sh argosy_program=/bin/sh
set -- -c "$list" sh "$@"
# shellcheck disable=SC1090
. "$start"
