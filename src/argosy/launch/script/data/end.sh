#!/bin/sh
# At the end of each run of the job: record it, print the rank that failed first, and a verdict on the run.
# Arguments: the run's exit code, and the number of ranks that it should have.  See also 'argosy verify JOB'.
set -u
task=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
code=$1 wanted=$2 record=${0%/*} restart=${SLURM_RESTART_COUNT:-0}
cores='@CORES@'
gpus=@GPUS@
printf '%s %s %s %s %s %s %s\n' "$SLURM_JOB_ID" "$restart" "$code" "$SLURM_JOB_NODELIST" \
    "${SLURM_JOB_START_TIME:-0}" "$(date +%s)" "$task" >> "$record/ends"

output=$(readlink "/proc/$$/fd/2")
# A program may leave its last line open, for example a progress bar.
[ ! -s "$output" ] || [ "$(tail -c 1 "$output" | wc -l)" -gt 0 ] || echo >&2
[ "$code" -eq 0 ] || [ ! -f "$output" ] || awk '
    BEGIN {
        n = split("Hangup=1;Illegal instruction=4;Aborted=6;Bus error=7;Floating point exception=8;Killed=9" \
            ";Out Of Memory=9;Segmentation fault=11", list, ";")
        for (i = 1; i <= n; i++) { split(list[i], pair, "="); signal[pair[1]] = pair[2] }
    }
    # The job script printed this at the end of a run: the lines before belong to an earlier run.
    /^argosy: (the run wrote a new checkpoint|job [0-9_]+ ended)/ { first = ""; best = ""; others = 0 }
    # From here on, Slurm ends the remaining ranks with signals.
    /srun: (.*_step_signal: )?(Terminating|forcing|Job step aborted)|CANCELLED AT / { others = 1 }
    /Root Cause \(first observed failure\)/ { root = 1 }
    root && $1 == "time" { time = $3 }
    root && $1 == "host" { host = $3 }
    root && $1 == "rank" { rank = $3 }
    root && $1 == "exitcode" {
        if ($3 != -15 && (best == "" || time < best)) { best = time; first = rank " " host " " $3 }
        root = 0
    }
    # The ranks of a node in one container are one task of srun.
    best == "" && /^argosy: rank [0-9]+ on [^ ]+ ended with (code|signal) [0-9]+$/ {
        best = "reported"; first = $3 " " $5 " " ($8 == "signal" ? -$9 : $9)
    }
    { sub(/.*srun: error: /, "srun: error: ") }
    best == "" && first == "" && /^srun: error: .*: Exited with exit code / && $NF != 143 && $NF != 137 {
        split($5, list, /[,:-]/); sub(/:$/, "", $3); first = list[1] " " $3 " " $NF
    }
    best == "" && first == "" && !others && /^srun: error: [^ ]*: tasks? [0-9,-]*: / {
        how = $0; sub(/^srun: error: [^ ]*: tasks? [0-9,-]*: /, "", how); sub(/ \(core dumped\)$/, "", how)
        split($5, list, /[,:-]/); sub(/:$/, "", $3)
        if (how in signal) first = list[1] " " $3 " -" signal[how]
    }
    END { if (first != "") print first }' "$output" |
    while read -r rank host own; do
        case $own in -*) how="signal ${own#-}" ;; *) how="code $own" ;; esac
        printf 'argosy: rank %s on %s failed first (%s)\n' "$rank" "$host" "$how" >&2
        printf '%s %s %s %s %s\n' "$SLURM_JOB_ID" "$restart" "$rank" "$host" "$own" >> "$record/first"
    done

# Thousands of nodes leave a file each: short names fit into a command line.
cd "$record" || exit
network=$(cat nccl-"$restart"-*.log 2> /dev/null | sed -n '
    s/.*NET\/OFI Selected [Pp]rovider is \([^ ,]*\).*/libfabric \1/p
    s/.*Using network \([^ ].*\)/\1/p' | sort -u | tr '\n' ',')
# A device file does not show that a GPU was used: NCCL and RCCL log the GPUs that the program opened.
used=$(cat nccl-"$restart"-*.log 2> /dev/null |
    sed -n 's/^\([^ :]*\):.* cudaDev [0-9]* .*busId \([0-9a-f]*\).*/\1 \2/p' | sort -u | wc -l)
# JAX says if it is a build for the CPU.
jax=''
[ "$used" -gt 0 ] || [ "$gpus" -eq 0 ] || [ ! -f "$output" ] ||
    ! grep -qF 'CUDA-enabled jaxlib is not installed' "$output" || jax=yes
cat ranks-* 2> /dev/null | awk -v job="$SLURM_JOB_ID" -v restart="$restart" -v wanted="$wanted" \
    -v cores="$cores" -v network="$network" -v used="$used" -v jax="$jax" -v requested="$gpus" '
    BEGIN { split("ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES ZE_AFFINITY_MASK", names, " ") }
    {
        split("", word)
        for (i = 1; i <= NF; i++) { at = index($i, "="); word[substr($i, 1, at - 1)] = substr($i, at + 1) }
        # The jobs of an array share this folder.
        if (("job" in word && word["job"] != job) || word["restart"] != restart) next
        # In an elastic run, ranks start several times.
        if (word["rank"] in started) next
        started[word["rank"]] = 1
        if (!(word["host"] in hosts)) { hosts[word["host"]] = 1; nodes++ }
        ranks++
        split(cores, planned, " ")
        if (word["cores"] == planned[word["local"] + 1]) bound++
        gpus = word["devices"] + 0
        for (n in names) if (word[names[n]] != "") {
            many = split(word[names[n]], list, ",")
            if (many < gpus) gpus = many
        }
        if (ranks == 1 || gpus < least) least = gpus
        if (gpus > most) most = gpus
    }
    END {
        if (!ranks) exit
        # A container without GPUs may show the device files of the node.
        if (!requested && !used) most = 0
        # Only a line of NCCL or RCCL shows that a rank joined the others: each may have run the program alone.
        joined = network == "" && !used ? " started" : ""
        said = "ranks: " ranks " of " wanted joined " on " nodes (nodes == 1 ? " node" : " nodes")
        if (cores != "") said = said " · cores: " bound + 0 " of " ranks " as planned"
        if (most) {
            unused = jax == "" ? "use not shown" : "not used by JAX, a build for the CPU"
            said = said " · GPUs: " (used > 0 ? used + 0 " used by NCCL or RCCL" : unused)
            said = said "; each rank can see " (least == most ? most : least " to " most)
        }
        sub(/,$/, "", network); gsub(/,/, ", ", network)
        sub(/^IB$/, "InfiniBand", network)
        if (network ~ /Socket/ && nodes > 1) network = "TCP SOCKETS, not the fast network"
        if (network == "" && most) network = "not reported by NCCL or RCCL"
        if (network == "") network = "not shown (no GPU)"
        if (nodes > 1 || most) said = said " · network: " network
        print "argosy: verdict: " said
    }' >&2
