# shellcheck shell=sh
# The start of every command of this prefix; the files in bin/ read it. Written by Argosy @argosy@, which it does not need.
#     what     @what@
#     version  @number@
#     runtime  @runtime@
# The only program that starts is the runtime, which replaces this process.

argosy_fail() {
    argosy_print "argosy: $1"
    [ -z "${2-}" ] || argosy_print "  -> $2"
    exit 125
}
# Control characters, for example of paths, could change the terminal.
argosy_print() {
    case $1 in
    *[[:cntrl:]]*) printf "%s" "$1" | PATH=$PATH:/usr/bin:/bin tr "\001-\037\177" "?" && echo ;;
    *) printf "%s\n" "$1" ;;
    esac >&2
}
case $PWD in /*) ;; *) argosy_fail "the current folder was removed" "change to an existing folder, for example: cd" ;; esac
argosy_absolute() {
    argosy_here=$PWD
    { CDPATH="" cd -- "$1" && argosy_folder=$PWD && CDPATH="" cd -- "$argosy_here"; } || argosy_fail "cannot enter $1"
}
# Mounts cannot cover symbolic links, so resolve the path of a folder behind a link. A link at the root is a folder in
# the container.
argosy_unlinked() {
    argosy_folder=$1 argosy_place=$1
    while [ -n "${argosy_place%/*}" ]; do
        if [ -h "$argosy_place" ]; then
            argosy_folder=$(CDPATH="" cd -P -- "$1" 2> /dev/null && pwd) || argosy_folder=$1
            return
        fi
        argosy_place=${argosy_place%/*}
    done
}

# The prefix by the path that the caller used, if possible, and the command by a path that is valid in the container and
# on the host.
argosy_folder=${argosy_self%/*}
case $argosy_folder in
/*/../* | /*/./* | *//* | */.. | */.) argosy_absolute "$argosy_folder" ;;
/*) ;;
*) argosy_absolute "$argosy_folder" ;;
esac
argosy_folder=${argosy_folder%/bin}
argosy_called=${argosy_folder%/versions/@number@}
argosy_unlinked "$argosy_called"
argosy_prefix=$argosy_folder
argosy_command=${argosy_program-$argosy_prefix/bin/$argosy_name} argosy_above=""
argosy_path=$argosy_prefix/bin:@path@
if [ "$argosy_self" != "$0" ] && [ -r "${0%/*}/../pyvenv.cfg" ]; then
    argosy_absolute "${0%/*}"
    argosy_unlinked "$argosy_folder"
    argosy_command=$argosy_folder/${0##*/} argosy_path=$argosy_folder:$argosy_path argosy_above=${argosy_folder%/*}
fi

# Already in the container of this prefix: start the program itself.
if [ -n "${ARGOSY_WRAP-}" ] && [ -e "$ARGOSY_WRAP/.inside-@identity@" ]; then
    [ -n "$argosy_above" ] || argosy_command=$ARGOSY_WRAP/bin/$argosy_name
    exec "$argosy_command" "$@"
fi
if ! command -v @program@ > /dev/null; then
    [ ! -d /.singularity.d ] ||
        argosy_fail "cannot start $argosy_name of $argosy_prefix: this is another container, which has no @program@" \
            "run it outside the container: $argosy_prefix/bin/$argosy_name $*"
    argosy_fail "cannot start $argosy_name of $argosy_prefix: @program@ is not on this node" \
        "@alternative@change the runtime: argosy wrap update $argosy_prefix --runtime NAME"
fi

# The container lacks some folders of the prefix, for example versions/: from there, start in the prefix itself. The links
# at the top of inside/ lead to folders of the image.
argosy_start=$PWD argosy_place=""
case $PWD in
"$argosy_prefix"/*) argosy_place=${PWD#"$argosy_prefix"/} ;;
"$argosy_called"/*) argosy_place=${PWD#"$argosy_called"/} ;;
esac
argosy_folder=$argosy_prefix/versions/@number@/inside
if [ ! -d "$argosy_folder/$argosy_place" ] && [ ! -h "$argosy_folder/${argosy_place%%/*}" ]; then
    argosy_start=$argosy_prefix
fi

# An image never changes; new packages go into the next version of the prefix.
case "$argosy_name: $* " in
pip*": install "* | pip*": uninstall "* | pip*": -"*" install "* | pip*": -"*" uninstall "* | \
    python*": -m pip install "* | python*": -m pip uninstall "* | python*": -m pip -"*" install "*)
    case " $* " in
    *" --target"* | *" -t "* | *" --prefix"* | *" --root"* | *" --dry-run "* | *" --help "* | *" -h "*) ;;
    *)
        [ -n "$argosy_above" ] || argosy_fail "pip cannot change $argosy_prefix, which is an image" \
            "add packages with: argosy wrap update \"$argosy_prefix\" PACKAGE…"
        ;;
    esac
    ;;
esac
