"""Stages on which every runtime must keep the same contract; they never change the machine that runs the tests.

A new runtime needs a parameter of the fixture `stage`, and a branch in `make_stage` if it needs more than its program:
images in a store, a daemon, or a machine with other settings. It belongs in `UNPACK` if it starts unpacked trees.

A stage is a runtime, a user and a place: bubblewrap, podman and docker on this machine as root and as an ordinary user,
Apptainer, bubblewrap and enroot in a one-shot machine of the lab; enroot where ARGOSY_LAB_ENROOT names a built one, and
podman-hpc where ARGOSY_PODMAN_HPC does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from argosy.builder.output.export import write_enroot_files
from argosy.core.model import Attach, Bind, Entry, GpuMode, Image, ImageKind, Person
from argosy.core.process import Command, RealRunner, Reply
from argosy.core.shell import literal_argv
from argosy.runtimes.apptainer import leaks
from argosy.runtimes.runtime import load_runtime
from tests import dockerd, podman_hpc
from tests.enroot import NO_ENROOT, built_enroot

REPO = Path(__file__).parents[2]
LAB_IN = REPO / "lab" / "in"
BUSYBOX = Path("/bin/busybox")
PODMAN_ROOM = """\
set -eu
# A machine as podman wants one, for the commands after UID and HOME: a name and subordinate ids for the user, control
# groups of version 2, /dev/fuse for everybody, a place for its own files.  Nothing of it is left.
mount --make-rshared /
mount -t tmpfs none /run
mount -t cgroup2 none /sys/fs/cgroup
{ cat /etc/passwd; echo "alice:x:$1:$1::$2:/bin/sh"; } > /run/passwd
{ cat /etc/group; echo "alice:x:$1:"; } > /run/group
echo "alice:100000:65536" > /run/ids
for file in passwd group; do mount --bind "/run/$file" "/etc/$file"; done
for file in subuid subgid; do mount --bind /run/ids "/etc/$file"; done
mknod -m 666 /run/fuse c 10 229; mount --bind /run/fuse /dev/fuse
mkdir -p "$2" /run/alice; chown "$1:$1" "$2" /run/alice
XDG_RUNTIME_DIR=/run/alice XDG_DATA_HOME=/run/alice; export XDG_RUNTIME_DIR XDG_DATA_HOME
shift 2; exec "$@"
"""
APPLETS = "cat cp echo env grep head id kill ls printenv printf pwd readlink sh sleep test touch true"
ALICE = 2001
AS_ALICE = ("setpriv", "--reuid", str(ALICE), "--regid", str(ALICE), "--clear-groups", "--inh-caps=-all", "--")
UNPACK = ("bwrap", "podman")
"""Runtimes that start unpacked trees instead of image files."""
CAP_SYS_RESOURCE = 24
PODMAN_HOME = "/run/home"
"""Of its user: outside of /tmp, where podman would show the way to it."""

DOCKER_IMAGE = "argosy-contract"
WITH_CONDA = "source /opt/conda/bin/activate site"
IMAGE_ENV = (
    *(("PATH", "/opt/argosy/env/bin:/bin"), ("NCCL_DEBUG", "WARN"), ("FROM_IMAGE", "yes")),
    ("WITH_CONDA", WITH_CONDA),
)
"""The image's variables; docker, podman and enroot read no scripts of an image."""

BUILD_SIF = """\
set -eu
cd "$1"
for part in base layer; do mksquashfs $part $part.sqfs -noappend -quiet -all-root > build.log; done
apptainer sif new delta.sif
apptainer sif add --datatype 4 --partfs 1 --parttype 2 --partarch 2 --groupid 1 delta.sif base.sqfs
apptainer sif add --datatype 4 --partfs 1 --parttype 4 --partarch 2 --groupid 1 delta.sif layer.sqfs
"""


BUILD_SQSH = """\
set -eu
cd "$1"
mkdir squash
cp -a base/. layer/. enroot/. squash/
mksquashfs squash whole.sqsh -noappend -quiet -all-root > build.log
"""


@dataclass(frozen=True, slots=True)
class Images:
    """The same small image in each form: a base, and a layer with Argosy's layout."""

    folder: Path
    base: Path
    layer: Path
    sif: Path
    part: int = 2

    @property
    def whole(self) -> Path:
        """The squashfs for enroot, whose files for it are of one that Argosy writes."""
        return self.folder / "whole.sqsh"


@dataclass(frozen=True, slots=True)
class Stage:
    """A runtime, a user and a place to start programs in."""

    name: str
    runtime: str
    person: Person
    images: Images
    lab: bool = False
    unprivileged: tuple[str, ...] = ()
    daemon: dockerd.Daemon | None = None
    store: Path | None = None

    @property
    def in_a_store(self) -> bool:
        """Whether the image is in a store of the runtime, as images of registries are, and not a file or folder."""
        return bool(self.daemon or self.store)

    @property
    def work(self) -> Path:
        return self.images.folder / f"work-{self.person.name}"

    def entry(self, **changes: object) -> Entry:
        """Give an entry for the layered image: home and the work folder are there, as planning would have it."""
        fields: dict[str, object] = {
            "image": self.image(),
            "attach": Attach.OVERLAY,
            "binds": (*self.homes(), Bind(str(self.work), str(self.work))),
            "variables": (),
            "workdir": str(self.work),
            "gpu": GpuMode.NONE,
            "contain": False,
            "person": self.person,
            "trees": (str(self.images.layer), str(self.images.base)) if self.runtime in UNPACK else (),
            "scratch": str(self.images.folder / "scratch"),
        }
        return Entry(**{**fields, **changes})  # type: ignore[arg-type] # a test names the fields it changes

    def homes(self) -> tuple[Bind, ...]:
        """Give the mount of the home where the runtime makes none by itself, and planning asks for it."""
        return (Bind(self.person.home, self.person.home),) if self.runtime in {"enroot", "podman-hpc"} else ()

    def image(self) -> Image:
        if self.runtime == "enroot":
            return Image(str(self.images.whole), ImageKind.SQUASHFS, "", "amd64", argosy=True)
        if self.in_a_store:
            return Image(DOCKER_IMAGE, ImageKind.REGISTRY, "", "")
        return Image(
            path=str(self.images.sif if self.lab else self.images.base),
            kind=ImageKind.SIF if self.lab else ImageKind.TREE,
            digest="",
            arch="amd64",
            layer_offset=1,
            layer_part=self.images.part,
            argosy=True,
        )

    def start(
        self,
        entry: Entry,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str] | None = None,
        around: str = '"$@"',
        stdin: str | None = None,
    ) -> Reply:
        """Start a command; `around` is a script of the machine outside, whose arguments start the container."""
        runtime = load_runtime(self.runtime)
        variables = {"PATH": os.environ["PATH"], "HOME": self.person.home, **(env or {})}
        variables |= {"DOCKER_HOST": self.daemon.address} if self.daemon else {}
        variables |= podman_hpc.settings(self.store) if self.store else {}
        dropped = {*leaks(variables), *entry.drop} if self.runtime != "bwrap" else set()
        variables = {name: value for name, value in variables.items() if name not in dropped}
        for variable in runtime.exports(entry):
            variables[variable.name] = str(variable.value)
        words = ("/bin/sh", "-c", around, "sh", *literal_argv(runtime.argv(entry, command)))
        return self.outside(words, variables, stdin=stdin)

    def outside(self, words: tuple[str, ...], env: Mapping[str, str], *, stdin: str | None = None) -> Reply:
        """Run a program of the machine that the container is started from."""
        if not self.lab:
            return RealRunner().run(Command((*self.unprivileged, *words), cwd=str(self.work), env=env, stdin=stdin))
        variables = [word for name, value in env.items() if name != "PATH" for word in ("-e", f"{name}={value}")]
        place: tuple[str, ...] = ("-u", "alice", "-w", str(self.work), "-b", str(self.images.folder))
        place = (*place, "--enroot", built_enroot()) if self.runtime == "enroot" else place
        return RealRunner().run(Command((str(LAB_IN), *place, *variables, "--", *words), stdin=stdin))


@pytest.fixture(scope="session")
def trees() -> Iterator[Images]:
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    folder = Path(tempfile.mkdtemp(prefix="argosy-contract-", dir="/tmp"))
    folder.chmod(0o755)
    base, layer = folder / "base", folder / "layer"
    _make_base(base)
    _make_layer(layer)
    for path in (folder / "scratch", folder / "work-root", folder / "work-alice", folder / "home-alice"):
        path.mkdir()
    if os.geteuid() == 0:
        for name in ("work-alice", "home-alice"):
            os.chown(folder / name, ALICE, ALICE)
    yield Images(folder, base, layer, folder / "delta.sif")
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def users_trees(trees: Images) -> Images:
    """Give trees as a user has them who unpacked an image: podman completes them with files of its own."""
    folder = trees.folder / "of-alice"
    for tree in (trees.base, trees.layer):
        shutil.copytree(tree, folder / tree.name, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ALICE, ALICE, follow_symlinks=False)
    return replace(trees, base=folder / trees.base.name, layer=folder / trees.layer.name)


@pytest.fixture(scope="session")
def sif(trees: Images) -> Images:
    if os.geteuid() != 0 or not LAB_IN.exists():
        pytest.skip("the lab needs root")
    reply = RealRunner().run(
        Command(
            (str(LAB_IN), "-u", "root", "-b", str(trees.folder), "--", "sh", "-c", BUILD_SIF, "sh", str(trees.folder))
        )
    )
    assert reply.code == 0, reply.stderr
    return Images(trees.folder, trees.base, trees.layer, trees.sif, 2)


@pytest.fixture(scope="session")
def sqsh(trees: Images) -> Images:
    if not built_enroot():
        pytest.skip(NO_ENROOT)
    if os.geteuid() != 0 or not LAB_IN.exists():
        pytest.skip("the lab needs root")
    write_enroot_files(trees.folder / "enroot", IMAGE_ENV)
    reply = RealRunner().run(Command(("sh", "-c", BUILD_SQSH, "sh", str(trees.folder))))
    assert reply.code == 0, reply.stderr
    return trees


@pytest.fixture(scope="session")
def archive(trees: Images) -> Path:
    """Pack the base and the layer as one tar archive."""
    whole, packed = trees.folder / "whole", trees.folder / "whole.tar"
    for tree in (trees.base, trees.layer):
        shutil.copytree(tree, whole, symlinks=True, dirs_exist_ok=True)
    for place in ("tmp", "var/tmp"):
        (whole / place).chmod(0o1777)
    pack = ("tar", "-C", str(whole), "-cf", str(packed), ".")
    subprocess.run(pack, check=True)
    return packed


@pytest.fixture(scope="session")
def daemon(trees: Images, archive: Path) -> Iterator[dockerd.Daemon]:
    """Give a Docker that has the image, its base and layer in one."""
    with dockerd.running(trees.folder / "docker", ALICE) as it:
        changes = (f"--change=ENV {name}='{value}'" for name, value in IMAGE_ENV)
        it.docker("import", *changes, "-", DOCKER_IMAGE, stdin=archive.read_bytes())
        yield it


@pytest.fixture(scope="session")
def store(trees: Images, archive: Path) -> Path:
    """Give a folder of alice's podman-hpc that has the image, its base and layer in one."""
    if not podman_hpc.built_podman_hpc():
        pytest.skip(podman_hpc.NO_PODMAN_HPC)
    if not Path("/dev/mqueue").is_dir():
        pytest.skip("podman-hpc's --ipc=host needs /dev/mqueue: mkdir /dev/mqueue; mount -t mqueue none /dev/mqueue")
    folder = trees.folder / "podman-hpc"
    (folder / "hooks").mkdir(parents=True)
    for path in (folder, folder / "hooks"):
        os.chown(path, ALICE, ALICE)
    changes = (f"--change=ENV {name}={value}" for name, value in IMAGE_ENV)  # podman keeps quotes
    words = ("podman-hpc", "import", *changes, str(archive), DOCKER_IMAGE)
    given = {"HOME": PODMAN_HOME, **podman_hpc.settings(folder)}
    reply = RealRunner().run(Command((*podman_room("user"), *AS_ALICE, *words), env=given))
    assert reply.code == 0, reply.stderr
    return folder


@pytest.fixture(
    params=[
        pytest.param("bwrap, root", marks=pytest.mark.real),
        pytest.param("bwrap, user", marks=pytest.mark.real),
        pytest.param("podman, root", marks=[pytest.mark.real, pytest.mark.soak]),
        pytest.param("podman, user", marks=[pytest.mark.real, pytest.mark.soak]),
        pytest.param("docker, root", marks=[pytest.mark.real, pytest.mark.soak]),
        pytest.param("docker, user", marks=[pytest.mark.real, pytest.mark.soak]),
        pytest.param("podman-hpc, user", marks=[pytest.mark.real, pytest.mark.soak]),
        # The kernel and the kind of user are those of "bwrap, user": another release of bwrap is for the soak.
        pytest.param("bwrap, lab", marks=[pytest.mark.lab, pytest.mark.soak]),
        pytest.param("apptainer, lab", marks=pytest.mark.lab),
        pytest.param("enroot, lab", marks=pytest.mark.lab),
    ]
)
def stage(request: pytest.FixtureRequest) -> Stage:
    return make_stage(request, request.param)


@pytest.fixture
def stage_called(request: pytest.FixtureRequest) -> Callable[[str], Stage]:
    return lambda name: make_stage(request, name)


def make_stage(request: pytest.FixtureRequest, name: str) -> Stage:
    """Make a stage by its name, or skip the test with the reason."""
    runtime, _, where = name.partition(", ")
    lab = where == "lab"
    form = ("sqsh" if runtime == "enroot" else "sif") if lab else "trees"
    images: Images = request.getfixturevalue(form)
    if lab:
        return Stage(name, runtime, Person(ALICE, ALICE, "alice", "/home/alice"), images, lab=True)
    if not shutil.which(runtime) and runtime != "podman-hpc":
        pytest.skip(f"{runtime} is not installed here")
    room: tuple[str, ...] = ()
    daemon = request.getfixturevalue("daemon") if runtime == "docker" else None
    store = request.getfixturevalue("store") if runtime == "podman-hpc" else None
    if runtime in {"podman", "podman-hpc"}:
        room = podman_room(where)
    if name == "podman, user":
        images = request.getfixturevalue("users_trees")
    if where == "root":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        home = images.folder / "work-root"
        return Stage(name, runtime, Person(0, 0, "root", str(home)), images, unprivileged=room, daemon=daemon)
    home = images.folder / "home-alice" if not room else Path(PODMAN_HOME)
    if os.geteuid() != 0:
        return Stage(name, runtime, Person(os.geteuid(), os.getegid(), "alice", str(home)), images)
    tried = subprocess.run([*AS_ALICE, "unshare", "--user", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"users may not make namespaces here: {tried.stderr.strip()}")
    person = Person(ALICE, ALICE, "alice", str(home))
    return Stage(name, runtime, person, images, unprivileged=(*room, *AS_ALICE), daemon=daemon, store=store)


def podman_room(where: str) -> tuple[str, ...]:
    """Give the words before a command of podman: namespaces of its own, whose end is the end of all that it started."""
    if os.geteuid() != 0:
        pytest.skip("needs root, which gives podman a user with subordinate ids")
    held = int(re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16)
    if where == "root" and not held >> CAP_SYS_RESOURCE & 1:
        pytest.skip("root may not raise limits here, and podman's crun must")
    own = ("unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child", "--mount-proc")
    return (*own, "sh", "-c", PODMAN_ROOM, "sh", str(ALICE), PODMAN_HOME)


def _make_base(base: Path) -> None:
    """Make a root file system of one static program, with a dangling link where resolv.conf goes, as images have."""
    for name in ("bin", "etc", "home", "proc", "sys", "dev", "tmp", "var/tmp", "root", ".singularity.d/env"):
        (base / name).mkdir(parents=True)
    shutil.copy2(BUSYBOX, base / "bin/busybox")
    for name in APPLETS.split():
        (base / "bin" / name).symlink_to("busybox")
    (base / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (base / "etc/group").write_text("root:x:0:\n")
    (base / "etc/resolv.conf").symlink_to("/run/nowhere/resolv.conf")
    scripts = base / ".singularity.d/env"
    (scripts / "90-environment.sh").write_text(
        f'export NCCL_DEBUG="${{NCCL_DEBUG:-WARN}}"\nexport FROM_IMAGE=yes WITH_CONDA="{WITH_CONDA}"\n'
    )
    # A start script, a conda to activate, and a bash, as images of sites have them.
    for path, text in {
        ".singularity.d/runscript": '#!/bin/sh\nexport STARTED_BY=runscript\nexec "$@"\n',
        "opt/conda/bin/activate": "export CONDA_PREFIX=/opt/conda/envs/$1\n",
        "bin/bash": '#!/bin/sh\nexec /bin/sh "$@"\n',
    }.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
        (base / path).chmod(0o755)
    # Every image that Apptainer built has it; forced variables are set right after it, and lost where it is missing.
    (scripts / "99-base.sh").write_text(
        "export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs\n"
    )


def _make_layer(layer: Path) -> None:
    """Make a layer of Argosy's layout with one program."""
    programs = layer / "opt/argosy/env/bin"
    programs.mkdir(parents=True)
    for path, text in {
        "opt/argosy/enter": '#!/bin/sh\n. /opt/argosy/env.sh\nexec "$@"\n',
        "opt/argosy/env.sh": "export PATH=/opt/argosy/env/bin:$PATH ARGOSY_PREFIX=/opt/argosy\n",
        "opt/argosy/env/bin/hello": '#!/bin/sh\necho "hello from $ARGOSY_PREFIX"\n',
    }.items():
        (layer / path).write_text(text)
        (layer / path).chmod(0o755)
