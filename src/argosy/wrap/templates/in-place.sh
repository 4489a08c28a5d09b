# Start bubblewrap in the background: it mounts the root and prints the id of its first process, which waits.
argosy_container() {
    # bubblewrap accepts at most 9000 arguments: keep its own, the first ones, and drop those of the command.
    if [ $# -gt 8000 ]; then
        argosy_key=$(($# - argosy_rest))
        while [ "$argosy_key" -gt 0 ]; do
            set -- "$@" "$1"
            shift
            argosy_key=$((argosy_key - 1))
        done
        shift "$argosy_rest"
    fi
    # sh opens and closes a descriptor of a computed number with eval only.
    eval "exec < /proc/self/fd/$argosy_fd $argosy_fd>&-"
    if [ "$argosy_uid" != 0 ]; then
        . "$argosy_version/names.sh"
        set -- --perms 0644 --ro-bind-data 4 /etc/passwd --perms 0644 --ro-bind-data 5 /etc/group "$@"
    fi
    set -- @entries@ \
        --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"
    [ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"
    exec bwrap "$@" 3>&1 > /dev/null 4<< USERS 5<< GROUPS
$argosy_passwd
${argosy_users-}
USERS
${argosy_groups-}
$argosy_group
GROUPS
}
# A mount in a folder of the image needs an overlay. So does a shell that uses no pipe for a here-document: the first
# process waits for the end of that pipe, which is also opened for writing and so ends with this process.
argosy_fd=""
for argosy_key in 9 8 7 6; do [ -e "/proc/self/fd/$argosy_key" ] || argosy_fd=$argosy_key; done
for argosy_place in "$argosy_prefix" "${argosy_above:-/}" "$PWD" "${HOME:-/}" "${TMPDIR:-/}"; do
    case $argosy_place in
    /var/tmp/*) ;;
    @patterns@) argosy_fd="" ;;
    esac
done
if [ -n "$argosy_fd" ]; then
    eval "exec $argosy_fd<<END
END
"
    if [ -p "/proc/self/fd/$argosy_fd" ]; then
        eval "exec $argosy_fd<>/proc/self/fd/$argosy_fd"
        argosy_pid=$(argosy_container "$@" &)
        [ -n "$argosy_pid" ] || exit 125
        shift "$(($# - argosy_rest))"
        set -- -- /bin/sh -c "$enter_container" argosy "$argosy_fd" "$argosy_start" "$@"
        [ "$argosy_uid" = 0 ] || set -- --user --preserve-credentials "$@"
        exec nsenter --target "$argosy_pid" --mount "$@"
    fi
    eval "exec $argosy_fd<&-"
fi
