"""The launcher mpi starts a program that uses MPI, or a note names it: with another one, each rank runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, Host, Image, ImageKind
from argosy.core.records import replace
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.complete import complete_request
from argosy.launch.context import LaunchContext, choose_target
from argosy.launch.image_checks import read_program
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.launch.option_checks import plan_notes
from argosy.launch.plan import plan_launch
from argosy.runtimes.container_plan import plan_container
from argosy.sites.profile import Node, Site
from argosy.sites.software import LauncherPolicy
from tests.unit.machines import make_host

HOST = make_host("apptainer", "sbatch", environment={"HOME": "/home/alice"})
BOTH = frozenset({"torch", "mpi4py"})
IMAGE = Image("/shared/mine.sif", ImageKind.SIF, "sha256:0", "amd64", argosy=True, packages=BOTH, complete=True)
LAB = Site(name="lab", title="the lab", scheduler="slurm", node=Node(cores=8))
LOCAL = Site(name="local", title="this machine")
TWO = ResourceRequest(nodes=2)
HELLO = ("python", "hello.py")

MPI = "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n"
TORCH = "import torch.distributed as dist\ndist.init_process_group()\n"


def plan(
    folder: Path, text: str = "", site: Site = LAB, image: Image = IMAGE, host: Host = HOST, **request: Any
) -> LaunchPlan:
    if text:
        (folder / "hello.py").write_text(text)
    asked = LaunchRequest(image=image.path, **{"command": HELLO, "site": site.name, "resources": TWO, **request})
    asked, site = complete_request(asked, site, host)
    container = plan_container(asked.container, image, host)
    target = choose_target(asked, site, host)
    return plan_launch(LaunchContext(asked, target, container, host, program=read_program(asked, str(folder))))


def launcher(found: LaunchPlan) -> Choice:
    return next(choice for choice in found.choices if choice.key == ChoiceKey.LAUNCHER)


@pytest.mark.parametrize(
    "text",
    [
        MPI,
        "import mpi4py\n",
        "import mpi4py.MPI as mpi\n",
        "def main():\n    from mpi4py import MPI\n\n\nmain()\n",
        "try:\n    from mpi4py import MPI\nexcept ImportError:\n    MPI = None\n",
        "import torch\n" + MPI,
        "import sys\nsys.path.insert(0, 'lib')\n" + MPI,
    ],
)
def test_a_program_that_imports_mpi4py_gets_the_launcher_mpi(tmp_path: Path, text: str) -> None:
    found = plan(tmp_path, text)
    assert (launcher(found).value, launcher(found).why) == ("mpi", "hello.py imports mpi4py")
    assert "--mpi=pmix" in found.script
    assert "launcher = mpi: hello.py imports mpi4py" in found.script
    assert not [note for note in plan_notes(found.choices) if "launcher" in note]


@pytest.mark.parametrize("packages", [frozenset({"mpi4py"}), frozenset({"mpi4py", "numpy"}), frozenset({"torch"})])
def test_the_image_needs_no_torch_and_may_not_list_its_packages(tmp_path: Path, packages: frozenset[str]) -> None:
    image = replace(IMAGE, packages=packages, complete="mpi4py" in packages)
    assert launcher(plan(tmp_path, MPI, image=image)).value == "mpi"


def test_horovod_is_a_program_of_mpi(tmp_path: Path) -> None:
    image = replace(IMAGE, packages=frozenset({"torch", "horovod"}))
    found = plan(tmp_path, "import torch\nimport horovod.torch as hvd\n", image=image)
    assert (launcher(found).value, launcher(found).why) == ("mpi", "hello.py imports horovod")


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "mpi4py", "hello.py"),
        ("python3", "-u", "-m", "mpi4py.futures", "hello.py"),
        ("python", "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.rank)"),
    ],
)
def test_the_command_itself_may_name_mpi4py(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert launcher(plan(tmp_path, command=command)).value == "mpi"


@pytest.mark.parametrize(
    "text",
    [
        TORCH,
        "from torch import distributed, nn\n",
        "from torch.distributed import init_process_group\n",
        "import torch\ntorch.distributed.init_process_group('nccl')\n",
        "import deepspeed\n",
        "import pytorch_lightning as pl\n",
        "from accelerate import Accelerator\n",
    ],
)
def test_torchrun_stays_for_a_program_that_uses_torch_distributed_too(tmp_path: Path, text: str) -> None:
    found = plan(tmp_path, MPI + text)
    assert launcher(found).value == "torchrun"
    (note,) = (note for note in plan_notes(found.choices) if "launcher" in note)
    assert "hello.py uses torch.distributed and imports mpi4py" in note
    assert "--launcher mpi" in note
    assert not [note for note in plan_notes(plan(tmp_path, text).choices) if "launcher" in note]


def test_options_of_torchrun_keep_it(tmp_path: Path) -> None:
    for options in ({"launcher_arguments": ("--max-restarts=1",)}, {"elastic": "1:2"}):
        assert launcher(plan(tmp_path, MPI, **options)).value == "torchrun"


@pytest.mark.parametrize(
    ("command", "text", "packages", "value"),
    [
        (("pyfr", "run", "mesh.pyfrm"), "", {"mpi4py"}, "none"),
        (("python", "-m", "solver"), "", {"torch", "mpi4py"}, "torchrun"),
        (("python", "-m", "solver"), "", {"mpi4py"}, "none"),
        (("/shared/venv/bin/python", "hello.py"), MPI, {"torch", "mpi4py"}, "none"),
        (HELLO, "import solver\n", {"mpi4py"}, "none"),
        (HELLO, "", {"torch", "mpi4py"}, "torchrun"),
        (HELLO, "print(", {"torch", "mpi4py"}, "torchrun"),
        (("train",), "", {"horovod"}, "none"),
    ],
)
def test_an_image_with_mpi4py_is_noted_if_the_program_may_use_it(
    tmp_path: Path, command: tuple[str, ...], text: str, packages: set[str], value: str
) -> None:
    image = replace(IMAGE, packages=frozenset(packages))
    found = plan(tmp_path, text, image=image, command=command)
    assert launcher(found).value == value
    (note,) = (note for note in plan_notes(found.choices) if "launcher" in note)
    name = "horovod" if "horovod" in packages else "mpi4py"
    assert f"the image has {name}: if the program uses MPI, add --launcher mpi" in note
    asked = plan(tmp_path, text, image=image, command=command, launcher=value)
    assert not [note for note in plan_notes(asked.choices) if "launcher" in note]


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        (MPI, {"resources": ResourceRequest(nodes=1)}),
        (TORCH, {}),
        ("import torch\n", {}),
        ("import jax\n", {}),
        (MPI, {"launcher": "torchrun"}),
        ("", {"command": ("train",), "independent_ranks": True}),
        ("", {"command": ("train",), "needs_torch": True}),
    ],
)
def test_other_launches_stay_as_they_are(tmp_path: Path, text: str, request_: dict[str, Any]) -> None:
    found = plan(tmp_path, text, **request_)
    assert launcher(found).value != "mpi"
    assert not [note for note in plan_notes(found.choices) if "launcher" in note]


def test_an_optional_import_of_what_the_image_lacks_does_not_choose_mpi(tmp_path: Path) -> None:
    text = "try:\n    from mpi4py import MPI\nexcept ImportError:\n    MPI = None\n"
    image = replace(IMAGE, packages=frozenset({"torch"}))
    assert launcher(plan(tmp_path, text, image=image)).value == "torchrun"


def test_the_sites_launcher_for_torch_does_not_replace_mpi(tmp_path: Path) -> None:
    site = replace(LAB, launcher=LauncherPolicy(default="srun", mpi="pmi2"))
    found = plan(tmp_path, MPI, site=site)
    assert launcher(found).value == "mpi"
    assert "--mpi=pmi2" in found.script


def test_on_a_machine_without_slurm_several_ranks_of_mpi_are_refused_with_the_command_that_works(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="each of the 4 ranks would run the whole program alone") as caught:
        plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(ranks=4))
    assert "hello.py imports mpi4py" in caught.value.evidence
    assert "--ranks 1 -- mpirun -n 4 python hello.py" in caught.value.hint
    assert "--launcher none" in caught.value.hint
    assert plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(ranks=4), launcher="none").script
    assert plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(ranks=1)).script
    found = plan(tmp_path, site=LOCAL, resources=ResourceRequest(ranks=2), command=("pyfr", "run", "a mesh"))
    (note,) = (note for note in plan_notes(found.choices) if "launcher" in note)
    assert "--ranks 1 -- mpirun -n 2 pyfr run 'a mesh'" in note


def test_a_runtime_without_the_hosts_mpi_is_not_sent_back_to_torchrun(tmp_path: Path) -> None:
    host = make_host("podman", "sbatch", environment={"HOME": "/home/alice"})
    with pytest.raises(SiteError, match="cannot start ranks of the host's MPI") as caught:
        plan(tmp_path, MPI, host=host, container=ContainerRequest(runtime="podman"))
    assert "another runtime" in caught.value.hint
    assert "a program without MPI" in caught.value.hint


def test_mpi_asked_on_a_machine_without_slurm_is_refused_with_the_command_that_works(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the mpi launcher needs Slurm") as caught:
        plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(ranks=4), launcher="mpi")
    assert "--ranks 1 -- mpirun -n 4 python hello.py" in caught.value.hint
    assert "torchrun" not in caught.value.hint
    with pytest.raises(UsageError, match="the mpi launcher needs Slurm") as caught:
        plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(), launcher="mpi")
    assert "mpirun -n N python hello.py" in caught.value.hint
    with pytest.raises(UsageError, match="the srun launcher needs Slurm") as caught:
        plan(tmp_path, MPI, site=LOCAL, resources=ResourceRequest(ranks=4), launcher="srun")
    assert "torchrun or none" in caught.value.hint


@pytest.mark.parametrize(
    ("family", "asked", "site", "note"),
    [
        ("openmpi", "", LauncherPolicy(mpi="pmi2"), "MPI = Open MPI: jobs of lab use PMI-2, and Open MPI"),
        ("openmpi", "pmi2", LauncherPolicy(), "use an image with MPICH"),
        ("openmpi", "", LauncherPolicy(mpiexec="hydra"), "jobs of lab use mpiexec of MPICH"),
        ("openmpi", "pmix", LauncherPolicy(mpi="pmi2"), ""),
        ("openmpi", "", LauncherPolicy(), ""),
        ("mpich", "", LauncherPolicy(mpi="pmi2"), ""),
        ("several", "", LauncherPolicy(mpi="pmi2"), ""),
        ("", "", LauncherPolicy(mpi="pmi2"), ""),
        ("none", "", LauncherPolicy(), "'from mpi4py import MPI' fails; use a base with an MPI, for example debian:"),
    ],
)
def test_an_mpi_that_does_not_fit_the_site_is_noted(
    tmp_path: Path, family: str, asked: str, site: LauncherPolicy, note: str
) -> None:
    lab, image = replace(LAB, launcher=site), replace(IMAGE, mpi=family)
    notes = [
        each for each in plan_notes(plan(tmp_path, MPI, site=lab, image=image, mpi=asked).choices) if "MPI" in each
    ]
    assert len(notes) == bool(note)
    assert note in "".join(notes)
    torch = plan_notes(plan(tmp_path, TORCH, site=lab, image=image).choices)
    assert not [each for each in torch if "MPI" in each]


# What the program does by itself

LOCALHOST = "import os\nos.environ['MASTER_ADDR'] = 'localhost'\n"
SPAWN = "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n"


def notes(folder: Path, text: str, site: Site = LAB, **request: Any) -> list[str]:
    return [note for note in plan_notes(plan(folder, text, site, **request).choices) if note.startswith("program")]


def test_a_program_that_sets_the_address_of_one_machine_is_noted_on_several_nodes(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, LOCALHOST)
    assert "hello.py: it sets MASTER_ADDR to 'localhost' (line 2)" in note
    assert notes(tmp_path, LOCALHOST, launcher="srun") == [note]
    assert not notes(tmp_path, LOCALHOST, resources=ResourceRequest(nodes=1, ranks=2))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nif 'MASTER_ADDR' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'localhost'\n",
        "import os\nos.environ['MASTER_ADDR'] = first_node()\n",
        "import os\nos.environ.setdefault('MASTER_ADDR', 'localhost')\n",
        "import os\nos.environ['MASTER_PORT'] = '1234'\n",
    ],
)
def test_an_address_for_runs_without_a_launcher_is_not_noted(tmp_path: Path, text: str) -> None:
    assert not notes(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        SPAWN,
        "import torch\ndef main():\n    torch.multiprocessing.spawn(run, nprocs=2)\n",
        "from torch.multiprocessing import spawn\nspawn(run, nprocs=2)\n",
    ],
)
def test_a_program_that_spawns_its_ranks_is_noted_if_several_start_on_a_node(tmp_path: Path, text: str) -> None:
    four = ResourceRequest(nodes=2, ranks=4)
    for launcher in ("", "torchrun", "srun"):
        (note,) = notes(tmp_path, text, resources=four, launcher=launcher)
        assert "hello.py: it calls spawn of torch.multiprocessing" in note
        assert "--launcher none --ranks-per-node 1" in note
    assert not notes(tmp_path, text, resources=four, launcher="none")
    assert not notes(tmp_path, text)
    (local,) = notes(tmp_path, text, LOCAL, resources=ResourceRequest(ranks=2))
    assert "--launcher none --ranks 1" in local


def test_a_program_that_spawns_only_without_a_launcher_is_not_noted(tmp_path: Path) -> None:
    text = "import os\nimport torch.multiprocessing as mp\nif 'RANK' not in os.environ:\n    mp.spawn(main)\n"
    assert not notes(tmp_path, text, resources=ResourceRequest(nodes=2, ranks=4))
    other = "import multiprocessing\nctx.spawn(x)\nspawn(y)\n"
    assert not notes(tmp_path, other, resources=ResourceRequest(nodes=2, ranks=4))
