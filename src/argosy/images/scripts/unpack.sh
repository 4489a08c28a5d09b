# shellcheck shell=sh
# unpack COMPRESSION COMMAND...: decompress standard input for a command; exit with 9 if the input is damaged.
# The exit code of a pipeline is that of its last command, and a decompressor may find damage only after it has written
# all data.  The substitution takes its exit code, and file descriptor 4 the output of the command.
unpack() {
    exec 4>&1
    failed=$({
        { "$1" -dc || echo "$?" >&3; } | {
            shift
            # A command that has read enough must not end the decompressor before it has checked the rest.
            "$@" >&4 3>&- && cat > /dev/null
        }
    } 3>&1)
    code=$?
    case $1:$failed in
        *: | gzip:2 | xz:2) exit "$code" ;;         # these two exit with 2 after a warning
        *:141) [ "$code" -eq 0 ] || exit "$code" ;; # SIGPIPE: the command ended first
        *:???) exit "$failed" ;;
    esac
    exit 9
}
