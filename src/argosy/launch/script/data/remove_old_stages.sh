# shellcheck shell=sh
# A job that was killed leaves its copy of the image on the node: it goes after three days.
remove_old_stages() {
    find "$1" -maxdepth 1 -type d -user "$(id -u)" -name "argosy-stage-*" -mtime +3 -exec rm -rf {} +
}
