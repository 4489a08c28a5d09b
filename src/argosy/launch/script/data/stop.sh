# shellcheck shell=sh
# End with a sentence and an exit code that 'argosy why' knows.
stop() {
    printf 'argosy: %s\n' "$1" >&2
    exit "$2"
}
