# shellcheck shell=sh
# Arguments: SCRATCH PASSWD GROUP PARENTS DROP ENTER WORKDIR DEV, count and TREES,
#   count and argv of BWRAP, arguments of ENTER.
set -eu
argosy_fail() {
    printf "argosy: %s\n" "$1" >&2
    exit 125
}
# Print a file without starting cat, which would take a millisecond. A link could lead to a file of this machine.
argosy_show() {
    [ -L "$1" ] || [ ! -r "$1" ] || while IFS= read -r argosy_line || [ -n "$argosy_line" ]; do
        printf "%s\n" "$argosy_line"
    done < "$1"
}
argosy_scratch=$1 argosy_passwd=$2 argosy_group=$3 argosy_parents=$4 argosy_drop=$5 argosy_enter=$6
argosy_workdir=${7:-$PWD} argosy_dev=$8 argosy_count=$9
shift 9
mount -t tmpfs -o mode=755 argosy "$argosy_scratch" || argosy_fail "cannot mount on $argosy_scratch"
cd "$argosy_scratch"
# Mount options are split at commas and colons, so a tree whose path has one is reached through a link.
argosy_lower="" argosy_etc=""
while [ "$argosy_count" -gt 0 ]; do
    case $1 in
        *[!A-Za-z0-9_./@%+=-]*)
            ln -s "$1" "tree$argosy_count"
            argosy_lower=$argosy_lower:tree$argosy_count
            ;;
        *) argosy_lower=$argosy_lower:$1 ;;
    esac
    [ -n "$argosy_etc" ] || [ -L "$1/etc" ] || [ ! -r "$1/etc/passwd" ] || argosy_etc=$1/etc
    shift
    argosy_count=$((argosy_count - 1))
done
# PARENTS and DROP are lists, one per line.
IFS="
"
set -f
# shellcheck disable=SC2086
mkdir -p upper/etc upper/var work root $argosy_parents
# Cover these files: the image may have dangling links there, and bubblewrap cannot mount on those.
for argosy_file in resolv.conf hosts localtime; do
    [ ! -e "/etc/$argosy_file" ] || : > "upper/etc/$argosy_file"
done
# PASSWD is empty for root: root needs no user namespace and is in the passwd file of every image.
if [ -n "$argosy_passwd" ]; then
    {
        printf "%s\n" "$argosy_passwd"
        argosy_show "${argosy_etc:-.}/passwd"
    } > upper/etc/passwd
    {
        argosy_show "${argosy_etc:-.}/group"
        printf "%s\n" "$argosy_group"
    } > upper/etc/group
fi
argosy_upper=upper argosy_work=work argosy_fuse=""
# DEV (--dev) is a folder that keeps all writes; the files prepared above become the lowest layer over the image.
if [ -n "$argosy_dev" ]; then
    ln -s "$argosy_dev" dev
    argosy_lower=:upper$argosy_lower argosy_upper=dev/upper argosy_work=dev/work
fi
argosy_options=lowerdir=${argosy_lower#:},upperdir=$argosy_upper,workdir=$argosy_work
mount -t overlay -o "$argosy_options${argosy_passwd:+,userxattr}" argosy root 2> failed ||
    { fuse-overlayfs -o "$argosy_options" root 2>> failed && argosy_fuse=yes; } ||
    {
        cat failed >&2
        argosy_fail "neither the kernel nor fuse-overlayfs can mount the overlay${argosy_dev:+ on $argosy_dev}"
    }
# shellcheck disable=SC2086
[ -z "$argosy_drop" ] || unset -v $argosy_drop
argosy_count=$1
shift
if [ ! -e root/bin/sh ] && [ ! -L root/bin/sh ]; then
    # Turn the arguments (argv of BWRAP, LIBRARIES, count and VARIABLES, command) into (argv of BWRAP, command). The last
    # four words of BWRAP start HOLD in the container: /bin/sh -c HOLD argosy-hold (Bubblewrap.argv in bwrap.py).
    argosy_hold_words=4
    echo "argosy: the image has no /bin/sh: its environment is not read, and signals do not reach the program" >&2
    argosy_count=$((argosy_count - argosy_hold_words))
    argosy_rest=$argosy_count
    while [ "$argosy_rest" -gt 0 ]; do
        set -- "$@" "$1"
        shift
        argosy_rest=$((argosy_rest - 1))
    done
    shift "$((argosy_hold_words + 1))" # and LIBRARIES
    argosy_rest=$1
    shift
    while [ "$argosy_rest" -gt 0 ]; do
        case $1 in
            *=*) export "${1?}" ;;
            # sh reads a variable by a computed name with eval only. Argosy checks the names.
            *)
                eval "export $1=\"\$ARGOSYENV_$1\""
                unset -v "ARGOSYENV_$1"
                ;;
        esac
        shift
        argosy_rest=$((argosy_rest - 1))
    done
    argosy_rest=$(($# - argosy_count))
    while [ "$argosy_rest" -gt 0 ]; do
        set -- "$@" "$1"
        shift
        argosy_rest=$((argosy_rest - 1))
    done
    exec bwrap --die-with-parent --chdir "$argosy_workdir" --setenv PATH @DEFAULT_PATH@ "$@"
fi
# The container exists as long as this process holds the other end of the pipe, so killing it leaves nothing behind.
# Use a free descriptor: a caller may pass down its own (PMI_FD of MPICH).
mkfifo hold
for argosy_fd in 9 8 7 6 5 4 3; do [ -e "/proc/self/fd/$argosy_fd" ] || break; done
# sh opens a descriptor of a computed number with eval only.
eval "exec $argosy_fd<>hold"
argosy_pid=$({
    # Open this end before the other one is closed: if the process above was killed, opening it would wait for ever.
    exec < hold
    eval "exec $argosy_fd>&-"
    # bubblewrap accepts at most 9000 arguments: keep its own, the first ones, and drop the command.
    if [ $# -gt 8000 ]; then
        argosy_rest=$argosy_count
        while [ "$argosy_rest" -gt 0 ]; do
            set -- "$@" "$1"
            shift
            argosy_rest=$((argosy_rest - 1))
        done
        shift $(($# - argosy_count))
    fi
    exec bwrap "$@" 3>&1 > /dev/null
} &)
[ -n "$argosy_pid" ] || exit 125
# The daemon of fuse-overlayfs ends with the container only if no other mount of root is left in this namespace.
[ -z "$argosy_fuse" ] || umount -l root
shift "$argosy_count"
exec nsenter --target "$argosy_pid" --mount ${argosy_passwd:+--user
--preserve-credentials} -- /bin/sh -c "$argosy_enter" argosy "$argosy_fd" "$argosy_workdir" "$@"
