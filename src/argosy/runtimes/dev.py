"""Make an image writable (``--dev``), and save what was installed into it (``--save-recipe``).

A folder of the project takes the changes, and the image file stays unchanged. The recipe is a project from which
`argosy build` makes an image with the same packages.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, ToolFailed, UsageError
from argosy.core.layout import APT_AS_ROOT, APT_CONFIG, CONSTRAINT_VARIABLES, CONSTRAINTS, LOCK
from argosy.core.locks import CLOCK, STALE_AFTER_SECONDS, Clock, Owner, hold_lock
from argosy.core.model import Attach, ChoiceKey, Host, Image, Variable
from argosy.core.os_errors import translate_os_errors
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import literal_argv
from argosy.core.store import write_text
from argosy.images.rootfs import locate_in_root, write_in_root
from argosy.recipes.option_row import PROJECT_FILE
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import outer_environment, start_command
from argosy.runtimes.runtime import AUTOMATIC, SCRIPTS, load_runtime

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

REQUIREMENTS = "requirements.txt"

LIST_INSTALLED = (SCRIPTS / "list_installed.sh").read_text(encoding="utf-8")

LIST_REQUESTED = """\
import importlib.metadata, json, urllib.parse

def requirement(dist, name):
    origin = json.loads(dist.read_text("direct_url.json") or "{}")
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        return "-e " + urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    if "vcs_info" in origin:
        return f"{name} @ {origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"{name} @ {url}" if url else f"{name}=={dist.version}"

seen = set()
for dist in importlib.metadata.distributions():
    name = dist.metadata["Name"]
    if name and name not in seen:
        seen.add(name)
        if dist.read_text("REQUESTED") is not None:
            print("pip", name, requirement(dist, name))
"""
"""Python program that prints the packages that were named in a pip or uv command, without their dependencies.

Both programs mark them with a file REQUESTED (PyPA, "Recording installed projects"), and record the origin of packages
from folders and repositories in direct_url.json (PEP 610).
"""

APT = "apt-get update && apt-get install -y --no-install-recommends"


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
            f"{runtime.name} cannot make an image writable", evidence="--dev", hint=f"use --dev with --runtime {able}"
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
    return (image.digest.removeprefix("sha256:") or _hash_facts(Path(image.path)))[:SHORT]


def _hash_facts(file: Path) -> str:
    """Return a digest of the path, size and mtime of a file.

    The ctime is left out: it changes with a new hard link, after which users would not find their packages.
    """
    status = file.stat()
    facts = [str(file.resolve()), status.st_ino, status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class Installed(msgspec.Struct, frozen=True):
    """Packages that someone asked for: for each name, the requirement of pip, or the name for apt."""

    apt: dict[str, str]
    pip: dict[str, str]


class DevRecipe(msgspec.Struct, frozen=True):
    """A recipe of the changes of a writable image."""

    base: str
    """The image, as `argosy build` finds it from the folder of the recipe."""
    apt: tuple[str, ...]
    pip: tuple[str, ...]
    """Packages that were installed, and requirements of Python packages that were installed or changed."""
    removed: tuple[str, ...] = ()
    """Python packages of the image that were uninstalled; a recipe cannot remove them."""


def refuse_existing(folder: Path) -> None:
    """Reject a folder that already contains a recipe, or that cannot be written, before the shell starts.

    Raises
    ------
    UsageError
        If it is such a folder.
    """
    place = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UsageError(
            f"cannot write to {folder}",
            evidence=f"{place} is {'not writable' if place.is_dir() else 'not a folder'}",
            hint="name another folder with --save-recipe DIR",
        )
    for name in (PROJECT_FILE, REQUIREMENTS):
        if (folder / name).exists():
            raise UsageError(
                f"{folder / name} already exists",
                evidence="--save-recipe changes no existing file",
                hint="name another folder",
            )


def list_installed(plan: ContainerPlan, session: Session) -> Installed:
    """Return the packages that someone asked for in a container.

    Raises
    ------
    ToolFailed
        If the container does not start.
    """
    quiet = replace(plan, entry=replace(plan.entry, interactive=False))
    ask = ("/bin/sh", "-c", LIST_INSTALLED, "sh", LIST_REQUESTED)
    reply = session.runner.run(start_command(quiet, ask, session))
    if reply.code != 0:
        raise ToolFailed(
            "cannot list the packages of the image",
            evidence=reply.stderr.strip(),
            hint="check that the image starts: argosy run IMAGE true",
        )
    found: dict[str, dict[str, str]] = {"apt": {}, "pip": {}}
    for line in reply.stdout.splitlines():
        kind, name, what = line.split(" ", 2)
        found[kind][name] = what
    return Installed(**found)


def without_changes(plan: ContainerPlan) -> ContainerPlan:
    """Return the plan of the unchanged image."""
    return replace(plan, entry=replace(plan.entry, dev="", fakeroot=False))


def plan_recipe(before: Installed, after: Installed, base: str) -> DevRecipe:
    """Return the recipe of the packages that differ; pure."""
    return DevRecipe(
        base,
        apt=tuple(name for name in after.apt if name not in before.apt),
        pip=tuple(sorted(what for name, what in after.pip.items() if before.pip.get(name) != what)),
        removed=tuple(name for name in before.pip if name not in after.pip),
    )


def base_of(reference: str, folder: Path, cwd: str) -> str:
    """Return an image as a project in `folder` names it: a file by its path from there, another image by its name."""
    file = Path(cwd, reference)
    return os.path.relpath(file, Path(cwd, folder)) if file.exists() else reference


def render_recipe(recipe: DevRecipe) -> dict[str, str]:
    """Render the files of a recipe, by name."""
    import tomlkit  # noqa: PLC0415 - only a start with --save-recipe needs it

    image = {"base": recipe.base} | ({"pip": REQUIREMENTS} if recipe.pip else {}) | {"output": "image.sif"}
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by --save-recipe from the changes of --dev; 'argosy build' reads it."))
    document.add("image", tomlkit.item(image))
    if recipe.apt:
        steps = tomlkit.aot()
        steps.append(tomlkit.item({"before": "packages", "run": f"{APT} {' '.join(recipe.apt)}"}))
        document.add("step", steps)
    files = {PROJECT_FILE: tomlkit.dumps(document)}
    return files | ({REQUIREMENTS: "".join(f"{line}\n" for line in recipe.pip)} if recipe.pip else {})


def save_recipe(before: Installed, plan: ContainerPlan, session: Session, *, reference: str, folder: Path) -> None:
    """Write the recipe of the changes in a plan's folder, and print a note on how to build it.

    Raises
    ------
    UsageError
        If the folder cannot be written.
    ToolFailed
        See `list_installed`.
    """
    recipe = plan_recipe(before, list_installed(plan, session), base_of(reference, folder, session.host.cwd))
    say = session.reporter.note
    if recipe.removed:
        say(f"the recipe cannot remove packages of the image: {', '.join(recipe.removed)}")
    if not recipe.apt and not recipe.pip:
        say("no recipe was written: pip and apt installed nothing")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in render_recipe(recipe).items():
            write_text(folder / name, text)
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror}", evidence=str(error), hint="name another folder"
        ) from error
    found = [f"{len(names)} from {kind}" for kind, names in (("pip", recipe.pip), ("apt", recipe.apt)) if names]
    say(f"{folder / PROJECT_FILE}: {' and '.join(found)}; to build the image: argosy build {folder}")
