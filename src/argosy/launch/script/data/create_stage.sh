# shellcheck shell=sh
# FOLDER STAGED: create the private folder STAGED on this node.  A killed job leaves its copy of the image, so remove
# copies that are older than three days.
create_stage() {
    find "$1" -maxdepth 1 -type d -user "$(id -u)" -name "argosy-stage-*" -mtime +3 -exec rm -rf {} +
    mkdir -m 700 "$2"
}
