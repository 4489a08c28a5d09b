# Sum what the processes of each rank use, and print a line for each rank.
#
# Input: lines of the files environ, status and stat below /proc, each with the name of its file, as grep -H prints them.
# Variables: own = the Slurm step of this program, whose processes do not count;
#            root = only the processes below this process count; empty: all.

{
    pid = substr($0, 7)
    sub(/\/.*/, "", pid)
    text = $0
    sub(/^[^:]*:/, "", text)
}
/^\/proc\/[0-9]+\/environ:/ {
    name = text
    sub(/=.*/, "", name)
    value[pid, name] = substr(text, length(name) + 2)
    next
}
/^\/proc\/[0-9]+\/status:/ {
    split(text, field, /:[ \t]*/)
    value[pid, field[1]] = field[2]
    next
}
/^\/proc\/[0-9]+\/stat:/ {
    # The name of the program is in parentheses, and may contain blanks, parentheses and line breaks.
    sub(/^.*\) /, "", text)
    if (split(text, field, " ") < 20) next
    parent[pid] = field[2]
    ticks[pid] = field[12] + field[13] + field[14] + field[15]
    started[pid] = field[20]
}

function counts(pid,    other, steps) {
    # The batch shell, which starts the ranks, is step -5 since Slurm 26.05.
    if (root == "") return value[pid, "SLURM_STEP_ID"] !~ /^(|-5)$/ && value[pid, "SLURM_STEP_ID"] != own
    for (other = pid; other in parent && steps++ < 100; other = parent[other]) if (other == root) return 1
    return 0
}

# A program that Argosy starts has RANK; torchrun, which starts it, has only the number of its Slurm task.
function rank_of(pid) {
    return has_rank ? value[pid, "RANK"] : value[pid, "SLURM_PROCID"]
}

function local_of(pid) {
    return has_rank ? value[pid, "LOCAL_RANK"] : value[pid, "SLURM_LOCALID"]
}

function visible(pid,    names, n, count, found) {
    count = split("ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES ZE_AFFINITY_MASK", names, " ")
    for (n = 1; n <= count; n++)
        if (value[pid, names[n]] ~ /^[A-Za-z0-9,.:_\/-]+$/) found = found " " names[n] "=" value[pid, names[n]]
    return found
}

END {
    for (pid in ticks) if (counts(pid) && value[pid, "RANK"] != "") has_rank = 1
    for (pid in ticks) {
        rank = counts(pid) ? rank_of(pid) : ""
        if (rank !~ /^[0-9]+$/) continue
        ranks[rank] = 1
        use[rank] += ticks[pid]
        memory[rank] += value[pid, "VmRSS"]
        threads[rank] += value[pid, "Threads"]
        pids[rank] = pids[rank] "," pid
        # The first process of a rank: the one that started first, and of those the parent.
        if (!(rank in first) || started[pid] + 0 < started[first[rank]] + 0 || pid == parent[first[rank]]) first[rank] = pid
    }
    for (rank in ranks) {
        pid = first[rank]
        printf "rank=%s local=%s pid=%s pids=%s ticks=%.0f memory=%.0f threads=%d cores=%s%s\n", rank, local_of(pid) + 0, \
            pid, substr(pids[rank], 2), use[rank], memory[rank], threads[rank], value[pid, "Cpus_allowed_list"], visible(pid)
    }
}
