#!/bin/bash
# A stand-in for any program of a job script: its name decides what it does. A launcher or a container runtime removes
# its options and starts the program behind them, as one rank; any other program only notes how it was started.
# The variables of this script begin with stub_; those with STUB_ are notes for the program inside.

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0 # sourced in place of a file that is not there

# VALUED ARGUMENT...: call `option NAME VALUE` for each option; VALUED has the names of those with a value.
# Sets stub_rest to the arguments behind the options.
take_options() {
    local stub_valued=" $1 " stub_word stub_bare
    shift
    while [[ ${1-} == -?* ]]; do
        stub_word=$1
        shift
        [[ $stub_word != -- ]] || break
        stub_bare=${stub_word#-}
        stub_bare=${stub_bare#-}
        if [[ $stub_word == --*=* ]]; then
            option "${stub_bare%%=*}" "${stub_bare#*=}"
        elif [[ $stub_valued == *" $stub_bare "* ]]; then
            option "$stub_bare" "${1-}"
            shift
        elif [[ $stub_word == -[a-zA-Z]?* && $stub_valued == *" ${stub_bare:0:1} "* ]]; then
            option "${stub_bare:0:1}" "${stub_bare:1}"
        else
            option "$stub_bare" ""
        fi
    done
    stub_rest=("$@")
}

set_pairs() {
    local stub_pairs stub_pair
    IFS=, read -ra stub_pairs <<< "$1"
    for stub_pair in "${stub_pairs[@]}"; do
        [[ $stub_pair != [A-Za-z_]*=* ]] || export "${stub_pair?}"
    done
}

start_srun() {
    local stub_nodes=${SLURM_JOB_NUM_NODES:-1} stub_tasks='' stub_each='' stub_folder='' stub_own_nodes=''
    option() {
        case $1 in
            n | ntasks) stub_tasks=$2 ;;
            N | nodes) stub_nodes=$2 stub_own_nodes=$2 ;;
            ntasks-per-node | tasks-per-node) stub_each=$2 ;;
            D | chdir) stub_folder=$2 ;;
            export) set_pairs "$2" ;;
            c | cpus-per-task) export SLURM_CPUS_PER_TASK="$2" ;;
            input | i) [ ! -r "$2" ] || exec < "$2" ;;
            multi-prog) stub_several=1 ;;
            container-image) export STUB_IMAGE="$2" ;;
        esac
    }
    take_options "n ntasks N nodes c cpus-per-task ntasks-per-node tasks-per-node D chdir input i output o error e mpi \
        cpu-bind cpu_bind m distribution gpus G gpus-per-node gpus-per-task gres gpu-bind mem mem-per-cpu w nodelist x \
        exclude t time J job-name p partition A account export r relative threads-per-core hint container-image \
        container-mounts container-workdir jobid het-group mem-bind W wait C constraint q qos" "$@"
    [ -z "$stub_folder" ] || cd "$stub_folder" || exit 1
    [ -n "$stub_tasks" ] || stub_tasks=${stub_each:+$((stub_each * stub_nodes))}
    [ -n "$stub_tasks" ] || [ -n "$stub_own_nodes" ] || stub_tasks=${SLURM_NTASKS:-}
    [ -n "$stub_tasks" ] || stub_tasks=${SLURM_NTASKS_PER_NODE:+$((SLURM_NTASKS_PER_NODE * stub_nodes))}
    export SLURM_NTASKS=${stub_tasks:-$stub_nodes} SLURM_NNODES=$stub_nodes SLURM_STEP_NUM_NODES=$stub_nodes
    export STUB_TASKS=$SLURM_NTASKS STUB_NODES=$stub_nodes SLURM_NPROCS=$SLURM_NTASKS SLURM_STEP_ID=0
    export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=node1
    [ -z "${stub_several-}" ] || note_call "${stub_rest[@]}"
}

start_mpirun() {
    export STUB_TASKS=${SLURM_NTASKS:-${SLURM_JOB_NUM_NODES:-1}}
    option() {
        case $1 in
            n | np | c) STUB_TASKS=$2 ;;
            N | ppn | npernode) STUB_TASKS=$(($2 * ${SLURM_JOB_NUM_NODES:-1})) ;;
            map-by)
                stub_each=${2#ppr:}
                [[ $2 != ppr:*:node* ]] || STUB_TASKS=$((${stub_each%%:*} * ${SLURM_JOB_NUM_NODES:-1}))
                ;;
            x | env) [[ $2 != *=* ]] || export "${2?}" ;;
            genv) stub_name=$2 ;;
        esac
    }
    take_options "n np c x env ppn N npernode map-by bind-to rank-by hostfile machinefile f host H hosts mca genv mpi \
        report-bindings-to perhost" "$@"
}

start_torchrun() {
    local stub_each=1 stub_plain='' stub_module=''
    option() {
        case ${1//_/-} in
            nproc-per-node | num-gpus) stub_each=$2 ;;
            no-python) stub_plain=1 ;;
            m | module) stub_module=1 ;;
        esac
    }
    take_options "nproc_per_node nproc-per-node nnodes node_rank node-rank rdzv_id rdzv-id rdzv_backend rdzv-backend \
        rdzv_endpoint rdzv-endpoint rdzv_conf rdzv-conf master_addr master-addr master_port master-port max_restarts \
        max-restarts monitor_interval monitor-interval start_method start-method log_dir log-dir r redirects t tee role \
        local_ranks_filter num_gpus num_nodes hostfile include exclude num_processes num_machines machine_rank \
        main_process_ip main_process_port mixed_precision config_file dynamo_backend rdzv_conf" "$@"
    export STUB_TASKS=$((${STUB_NODES:-1} * stub_each))
    [ -n "$stub_plain" ] || stub_rest=(python ${stub_module:+-m} "${stub_rest[@]}")
}

start_container() {
    local stub_folder=''
    shift # exec, run
    option() {
        case $1 in
            env) set_pairs "$2" ;;
            pwd | cwd) stub_folder=$2 ;;
        esac
    }
    take_options "B bind env pwd cwd W workdir H home overlay o app env-file S scratch mount" "$@"
    local stub_setting
    for stub_setting in "${!APPTAINERENV_@}" "${!SINGULARITYENV_@}"; do
        export "${stub_setting#*ENV_}=${!stub_setting}"
        unset "$stub_setting"
    done
    case ${stub_rest[0]} in
        /* | *://*) export STUB_IMAGE=${stub_rest[0]} ;;
        *) export STUB_IMAGE=$PWD/${stub_rest[0]} ;;
    esac
    STUB_IMAGE=${STUB_IMAGE//\/.\//\/}
    stub_rest=("${stub_rest[@]:1}")
    [ -z "$stub_folder" ] || { mkdir -p "$stub_folder" && cd "$stub_folder" || exit 1; }
}

# Note the arguments, the folder, the environment and the input, in a file whose name is the time.
note_call() {
    local stub_path=$0 stub_input='' stub_note=/calls/$EPOCHREALTIME.$$
    [[ $stub_path == /* ]] || stub_path=$PWD/$stub_path
    IFS= read -r -t 1 -d '' -n 2000 stub_input
    {
        printf '%s\0' "$stub_path" "$PWD" "$stub_input" "$#" "$@"
        env -0
    } > "$stub_note"
    (cd /home/ada && find . -not -name '*.log' -not -name '*.out') | sort > "$stub_note.files"
    [[ ${0##*/} != fails* ]]
    exit
}

stub_name=${0##*/}
stub_rest=()
case $stub_name in
    hostname) echo node1 && exit ;;
    nproc) echo 8 && exit ;;
    date) echo 1767225600 && exit ;;
    whoami) echo ada && exit ;;
    scontrol)
        [ "${2-}" != hostnames ] && [ "${2-}" != hostname ] && exit
        for ((stub_node = 1; stub_node <= ${SLURM_JOB_NUM_NODES:-1}; stub_node++)); do echo "node$stub_node"; done
        exit
        ;;
    sleep | module | ml | nvidia-smi | rocm-smi | conda | mamba | pip | pip3 | squeue | sinfo | which | tput | free | lscpu | git | spack | deactivate) exit ;;
    srun) start_srun "$@" ;;
    mpirun | mpiexec) start_mpirun "$@" ;;
    torchrun) start_torchrun "$@" ;;
    deepspeed) start_torchrun "$@" ;;
    accelerate)
        [ "${1-}" = launch ] || exit
        start_torchrun "${@:2}"
        ;;
    apptainer | singularity)
        [[ ${1-} != --* ]] || shift
        case ${1-} in
            exec | run) start_container "$@" ;;
            *) exit ;;
        esac
        ;;
    runscript) stub_rest=("$@") ;; # of an image
    time)
        option() { :; }
        take_options "f o" "$@"
        ;;
    numactl | taskset)
        option() { :; }
        take_options "cpunodebind membind N m c physcpubind C" "$@"
        ;;
    python*)
        stub_module=1
        [ "${1-}" != -u ] || stub_module=2
        [[ "${*:stub_module:2}" != "-m torch.distributed."* ]] || start_torchrun "${@:stub_module+2}"
        if [ "${1-} ${2-} ${3-}" = "-I -S -c" ]; then # -I -S -c PROGRAM RANKS CORES LABEL COMMAND...: Argosy's own
            export STUB_TASKS=$((${STUB_NODES:-1} * $5)) SLURM_NTASKS_PER_NODE=$5
            export SLURM_NTASKS=$STUB_TASKS SLURM_NPROCS=$STUB_TASKS
            [ -z "${SLURM_CPUS_PER_TASK-}" ] || export SLURM_CPUS_PER_TASK=$((SLURM_CPUS_PER_TASK / $5))
            stub_rest=("${@:8}")
        fi
        ;;
esac
[ "${#stub_rest[@]}" -gt 0 ] || note_call "$@"
exec "${stub_rest[@]}"
