"""The example programs do what their READMEs say, alone and as ranks of a real torchrun."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real

ALONE = 0


@dataclass(frozen=True)
class Ended:
    """What a program printed and how it ended."""

    code: int
    out: str
    err: str

    def numbers(self, pattern: str) -> list[int]:
        return [int(number) for number in re.findall(pattern, self.out, re.MULTILINE)]

    @property
    def own_errors(self) -> list[str]:
        """The program's own lines on stderr, without what torchrun says about its workers."""
        return [line for line in self.err.splitlines() if re.match(r"(train|pi)\.py: ", line)]


@dataclass(frozen=True)
class Programs:
    """Starts the examples in a folder of their own."""

    python: tuple[str, ...]
    examples: Path
    folder: Path

    @contextmanager
    def started(self, ranks: int, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start a program that does not outlive the test, nor do its ranks."""
        own = f"--log-dir={self.folder}-torchrun"  # else it leaves a folder in /tmp
        torchrun = ("-m", "torch.distributed.run", "--standalone", own, f"--nproc-per-node={ranks}")
        command = [*self.python, *(torchrun if ranks else ()), str(self.examples / words[0]), *words[1:]]
        surroundings = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
        surroundings |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
        with (
            (self.folder / "stderr").open("w") as stderr,
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=surroundings,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
            ) as process,
        ):
            hang = threading.Timer(PATIENCE_S, kill_with_workers, (process,))
            hang.start()
            try:
                yield process
            finally:
                hang.cancel()
                kill_with_workers(process)

    def ended(self, process: subprocess.Popen[str]) -> Ended:
        out, _ = process.communicate()
        return Ended(process.returncode, out, (self.folder / "stderr").read_text())

    def run(self, ranks: int, *words: str) -> Ended:
        with self.started(ranks, *words) as process:
            return self.ended(process)


@pytest.fixture
def programs(torch_python: tuple[str, ...], examples: Path, tmp_path: Path) -> Programs:
    return Programs(torch_python, examples, tmp_path)


@pytest.fixture(scope="module")
def snapshots(torch_python: tuple[str, ...], examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a snapshot of each trainer."""
    made = Programs(torch_python, examples, tmp_path_factory.mktemp("snapshots"))
    for words in (("digits/train.py", "--epochs", "2"), ("ddp/train.py", "2", "1")):
        ended = made.run(ALONE, *words)
        assert ended.code == 0, ended.err
    return made.folder


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"ended with code {process.wait()} before it printed {pattern}")


def descendants_of(pid: int) -> list[int]:
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [*children, *(grandchild for child in children for grandchild in descendants_of(child))]


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Find the ranks: below torchrun, which itself may be below a container's runtime."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in descendants_of(process.pid)}
    return [pid for pid, line in lines.items() if "train.py" in line and "torch.distributed.run" not in line]


def kill_with_workers(process: subprocess.Popen[str]) -> None:
    """Kill torchrun and the workers, which it puts in sessions of their own and which would hold the pipe open."""
    if process.poll() is None:
        descendants = descendants_of(process.pid)
        process.kill()
        for pid in descendants:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- digits -----------------------------------------------------------------------------------------------------------


def test_two_ranks_learn_to_read_digits(programs: Programs) -> None:
    ended = programs.run(2, "digits/train.py", "--epochs", "20")
    assert ended.code == 0, ended.err
    *_, accuracy, spent = ended.out.splitlines()
    found = re.fullmatch(r"test accuracy (\d\.\d\d) · 2 ranks \(gloo\)", accuracy)
    assert found
    assert float(found[1]) >= 0.96
    assert re.fullmatch(r"Time for loading data and training: \d+\.\d\d seconds", spent)
    assert ended.out.count("No GPU found") == 1
    assert ended.numbers(r"^epoch (\d+)/20 ") == list(range(1, 21))
    assert sorted(file.name for file in programs.folder.iterdir()) == ["digits.pt", "stderr"]


def test_a_single_process_resumes_from_a_snapshot(programs: Programs, snapshots: Path) -> None:
    ended = programs.run(ALONE, "digits/train.py", "--epochs", "4", "--snapshot", f"{snapshots}/digits.pt")
    assert ended.code == 0, ended.err
    assert "resuming at epoch 3\n" in ended.out
    assert ended.numbers(r"^epoch (\d+)/4 ") == [3, 4]
    assert "1 rank (alone)" in ended.out


def test_sigterm_leaves_a_snapshot_that_another_number_of_ranks_resumes(programs: Programs) -> None:
    with programs.started(2, "digits/train.py", "--epochs", "100000", "--save-every", "100000") as process:
        read_until(process, r"^epoch 2/")
        process.send_signal(signal.SIGTERM)
        stopped = programs.ended(process)
    assert stopped.code != 0
    [epoch] = stopped.numbers(r"^stopped by SIGTERM in epoch (\d+)")
    assert not (programs.folder / "digits.pt.part").exists()

    resumed = programs.run(ALONE, "digits/train.py", "--epochs", str(epoch + 1))
    assert resumed.code == 0, resumed.err
    [first] = resumed.numbers(r"^resuming at epoch (\d+)")
    assert first in {epoch, epoch + 1}  # the next one, where the signal met the last step
    assert resumed.numbers(r"^epoch (\d+)/") == list(range(first, epoch + 2))


@pytest.mark.soak  # a sample: SIGTERM to all of them, above
def test_all_ranks_handle_a_signal_to_one_rank(programs: Programs) -> None:
    with programs.started(2, "digits/train.py", "--epochs", "100000", "--save-every", "100000") as process:
        read_until(process, r"^epoch 2/")
        worker = workers_of(process)[-1]
        os.kill(worker, signal.SIGUSR1)
        read_until(process, r"^snapshot digits.pt: ")
        read_until(process, r"^epoch \d+/")  # it goes on
        os.kill(worker, signal.SIGTERM)
        stopped = programs.ended(process)
    assert "stopped by SIGTERM" in stopped.out
    assert re.search(r"exitcode +: 143", stopped.err)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param("nothing", "it is damaged", marks=pytest.mark.soak),
        pytest.param("half", "it is damaged", marks=pytest.mark.soak),  # a sample: two ranks, below
        ("foreign", "another program wrote it"),
    ],
)
def test_an_invalid_snapshot_is_one_clear_line(programs: Programs, snapshots: Path, content: str, reason: str) -> None:
    whole = (snapshots / "digits.pt").read_bytes()
    contents = {"nothing": b"", "half": whole[: len(whole) // 2], "foreign": (snapshots / "snapshot.pt").read_bytes()}
    file = programs.folder / "digits.pt"
    file.write_bytes(contents[content])
    ended = programs.run(ALONE, "digits/train.py")
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith(f"train.py: cannot resume from digits.pt: {reason}")
    assert file.read_bytes() == contents[content]


def test_a_damaged_snapshot_is_reported_once_for_all_ranks(programs: Programs, snapshots: Path) -> None:
    whole = (snapshots / "digits.pt").read_bytes()
    file = programs.folder / "digits.pt"
    file.write_bytes(whole[: len(whole) // 2])
    ended = programs.run(2, "digits/train.py")
    assert ended.code != 0
    (said,) = ended.own_errors
    assert said.startswith("train.py: cannot resume from digits.pt: it is damaged")
    assert file.read_bytes() == whole[: len(whole) // 2]


def test_a_snapshot_that_cannot_be_written_is_one_clear_line(programs: Programs) -> None:
    ended = programs.run(ALONE, "digits/train.py", "--epochs", "1", "--snapshot", "missing/digits.pt")
    assert ended.code == 1
    assert ended.err.startswith("train.py: cannot write missing/digits.pt: ")
    assert len(ended.err.splitlines()) == 1


# --- ddp --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "steps"), [(ALONE, 64), (2, 32), pytest.param(4, 16, marks=pytest.mark.soak)])
def test_steps_divide_with_the_ranks(programs: Programs, ranks: int, steps: int) -> None:
    ended = programs.run(ranks, "ddp/train.py", "3", "2")
    assert ended.code == 0, ended.err
    for rank in range(ranks or 1):
        line = rf"^\[CPU{rank}\] Epoch (\d) \| Batchsize: 32 \| Steps: {steps}$"
        assert ended.numbers(line) == [0, 1, 2]
    assert ended.numbers(r"^Epoch (\d) \| Training snapshot saved at snapshot.pt$") == [0, 2]
    assert ended.out.splitlines()[-1].startswith("Time for loading data and training: ")


def test_the_trainer_resumes_from_its_snapshot(programs: Programs, snapshots: Path) -> None:
    ended = programs.run(ALONE, "ddp/train.py", "4", "1", "--snapshot", f"{snapshots}/snapshot.pt")
    assert ended.code == 0, ended.err
    assert ended.numbers(r"^Resuming at epoch (\d)") == [2]
    assert ended.numbers(r"^\[CPU0\] Epoch (\d)") == [2, 3]


def test_the_trainer_refuses_another_program_s_snapshot(programs: Programs, snapshots: Path) -> None:
    ended = programs.run(ALONE, "ddp/train.py", "2", "1", "--snapshot", f"{snapshots}/digits.pt")
    assert ended.code == 1
    assert len(ended.own_errors) == len(ended.err.splitlines()) == 1


# --- pi ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak), 3])
def test_the_shares_of_all_ranks_add_up_to_pi(programs: Programs, ranks: int) -> None:
    ended = programs.run(ranks, "pi/pi.py", "--steps", "1000")
    assert ended.code == 0, ended.err
    assert sorted(ended.numbers(r"^rank (\d) of ")) == list(range(ranks))
    assert sum(ended.numbers(r": (\d+) of 1000 steps, share")) == 1000
    shares = [float(share) for share in re.findall(r"share (\S+)", ended.out)]
    assert math.isclose(sum(shares), math.pi, rel_tol=0, abs_tol=1 / 3 / 1000**2)
    assert f"{ranks} {'rank' if ranks == 1 else 'ranks'} (gloo)" in ended.out
    assert ended.out.splitlines()[-1].startswith("Time: ")


def test_a_sum_that_is_not_pi_fails_with_both_numbers(programs: Programs) -> None:
    ended = programs.run(ALONE, "pi/pi.py", "--steps", "10", "--bound", "1e-9")
    assert ended.code == 1
    [line] = ended.err.splitlines()
    assert line.startswith("pi.py: 3.1424")
    assert "3.141592653589793" in line


# --- all of them ------------------------------------------------------------------------------------------------------

PLACES = """
import json, os, runpy, sys
import torch, torch.distributed as dist
os.environ.update(RANK="3", LOCAL_RANK="3")
joined = []
dist.init_process_group = lambda backend, **words: joined.append(backend)
dist.get_rank, dist.get_world_size = lambda: 3, lambda: 4
found = {}
for kind in ("cuda", "xpu", "cpu"):
    for other in ("cuda", "xpu"):
        module = getattr(torch, other)
        module.is_available = lambda answer=(other == kind): answer
        module.device_count, module.set_device = lambda: 2, lambda device: None
    for program in sys.argv[1:]:
        place = runpy.run_path(program, run_name="program")["find_place"]()
        device = place[2] if isinstance(place, tuple) else place.device
        found.setdefault(kind, []).append([str(device), joined[-1]])
print(json.dumps(found))
"""


def test_the_device_found_chooses_the_backend(torch_python: tuple[str, ...], examples: Path) -> None:
    files = [str(examples / name) for name in ("digits/train.py", "ddp/train.py", "pi/pi.py")]
    told = subprocess.run([*torch_python, "-c", PLACES, *files], capture_output=True, text=True, check=True)
    expected = {"cuda": ["cuda:1", "nccl"], "xpu": ["xpu:1", "xccl"], "cpu": ["cpu", "gloo"]}
    assert json.loads(told.stdout) == {kind: [pair] * len(files) for kind, pair in expected.items()}
