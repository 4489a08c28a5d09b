# The remote side of `argosy images send`: "sh -c THIS NAME ARGUMENTS" calls the function NAME.
# shellcheck shell=sh

# find_target PATH NAME: print the folder and the name of the new file, and the sha256 of an existing one.
# If the name is that of a folder or a device, print "taken" instead of the sha256.
find_target() {
    if [ -d "$1" ]; then
        folder=$1 name=$2
    else
        case $1 in
            */)
                echo "no such folder" >&2
                exit 1
                ;;
        esac
        folder=$(dirname -- "$1") name=$(basename -- "$1")
    fi
    cd -- "$folder" || exit 1
    printf '%s\n' "$(pwd)" "$name"
    if [ -f "$name" ]; then
        sha256sum < "$name"
    elif [ -e "$name" ]; then
        echo taken
    fi
}

# list_images FOLDER COUNT BYTES FILE...: print the size, the name and the first bytes of the newest files.
# Name and bytes are in base64. Without FILE, it lists all SIF files.
list_images() {
    cd -- "$1" || exit 1
    count=$2 bytes=$3
    shift 3
    [ $# -gt 0 ] || set -- *.sif
    # shellcheck disable=SC2012 # find(1) cannot sort by time
    ls -t -- "$@" 2> /dev/null | head -n "$count" | while IFS= read -r name; do
        [ -f "$name" ] || continue
        printf '%s %s %s\n' "$(wc -c < "$name")" "$(printf %s "$name" | base64 | tr -d '\n')" \
            "$(head -c "$bytes" -- "$name" | base64 | tr -d '\n')"
    done
}

# report_growth FILE: print the size of a file to standard error until the caller ends this.
report_growth() {
    while sleep 1 > /dev/null 2>&1; do echo "received $(wc -c < "$1")" >&2; done < /dev/null > /dev/null
}

# receive FOLDER NAME TEMPORARY SHA256 [BEFORE DONOR FIRST SIZE]: write standard input to a temporary file, and
# rename it if its sha256 is right; else exit with 9. With a donor, SIZE bytes from byte FIRST of it (counted from 1)
# follow the first BEFORE bytes of standard input.
receive() {
    cd -- "$1" || exit 1
    temporary=$3
    : > "$temporary"
    report_growth "$temporary" &
    reporter=$!
    trap 'kill "$reporter" 2> /dev/null; rm -f -- "$temporary"' EXIT HUP INT TERM
    if [ $# -gt 4 ]; then
        { head -c "$5" && tail -c "+$7" -- "$6" | head -c "$8" && cat; } > "$temporary" || exit 1
    else
        cat > "$temporary" || exit 1
    fi
    [ "$(sha256sum < "$temporary" | cut -c 1-64)" = "$4" ] || exit 9
    [ ! -d "$2" ] || {
        echo "$2 is a folder" >&2
        exit 1
    }
    mv -f -- "$temporary" "$2"
}
