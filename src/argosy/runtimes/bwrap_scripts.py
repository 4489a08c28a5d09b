"""The three small scripts by which bubblewrap's containers are entered: constant text, every value is an argument.

::

    unshare ── sh JOIN ──┬─ mounts: tmpfs, overlay of the trees           (private mount namespace)
                         ├─ bwrap … sh HOLD    builds the container, says its process id, waits
                         └─ exec nsenter ── sh ENTER ── exec the program  (HOLD and bwrap end here)

The process that was started is the one that becomes the program.  bubblewrap itself always forks and passes no signal
on (``monitor_child`` in bubblewrap.c), so under it a USR1 from Slurm would kill the monitor, and the program with it.
This way signals, exit codes, the terminal and a parent-death signal are the program's own, and nothing stays behind.

Names begin with ``argosy_`` because the caller's exported variables share the name space.
"""

from __future__ import annotations

from argosy.core.layout import DEFAULT_PATH
from argosy.core.shell import ShellFunction

PREFIX = "ARGOSYENV_"
"""Under which name a value travels that is not to stand in an argument list, so that the image's own cannot win."""

TAKE = f"""case $1 in
    *=*) export "${{1?}}" ;;
    *) eval "export $1=\\"\\${PREFIX}$1\\"; unset -v {PREFIX}$1" ;;
    esac"""
"""In sh: set a variable as the word ``NAME=value`` says, or the word ``NAME``."""

JOIN = ShellFunction(
    "join",
    """\
# Words: SCRATCH PASSWD GROUP PARENTS DROP ENTER WORKDIR DEV, count and TREES, count and words of BWRAP, those of ENTER.
set -eu
argosy_fail() { printf "argosy: %s\\n" "$1" >&2; exit 125; }
# As cat does, without the millisecond of a start of a program.
argosy_show() {
    [ ! -r "$1" ] || while IFS= read -r argosy_line || [ -n "$argosy_line" ]; do
        printf "%s\\n" "$argosy_line"
    done < "$1"
}
argosy_scratch=$1 argosy_passwd=$2 argosy_group=$3 argosy_parents=$4 argosy_drop=$5 argosy_enter=$6
argosy_workdir=${7:-$PWD} argosy_dev=$8 argosy_count=$9
shift 9
mount -t tmpfs -o mode=755 argosy "$argosy_scratch" || argosy_fail "cannot mount on $argosy_scratch"
cd "$argosy_scratch"
# Mount options split at comma and colon, so a tree with an odd name is called by a link.
argosy_lower="" argosy_etc=""
while [ "$argosy_count" -gt 0 ]; do
    case $1 in
    *[!A-Za-z0-9_./@%+=-]*) ln -s "$1" "tree$argosy_count"; argosy_lower=$argosy_lower:tree$argosy_count ;;
    *) argosy_lower=$argosy_lower:$1 ;;
    esac
    [ -n "$argosy_etc" ] || [ ! -r "$1/etc/passwd" ] || argosy_etc=$1/etc
    shift
    argosy_count=$((argosy_count - 1))
done
# PARENTS and DROP are lists, one per line.
IFS="
"
set -f
mkdir -p upper/etc upper/var work root $argosy_parents
# An image may have dangling links where files of the machine are to be mounted.
for argosy_file in resolv.conf hosts localtime; do
    [ ! -e "/etc/$argosy_file" ] || : > "upper/etc/$argosy_file"
done
# PASSWD is empty for root, who needs no user namespace and whom every image knows.
if [ -n "$argosy_passwd" ]; then
    { printf "%s\\n" "$argosy_passwd"; argosy_show "${argosy_etc:-.}/passwd"; } > upper/etc/passwd
    { argosy_show "${argosy_etc:-.}/group"; printf "%s\\n" "$argosy_group"; } > upper/etc/group
fi
argosy_upper=upper argosy_work=work argosy_fuse=""
# DEV is a folder that keeps what is written; what this start needs lies below it, then.
if [ -n "$argosy_dev" ]; then
    ln -s "$argosy_dev" dev
    argosy_lower=:upper$argosy_lower argosy_upper=dev/upper argosy_work=dev/work
fi
argosy_options=lowerdir=${argosy_lower#:},upperdir=$argosy_upper,workdir=$argosy_work
mount -t overlay -o "$argosy_options${argosy_passwd:+,userxattr}" argosy root 2> failed ||
    { fuse-overlayfs -o "$argosy_options" root 2>> failed && argosy_fuse=yes; } ||
    {
        cat failed >&2
        argosy_fail "neither kernel nor fuse-overlayfs makes an overlay of the trees${argosy_dev:+ on $argosy_dev}"
    }
[ -z "$argosy_drop" ] || unset -v $argosy_drop
argosy_count=$1
shift
if [ ! -e root/bin/sh ] && [ ! -L root/bin/sh ]; then
    # Turn (the words of BWRAP, HOLD, variables, command) into (the words of BWRAP, command).
    echo "argosy: the image has no /bin/sh, so its own environment is not read and signals do not reach the program" >&2
    argosy_count=$((argosy_count - 4))
    argosy_rest=$argosy_count
    while [ "$argosy_rest" -gt 0 ]; do set -- "$@" "$1"; shift; argosy_rest=$((argosy_rest - 1)); done
    shift 5
    argosy_rest=$1
    shift
    while [ "$argosy_rest" -gt 0 ]; do @TAKE@; shift; argosy_rest=$((argosy_rest - 1)); done
    argosy_rest=$(($# - argosy_count))
    while [ "$argosy_rest" -gt 0 ]; do set -- "$@" "$1"; shift; argosy_rest=$((argosy_rest - 1)); done
    exec bwrap --die-with-parent --chdir "$argosy_workdir" --setenv PATH @PATH@ "$@"
fi
# The container lives while this process holds the other end of the pipe: a killed start leaves nothing.  The
# descriptor is a free one, since a caller may hand its own down (PMI_FD of MPICH).
mkfifo hold
for argosy_fd in 9 8 7 6 5 4 3; do [ -e "/proc/self/fd/$argosy_fd" ] || break; done
eval "exec $argosy_fd<>hold"
# bubblewrap takes 9000 words; those of the command are not for it.
argosy_words="" argosy_rest=0
while [ $# -gt 8000 ] && [ "$argosy_rest" -lt "$argosy_count" ]; do
    argosy_rest=$((argosy_rest + 1)) argosy_words="$argosy_words \\"\\${$argosy_rest}\\""
done
argosy_pid=$({
    eval "exec $argosy_fd>&-; ${argosy_words:+set -- $argosy_words}"
    exec bwrap "$@" < hold 3>&1 > /dev/null
} &)
[ -n "$argosy_pid" ] || exit 125
# Its daemon lives in this namespace: it ends with the container only if the mount of the container is the last one.
[ -z "$argosy_fuse" ] || umount -l root
shift "$argosy_count"
exec nsenter --target "$argosy_pid" --mount ${argosy_passwd:+--user
--preserve-credentials} -- /bin/sh -c "$argosy_enter" argosy "$argosy_fd" "$argosy_workdir" "$@"
""".replace("@PATH@", DEFAULT_PATH).replace("@TAKE@", TAKE),
)
"""Outside, in a mount namespace of its own: join the trees, let bubblewrap build the container, walk in."""

HOLD = ShellFunction(
    "hold",
    """\
echo "$$" >&3
exec 3>&-
read -r argosy_line
""",
)
"""Inside, for the moment: say that the container is complete, and keep it until someone else is in."""

ENTER = ShellFunction(
    "walk_in",
    f"""\
# Words: FD WORKDIR LIBRARIES, count and VARIABLES, the command.
eval "exec $1>&-"
cd -- "$2" 2>/dev/null || {{ printf "argosy: the container has no directory %s\\n" "$2" >&2; exit 125; }}
argosy_libraries=$3 argosy_count=$4
shift 4
PATH={DEFAULT_PATH}
export PATH
argosy_environment() {{
    for argosy_script in /.singularity.d/env/*.sh; do [ ! -r "$argosy_script" ] || . "$argosy_script"; done
}}
argosy_environment
if [ -n "$argosy_libraries" ]; then
    export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}$argosy_libraries"
fi
while [ "$argosy_count" -gt 0 ]; do {TAKE}; shift; argosy_count=$((argosy_count - 1)); done
unset -v argosy_libraries argosy_count argosy_script
exec "$@"
""",
)
"""Inside: the image's own environment as Apptainer reads it, then the forced variables, then the program."""
