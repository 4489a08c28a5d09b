# Run the variants of a job alternately. The lines before this file set rounds, metric, unit, runs (a file), forwards and
# backwards (lists of variants), and the function choose, which sets script and name of a variant.
set -u

# Print the first number after the last "$1" in the file $2.
read_metric() {
    phrase=$1 awk 'at = index($0, ENVIRON["phrase"]) {
        rest = substr($0, at + length(ENVIRON["phrase"]))
        if (match(rest, /[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?/)) found = substr(rest, RSTART, RLENGTH)
    } END { print found }' "$2"
}

# Print the seconds since $1, a time in seconds.
read_clock() {
    awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.3f\n", b - a }'
}

# Run variant $2 in round $1. Sets name, code, value and failed.
run() {
    choose "$2"
    out=${script%.sh}-$1.out code=0 began=$(date +%s.%N)
    sh "$script" > "$out" 2>&1 &
    step=$!
    wait "$step" || code=$?
    step=""
    if [ -n "$metric" ]; then value=$(read_metric "$metric" "$out"); else value=$(read_clock "$began"); fi
    failed=""
    if [ "$code" -ne 0 ]; then
        worst=$code failed=" (code $code)"
        tail -n 5 "$out"
    fi
}

step="" worst=0
trap '[ -z "$step" ] || kill -s TERM "$step" 2> /dev/null; exit 143' TERM INT
run 0 0 # warms the caches and is not counted
round=1
while [ "$round" -le "$rounds" ]; do
    # Every second round runs backwards, so that a drift (heat, neighbours, a cache) affects all variants.
    if [ $((round % 2)) -eq 1 ]; then order=$forwards; else order=$backwards; fi
    for variant in $order; do
        run "$round" "$variant"
        echo "argosy-variant $round $variant $code ${value:--}" >> "$runs"
        printf '%s\n' "round $round of $rounds: $name: ${value:--}$unit$failed"
    done
    round=$((round + 1))
done
exit "$worst"
