"""A writable folder of the project, laid over an image (``--dev``); the image's file stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import CONSTRAINT_VARIABLES, CONSTRAINTS, LOCK
from argosy.core.locks import CLOCK, STALE_AFTER_SECONDS, Clock, Owner, hold_lock
from argosy.core.model import Attach, ChoiceKey, Host, Image, Variable
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import literal_argv
from argosy.images.open import file_identity
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import outer_environment
from argosy.runtimes.runtime import AUTOMATIC, load_runtime

FOLDER = ".argosy/dev"
"""Where the folders of a project are, below the current directory."""

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
"""Prints constraints that hold the packages of an image, and those of its own constraint file.

Not held are tools that build packages, and packages that came from a folder or a repository: they are developed.
"""

ASK = 'python=$(command -v python3 || command -v python) || exit 0; exec "$python" -I -c "$1"'

SHORT = 12
"""Digits of a digest that tell images apart for a reader."""


def plan_dev(plan: ContainerPlan, host: Host, folder: str = "") -> ContainerPlan:
    """Give the plan whose image can be written into: what is written goes to a folder, for this image and runtime.

    A runtime has its own: they mark what was deleted in ways of their own.

    Parameters
    ----------
    folder
        The folder; empty means one below ``.argosy/dev`` in the current directory.

    Raises
    ------
    UsageError, CheckFailed
        When the runtime, or the machine's Apptainer, can lay no folder over an image.
    """
    runtime, image = plan.runtime, plan.entry.image
    if not runtime.traits.overlays:
        able = " or ".join(name for name in AUTOMATIC if load_runtime(name).traits.overlays)
        raise UsageError(
            f"{runtime.name} can lay no writable folder over an image",
            evidence="--dev",
            hint=f"use --dev with --runtime {able}",
        )
    if plan.entry.attach is Attach.BIND:
        raise CheckFailed(
            "no writable folder can be laid over this image here",
            evidence=next((choice.why for choice in plan.choices if choice.key == ChoiceKey.LAYER), ""),
            hint="--dev needs overlays: ask for enable overlay = yes, or use --runtime bwrap",
        )
    place = folder or f"{FOLDER}/{_short(image)}-{runtime.name}"
    entry = replace(plan.entry, dev=str(Path(host.cwd, place)))
    entry = replace(entry, variables=(*_held_packages(plan, host), *entry.variables))
    refusal = runtime.refuse(entry, host)
    if refusal:
        raise UsageError(f"{runtime.name} cannot do this: {refusal}", hint="name another folder with --dev-dir")
    return replace(plan, entry=entry)


def _held_packages(plan: ContainerPlan, host: Host) -> tuple[Variable, ...]:
    """Give the variables by which pip and uv keep the image's packages; one that the user gives is left to her."""
    given = {variable.name for variable in plan.entry.variables}
    own = {name: host.environment.get(name, "") for name in CONSTRAINT_VARIABLES if name not in given}
    return tuple(Variable(name, " ".join(filter(None, (CONSTRAINTS, files)))) for name, files in own.items())


def hold_packages(plan: ContainerPlan, session: Session) -> None:
    """Write the image's packages into the folder of a plan, as constraints for pip and uv; once for each folder.

    They are asked of the image as it is, without what was written over it.  An image without a Python, or with one
    before 3.8, has none.
    """
    file = Path(plan.entry.dev, "upper", CONSTRAINTS.lstrip("/"))
    if file.exists():
        return
    entry = plan.entry
    kept = tuple(variable for variable in entry.variables if variable.name not in CONSTRAINT_VARIABLES)
    bare = replace(plan, entry=replace(entry, dev="", interactive=False, variables=kept))
    environment = outer_environment(bare, session.host.environment)
    for name in CONSTRAINT_VARIABLES:
        environment.pop(name, None)
    words = literal_argv(bare.argv(("/bin/sh", "-c", ASK, "sh", LIST_PACKAGES)))
    reply = session.runner.run(Command(words, env=environment))
    with translate_os_errors(file, "--dev-dir"):
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".part")
        beside.write_text(reply.stdout if reply.code == 0 else "", encoding="utf-8")
        beside.replace(file)


@contextmanager
def opened_dev(plan: ContainerPlan, tell: Callable[[str], None], clock: Clock = CLOCK) -> Iterator[None]:
    """Make the folder of a plan where there is none, and hold it: two overlays on one folder would spoil each other.

    This process must stay while the folder is used: its signs of life show other hosts that somebody holds it.

    Parameters
    ----------
    tell
        Told why this takes time, where it does.

    Raises
    ------
    CheckFailed
        When it cannot be made, or somebody else holds it, or the image's unpacked files are another user's.
    """
    folder = Path(plan.entry.dev)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="name another one: --dev-dir DIR")
    with translate_os_errors(folder, "--dev-dir"):
        if not folder.exists():
            folder.mkdir(parents=True)
            if folder.parent.match(FOLDER):
                (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        for name in ("upper", "work"):
            (folder / name).mkdir(exist_ok=True)
        others = [tree for tree in plan.entry.trees if Path(tree).stat().st_uid != plan.entry.person.uid]
    if others:
        raise CheckFailed(
            "the unpacked image belongs to another user, so what is in it could not be changed",
            evidence=others[0],
            hint="give ARGOSY_CACHE a folder of your own",
        )

    def waiting(owner: Owner) -> None:
        wait = f"{STALE_AFTER_SECONDS:.0f} s"
        tell(f"the folder is in use, or was when a host went down: {owner}; looking for a sign of life for {wait}")

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
        "another shell writes into this image already",
        evidence=str(owner),
        hint="end it first, or use a folder of your own: --dev-dir DIR",
    )


def _short(image: Image) -> str:
    """Name an image: by what is in it, where it says so, else by its file."""
    return (image.digest.removeprefix("sha256:") or file_identity(image))[:SHORT]
