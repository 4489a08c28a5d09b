#!/bin/sh
# Print the path of the base's own Python, and run the program $2 with it. It is not one below $1: that of a layer that
# was flattened into the base. Print nothing if the base has no Python.
IFS=:
for name in python3 python; do
    for folder in $PATH; do
        case $folder in "$1"/*) continue ;; esac
        [ -x "$folder/$name" ] || continue
        echo "$folder/$name"
        "$folder/$name" -I -c "$2"
        exit
    done
done
