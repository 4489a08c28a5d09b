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
