"""Training: the smallest DDP example on one rank, on one node and on two, in a container and by wrapped commands.

The table that made people ask what wrapping costs, on CPUs: one PyTorch, started by `apptainer exec`, by commands that
`argosy wrap` made, and by a wrapper with the steps of tykky's, all by `srun` on a real cluster.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from argosy.builder.build import build_image
from argosy.builder.records import BuildRequest
from argosy.core.cache import fill_once
from argosy.core.layout import ENV_PREFIX
from argosy.core.shell import join, quote
from bench.cluster import Cluster, lab_cluster
from bench.inputs import SUITE, Inputs, bench_cache, bench_folder, open_session
from bench.place import REPO, open_folder, why_no_lab
from bench.records import Outcome, Row, many

EXAMPLE = REPO / "examples/ddp"
ROUNDS, QUICK_ROUNDS = 3, 1
"""Each way is first once; a round of 50 epochs takes two minutes where two cores are all that there are."""

PATIENCE = 15
"""Minutes for a round, as the job's time limit: ranks that do not find each other wait for half an hour."""

EPOCHS: Mapping[str, tuple[int, int]] = {"single": (10, 2), "node": (50, 10), "nodes": (50, 10)}
"""Epochs, and those between two snapshots, as in the table that is reproduced; batches of 32."""

SHAPES: Mapping[str, str] = {"single": "one rank", "node": "one node, 2 ranks", "nodes": "2 nodes, 2 ranks each"}
WAYS: Mapping[str, str] = {"container": "apptainer exec", "wrapper": "wrapped", "scripted": "a wrapper as tykky's"}
SCRIPTED = ("python", "torchrun")
NANO = 1e-9

COMPARE = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --output=compare.out --time={minutes}
# All ways in this one allocation, in turns, each first every third time.
export OMP_NUM_THREADS=1 MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) PORT=21000
single() {{ srun --exact -N1 -n1 -c2 "$@" python train.py {single} --snapshot "$snapshot"; }}
node() {{
    srun --exact -N1 -n1 -c2 "$@" torchrun --standalone --nproc_per_node=2 train.py {node} --snapshot "$snapshot"
}}
nodes() {{
    PORT=$((PORT + 1))
    srun -N2 -n2 -c2 "$@" torchrun --nnodes=2 --nproc_per_node=2 --rdzv_id="$PORT" --rdzv_backend=c10d \\
        --rdzv_endpoint="$MASTER_ADDR:$PORT" train.py {nodes} --snapshot "$snapshot"
}}
container() {{ "$1" apptainer --silent exec {image}; }}
wrapper() {{ PATH={prefix}/bin:$PATH "$1"; }}
scripted() {{ PATH={scripted}/bin:$PATH "$1"; }}
once() {{
    snapshot=$PWD/$1-$2-$3.pt
    begin=$(date +%s%N)
    "$2" "$1" > said 2>&1 || {{ echo "$1 $2 failed"; tail -n 20 said; exit 1; }} >&2
    echo "$1 $2 $begin $(date +%s%N) $(sed -n 's/^Time for loading data and training: \\(.*\\) seconds$/\\1/p' said)"
}}
for way in container wrapper scripted; do once single $way 0; done > warm
turn=1
while [ "$turn" -le {rounds} ]; do
    case $((turn % 3)) in
    0) ways="container wrapper scripted" ;;
    1) ways="wrapper scripted container" ;;
    2) ways="scripted container wrapper" ;;
    esac
    for shape in single node nodes; do for way in $ways; do once $shape $way "$turn"; done; done
    turn=$((turn + 1))
done > times
"""


SHARED = r"""
folders=""
for each in /projappl /scratch /users /project /work /home; do
    if [[ -d $each ]]; then folders=$folders,$each; fi
done
seen=$(ls -1 / | awk '!/dev/' | sed 's/^/\//g')
if grep -q 'singularity/mnt/session\|apptainer/mnt/session' /proc/self/mountinfo; then inside=yes; else inside=no; fi
programs=$(realpath "$here")
above=$(realpath "$here/..")
export SINGULARITY_BIND=${folders#,}
squeezed=$(echo "$OLD_PATH" | tr ':' '\n' | tr -s '/' | tr '\n' ':')
libraries=$(echo "${LD_LIBRARY_PATH-}" | tr ':' '\n' | tr -s '/' | tr '\n' ':')
"""
"""What the wrappers of tykky compute at each start."""


def run_training(inputs: Inputs, *, quick: bool) -> Outcome:  # noqa: ARG001 - as all parts are called
    """Train in a real cluster, way by way in turns."""
    missing = why_no_lab()
    if missing:
        return Outcome((), (f"training: {missing}",))
    image = made_image()
    with open_folder() as folder, lab_cluster(folder / "cluster") as cluster:
        times = measure_ways(cluster, folder, image, QUICK_ROUNDS if quick else ROUNDS)
    remark = (
        "training: examples/ddp on CPUs, two nodes of the lab on this one machine, Apptainer as an ordinary user, "
        "batches of 32, 10 epochs by one rank and 50 by several; in turns, in one allocation; 'all of it' is from "
        "before srun to its end, 'the program' what train.py tells of itself"
    )
    return Outcome(tuple(training_rows(times)), (remark,))


def made_image() -> Path:
    """Make the example's image, once."""
    recipe = EXAMPLE / "environment.yml"
    place = bench_folder() / f"training-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]}"
    session = open_session(bench_cache(), quiet=False)
    with fill_once(place, what="making the image with torch", waiting=session.waiting) as folder:
        if folder is not None:
            build_image(BuildRequest((recipe,), SUITE, folder / "ddp.sif"), session)
            (folder / "ddp.sif").chmod(0o644)
    return place / "ddp.sif"


def measure_ways(cluster: Cluster, folder: Path, image: Path, rounds: int) -> dict[tuple[str, str], list[list[float]]]:
    """Give seconds for each shape and way, round by round: of the whole line, and as the program tells."""
    prefix, scripted = folder / "env", folder / "scripted"
    own = ("env", f"ARGOSY_CACHE={folder / 'cache'}")
    cluster.on_login(folder, *own, "argosy", "wrap", str(image), "--prefix", str(prefix), "--quiet")
    write_scripted(scripted, image)
    epochs = {shape: f"{all_of_them} {every}" for shape, (all_of_them, every) in EPOCHS.items()}
    shutil.copy(EXAMPLE / "train.py", folder)  # a container sees the folder that it is started in
    paths = {"image": image, "prefix": prefix, "scripted": scripted}
    (folder / "compare.sh").write_text(COMPARE.format(rounds=rounds, minutes=PATIENCE * rounds, **paths, **epochs))
    try:
        cluster.on_login(folder, "sbatch", "--wait", "compare.sh")
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{(folder / 'compare.out').read_text()[-2000:]}") from error
    return read_variants((folder / "times").read_text())


def write_scripted(folder: Path, image: Path) -> None:
    """Write the commands of a wrapper as tykky designs it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "common.sh").write_text(SHARED)
    for name in SCRIPTED:
        file = folder / "bin" / name
        file.write_text(render_scripted(("apptainer", "--silent", "exec", str(image)), f"{ENV_PREFIX}/bin/{name}"))
        file.chmod(0o755)


def render_scripted(container: Sequence[str], program: str) -> str:
    """Render the wrapper of a program with the steps of tykky's wrappers.

    Parameters
    ----------
    container
        Command that starts the container.
    program
        Path of the program in the container.
    """
    return f"""\
#!/bin/bash
export OLD_PATH=$PATH
export PATH=/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/bin
self=${{BASH_SOURCE[0]}}
while [ -h "$self" ]; do
    here=$(cd -P "$(dirname "$self")" && pwd)
    self=$(readlink "$self")
    [[ $self != /* ]] && self=$here/$self
done
here=$(cd -P "$(dirname "$self")" && pwd)
source "$here/../common.sh"
{join(container)} bash -c "exec -a {quote(program)} {quote(program)}$(test $# -eq 0 || printf ' %q' "$@")"
"""


def read_variants(text: str) -> dict[tuple[str, str], list[list[float]]]:
    """Read lines of a shape, a way, its begin and end in nanoseconds, and the seconds that the program told."""
    taken: dict[tuple[str, str], list[list[float]]] = {(shape, way): [[], []] for shape in SHAPES for way in WAYS}
    for line in text.splitlines():
        shape, way, begin, end, *told = line.split()
        if not told:
            raise RuntimeError(f"the training did not tell its time: {line}")
        whole, program = taken[shape, way]
        whole.append((int(end) - int(begin)) * NANO)
        program.append(float(told[0]))
    return taken


def training_rows(times: Mapping[tuple[str, str], Sequence[Sequence[float]]]) -> Iterator[Row]:
    """Give a row for each shape and way, both kinds of seconds; ratios are to the plain container."""
    for kind, label in (("whole", "all of it"), ("program", "the program")):
        for (shape, way), taken in times.items():
            against = "" if way == "container" else f"training.{shape}.container.{kind}"
            what = f"{SHAPES[shape]}: {WAYS[way]}: {label}"
            yield many(f"training.{shape}.{way}.{kind}", what, taken[kind == "program"], "s", against=against)
