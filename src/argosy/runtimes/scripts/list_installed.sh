# shellcheck shell=sh
# Print the packages that someone asked for, one per line: "apt NAME", "pip NAME REQUIREMENT".
# Argument: the Python program that prints the lines of pip.
for argosy_name in $(apt-mark showmanual 2> /dev/null); do
    printf "apt %s %s\n" "$argosy_name" "$argosy_name"
done
argosy_python=$(command -v python3 || command -v python) || exit 0
exec "$argosy_python" -I -c "$1"
