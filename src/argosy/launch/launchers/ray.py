"""The program that makes one Ray cluster of a job's nodes, and runs a command on the first of them; text only.

It is Python, written without single quotes, and the image's own Python runs it.  Ray's ``symmetric-run`` (2.49) leaves
the other nodes to find out that the head is gone: that takes a minute, and ends them with an error.  Here each node
holds a connection to the head, and ends well when that is closed.
"""

from __future__ import annotations

from argosy.core.shell import ShellFunction

RAY = ShellFunction(
    "ray_cluster",
    """\
# One per node: words NODES, then the command.  It runs on the first node of the list, once Ray has them all.
import os, select, shutil, signal, socket, stat, subprocess, sys, tempfile, time

nodes, command, patience = int(sys.argv[1]), sys.argv[2:], 300
ours = "{}.{}".format(os.environ.get("SLURM_JOB_ID", os.getpid()), os.environ.get("SLURM_STEP_ID", 0))
folder, made, log, running = "", False, "", []

def fail(why):
    last = open(log, errors="replace").readlines()[-15:] if os.path.exists(log) else []
    sys.exit(f"argosy: Ray on {socket.gethostname()}: {why}\\n" + "".join(last))

def use(name):
    # All nodes have it under one name, since Ray sends the name to them.  A stranger may make it before us.
    global folder, made, log
    if not name:
        folder, made = tempfile.mkdtemp(prefix="argosy-ray-", dir="/tmp"), True
    else:
        try:
            os.mkdir(name, 0o700)
            made = True
        except FileExistsError:
            found = os.lstat(name)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                fail(f"{name} is not a private folder of this user")
        folder = name
    log = f"{folder}/start-{os.getpid()}.log"

def start(*words):
    usual = ("--block", "--disable-usage-stats", f"--num-cpus={len(os.sched_getaffinity(0))}")
    with open(log, "x") as out:
        words = ["ray", "start", *usual, *words]
        running.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

def stop():
    for ray in running:
        ray.terminate()
        try:
            ray.wait(15)
        except subprocess.TimeoutExpired:
            ray.kill()
    if made:
        shutil.rmtree(folder, ignore_errors=True)

def on(names, act):
    for name in names.split():
        signal.signal(getattr(signal, f"SIG{name}"), act)

def check():
    for ray in running:
        ray.poll() is None or fail(f"it ended with code {ray.returncode}")

def until(done, what):
    end = time.monotonic() + patience
    while not done():
        check()
        if time.monotonic() > end:
            fail(f"{what} within {patience} s")
        time.sleep(0.2)

def connects(place):
    try:
        return socket.create_connection(place, 5)
    except OSError:
        return None

def meet():
    others = []
    with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
        server.settimeout(0.1)
        def one_more():
            try:
                other = server.accept()[0]
                other.settimeout(5)  # it may be a stranger, who says nothing
                others.extend([other] if other.recv(99) == ours.encode() else [])
                other.settimeout(None)
            except OSError:
                pass
            return len(others) == nodes - 1
        until(one_more, f"not all {nodes} nodes came")
    return others

def lead():
    import ray
    others = meet() if nodes > 1 else []
    own = others[0].getsockname()[0] if others else "127.0.0.1"
    with socket.create_server((own, 0)) as free:
        port = free.getsockname()[1]
    use("")
    start("--head", f"--node-ip-address={own}", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false")
    until(lambda: connects((own, port)), "its head did not begin")
    os.environ["RAY_ADDRESS"] = f"{own}:{port}"
    for other in others:
        other.sendall("{} {}".format(os.environ["RAY_ADDRESS"], folder).encode())
    ray.init(logging_level="ERROR", log_to_driver=False)
    until(lambda: sum(node["Alive"] for node in ray.nodes()) >= nodes, f"not all {nodes} nodes joined")
    ray.shutdown()
    early = []  # signals of the time in which the command starts
    on("TERM INT USR1 USR2", lambda number, _: early.append(number))
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        print(f"argosy: {command[0]} does not start: {error.strerror}", file=sys.stderr)
        return 127
    on("TERM INT USR1 USR2", lambda number, _: child.send_signal(number))
    for number in early:
        child.send_signal(number)
    code = child.wait()
    for other in others:
        other.close()
    return code if code >= 0 else 128 - code

def follow():
    found, place = [], (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    until(lambda: found.append(connects(place)) or found[-1], "the first node did not answer")
    head = found[-1]
    head.settimeout(None)
    head.sendall(ours.encode())
    told = head.recv(999).decode() or fail("the first node went")
    address, _, name = told.partition(" ")
    use(name)
    start(f"--address={address}", f"--node-ip-address={head.getsockname()[0]}")
    while not select.select([head], [], [], 1)[0]:
        check()
    return 0

on("TERM INT", lambda number, _: sys.exit(128 + number))
on("USR1 USR2", lambda *_: None)
shutil.which("ray") or fail("the image has none: add ray to what is installed in it")
try:
    code = follow() if int(os.environ.get("SLURM_NODEID", 0)) else lead()
finally:
    stop()
sys.exit(code)
""",
)
