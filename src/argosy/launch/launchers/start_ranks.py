"""Start the ranks of one node, each on its own cores; the first rank that fails ends the others.

Usage, once on each node, in its container: python -I -S -c PROGRAM RANKS_PER_NODE CORES LABEL COMMAND...

CORES holds a list for each local rank, separated by semicolons; without lists, the ranks share the cores of the step
equally.  With a LABEL that is not empty, each line of the output begins with its rank, as with srun --label.  Every
rank sees the variables of a Slurm task, as if srun had started it.

Needs only the standard library of Python 3.6.  The text travels in a job script, so it must not contain an apostrophe.
"""

import contextlib
import os
import selectors
import signal
import sys
import time

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PASSED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT)
GRACE = 30  # seconds between TERM and KILL after a rank has failed, as torchrun waits
DRAIN = 2  # seconds to read output that processes of ended ranks still hold open
LONGEST = 65536  # bytes of an unfinished line that are kept back
CPUS = "/sys/devices/system/cpu/cpu{}/topology/{}"
MPI = ("PMI_", "PMI2_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER", "OMPI_COMM_WORLD_")


def read_topology(cpu: int, name: str) -> int:
    """Return the first number of a file about a CPU; 0 if the file does not exist."""
    try:
        with open(CPUS.format(cpu, name), encoding="ascii") as file:  # noqa: PTH123 - pathlib loads slowly
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
    """Return the cores of each local rank: those of its list, else an equal share in which threads stay together."""
    if lists:
        own = [parse_cores(text) for text in lists.split(";")]
        return own + [set()] * (ranks - len(own))
    found = os.sched_getaffinity(0)
    order = sorted(
        found,
        key=lambda cpu: (read_topology(cpu, "physical_package_id"), read_topology(cpu, "thread_siblings_list"), cpu),
    )
    each = len(order) // ranks
    return [set(order[local * each : (local + 1) * each]) for local in range(ranks)]


def rank_variables(local: int, ranks: int, environment: "dict[str, str]") -> "dict[str, str]":
    """Return the variables of a rank: those that PyTorch, Lightning, Accelerate and JAX read, and those of Slurm."""
    node, nodes = int(environment["SLURM_NODEID"]), int(environment["SLURM_STEP_NUM_NODES"])
    rank, world = node * ranks + local, nodes * ranks
    layout = f"{ranks}(x{nodes})" if nodes > 1 else str(ranks)
    found = {
        **dict.fromkeys(("RANK", "SLURM_PROCID"), str(rank)),
        **dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID"), str(local)),
        **dict.fromkeys(("WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), str(world)),
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
        if "SLURM_TRES_PER_TASK" in environment:
            found["SLURM_TRES_PER_TASK"] = environment["SLURM_TRES_PER_TASK"].replace("cpu=" + cores, "cpu=" + own)
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
    """One output stream of a rank: complete lines are passed on, so that the lines of several ranks do not mix."""

    def __init__(self, source: int, target: int, label: bytes) -> None:
        self.source, self.target, self.label = source, target, label
        self.rest = b""

    def pass_on(self) -> bool:
        """Pass on the lines that are complete; return False at the end of the stream."""
        data = os.read(self.source, LONGEST)
        *lines, self.rest = (self.rest + data).split(b"\n")
        text = b"".join(self.label + line + b"\n" for line in lines)
        if self.rest and (not data or len(self.rest) > LONGEST):
            text, self.rest = text + self.label + self.rest, b""
        write(self.target, text)
        return bool(data)


class Node:
    """The ranks of this node: their processes, and the output that they write."""

    def __init__(self, ranks: int, label: bool) -> None:  # noqa: FBT001
        self.ranks = ranks
        self.first = int(os.environ["SLURM_NODEID"]) * ranks
        world = int(os.environ["SLURM_STEP_NUM_NODES"]) * ranks
        self.width = len(str(world - 1)) if label else 0
        self.running: dict[int, int] = {}  # process id -> rank
        self.selector = selectors.DefaultSelector()
        self.outputs = 0
        self.code = 0
        self.is_ending = False
        self.kill_at = 0.0
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.waker, False)
        self.selector.register(self.wake, selectors.EVENT_READ)

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
            self.selector.register(source, selectors.EVENT_READ, Output(source, target, label))
            self.outputs += 1

    def send(self, number: int) -> None:
        """Send a signal to every rank that still runs."""
        for child in self.running:
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
        """Note the ranks that ended; the first that failed ends the others, and its code is that of the node."""
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
        """Pass on signals and output until every rank has ended; return the exit code of the node."""
        drained_at = 0.0
        while self.running or self.outputs:
            now = time.monotonic()
            if self.running and self.kill_at and now > self.kill_at:
                self.send(signal.SIGKILL)
                self.kill_at = 0.0
            if not self.running:
                drained_at = drained_at or now + DRAIN
                if now > drained_at:
                    break
            self.wait(1.0 if self.kill_at or drained_at else None)
        return self.code

    def wait(self, seconds: "float | None") -> None:
        """Wait for signals and output."""
        for key, _ in self.selector.select(seconds):
            if key.fd == self.wake:
                self.take_signals()
            elif not key.data.pass_on():
                self.selector.unregister(key.fd)
                os.close(key.fd)
                self.outputs -= 1


def run_rank(outputs: "list[int]", variables: "dict[str, str]", cores: "set[int]", command: "list[str]") -> None:
    """Become the program of a rank."""
    code = 126
    try:
        for target, output in enumerate(outputs, start=1):
            os.dup2(output, target)
        # Python ignores SIGPIPE and SIGXFSZ, which a program would inherit.
        for number in range(1, signal.NSIG):
            # The kernel keeps some signals to itself; slurmstepd resets all others for its tasks, too.
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        if cores:
            os.sched_setaffinity(0, cores)
        variables["SLURM_TASK_PID"] = str(os.getpid())
        os.execvpe(command[0], command, variables)  # noqa: S606
    except FileNotFoundError:
        code = 127
        write(2, f"argosy: {command[0]}: not found in the container\n".encode("utf-8", "surrogateescape"))
    except OSError as error:
        write(2, f"argosy: {command[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(code)


def main(arguments: "list[str]") -> int:
    """Start the ranks of this node, and return its exit code."""
    ranks, lists, label, *command = arguments
    node = Node(int(ranks), bool(label))
    node.catch_signals()
    for local, cores in enumerate(share_cores(lists, node.ranks)):
        node.start(local, cores, command)
    return node.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
