#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --gpus-per-node=8
#SBATCH --account=project_1
#SBATCH --partition=standard-g
#SBATCH --time=00:15:00
#SBATCH --mem-per-gpu=60G
#SBATCH --output=train-%j.out
#
# train on lumi-g: 1 node with 8 GPUs and 8 ranks.
# Written by Argosy 0.1.0; it runs without Argosy. The reason for each value: argosy explain
#   mode = cray: images without libfabric use the host's libfabric
#   partition = standard-g: the job uses whole nodes; no partition was given
#   runtime = singularity: the site's runtime; the site documents 4.1.3
#   gpu = by /dev: the GPUs need only their device files
#   assumed: the image is not on this machine, and is assumed to contain PyTorch
#   cores of each rank: nearest to the rank's GPU, on whole nodes
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329

main() {
    # --- The program ---
    argosy_image=/project/images/train.sif
    # The numbers come from Slurm, so 'sbatch --nodes=8' scales this script.
    check_allocation
    argosy_nodes=$SLURM_JOB_NUM_NODES
    argosy_gpus=${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}
    argosy_ranks_per_node=${argosy_gpus##*:}
    need_cores_of_node 56  # sets argosy_need, argosy_cores_per_rank
    # The cores of each rank of a node, which are nearest to its GPU.
    argosy_cores='49-55;57-63;17-23;25-31;1-7;9-15;33-39;41-47'
    argosy_binds=/pfs,/scratch,/projappl,/project,/flash,/appl,/var/spool/slurmd,/opt/cray
    argosy_binds=$argosy_binds,/usr/lib64/libcxi.so.1

    # --- The environment of the ranks ---
    pass_signals
    find_rendezvous  # sets MASTER_ADDR, MASTER_PORT, argosy_first, argosy_hosts
    # Not in the container: the host's software and mounts.
    unset LD_LIBRARY_PATH LD_PRELOAD PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONUSERBASE VIRTUAL_ENV
    unset CONDA_PREFIX APPTAINER_BIND APPTAINER_BINDPATH SINGULARITY_BIND SINGULARITY_BINDPATH
    # Set for the container by name: the image would override a plain export.
    export SINGULARITYENV_MASTER_ADDR="$MASTER_ADDR" SINGULARITYENV_MASTER_PORT="$MASTER_PORT"
    export SINGULARITYENV_OMP_NUM_THREADS=7  # one thread per core
    # MIOpen writes an SQLite file, whose locks fail on Lustre if several nodes share it
    export SINGULARITYENV_MIOPEN_USER_DB_PATH="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"
    export SINGULARITYENV_MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID"

    # --- Start: one container per node, which starts its ranks ---
    run_step srun --nodes="$argosy_nodes" --ntasks="$argosy_nodes" --ntasks-per-node=1 \
        --distribution=block --export=ALL --kill-on-bad-exit=1 --cpus-per-task="$argosy_need" \
        sh -c "$argosy_helpers" own_folders "/tmp/${USER:-$SLURM_JOB_USER}-miopen-$SLURM_JOB_ID" \
        sh -c "$argosy_helpers" check_node "$argosy_image" singularity /dev/kfd '' \
        singularity --quiet exec --no-eval -B "$argosy_binds" "$argosy_image" \
        python -I -S -c "$argosy_start_ranks" "$argosy_ranks_per_node" "$argosy_cores" '' \
        python train.py 50 10
    [ "$argosy_code" -eq 0 ] || stop "job $SLURM_JOB_ID ended with code $argosy_code" "$argosy_code"
}

# --- Helpers: the same text in every script ---

# Without an allocation, each srun below would request its own.
check_allocation() {
    [ -n "${SLURM_JOB_ID:-}" ] || stop "no Slurm allocation: use sbatch, or run this in salloc" 2
    # In a step of srun, the ranks would inherit its cores.  Steps of sbatch and salloc: -5, -6, 4294967290.
    [ "${SLURM_STEP_ID:--5}" -lt 0 ] || [ "$SLURM_STEP_ID" = 4294967290 ] || {
        unset SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE
        export SLURM_OVERLAP=1
    }
}

# An allocation made by hand may have too few cores, which ranks would share without a warning.
need_cores() {
    argosy_need=$1 argosy_given=${SLURM_JOB_CPUS_PER_NODE:-999}
    [ "$(fewest_cores "$argosy_given")" -ge "$1" ] ||
        stop "the allocation has $argosy_given cores on a node, but $1 are needed" 2
    argosy_cores_per_rank=$(($1 > argosy_ranks_per_node ? $1 / argosy_ranks_per_node : 1))
}

# The nodes of a job may differ: print the 36 of 72(x2),36.
fewest_cores() { echo "$1" | tr , '\n' | sed 's/(.*//' | sort -n | head -n 1; }

# One task starts all ranks of a node: it needs the cores of all tasks that Slurm counted there.
need_cores_of_node() {
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || set -- "$((SLURM_CPUS_PER_TASK * ${SLURM_NTASKS_PER_NODE:-1}))"
    need_cores "$1"
}

# Pass signals on to the ranks: sh does not forward those of scancel and Slurm's warnings.
pass_signals() {
    argosy_step=''
    trap 'pass_signal USR1' USR1
    trap 'pass_signal USR2' USR2
    trap end_step TERM INT HUP
}
pass_signal() { kill -s "$1" "$argosy_step" 2> /dev/null || :; }
end_step() {
    [ -n "$argosy_step" ] || exit 143
    pass_signal TERM
}

# Choose where all ranks connect: the first node, with the suffix $1, and a free port there.
# Each job, restart and later start has another one: ranks of a lost run must not join.
find_rendezvous() {
    argosy_hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    argosy_first=${argosy_hosts%%[[:space:]]*}
    MASTER_ADDR=$argosy_first${1:-}
    # In a cloud, the name of a node may have no address: Slurm knows it.
    getent hosts "$MASTER_ADDR" > /dev/null || {
        set -- "$(scontrol show node "$argosy_first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')"
        MASTER_ADDR=${1:-$MASTER_ADDR}
    }
    argosy_start=$((SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 31 + (${SLURM_TASK_PID:-0} ^ $$)))
    set -- sh -c "$argosy_helpers" free_port "$((20000 + argosy_start % 10000))"
    [ "${SLURMD_NODENAME:-}" = "$argosy_first" ] ||
        set -- srun ${argosy_step_options:-} --overlap --nodes=1 --ntasks=1 --nodelist="$argosy_first" "$@"
    MASTER_PORT=$("$@")
    MASTER_PORT=${MASTER_PORT##*[!0-9]} # without text of a TaskProlog
}

# Start a step.  A signal ends 'wait' but not the step, so wait until the step has ended.
run_step() {
    "$@" &
    argosy_step=$!
    while
        argosy_code=0
        wait "$argosy_step" || argosy_code=$?
        kill -0 "$argosy_step" 2> /dev/null
    do :; done
    # If a signal came just when the step ended, another 'wait' has its code in dash; bash lost it.
    argosy_again=0
    wait "$argosy_step" || argosy_again=$?
    [ "$argosy_again" -ge 127 ] || argosy_code=$argosy_again
}

# End with a message and an exit code that 'argosy why' explains.
stop() {
    printf 'argosy: %s\n' "$1" >&2
    exit "$2"
}

# Slurm copies this file to the first node only, so functions for all nodes are passed as text:
# sh -c "$argosy_helpers" NAME ARGUMENTS... calls the function NAME.
argosy_helpers=$(cat <<'HELPERS'
# Print the first free port from $1 on.
free_port() {
    while grep -qs ":$(printf %04X "$1") " /proc/net/tcp*; do
        set -- "$(($1 + 1))"
    done
    echo "$1"
}

stop_node() {
    printf 'argosy: %s on %s\n' "$1" "${SLURMD_NODENAME:-$(hostname)}" >&2
    exit "$2"
}

# FOLDERS COMMAND...: create private folders on this node.  Folders of other users are not used, nor folders in those
# in which everybody can rename them; in a container, root may be nobody (65534).
own_folders() {
    command -v find > /dev/null || stop_node "find is missing, which checks who may change $1" 7
    for argosy_folder in $1; do
        (umask 077 && mkdir -p "${argosy_folder%/*}/")
        argosy_above=$argosy_folder
        while argosy_above=${argosy_above%/*} && [ "${argosy_above#/}" != "$argosy_above" ]; do
            argosy_unsafe=$(find "$argosy_above" "$argosy_above/." -prune \( ! -type l -perm -0002 ! -perm -1000 \
                -o ! -user "$(id -u)" ! -user 0 ! -user 65534 \)) || argosy_unsafe=$argosy_above
            [ -z "$argosy_unsafe" ] ||
                stop_node "another user can replace what is in $argosy_above, so $argosy_folder is not used" 7
        done
        mkdir -m 700 "$argosy_folder" 2> /dev/null ||
            [ -n "$(find "$argosy_folder" -prune -type d -user "$(id -u)" 2> /dev/null)" ] ||
            stop_node "$argosy_folder cannot be created, or belongs to another user" 7
    done
    shift
    exec "$@"
}

# IMAGE RUNTIME GPU_DEVICE PATHS COMMAND...: refuse a broken node, which would fail with a misleading error.
check_node() {
    [ -r "$1" ] || stop_node "the image $1 cannot be read" 6
    command -v "$2" > /dev/null || stop_node "$2 is not installed" 4
    [ -z "$3" ] || [ -e "$3" ] || stop_node "GPUs were requested, but there is no $3" 7
    # Bind the folder of PMIx, PATHS, TMPDIR and the site's certificates, if this node has them.
    argosy_mounts=${APPTAINER_BIND:-${SINGULARITY_BIND:-}} # of a module that the job loaded
    for argosy_path in "${PMIX_SERVER_TMPDIR:-}" $4 "${TMPDIR:-}" \
        "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "${PIP_CERT:-}"; do
        [ ! -e "$argosy_path" ] || argosy_mounts=$argosy_mounts${argosy_mounts:+,}$argosy_path
    done
    [ -z "$argosy_mounts" ] || export APPTAINER_BIND="$argosy_mounts" SINGULARITY_BIND="$argosy_mounts"
    shift 4
    exec "$@"
}

"$0" "$@"
HELPERS
)
argosy_start_ranks=$(cat <<'START_RANKS'
"""Start the ranks of one node, each on its own cores; the first rank that fails ends the others.

Usage, once on each node, in its container: python -I -S -c PROGRAM RANKS CORES LABEL COMMAND...

CORES holds a list for each local rank, separated by semicolons.  Without lists, the ranks share the
cores of the step equally.  With a LABEL that is not empty, each line of the output begins with its
rank, as with srun --label.  Every rank sees the variables of a Slurm task.

Needs only the standard library of Python 3.6.  The text travels in a job script, so it contains no
apostrophe, and its lines are at most 100 columns wide.
"""

import os
import select
import signal
import sys
import time

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PASSED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT)
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)  # they end a program without a handler
GRACE = 30  # seconds between TERM and KILL after a rank has failed, as torchrun waits
LONGEST = 1 << 20  # bytes of an unfinished line that are kept back; also the most that a pipe holds
CPUS = "/sys/devices/system/cpu/cpu{}/topology/{}"
MPI = ("PMI_", "PMI2_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER", "OMPI_COMM_WORLD_")


def has_handler(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (SigCgt of proc(5))."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            rows = dict(line.split(":", 1) for line in file)
    except OSError:
        return False
    return bool(int(rows["SigCgt"], 16) >> (number - 1) & 1)


def read_topology(cpu: int, name: str) -> int:
    """Return the first number of a file about a CPU; 0 if the file does not exist."""
    try:
        with open(CPUS.format(cpu, name), encoding="ascii") as file:
            return int(file.read().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return 0


def parse_cores(text: str) -> "set[int]":
    """Return the cores of a list, for example 1-7,9."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def share_cores(lists: str, ranks: int) -> "list[set[int]]":
    """Return the cores of each local rank: those of its list, else an equal share."""
    if lists:
        own = [parse_cores(text) for text in lists.split(";")]
        return own + [set()] * (ranks - len(own))
    names = ("physical_package_id", "thread_siblings_list")
    place = {cpu: [read_topology(cpu, name) for name in names] for cpu in os.sched_getaffinity(0)}
    order = sorted(place, key=lambda cpu: (place[cpu], cpu))
    each = len(order) // ranks
    return [set(order[local * each : (local + 1) * each]) for local in range(ranks)]


def rank_variables(local: int, ranks: int, environment: "dict[str, str]") -> "dict[str, str]":
    """Return the variables of a rank: those that PyTorch and JAX read, and those of Slurm."""
    node, nodes = int(environment["SLURM_NODEID"]), int(environment["SLURM_STEP_NUM_NODES"])
    rank, world = node * ranks + local, nodes * ranks
    layout = f"{ranks}(x{nodes})" if nodes > 1 else str(ranks)
    tasks = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
    found = {
        **dict.fromkeys(("RANK", "SLURM_PROCID"), str(rank)),
        **dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID"), str(local)),
        **dict.fromkeys(("WORLD_SIZE", *tasks), str(world)),
        **dict.fromkeys(("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"), str(ranks)),
        **dict.fromkeys(("NODE_RANK", "GROUP_RANK"), str(node)),
        **dict.fromkeys(("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"), layout),
        "SLURM_GTIDS": ",".join(str(node * ranks + each) for each in range(ranks)),
    }
    # By default, JAX computes an ephemeral port from the job number, which may be in use.
    if "MASTER_ADDR" in environment and "JAX_COORDINATOR_ADDRESS" not in environment:
        found["JAX_COORDINATOR_ADDRESS"] = "{MASTER_ADDR}:{MASTER_PORT}".format(**environment)
    cores = environment.get("SLURM_CPUS_PER_TASK", "")
    if cores.isdigit():
        own = str(max(1, int(cores) // ranks))
        found["SLURM_CPUS_PER_TASK"] = own
        per_task = environment.get("SLURM_TRES_PER_TASK", "")
        if per_task:
            found["SLURM_TRES_PER_TASK"] = per_task.replace("cpu=" + cores, "cpu=" + own)
    # The one task of the node is not a rank of MPI.
    kept = {name: value for name, value in environment.items() if not name.startswith(MPI)}
    return {**kept, **found}


def write(stream: int, data: bytes) -> None:
    """Write all bytes; output that nobody reads any more is dropped."""
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        pass


class Output:
    """One output stream of a rank, passed on by whole lines, so that lines of ranks do not mix."""

    def __init__(self, source: int, target: int, label: bytes) -> None:
        self.source, self.target, self.label = source, target, label
        self.rest = b""

    def pass_on(self) -> bool:
        """Pass on the lines that are complete; return False at the end of the stream."""
        data = os.read(self.source, LONGEST)
        *lines, self.rest = (self.rest + data).split(b"\n")
        write(self.target, b"".join(self.label + line + b"\n" for line in lines))
        if not data or len(self.rest) > LONGEST:
            self.flush()
        return bool(data)

    def flush(self) -> None:
        """Pass on a line without its end."""
        if self.rest:
            write(self.target, self.label + self.rest)
            self.rest = b""


class Node:
    """The ranks of this node: their processes, and the output that they write."""

    def __init__(self, ranks: int, label: str) -> None:
        self.ranks = ranks
        self.first = int(os.environ["SLURM_NODEID"]) * ranks
        world = int(os.environ["SLURM_STEP_NUM_NODES"]) * ranks
        self.width = len(str(world - 1)) if label else 0
        self.running: dict[int, int] = {}  # process id -> rank
        self.outputs: dict[int, Output] = {}  # file descriptor -> output
        self.poll = select.poll()
        self.code = 0
        self.is_ending = False
        self.kill_at = 0.0
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.waker, False)
        self.poll.register(self.wake, select.POLLIN)

    def catch_signals(self) -> None:
        """Let each signal wake the loop, which alone acts on it."""
        signal.set_wakeup_fd(self.waker)
        for number in (*PASSED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def start(self, local: int, cores: "set[int]", command: "list[str]") -> None:
        """Start a rank."""
        rank = self.first + local
        label = "{:>{}}: ".format(rank, self.width).encode() if self.width else b""
        pipes = [os.pipe(), os.pipe()]
        # A signal between fork and exec would run the handlers of this program in the rank.
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
        child = os.fork()
        if not child:
            variables = rank_variables(local, self.ranks, dict(os.environ))
            run_rank([write_end for _, write_end in pipes], variables, cores, command)
        self.running[child] = rank
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        for target, (source, write_end) in enumerate(pipes, start=1):
            os.close(write_end)
            self.outputs[source] = Output(source, target, label)
            self.poll.register(source, select.POLLIN)

    def send(self, number: int) -> None:
        """Send a signal to each running rank; USR1 and USR2 only to those with a handler."""
        for child in self.running:
            if number not in WARNINGS or has_handler(child, number):
                os.kill(child, number)

    def take_signals(self) -> None:
        """Act on the signals that arrived: pass them on, and note the ranks that ended."""
        for number in os.read(self.wake, 4096):
            if number == signal.SIGCHLD:
                self.note_ends()
            else:
                self.is_ending = self.is_ending or number in ENDING
                self.send(number)

    def note_ends(self) -> None:
        """Note the ranks that ended; the first that failed ends the others and sets the code."""
        while self.running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            rank = self.running.pop(child, None)
            if rank is None or not status:
                continue
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = 128 + number if number else os.WEXITSTATUS(status)
            self.code = self.code or code
            if not self.is_ending:
                self.is_ending = True
                host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
                how = f"signal {number}" if number else f"code {code}"
                write(2, f"argosy: rank {rank} on {host} ended with {how}\n".encode())
                self.send(signal.SIGTERM)
                self.kill_at = time.monotonic() + GRACE

    def run(self) -> int:
        """Pass on signals and output until every rank has ended; return the exit code."""
        while self.running:
            self.wait(1000 if self.kill_at else None)
            if self.kill_at and time.monotonic() > self.kill_at:
                self.send(signal.SIGKILL)
                self.kill_at = 0.0
        # Pass on what the pipes still hold.  A process that a rank left behind may keep one open.
        self.wait(0)
        for output in self.outputs.values():
            output.flush()
        return self.code

    def wait(self, milliseconds: "int | None") -> None:
        """Wait for signals and output."""
        for source, _ in self.poll.poll(milliseconds):
            if source == self.wake:
                self.take_signals()
            elif not self.outputs[source].pass_on():
                self.poll.unregister(source)
                del self.outputs[source]
                os.close(source)


def run_rank(
    outputs: "list[int]",
    variables: "dict[str, str]",
    cores: "set[int]",
    command: "list[str]",
) -> None:
    """Become the program of a rank."""
    code = 126
    try:
        for target, output in enumerate(outputs, start=1):
            os.dup2(output, target)
        # Python ignores SIGPIPE and SIGXFSZ, which a program would inherit; slurmstepd resets all.
        for number in range(1, signal.NSIG):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        if cores:
            os.sched_setaffinity(0, cores)
        variables["SLURM_TASK_PID"] = str(os.getpid())
        os.execvpe(command[0], command, variables)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        code = 127 if missing else 126
        why = "not found in the container" if missing else error.strerror
        write(2, os.fsencode(f"argosy: {command[0]}: {why}\n"))
    finally:
        os._exit(code)


def main(arguments: "list[str]") -> int:
    """Start the ranks of this node, and return its exit code."""
    ranks, lists, label, *command = arguments
    node = Node(int(ranks), label)
    node.catch_signals()
    for local, cores in enumerate(share_cores(lists, node.ranks)):
        node.start(local, cores, command)
    return node.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
START_RANKS
)

set -eu
main
