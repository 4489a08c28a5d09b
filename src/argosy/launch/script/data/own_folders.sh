# shellcheck shell=sh
# FOLDERS COMMAND...: create private folders on this node.  Folders of other users are not used.
own_folders() {
    for argosy_folder in $1; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        mkdir -m 700 "$argosy_folder" 2> /dev/null ||
            [ -n "$(find "$argosy_folder" -prune -type d -user "$(id -u)" 2> /dev/null)" ] ||
            stop_node "$argosy_folder cannot be created, or belongs to another user" 7
    done
    shift
    exec "$@"
}
