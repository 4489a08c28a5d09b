"""A program is looked for in the listings of an image file, without a container."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.core.model import Attach, Bind, ContainerRequest, Entry, GpuMode, Image, ImageKind, Person, Variable
from argosy.core.records import replace
from argosy.host.probe import open_session
from argosy.images.programs import lacks_path, search_program
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import open_tables
from argosy.images.unpack import find_known, is_link
from argosy.runtimes.command_check import refuse_unknown_program, refuse_without_python, refuse_without_shell
from argosy.runtimes.run import RunRequest, prepare_run


def pack(folder: Path, *options: str) -> Image:
    """Pack an image with the programs python, python3, /srv/tools/solver and a completion file for ruby."""
    for path, mode in (
        ("usr/bin/python3", 0o755),
        ("usr/bin/python", 0o755),
        ("usr/local/bin/mpirun", 0o755),
        ("srv/tools/solver", 0o755),
        ("usr/share/completions/ruby", 0o644),
    ):
        file = folder / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        file.chmod(mode)
    (folder / "root/bin").symlink_to("usr/bin")
    packed = folder / "image.sqsh"
    words = ["mksquashfs", str(folder / "root"), str(packed), "-noappend", "-quiet", "-no-progress", *options]
    subprocess.run(words, check=True)
    return Image(str(packed), ImageKind.SQUASHFS, "", "", base_size=packed.stat().st_size)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return pack(tmp_path)


def entry_of(image: Image, *binds: Bind) -> Entry:
    person = Person(1000, 1000, "ada", "/home/ada")
    return Entry(image, Attach.FLAT, binds, (), "", GpuMode.NONE, False, person)


@pytest.mark.parametrize("options", [("-comp", "gzip"), ("-comp", "zstd")])
def test_a_program_is_found_in_any_folder_of_the_image(tmp_path: Path, options: tuple[str, ...]) -> None:
    image = pack(tmp_path, *options)
    for program in ("python", "mpirun", "solver", "bin"):
        assert not search_program(program, image).is_missing
    assert search_program("pyton", image).others == frozenset({"python", "python3", "mpirun"})
    assert search_program("ruby", image).is_missing, "a file that nobody may execute is not a program"
    assert search_program("srv", image).is_missing, "nor is a folder"


def test_an_unreadable_image_has_no_known_programs(tmp_path: Path, image: Image) -> None:
    assert not search_program("pyton", replace(image, path=str(tmp_path / "absent.sqsh"))).is_missing
    assert not search_program("pyton", replace(image, kind=ImageKind.REGISTRY)).is_missing
    assert not search_program("pyton", pack(tmp_path / "xz", "-comp", "xz")).is_missing


def test_a_path_is_missing_only_if_the_listings_can_tell(tmp_path: Path, image: Image) -> None:
    for path in ("/srv/none", "/usr/bin/python4", "/none/bin", "pyton"):
        assert lacks_path(path, image), path
    for path in ("/", "/srv/tools", "/srv/tools/solver", "/bin/behind-a-link", "/none/../srv/tools", "python"):
        assert not lacks_path(path, image), path
    assert not lacks_path("/srv/none", replace(image, path=str(tmp_path / "absent.sqsh")))


def test_a_path_is_followed_up_to_a_link_or_a_file(image: Image) -> None:
    whole = FileSlice(Path(image.path), 0, image.base_size)
    with open_tables(whole) as tables:
        for path, name, rest, is_missing in (
            ("/", b"", (), False),
            ("/srv/tools/solver", b"solver", (), False),
            ("srv//none/x", b"srv", (b"none", b"x"), True),
            ("/bin/behind", b"bin", (b"behind",), False),
            ("/srv/tools/solver/x", b"solver", (b"x",), False),
        ):
            found = tables.find(path)
            assert (found.entry.name, found.rest, found.is_missing) == (name, rest, is_missing), path
    assert find_known(whole, ("srv/tools", "srv/none", "bin", "bin/behind")) == {"srv/tools", "bin"}
    assert is_link(whole, "bin")
    assert not is_link(whole, "srv")
    assert not is_link(whole, "none")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("pyton", "train.py"), "did you mean python?"),
        (("ulimit", "-c", "0"), "ulimit is a command of the shell: -- sh -c 'ulimit -c 0'"),
        (("ruby",), "add the program to the image, or write the full path of a file"),
        (("pyrun",), "add the program to the image, or write the full path of a file"),
        (("uv", "run", "python", "x.py"), "omit uv run: the image has the packages: -- python x.py"),
        (("uv", "run", "x.py", "a b"), "omit uv run: the image has the packages: -- python x.py 'a b'"),
        (("poetry", "run", "train"), "omit poetry run: the image has the packages: -- train"),
        (("uv", "run", "--with=x", "x.py"), "add the program to the image, or write the full path of a file"),
        (("uv", "sync"), "add the program to the image, or write the full path of a file"),
        (
            ("mpiexec", "-n", "4", "./solver"),
            "Argosy starts the ranks itself: pass only the program to argosy launch, with --launcher mpi",
        ),
        (
            ("torchrun", "--nproc-per-node=2", "train.py", "--lr", "1"),
            "Argosy starts the ranks itself: pass only the program to argosy launch, for example -- python train.py",
        ),
        (
            ("numactl", "--localalloc", "python", "x.py"),
            "omit numactl, since Argosy binds the ranks to their cores, or add the program to the image",
        ),
    ],
)
def test_a_program_that_the_image_does_not_have_is_refused(image: Image, command: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError, match="the image has no such program") as caught:
        refuse_unknown_program(command, entry_of(image))
    assert caught.value.hint == hint


def test_no_other_program_is_suggested_for_a_path(image: Image) -> None:
    with pytest.raises(UsageError, match="the image has no such program") as caught:
        refuse_unknown_program(("/usr/bin/pyton3",), entry_of(image))
    assert caught.value.evidence.endswith(" has no executable file /usr/bin/pyton3")
    assert caught.value.hint == "check the path; for a file of this machine, mount its folder with --bind"


def test_a_program_that_may_come_from_elsewhere_is_not_refused(tmp_path: Path, image: Image) -> None:
    entry = entry_of(image)
    for command in (("nvidia-smi",), ("./solver",), ("tools/run",), (str(tmp_path / "image.sqsh"),), ()):
        refuse_unknown_program(command, entry)
    refuse_unknown_program(("/data/solve",), entry_of(image, Bind("/scratch", "/data")))
    refuse_unknown_program(("pyton",), replace(entry, variables=(Variable("PATH", "/data/bin"),)))
    refuse_unknown_program(("pyton",), replace(entry, image=replace(image, enter="run")))
    refuse_unknown_program(("pyton",), replace(entry, dev="/home/ada/dev"))
    home = tmp_path / "home"
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/mine").touch()
    refuse_unknown_program(("mine",), entry_of(image, Bind(str(home), str(home))))


def test_an_image_without_a_shell_or_python_is_refused(tmp_path: Path, image: Image) -> None:
    with pytest.raises(UsageError, match="it has no /bin/sh"):
        refuse_without_shell(entry_of(image))
    shell = tmp_path / "with/root/usr/bin/sh"
    shell.parent.mkdir(parents=True)
    shell.touch(mode=0o755)
    refuse_without_shell(entry_of(pack(tmp_path / "with")))
    refuse_without_python("torchrun", entry_of(image))
    without = entry_of(pack(tmp_path / "without", "-e", "usr/bin/python", "usr/bin/python3"))
    with pytest.raises(UsageError, match="--launcher torchrun needs Python"):
        refuse_without_python("torchrun", without)


def test_run_refuses_a_program_that_the_image_does_not_have(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(Path(image.path).parent / "cache"))
    asked = RunRequest(image.path, ("pyton", "train.py"), container=ContainerRequest(runtime="bwrap"))
    with pytest.raises(UsageError, match="cannot run pyton: the image has no such program"):
        prepare_run(asked, open_session())
