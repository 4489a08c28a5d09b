# Folders that contain mount points are created in the upper tree, where they belong to the caller.
argosy_parents=""
for argosy_place in "$argosy_prefix" "${HOME:-/}" "$PWD"; do
    case $argosy_place in /bin* | /sbin* | /lib* | /run* | /usr* | /etc*) continue ;; esac
    argosy_parents="${argosy_parents}upper${argosy_place%/*}
"
done
set -- --bind root / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"
[ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"
set -- @count@ @trees@ "$(($# - argosy_rest))" "$@"
set -- "$argosy_passwd" "$argosy_group" "$argosy_parents" "" "$enter_container" "$argosy_start" "" "$@"
set -- sh -c "$join_container" argosy-join "$argosy_prefix/cache/mount" "$@"
set -- --mount --propagation slave -- "$@"
[ "$argosy_uid" = 0 ] || set -- --user --map-root-user "$@"
exec unshare "$@"
