# shellcheck shell=sh
# A killed job leaves its copy of the image on the node: remove copies that are older than three days.
remove_old_stages() {
    find "$1" -maxdepth 1 -type d -user "$(id -u)" -name "argosy-stage-*" -mtime +3 -exec rm -rf {} +
}
