"""From the word a user gives for an image to a container that can be entered here; and what its command names.

`argosy run` and `argosy launch` share these effects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from argosy.containers import ContainerPlan, furnished, named_image, plan_container, without_binds
from argosy.errors import UsageError
from argosy.gpu_probe import probe_devices
from argosy.images.finding import find_image, refined, refuse_layer
from argosy.images.opening import GO_ARCH, Opened, open_image
from argosy.lock import Lock
from argosy.model import Bind, Choice, ContainerRequest, Host, Image, ImageKind
from argosy.nearest import nearest_word
from argosy.probe import read_links
from argosy.records import replace
from argosy.session import Session

ROOT_KEY = "root"


SYSTEM_FOLDERS = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "opt",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
)
"""Below these a path means the image's file, not the host's."""


def enter(
    request: ContainerRequest, reference: str, session: Session, *, command: tuple[str, ...] = (), dry: bool = False
) -> ContainerPlan:
    """Open an image and plan its container; unpack it where the runtime cannot mount it.

    Parameters
    ----------
    command
        What will run in it: folders of files that it names are bound, where the usual mounts do not show them.
    dry
        Only say what would be: nothing is unpacked.

    Raises
    ------
    ArgosyError
        As `find_image`, `open_image` and `plan_container` do.
    """
    named = named_image(reference, request.runtime)
    if named is not None and request.signed_by:
        _refuse_unverified(reference, named, request.runtime)
    if named is not None and named.kind is ImageKind.HOST:
        return plan_container(request, named, session.host)
    wanted = replace(request, binds=(*named_binds(command, request, session.host), *request.binds))
    host = _with_links(session.host, wanted)
    if named is not None:
        return _present(plan_container(wanted, _checked(named), host))
    opened = refined(open_image(find_image(reference, session)), session)
    refuse_layer(opened, session)
    plan = _present(plan_container(wanted, opened.image, _running(opened.image, host)))
    if request.signed_by:
        plan = replace(plan, choices=(*plan.choices, _signed(request, opened, session, dry=dry)))
    if not plan.runtime.traits.unpacks:
        return plan
    scratch = session.places.cache / "mount"
    if not dry:
        from argosy.refusals import explained  # noqa: PLC0415 - a dry run writes nothing

        with explained(scratch, "ARGOSY_CACHE"):
            scratch.mkdir(parents=True, exist_ok=True)
    trees = _tree_paths(opened, session) if dry else _unpack(opened, session)
    return furnished(plan, devices=probe_devices(plan.entry.gpu, session.runner), trees=trees, scratch=str(scratch))


def _with_links(host: Host, request: ContainerRequest) -> Host:
    """Add to the machine's facts the symbolic links on the way to the folders that the container shows."""
    asked = [os.path.join(host.cwd, bind.target) for bind in request.binds]  # noqa: PTH118 - text alone
    return replace(host, links=read_links([host.person.home, host.cwd, host.environment.get("TMPDIR", ""), *asked]))


def _running(image: Image, host: Host) -> Host:
    """Note in the host that an emulator runs the image's programs; where none does, the plan will refuse the image."""
    if image.arch in {"", GO_ARCH.get(host.target, host.target)}:
        return host
    from argosy.emulation import is_emulated, machine_named  # noqa: PLC0415 - for another machine's image only

    machine = machine_named(image.arch)
    return replace(host, emulated=machine) if is_emulated(machine) else host


def _refuse_unverified(reference: str, image: Image, runtime: str) -> None:
    """Refuse an image that is no file, where a signature is asked for: there is nothing to verify.

    Raises
    ------
    UsageError
        Always.
    """
    if image.kind is ImageKind.HOST:
        raise UsageError(f"{reference} is no image that somebody signed", hint="leave --signed-by out")
    raise UsageError(
        f"nobody can tell who signed {reference}: {runtime} fetches it by itself",
        hint="give a SIF file: argosy images pull fetches one from oras://",
        key="images.signed_by",
    )


def _signed(request: ContainerRequest, opened: Opened, session: Session, *, dry: bool) -> Choice:
    """Verify who signed an image, and say it; in a dry run only which signers will do."""
    if dry:
        return Choice("signed by", " or ".join(request.signed_by), "verified at the start", "option")
    from argosy.images.signing import find_signers  # noqa: PLC0415 - where it is asked for

    path, host = opened.image.path, session.host
    signer = find_signers(opened.sif, path, request.signed_by, session.runner, host.programs)[0]
    return Choice("signed by", signer.fingerprint, f"verified; {signer.name}", "option")


def _present(plan: ContainerPlan) -> ContainerPlan:
    """Leave out the optional mounts of what is not on this machine, as a TMPDIR that another session removed."""
    missing = {bind for bind in plan.entry.binds if bind.optional and not os.path.isdir(bind.source)}  # noqa: PTH112 - likewise
    return without_binds(plan, missing)


def _checked(image: Image) -> Image:
    """Read an environment definition file that is here, so that its faults are said before a job waits for them."""
    path = Path(image.path).expanduser().absolute()
    if image.kind is not ImageKind.EDF or not path.is_file():
        return image
    from argosy.runtimes.edf_file import parse_edf  # noqa: PLC0415 - such a file only

    parse_edf(path.read_text(errors="replace"), str(path))
    return replace(image, path=str(path))


def refuse_missing_binds(request: ContainerRequest) -> None:
    """Refuse bind mounts of what is not on this machine.

    Raises
    ------
    UsageError
        Naming the source.
    """
    for bind in request.binds:
        if not os.path.lexists(bind.source):
            raise UsageError(
                f"there is no {bind.source} to bind",
                evidence=f"--bind {bind.source}:{bind.target}",
                hint="check the path",
            )


MOUNT_FOLDER = frozenset({"", "apptainer", "singularity", "bwrap", "bare"})
"""Runtimes in whose containers the current directory is the host's; where none is named it is one of them."""


def refuse_missing_program(
    command: tuple[str, ...], request: ContainerRequest, host: Host, *, at_nodes: bool = False
) -> None:
    """Refuse a Python file that does not exist, before ranks are started for it.

    Only where that is certain: below the current directory, the home and the folders for temporary files, which are
    the host's in the container too.  Elsewhere the file may be the image's.

    Parameters
    ----------
    at_nodes
        The program starts on compute nodes: those have folders for temporary files of their own.

    Raises
    ------
    UsageError
        Naming the file.
    """
    program = _python_file(command)
    if not program or request.contain or request.workdir or request.binds:
        return
    path = Path(os.path.normpath(Path(host.cwd, program)))
    own = ("/tmp", "/var/tmp")  # noqa: S108 - mounts of every container
    if at_nodes and (request.runtime not in MOUNT_FOLDER or any(map(path.is_relative_to, own))):
        return
    shared = [folder for folder in (host.cwd, host.person.home, *own) if folder not in {"", "/"}]
    if any(map(path.is_relative_to, shared)) and not os.path.lexists(path):
        near = nearest_word(path.name, [each.name for each in path.parent.glob("*.py")])
        raise UsageError(
            f"there is no {program} to run",
            evidence=f"looked for {path}; the current directory is the same inside",
            hint=f"did you mean {near}?" if near else "check the path, or the folder that you are in",
        )


def _python_file(command: tuple[str, ...]) -> str:
    """Give the file that a Python command runs; empty for any other command, and for ``-c`` and ``-m``."""
    if command[:1] not in {("python",), ("python3",)}:
        return ""
    options = tuple(takewhile(lambda word: word.startswith("-"), command[1:]))
    program = "".join(command[1 + len(options) :][:1])
    return program if program.endswith(".py") and not {"-c", "-m"}.intersection(options) else ""


def refuse_quoted_line(command: tuple[str, ...], host: Host) -> None:
    """Refuse a quoted line of shell as the command: a job would wait for its nodes, and then find no such program.

    Raises
    ------
    UsageError
        Unless there is a file of that name, or it may be one of the image's.
    """
    line = command[0] if len(command) == 1 else ""
    if len(line.split()) > 1 and not line.startswith("/") and not os.path.lexists(os.path.join(host.cwd, line)):  # noqa: PTH118 - likewise
        raise UsageError(
            "the command is one word with blanks, and no program has that name",
            evidence=f"-- {line!r}",
            hint=f"leave the quotes out: -- {line.splitlines()[0]}; or for the shell: -- sh -c {line!r}",
        )


def refuse_no_program(command: tuple[str, ...], request: ContainerRequest, host: Host) -> None:
    """Refuse what surely is no program: a quoted line of shell, and a script of this folder that cannot be started so.

    Raises
    ------
    UsageError
        Naming the command that would do.
    """
    refuse_quoted_line(command, host)
    script = command[0] if command else ""
    path = os.path.join(host.cwd, script)  # noqa: PTH118 - isfile answers for any text; Path's may raise
    if request.contain or request.workdir or not script.endswith((".py", ".sh")) or not os.path.isfile(path):  # noqa: PTH113 - likewise
        return
    way, path = f"write: -- {'python' if script.endswith('.py') else 'sh'} {script}", os.path.normpath(path)
    if "/" not in script:
        raise UsageError(
            f"no program has the name {script}",
            evidence=f"{path} is a file in this folder",
            hint=f"{way}; a program of the image by its whole path",
        )
    if not os.access(path, os.X_OK):
        raise UsageError(f"{script} is a file and no program", evidence=f"{path} may not be executed", hint=way)


def named_binds(command: tuple[str, ...], request: ContainerRequest, host: Host) -> tuple[Bind, ...]:
    """Mount the folders of the files that a command names, so that they are seen inside.

    ``argosy run image.sif -- python /project/code/train.py`` then works from whatever folder it is typed in.
    """
    if request.contain:
        return ()
    folders: dict[str, Bind] = {}
    for word in command:
        path = os.path.join(host.cwd, word)  # noqa: PTH118 - isfile answers for any text; Path's may raise
        if "/" not in word or not os.path.isfile(path):  # noqa: PTH113 - likewise
            continue
        folder = os.path.normpath(os.path.dirname(path))  # noqa: PTH120 - likewise
        if folder != "/" and folder.split("/")[1] not in SYSTEM_FOLDERS:
            folders.setdefault(folder, Bind(folder, folder))
    return tuple(folders.values())


def _tree_paths(opened: Opened, session: Session) -> tuple[str, ...]:
    """Give where the unpacked trees of an image lie, or would lie: the layer first."""
    if opened.image.kind is ImageKind.TREE:
        return (opened.image.path,)
    keys = [key for _, key, _ in _parts(opened)]
    return tuple(str(session.places.cache / "trees" / key / ROOT_KEY) for key in keys)


def _unpack(opened: Opened, session: Session) -> tuple[str, ...]:
    if opened.image.kind is ImageKind.TREE:
        return (opened.image.path,)
    from argosy.trees import unpacked  # noqa: PLC0415 - with store and leases 30 calls: a dry run unpacks nothing

    image = Path(opened.image.path)
    return tuple(
        str(unpacked(session, image, offset=offset, key=key, what=what)) for offset, key, what in _parts(opened)
    )


def _parts(opened: Opened) -> list[tuple[int, str, str]]:
    """Give offset, cache key and name of each squashfs in an image, the layer first.

    A base that Argosy built upon is known by its digest, so images over one base share its tree; any other file is
    known by its identity on this disk.
    """
    image, lock, name = opened.image, opened.lock, Path(opened.image.path).name
    if lock is None or image.layer_offset < 0:
        return [(image.base_offset, file_identity(image), name)]
    base = lock.base.digest.removeprefix("sha256:")
    return [
        (image.layer_offset, layer_key(lock), f"the layer of {name}"),
        (image.base_offset, base, f"the base of {name}"),
    ]


def layer_key(lock: Lock) -> str:
    """Give the cache's name of a layer: by content, since a copy of an image, or one built again, has the same one.

    Half of each digest, 128 bits, joined: to hash them once more would load OpenSSL at each start.
    """
    half = 32
    return lock.base.digest.removeprefix("sha256:")[:half] + lock.content.removeprefix("sha256:")[:half]


def file_identity(image: Image, offset: int = 0) -> str:
    """Tell files apart on this disk, for images that do not say what is in them: by place, size and time.

    Parameters
    ----------
    offset
        Of the part that is meant, in bytes from the file's beginning.
    """
    import hashlib  # noqa: PLC0415 - images that Argosy made are known by their digests

    status = Path(image.path).stat()
    facts = [str(Path(image.path).resolve()), status.st_ino, status.st_size, status.st_mtime_ns, offset]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def outer_environment(plan: ContainerPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Give the environment in which the runtime is started here and now."""
    kept = {name: value for name, value in environment.items() if name not in plan.entry.drop}
    return kept | {variable.name: str(variable.value) for variable in plan.exports()}


def with_shell(plan: ContainerPlan) -> ContainerPlan:
    """Give the plan for somebody who types into it."""
    return replace(plan, entry=replace(plan.entry, interactive=True))
