# shellcheck shell=sh
# Create a private folder.  A folder of that name that belongs to another user is not used.
own_folder() {
    mkdir -m 700 "$1" 2> /dev/null ||
        [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2> /dev/null)" ]
}
