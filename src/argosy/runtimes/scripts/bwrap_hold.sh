# shellcheck shell=sh
echo "$$" >&3
exec 3>&-
# shellcheck disable=SC2034
read -r argosy_line
