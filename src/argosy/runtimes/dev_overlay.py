"""Make an image writable (``--dev``): a folder of the project takes the changes, and the image file stays unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import APT_AS_ROOT, APT_CONFIG, CONSTRAINT_VARIABLES, CONSTRAINTS, LOCK
from argosy.core.locks import CLOCK, STALE_AFTER_SECONDS, Clock, Owner, hold_lock
from argosy.core.model import Attach, ChoiceKey, Host, Image, Variable
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import literal_argv
from argosy.core.store import write_text
from argosy.images.open import file_identity
from argosy.images.rootfs import locate_in_root, write_in_root
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import outer_environment
from argosy.runtimes.runtime import AUTOMATIC, load_runtime

FOLDER = ".argosy/dev"
"""Parent of the folders with changes, in the current directory."""

LIST_PACKAGES = f"""\
import importlib.metadata, json, os, re

def name_of(text):
    return re.sub(r"[-_.]+", "-", re.split(r"[\\s=<>!~@;\\[]", text.strip(), maxsplit=1)[0]).lower()

pins = {{}}
for dist in importlib.metadata.distributions():
    if dist.metadata["Name"]:
        pins.setdefault(name_of(dist.metadata["Name"]), dist.version)
free = {{"pip", "setuptools", "wheel"}}
try:
    packages = json.load(open("{LOCK}"))["packages"]
    free |= {{name_of(each["name"]) for each in packages if each.get("source") in ("local", "vcs")}}
except (OSError, ValueError, KeyError):
    pass
try:
    limits = open(os.getenv("PIP_CONSTRAINT", "")).read().splitlines()
except (OSError, ValueError):
    limits = []
for name in sorted(pins.keys() - free):
    print(f"{{name}}=={{pins[name]}}")
for line in limits:
    if name_of(line) not in pins:
        print(line)
"""
"""Program that prints constraints with the versions of an image's packages, and the lines of its own constraint file.

Build tools are free, and so are packages that came from a folder or a repository: users develop those.
"""

ASK = 'python=$(command -v python3 || command -v python) || exit 0; exec "$python" -I -c "$1"'

SHORT = 12
"""Digits of an image's digest in the name of its folder."""


def plan_dev(plan: ContainerPlan, host: Host, folder: str = "", *, fakeroot: bool = False) -> ContainerPlan:
    """Return the plan with a writable image, whose changes go to a folder.

    Each image and runtime has its own folder: runtimes mark deleted files differently.

    Parameters
    ----------
    folder
        The folder; empty means one below ``.argosy/dev`` in the current directory.
    fakeroot
        Whether an ordinary user is root inside, so that apt-get and dnf can install packages.

    Raises
    ------
    UsageError
        If the runtime does not support overlays, or not with this folder.
    CheckFailed
        If the configuration of Apptainer on this machine disables overlays.
    """
    runtime, image = plan.runtime, plan.entry.image
    if not runtime.traits.overlays:
        able = " or ".join(name for name in AUTOMATIC if load_runtime(name).traits.overlays)
        raise UsageError(
            f"{runtime.name} cannot make an image writable",
            evidence="--dev",
            hint=f"use --dev with --runtime {able}",
        )
    if plan.entry.attach is Attach.BIND:
        raise CheckFailed(
            "cannot make this image writable on this machine",
            evidence=next((choice.why for choice in plan.choices if choice.key == ChoiceKey.LAYER), ""),
            hint="--dev needs 'enable overlay = yes' in apptainer.conf, or --runtime bwrap",
        )
    path = folder or f"{FOLDER}/{_short(image)}-{runtime.name}"
    entry = replace(plan.entry, dev=str(Path(host.cwd, path)))
    if fakeroot and host.person.uid != 0:
        entry = replace(entry, fakeroot=True, variables=(Variable("APT_CONFIG", APT_CONFIG), *entry.variables))
    entry = replace(entry, variables=(*_held_packages(plan, host), *entry.variables))
    refusal = runtime.refusal(entry, host)
    if refusal:
        raise UsageError(f"{runtime.name} cannot do this: {refusal}", hint="name another folder with --dev-dir")
    return replace(plan, entry=entry)


def _held_packages(plan: ContainerPlan, host: Host) -> tuple[Variable, ...]:
    """Return the variables with the constraints for pip and uv, except those that the user sets with ``--env``."""
    given = {variable.name for variable in plan.entry.variables}
    own = {name: host.environment.get(name, "") for name in CONSTRAINT_VARIABLES if name not in given}
    return tuple(Variable(name, " ".join(filter(None, (CONSTRAINTS, files)))) for name, files in own.items())


def hold_packages(plan: ContainerPlan, session: Session) -> None:
    """Write the image's packages into the folder of a plan, as constraints for pip and uv; once for each folder.

    The list is that of the unchanged image. It is empty if the image has no Python, or one before 3.8.
    """
    file = locate_in_root(Path(plan.entry.dev, "upper"), CONSTRAINTS)
    if os.path.lexists(file):
        return
    entry = plan.entry
    variables = tuple(variable for variable in entry.variables if variable.name not in CONSTRAINT_VARIABLES)
    bare = replace(plan, entry=replace(entry, dev="", fakeroot=False, interactive=False, variables=variables))
    environment = outer_environment(bare, session.host.environment)
    for name in CONSTRAINT_VARIABLES:
        environment.pop(name, None)
    argv = literal_argv(bare.argv(("/bin/sh", "-c", ASK, "sh", LIST_PACKAGES)))
    reply = session.runner.run(Command(argv, env=environment))
    with translate_os_errors(file, "--dev-dir"):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, reply.stdout if reply.code == 0 else "")


@contextmanager
def opened_dev(plan: ContainerPlan, note: Callable[[str], None], clock: Clock = CLOCK) -> Iterator[None]:
    """Create the folder of a plan and lock it, because two overlays with one folder would damage each other.

    This process must run as long as the folder is used: it renews the lock, which other hosts see.

    Parameters
    ----------
    note
        Called with the reason if this has to wait.

    Raises
    ------
    UsageError
        If the path is a file.
    CheckFailed
        If the folder cannot be created, another process holds it, or the unpacked image belongs to another user.
    """
    folder = Path(plan.entry.dev)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="choose another one with --dev-dir DIR")
    with translate_os_errors(folder, "--dev-dir"):
        if not folder.exists():
            folder.mkdir(parents=True)
            if folder.parent.match(FOLDER):
                (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        for name in ("upper", "work"):
            (folder / name).mkdir(exist_ok=True)
        if plan.entry.fakeroot:
            write_in_root(folder / "upper", APT_CONFIG, APT_AS_ROOT)
        others = [tree for tree in plan.entry.trees if Path(tree).stat().st_uid != plan.entry.person.uid]
    if others:
        raise CheckFailed(
            "cannot make the image writable: its unpacked files belong to another user",
            evidence=others[0],
            hint="set ARGOSY_CACHE to your own folder",
        )

    def waiting(owner: Owner) -> None:
        wait = f"{STALE_AFTER_SECONDS:.0f} s"
        note(f"the folder is locked by {owner}; waiting {wait} to find out whether that process still runs")

    with hold_lock(
        folder / "lease",
        what=f"--dev with {Path(plan.entry.image.path).name}",
        waiting=waiting,
        refusing=_refuse,
        clock=clock,
    ):
        yield


def _refuse(owner: Owner) -> None:
    raise CheckFailed(
        "another process already uses this writable image",
        evidence=str(owner),
        hint="end it first, or use another folder: --dev-dir DIR",
    )


def _short(image: Image) -> str:
    """Return a short name of an image: from its content digest if it has one, else from its file."""
    return (image.digest.removeprefix("sha256:") or file_identity(image))[:SHORT]
