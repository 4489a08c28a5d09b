# The caller's user and group, without starting id(1).
while read -r argosy_key argosy_id argosy_rest; do
    case $argosy_key in Uid:) argosy_uid=$argosy_id ;; Gid:) argosy_gid=$argosy_id && break ;; esac
done < /proc/self/status
argosy_passwd="" argosy_group="" argosy_user=${USER:-user$argosy_uid}
if [ "$argosy_uid" != 0 ]; then
    argosy_passwd=$argosy_user:x:$argosy_uid:$argosy_gid::${HOME:-/}:/bin/sh
    argosy_group=$argosy_user:x:$argosy_gid:$argosy_user
fi
