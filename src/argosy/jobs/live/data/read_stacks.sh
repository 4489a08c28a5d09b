# shellcheck shell=sh
# On each node of a job: print the Python stacks of its ranks.  Arguments: PY_SPY NODE:RANK:PID,PID,…
argosy_spy=$(command -v py-spy || command -v "$1") || argosy_spy=''
shift
argosy_node=${SLURMD_NODENAME:-$(hostname)}
# Print the first Python process of a rank, which started the others; else its first process.
find_python() {
    for argosy_pid in $(echo "$1" | tr , ' '); do
        argosy_program=$(readlink "/proc/$argosy_pid/exe") || continue
        case ${argosy_program##*/} in python* | pypy*) echo "$argosy_pid python" && return ;; esac
    done 2> /dev/null
    read -r argosy_program < "/proc/${1%%,*}/comm" && echo "${1%%,*} ${argosy_program:-?}"
} 2> /dev/null
for argosy_word; do
    case $argosy_word in "$argosy_node":*) ;; *) continue ;; esac
    argosy_word=${argosy_word#"$argosy_node":}
    argosy_found=$(find_python "${argosy_word#*:}")
    argosy_pid=${argosy_found%% *} argosy_wait=''
    read -r argosy_wait 2> /dev/null < "/proc/$argosy_pid/wchan" || :
    echo "rank ${argosy_word%%:*} ${argosy_pid:-0} ${argosy_wait:-0} ${argosy_found#* }"
    case $argosy_found in *' python') ;; *) continue ;; esac
    if [ -z "$argosy_spy" ]; then
        echo "missing py-spy"
    else
        timeout 20 "$argosy_spy" dump --json --pid "$argosy_pid" 2>&1 || echo "failed $?"
    fi
done
