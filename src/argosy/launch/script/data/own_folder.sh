# shellcheck shell=sh
# Make a private folder.  Another user may have made one of that name: then it is not used.
own_folder() {
    mkdir -m 700 "$1" 2> /dev/null ||
        [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2> /dev/null)" ]
}
