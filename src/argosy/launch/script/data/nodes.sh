# shellcheck shell=sh
# Functions that job scripts pass to the nodes, separated by blank lines.

# Print the first free port from $1 on.
free_port() {
    while grep -qs ":$(printf %04X "$1") " /proc/net/tcp*; do
        set -- "$(($1 + 1))"
    done
    echo "$1"
}

# FOLDER STAGED: create the private folder STAGED on this node.  A killed job leaves its copy of the image, so remove
# copies that are older than three days.
create_stage() {
    find "$1" -maxdepth 1 -type d -user "$(id -u)" -name "argosy-stage-*" -mtime +3 -exec rm -rf {} +
    mkdir -m 700 "$2"
}

stop_node() {
    printf 'argosy: %s on %s\n' "$1" "${SLURMD_NODENAME:-$(hostname)}" >&2
    exit "$2"
}

# FOLDERS COMMAND...: create private folders on this node.  Folders of other users are not used, nor folders in those
# in which everybody can rename them; in a container, root may be nobody (65534).
own_folders() {
    command -v find > /dev/null || stop_node "find is missing, which checks who may change $1" 7
    for argosy_folder in $1; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        argosy_above=$argosy_folder
        while argosy_above=${argosy_above%/*} && [ "${argosy_above#/}" != "$argosy_above" ]; do
            argosy_unsafe=$(find "$argosy_above" "$argosy_above/." -prune \( ! -type l -perm -0002 ! -perm -1000 \
                -o ! -user "$(id -u)" ! -user 0 ! -user 65534 \)) || argosy_unsafe=$argosy_above
            [ -z "$argosy_unsafe" ] ||
                stop_node "another user can replace what is in $argosy_above, so $argosy_folder is not used" 7
        done
        mkdir -m 700 "$argosy_folder" 2> /dev/null ||
            [ -n "$(find "$argosy_folder" -prune -type d -user "$(id -u)" 2> /dev/null)" ] ||
            stop_node "$argosy_folder cannot be created, or belongs to another user" 7
    done
    shift
    exec "$@"
}

# IMAGE RUNTIME GPU_DEVICE PATHS COMMAND...: refuse a broken node, which would fail with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    # Bind the folder of PMIx, PATHS, TMPDIR and the site's certificates, if this node has them.
    argosy_mounts=${APPTAINER_BIND:-${SINGULARITY_BIND:-}} # of a module that the job loaded
    for argosy_path in "${PMIX_SERVER_TMPDIR:-}" $4 "${TMPDIR:-}" \
        "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "${PIP_CERT:-}"; do
        [ ! -e "$argosy_path" ] || argosy_mounts=$argosy_mounts${argosy_mounts:+,}$argosy_path
    done
    [ -z "$argosy_mounts" ] || export APPTAINER_BIND="$argosy_mounts" SINGULARITY_BIND="$argosy_mounts"
    shift 4
    exec "$@"
}

# In each container that srun starts: GPU_DEVICE COMMAND...
check_container() {
    [ -z "$1" ] || [ -e "$1" ] || stop_node "GPUs were requested, but the container has no $1" 7
    shift
    # shellcheck disable=SC1091
    [ ! -x /opt/argosy/enter ] || . /opt/argosy/enter
    exec "$@"
}
