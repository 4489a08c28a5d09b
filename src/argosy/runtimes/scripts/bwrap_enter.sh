# shellcheck shell=sh
# Arguments: FD WORKDIR, then those of enter_image.sh, which follows.
# sh closes a descriptor by a computed number with eval only. FD is a digit.
eval "exec $1>&-"
cd -- "$2" 2> /dev/null || {
    # Control characters could change the terminal. The image may have no tr.
    argosy_shown=$2
    while :; do
        case $argosy_shown in
            *[[:cntrl:]]*) argosy_shown=${argosy_shown%%[[:cntrl:]]*}"?"${argosy_shown#*[[:cntrl:]]} ;;
            *) break ;;
        esac
    done
    printf "argosy: the container has no directory %s\n" "$argosy_shown" >&2
    printf "  -> check the path; to mount a folder of this machine: --bind %s\n" "$argosy_shown" >&2
    exit 125
}
shift 2
