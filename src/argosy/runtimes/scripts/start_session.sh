# shellcheck shell=sh
# Start the program in a session of its own, and print its output until it holds the container. Arguments: FIFO PROGRAM...
# Apptainer's own process keeps the output open, so the end of the output cannot be awaited.
argosy_fifo=$1
shift
mkfifo "$argosy_fifo" || exit 1
setsid --fork "$@" < /dev/null > "$argosy_fifo" 2>&1 &
while IFS= read -r argosy_line; do
    printf "%s\n" "$argosy_line"
    case $argosy_line in "argosy-session "*) exit 0 ;; esac
done < "$argosy_fifo"
exit 1
