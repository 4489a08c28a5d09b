#!/bin/sh
# Print facts about the image as lines "argosy:KEY:VALUE". Arguments: folders and programs to list; PATH finds a program
# without a folder.
say() { printf "argosy:%s\n" "$1:$2"; }
find_on_path() {
    IFS=:
    for folder in $PATH; do
        if [ -f "$folder/$1" ] && [ -x "$folder/$1" ]; then printf "%s\n" "$folder/$1"; return; fi
    done
    return 1
}
say path "$PATH"
say glibc "$(getconf GNU_LIBC_VERSION 2> /dev/null)"
for folder in /*/; do
    for entry in "$folder"*; do [ ! -e "$entry" ] || { say folder "${folder%/}"; break; }; done
done
# The folder of the first Python in a venv, or else of the first Python, or else of the first path. The prefix shows the
# files next to this folder, so that Python finds the pyvenv.cfg of its venv.
first="" home="" venv=""
note_python() {
    home=${home:-$1}
    [ ! -r "${1%/*}/pyvenv.cfg" ] || venv=${venv:-$1}
}
for wanted in "$@"; do
    place=$wanted
    case $wanted in */*) ;; *) place=$(find_on_path "$wanted") || { say missing "$wanted"; continue; } ;; esac
    found="" folder=$place
    if [ -d "$place" ]; then
        for file in "$place"/*; do
            if [ -f "$file" ] && [ -x "$file" ]; then say program "$file"; found=yes; fi
        done
        if [ -x "$place/python" ] || [ -x "$place/python3" ]; then note_python "$folder"; fi
    elif [ -f "$place" ] && [ -x "$place" ]; then
        say program "$place"; found=yes folder=${place%/*}
        case ${place##*/} in python | python[0-9]*) note_python "$folder" ;; esac
    fi
    [ -n "$found" ] || say missing "$place"
    first=${first:-$folder}
done
home=${venv:-${home:-$first}} above=${home%/*}
[ ! -x "$home/python" ] || say python "$(readlink -f "$home/python")"
case $above in
"" | /usr | /usr/*) ;;
*)
    [ ! -d "$home" ] || for file in "$above"/*; do say neighbour "$file"; done
    [ ! -r "$above/pyvenv.cfg" ] || while read -r line; do say setting "$line"; done < "$above/pyvenv.cfg"
    ;;
esac
say end yes
