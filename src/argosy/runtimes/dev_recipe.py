"""Write what was installed into a writable image (``--dev``) as a project from which `argosy build` makes an image."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from argosy.core.errors import ToolFailed, UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.recipes.option_row import PROJECT_FILE
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import start_command
from argosy.runtimes.runtime import SCRIPTS

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
    """Reject a folder that already contains a recipe, before the shell starts.

    Raises
    ------
    UsageError
        If it does.
    """
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
