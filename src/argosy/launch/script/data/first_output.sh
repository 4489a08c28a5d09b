#!/bin/sh
# Record when the ranks write their first line.  It runs in the background, and starts before the ranks.
# Arguments: the process of the job script, and the bytes of its output before.  Lines of Argosy and srun do not count.
set -u
record=${0%/*} tries=0 pause=0.2 alive=yes
output=$(readlink "/proc/$$/fd/1")
[ -f "$output" ] || exit 0
while [ -n "$alive" ]; do
    kill -0 "$1" 2> /dev/null || alive=''
    if tail -c "+$(($2 + 1))" "$output" | grep -qv -e '^argosy: ' -e '^srun: '; then
        printf '%s %s %s\n' "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}" "$(date +%s)" >> "$record/first-output"
        exit
    fi
    tries=$((tries + 1))
    [ "$tries" -lt 50 ] || pause=2
    [ -z "$alive" ] || sleep "$pause"
done
