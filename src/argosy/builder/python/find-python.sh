#!/bin/sh
# Print the path of the base's own Python, but not one below $1: that of a layer that was flattened into the base.
IFS=:
for name in python3 python; do
    for folder in $PATH; do
        case $folder in "$1"/*) continue ;; esac
        [ ! -x "$folder/$name" ] || { echo "$folder/$name"; exit 0; }
    done
done
