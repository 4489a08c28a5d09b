# The catalog of another machine, with the rules of images/catalog.py: "find_image ARGUMENTS" is appended to this text.
# shellcheck shell=sh

# find_image PATH NAME TAG FOLDER...: print the size and the path of an image: PATH if it is a file, else the version
# that NAME or NAME:TAG means in the user's folders and in FOLDER... Nothing if there is none; without NAME, only PATH.
find_image() {
    found=$1 name=$2 tag=$3
    shift 3
    if [ ! -f "$found" ] && [ -n "$name" ]; then
        data=${XDG_DATA_HOME:-}
        case $data in /*) ;; *) data=$HOME/.local/share ;; esac
        set -f
        IFS=:
        # shellcheck disable=SC2086 # a list of folders
        set -- ${ARGOSY_IMAGES:-"$data/argosy/images"} "$@"
        unset IFS
        set +f
        find_named "$@" && follow_aliases "$@"
    fi
    [ ! -f "$found" ] || printf '%s %s\n' "$(wc -c < "$found")" "$found"
}

find_named() {
    for folder; do
        if [ -n "$tag" ]; then
            find_file "$folder/$name/$tag" && return
        else
            find_file "$folder/$name" || find_file "$folder/$name/latest" || find_newest "$folder/$name" && return
        fi
    done
    return 1
}

find_file() {
    for suffix in .sif .sqsh .squashfs ''; do
        found=$1$suffix
        [ ! -f "$found" ] || return 0
    done
    return 1
}

find_newest() {
    found=''
    for file in "$1"/*.sif "$1"/*.sqsh "$1"/*.squashfs; do
        # shellcheck disable=SC3013 # the sh of every Linux has -nt
        if [ -f "$file" ] && [ ! -L "$file" ] && { [ -z "$found" ] || [ "$file" -nt "$found" ]; }; then found=$file; fi
    done
    [ -n "$found" ]
}

# Only links in the folders of the catalog are aliases: others, for example from a home folder to a disk, are the user's.
follow_aliases() {
    while [ -L "$found" ] && is_below "$(real_folder_of "$found")" "$@"; do
        target=$(readlink "$found")
        case $target in
            /*) ;;
            *..*) target=$(real_folder_of "$found")/$target ;;
            *) target=$(dirname "$found")/$target ;;
        esac
        found=$(cd "$(dirname "$target")" && pwd)/$(basename "$target")
    done
}

real_folder_of() (cd -P "$(dirname "$1")" && pwd)

is_below() {
    real=$1
    shift
    for folder; do
        folder=$(cd -P "$folder" 2> /dev/null && pwd) || continue
        case $real/ in "$folder"/*) return 0 ;; esac
    done
    return 1
}
