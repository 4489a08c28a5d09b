# shellcheck shell=sh
# Arguments: FD WORKDIR, then those of enter_image.sh, which follows.
# sh closes a descriptor by a computed number with eval only. FD is a digit.
eval "exec $1>&-"
cd -- "$2" 2> /dev/null || {
    printf "argosy: the container has no directory %s\n" "$2" >&2
    printf "  -> check the path; to mount a folder of this machine: --bind %s\n" "$2" >&2
    exit 125
}
shift 2
