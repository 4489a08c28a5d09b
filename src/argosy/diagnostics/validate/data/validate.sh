# ---- The rest of the script is the same at every site. Each line that it prints is one fact: name and value.
# A failure is a fact, too, and does not end the job. The JSON is written at the end, also after the time limit.
work=$(mktemp -d)
: > "$work/facts"
clean() { LC_ALL=C tr '\n\t' '  ' | LC_ALL=C tr -d '\000-\037\177' | sed 's/^ *//; s/ *$//; s/[\\"]/\\&/g'; }
fact() {  # NAME VALUE HOW
    value=$(printf %s "$2" | clean) how=$(printf %s "$3" | clean)
    [ ! -s "$work/facts" ] || printf ',\n' >> "$work/facts"
    printf '  {"name": "%s", "value": "%s", "how": "%s"}' "$1" "$value" "$how" >> "$work/facts"
    printf '%-24s %s\n' "$1" "$2"
}
not_tried() { fact "$1" "not tried" "$2"; }
yes_no() { if "$@" > /dev/null 2>&1; then echo yes; else echo no; fi; }
code_of() { code=0; "$@" > /dev/null 2>&1 || code=$?; echo "$code"; }
finish() {
    {
        printf '{"argosy_validate": 1, "site": "%s", "job": "%s", "date": "%s",\n' \
            "$(printf %s "$site" | clean)" "$SLURM_JOB_ID" "$(date +%Y-%m-%d)"
        printf ' "partition": "%s", "nodes": "%s", "runtime": "%s", "image": "%s",\n "facts": [\n' \
            "${SLURM_JOB_PARTITION:-}" "$SLURM_JOB_NODELIST" "$runtime" "$(printf %s "$image" | clean)"
        cat "$work/facts"
        printf '\n]}\n'
    } > "$result.part" && mv "$result.part" "$result" && echo "written: $result"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT
result=${SLURM_SUBMIT_DIR:-$PWD}/argosy-validate-$SLURM_JOB_ID.json
step() { timeout 60 srun $step_options --overlap "$@"; }
one() { step --nodes=1 --ntasks=1 --nodelist="$first" "$@"; }

# ---- Slurm and the nodes.
fact slurm.version "$(srun --version 2>&1)" "srun --version"
about=$(scontrol show node "$first" 2>/dev/null | tr ' ' '\n' || :)
of_node() { printf '%s\n' "$about" | sed -n "s/^$1=//p" | head -n 1; }
sockets=$(of_node Sockets) each=$(of_node CoresPerSocket)
fact node.sockets "$sockets" "scontrol show node $first"
fact node.cores "$((${sockets:-0} * ${each:-0}))" "scontrol show node $first: sockets x cores of each"
fact node.memory_mb "$(of_node RealMemory)" "scontrol show node $first"
gres=$(of_node Gres | tr ',' '\n' | sed -n 's/^gpu:\(.*:\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
fact node.gpus "${gres:-0}" "scontrol show node $first: Gres"
ask='
say() { printf "%s %s\n" "$1" "$2"; }
say node.arch "$(uname -m)"
say node.kernel "$(uname -r)"
say node.glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null | tr " " -)"
say node.numa "$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)"
say node.tmp "$(stat -f -c %T /tmp)"
say node.user_namespaces "$(unshare -Ur true 2>/dev/null && echo yes || echo no)"
say node.fuse "$([ -w /dev/fuse ] && echo yes || echo no)"
say node.memlock "$(ulimit -l 2>/dev/null || echo unknown)"
vendor=none devices=0
for pair in nvidia:/dev/nvidia[0-9]* amd:/dev/kfd intel:/dev/dri/renderD*; do
    set -- ${pair#*:}
    [ ! -e "$1" ] || [ "$vendor" != none ] || { vendor=${pair%%:*} devices=$#; }
done
[ "$vendor" != amd ] || { set -- /dev/dri/renderD*; devices=$#; }
say gpus.vendor "$vendor"
say gpus.device_nodes "$devices"
say gpus.given "${SLURM_GPUS_ON_NODE:-0}"
say gpus.variables "$(env | sed -nE "s/^((ROCR|HIP|CUDA)_VISIBLE_DEVICES|ZE_AFFINITY_MASK)=/\1=/p" | sort | tr "\n" ";")"
'
step --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 sh -c "$ask" 2>&1 | sort -u > "$work/nodes" || :
for name in $(cut -d ' ' -f 1 "$work/nodes" | grep -E '^(node|gpus)\.' | uniq); do
    fact "$name" "$(sed -n "s/^$name //p" "$work/nodes" | paste -s -d '|' -)" "measured on each node; | separates different results"
done
fact master.name "$first$suffix" "first host of the list, with the suffix of the profile"
for host in $hosts; do [ "$host" = "$first" ] || other=$host; done
fact master.resolves "$(yes_no step --nodes=1 --ntasks=1 --nodelist="${other:-$first}" getent hosts "$first$suffix")" \
    "getent hosts on ${other:-the same node}"
wish=$((20000 + SLURM_JOB_ID * 7 % 10000))
MASTER_PORT=$(sh -c "$argosy_helpers" free_port "$wish" || echo 0) MASTER_ADDR=$first$suffix
export MASTER_ADDR MASTER_PORT
fact port.free "$MASTER_PORT" "first free port from $wish on; ephemeral ports: $(tr '\t' '-' < /proc/sys/net/ipv4/ip_local_port_range)"

# Print the last line that is a list of numbers, else the last line: prologs and epilogs of tasks print lines, too.
last_numbers() { awk '/^[0-9,: -]+$/ { numbers = $0 } { last = $0 } END { print (numbers == "" ? last : numbers) }'; }

# ---- Cores: a task gets what srun requests.
cores='cores=$(taskset -cp $$ 2>/dev/null) || cores=$(grep Cpus_allowed_list: /proc/self/status); echo "${cores##*[!0-9,:-]}"'
mine=$(one --cpus-per-task=2 --ntasks-per-node=1 --exact sh -c "$cores" 2>/dev/null | last_numbers || :)
fact cores.of_two "$mine" "a task of srun --cpus-per-task=2 reads its mask"
lowest=${mine%%[!0-9]*}
if [ -n "$lowest" ] && [ "$lowest" -lt 60 ]; then
    mask=$(printf '0x%x' $((1 << lowest)))
    back=$(one --cpu-bind="mask_cpu:$mask" sh -c "$cores" 2>/dev/null | last_numbers || :)
    fact mask.asked "$lowest" "srun --cpu-bind=mask_cpu:$mask"
    fact mask.read_back "$back" "by the task"
fi
if [ -n "$masks" ]; then
    back=$(unset SRUN_CPUS_PER_TASK; one --ntasks="$ranks_per_node" --cpu-bind="$masks" sh -c \
        "sleep \"0.\$SLURM_LOCALID\"; $cores" 2>/dev/null | grep '^[0-9,:-]*$' | tr '\n' ' ' || :)
    fact mask.planned "$planned" "the profile's gpu_cpus"
    fact mask.planned_read_back "${back% }" "srun --cpu-bind=$masks"
else
    not_tried mask.planned "the profile has no GPU -> CPU map for this job"
fi

# ---- Exit codes, arguments.
fact exit.own "$(code_of one sh -c 'exit 3')" "one task exits with 3"
fact exit.killed "$(code_of one sh -c 'kill -9 $$')" "signal 9 ends one task"
fact exit.first_of_several "$(code_of step --nodes="$SLURM_JOB_NUM_NODES" --ntasks=2 --kill-on-bad-exit=1 \
    sh -c '[ "$SLURM_PROCID" != 1 ] || exit 3; sleep 20')" "task 1 exits with 3, and srun ends the others"
big=$(head -c 131000 /dev/zero | tr '\0' x)
fact arguments.one "$(one sh -c 'echo "${#1}"' sh "$big" 2>&1 | last_numbers)" "bytes of one argument that the task gets, of 131000"
fact arguments.all "$(one sh -c 'printf %s "$@" | wc -c' sh "$big" "$big" "$big" "$big" 2>&1 | last_numbers)" \
    "bytes of four arguments that the task gets, of 524000"

# ---- Signals: which processes get a warning: the batch shell, a task, a child of the task.
# They listen for some seconds more, because scancel may be slow; a signal ends this soon.
listen='n=0; trap "echo task; n=13" USR1
sh -c "n=0; trap \"echo child; n=12\" USR1; echo ready; while [ \$n -lt 14 ]; do sleep 1 & wait \$! || :; n=\$((n + 1)); done" &
while [ $n -lt 15 ]; do sleep 1 & wait $! || :; n=$((n + 1)); done'
heard() {  # OPTIONS-OF-SCANCEL, then the command that starts the listener
    words=$1; shift
    batch=''; trap 'batch="batch "' USR1
    : > "$work/heard"
    "$@" sh -c "$listen" > "$work/heard" 2>/dev/null & listener=$!
    left=30; until grep -q ready "$work/heard" || [ "$left" = 0 ]; do sleep 1 || :; left=$((left - 1)); done
    # shellcheck disable=SC2086  # may be empty
    scancel $words --signal=USR1 "$SLURM_JOB_ID" || :
    while kill -0 "$listener" 2>/dev/null; do wait "$listener" || :; done
    trap - USR1
    got=$batch$(grep -xE 'task|child' "$work/heard" | sort -u | tr '\n' ' ' || :)
    if grep -q ready "$work/heard"; then got=${got% }; echo "${got:-nobody}" > "$work/got"
    else echo "the listener did not start" > "$work/got"; fi
}
heard '' one; fact signal.to_job "$(cat "$work/got")" "scancel --signal=USR1 JOB: who receives it"
heard --batch one; fact signal.to_batch "$(cat "$work/got")" "scancel --batch --signal=USR1 JOB: who receives it"

# ---- MPI.
fact mpi.list "$(srun --mpi=list 2>&1 | sed 's/^.*\.\.\.//; s/.*: *//' | tr -s ',\n\t' '   ')" "srun --mpi=list"
fact mpi.pmix_folder "$(one --mpi=pmix sh -c 'echo "${PMIX_SERVER_TMPDIR:-none}"' 2>/dev/null | tail -n 1 || :)" \
    "PMIX_SERVER_TMPDIR of a task of srun --mpi=pmix"

# ---- The container runtime, and the image.
if [ -n "$program" ] && command -v "$program" > /dev/null; then
    fact runtime.version "$("$program" --version 2>&1 | head -n 1 | tr -d ',' | awk '{ print $NF }')" "$program --version"
else
    fact runtime.version "${program:+not installed}" "searched for ${program:-no program: srun starts the containers}"
fi
if [ -z "$image" ]; then
    for name in runtime.mode attach.overlay attach.bind env.plain env.forced env.verbatim network.line; do
        not_tried "$name" "no image was given: argosy sites validate SITE --image IMAGE"
    done
    exit 0
fi
at_first="--nodes=1 --ntasks=1 --nodelist=$first"
fact image.starts "$(code_of inside "$at_first" true)" "exit code of 'true' in the container, with all options of a launch"
map=$(inside "$at_first" cat /proc/self/uid_map 2>/dev/null | grep -xE '( *[0-9]+){3}' | awk '{ print $1, $2, $3 }' || :)
case $map in
    '') fact runtime.mode unknown "/proc/self/uid_map in the container" ;;
    '0 0 4294967295') fact runtime.mode setuid "the container has no user namespace: uid_map is $map" ;;
    *) fact runtime.mode "user namespace" "uid_map in the container: $map" ;;
esac
fact exit.container "$(code_of inside "$at_first" sh -c 'exit 3')" "a command in the container exits with 3"
fact arguments.container "$(inside "$at_first" sh -c 'printf %s "$@" | wc -c' sh "$big" "$big" "$big" "$big" 2>&1 | last_numbers)" \
    "bytes of four arguments that the container gets, of 524000"
in_container() { inside "$at_first" "$@"; }
heard '' in_container; fact signal.in_container "$(cat "$work/got")" "scancel --signal=USR1 JOB: who receives it in the container"
fact mpi.pmix_folder_inside "$(inside "$at_first --mpi=pmix" sh -c '[ -d "${PMIX_SERVER_TMPDIR:-}" ] && echo yes || echo no' \
    2>/dev/null | tail -n 1 || :)" "whether the container contains it without a bind mount"
fact gpus.inside "$(inside "$at_first" sh -c 'set -- /dev/nvidia[0-9]*; [ -e "$1" ] || set -- /dev/dri/renderD*
    [ -e "$1" ] && echo $# || echo 0' 2>/dev/null | tail -n 1)" "device files in the container"

case $runtime in apptainer | singularity)
    plain() { one "$program" exec "$@"; }
    started=/opt/argosy/enter
    if [ -n "$part" ]; then
        fact attach.overlay "$(yes_no plain "$image" test -x "$started")" "$program exec IMAGE test -x $started"
        fact attach.bind "$(yes_no plain -B "$image:/mnt:id=$part,image-src=/opt/argosy" "$image" test -x /mnt/enter)" \
            "$program exec -B IMAGE:/mnt:id=$part,image-src=/opt/argosy"
    else
        not_tried attach.overlay "the image has no separate layer"
        not_tried attach.bind "the image has no separate layer"
    fi
    # Which value has a variable that the image sets, too?
    own=$(plain --cleanenv "$image" env 2>/dev/null | sed -n 's/^\([A-Z][A-Z0-9_]*\)=.*/\1/p' | grep -vE \
        '^(APPTAINER|SINGULARITY|SLURM|PMI|PMIX|PATH|LD_LIBRARY_PATH|HOME|USER|USER_PATH|PWD|SHLVL|LANG|TERM|PS1|PROMPT)' |
        head -n 1 || :)
    family=$(printf %s "$program" | tr '[:lower:]' '[:upper:]')
    value_of() { tail -n 1 "$work/value"; }
    if [ -n "$own" ]; then
        env "$own=mine" timeout 60 srun $step_options --overlap $at_first --export=ALL "$program" exec "$image" \
            printenv "$own" > "$work/value" 2>/dev/null || :
        fact env.plain "$([ "$(value_of)" = mine ] && echo yes || echo no)" "a plain export of $own overrides the value of the image"
        env "${family}ENV_$own=mine" timeout 60 srun $step_options --overlap $at_first --export=ALL "$program" exec "$image" \
            printenv "$own" > "$work/value" 2>/dev/null || :
        fact env.forced "$([ "$(value_of)" = mine ] && echo yes || echo no)" "${family}ENV_$own overrides the value of the image"
    else
        not_tried env.plain "the image sets no variable"
        not_tried env.forced "the image sets no variable"
    fi
    odd='a `echo b` $(echo c) $HOME "d"'
    env "${family}ENV_ARGOSY_ODD=$odd" timeout 60 srun $step_options --overlap $at_first --export=ALL "$program" exec --no-eval "$image" \
        printenv ARGOSY_ODD > "$work/value" 2>/dev/null || :
    fact env.verbatim "$([ "$(value_of)" = "$odd" ] && echo yes || echo no)" "with --no-eval, a value with special characters of the shell is unchanged"
    ;;
*)
    for name in attach.overlay attach.bind env.plain env.forced env.verbatim; do
        not_tried "$name" "only tested under Apptainer and SingularityCE"
    done
    ;;
esac

# ---- One all-reduce over all nodes, and the network that it used.
reduce='
import os
os.environ.setdefault("NCCL_DEBUG", "INFO")
import torch, torch.distributed as dist
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=world)
if gpu: torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]) % torch.cuda.device_count())
x = torch.ones(1 << 20, device="cuda" if gpu else "cpu")
dist.all_reduce(x)
print("argosy", "nccl" if gpu else "gloo", int(x[0]) == world, torch.__version__, flush=True)
os._exit(0)
'
for python in python python3 ''; do
    [ -n "$python" ] || break
    inside "$at_first" "$python" -c 'import torch' > /dev/null 2>&1 && break
done
if [ -n "$python" ]; then
    inside "--nodes=$SLURM_JOB_NUM_NODES --ntasks-per-node=1" "$python" -c "$reduce" > "$work/reduce" 2>&1 || :
    said=$(sed -n 's/.*argosy \([a-z]* [A-Z][a-z]*\) .*/\1/p' "$work/reduce" | head -n 1)
    fact network.all_reduce "${said:-failed: $(tail -n 1 "$work/reduce")}" "sum over all nodes by torch.distributed"
    line=$(grep -E 'NET/OFI Selected [Pp]rovider|NET/IB : Using|Using network' "$work/reduce" | sed 's/.*NCCL INFO //' | sort -u | paste -s -d ';' -)
    case $said in gloo*) line=${line:-TCP by gloo: PyTorch finds no GPU} ;; esac
    fact network.line "${line:-none}" "network in the log of NCCL or RCCL"
else
    not_tried network.all_reduce "the image does not contain PyTorch"
    not_tried network.line "the image does not contain PyTorch"
fi
