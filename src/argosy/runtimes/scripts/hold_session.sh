# shellcheck shell=sh
# Hold a container until SIGTERM. The caller reads the process id.
echo "argosy-session $$"
exec < /dev/null > /dev/null 2>&1
trap 'kill "$argosy_sleep"; exit 0' TERM
while :; do
    sleep 3600 &
    argosy_sleep=$!
    wait "$argosy_sleep"
done
