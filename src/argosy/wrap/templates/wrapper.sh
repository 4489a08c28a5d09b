#!/bin/sh
# Run @comment@ in the container of this prefix; see start.sh. Written by Argosy @argosy@, which it does not need.
argosy_name=@name@ argosy_self=$0
case $0 in */*) ;; *) argosy_self=./$0 ;; esac
# Follow a link to this file, for example from an environment on top.
while [ -h "$argosy_self" ] && [ ! -r "${argosy_self%/*}/../../@number@/start.sh" ]; do
    argosy_link=$(readlink -- "$argosy_self")
    case $argosy_link in /*) argosy_self=$argosy_link ;; *) argosy_self=${argosy_self%/*}/$argosy_link ;; esac
done
. "${argosy_self%/*}/../../@number@/start.sh"
