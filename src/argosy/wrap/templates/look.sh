#!/bin/sh
# Print facts about the image as lines "argosy:KEY:VALUE". Arguments: folders and programs to list.
say() { printf "argosy:%s\n" "$1:$2"; }
say path "$PATH"
say glibc "$(getconf GNU_LIBC_VERSION 2> /dev/null)"
for folder in /*/; do
    for entry in "$folder"*; do [ ! -e "$entry" ] || { say folder "${folder%/}"; break; }; done
done
first=yes
for place in "$@"; do
    found=""
    if [ -d "$place" ]; then
        for file in "$place"/*; do
            if [ -f "$file" ] && [ -x "$file" ]; then say program "$file"; found=yes; fi
        done
    elif [ -f "$place" ] && [ -x "$place" ]; then
        say program "$place"; found=yes
    fi
    [ -n "$found" ] || say missing "$place"
    [ -n "$first" ] || continue
    first="" above=${place%/*}
    [ ! -x "$place/python" ] || say python "$(readlink -f "$place/python")"
    case $above in "" | /usr | /usr/local | /usr/*) continue ;; esac
    [ ! -d "$place" ] || for file in "$above"/* ; do say neighbour "$file"; done
    [ ! -r "$above/pyvenv.cfg" ] || while read -r line; do say setting "$line"; done < "$above/pyvenv.cfg"
done
say end yes
