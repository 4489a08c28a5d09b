"""Render the shell files of a prefix: a small wrapper for each command, and the file that they share.

A wrapper starts only the runtime, which replaces it, so signals, exit codes and standard streams are those of the
program. The shell itself finds out everything that depends on the node or the caller.
"""

from __future__ import annotations

from pathlib import Path

from argosy.core.layout import DEFAULT_PATH, ROOT
from argosy.core.shell import as_comment, in_double_quotes, quote
from argosy.runtimes.container_plan import ContainerPlan
from argosy.version import VERSION as ARGOSY
from argosy.wrap.model import InContainer, Version
from argosy.wrap.plan import CommandsPlan, dropped_variables, shadowed_folders
from argosy.wrap.root_entries import Root
from argosy.wrap.start import StartFile, render_apptainer, render_bwrap, render_join, render_names
from argosy.wrap.templates import fill_template
from argosy.wrap.versions import write_version

CONFIG = "pyvenv.cfg"
ON_TOP = ".on-top"
"""Folder of DIR, visible only in the container, that Python searches if it was called from a venv on top."""

FIRST_WITHOUT = 14
"""First minor version of Python 3 that requires ``home``: getpath instead of site.py detects the venv."""


def render_venv(inside: InContainer) -> str:
    """Render the ``pyvenv.cfg`` of DIR: the image's without ``home``; empty if DIR must show the image's file.

    A venv's ``home`` is the folder of the base's interpreter, so a venv on top would link to ``/usr/bin/python3`` and
    start that of the host. Without ``home``, site.py still makes DIR the prefix (Python 3.8 to 3.13), and
    ``sys._base_executable`` stays ``DIR/bin/python``. A venv on top then links to that path, which is valid in the
    container and on the host.
    """
    settings = dict(inside.venv)
    version = settings.get("version") or settings.get("version_info") or ""
    minor = version.split(".")[1] if version.count(".") else ""
    if not settings or not minor.isdecimal() or int(minor) >= FIRST_WITHOUT:
        return ""
    return "".join(
        f"{key} = {value}\n" for key, value in inside.venv if key in {"include-system-site-packages", "version"}
    )


def _render_customize(inside: InContainer) -> str:
    """Render the ``sitecustomize`` that adds the image's packages to a venv created with ``--system-site-packages``.

    A venv does not see the packages of its parent venv by itself.
    """
    above = inside.neighbours[0].rpartition("/")[0] if inside.neighbours else ""
    return f"""\
import os
import site
import sys

try:
    with open(os.path.join(sys.prefix, "pyvenv.cfg")) as config:
        wanted = any(line.replace(" ", "").lower().strip() == "include-system-site-packages=true" for line in config)
except OSError:
    wanted = False
if wanted:
    site.addsitedir("{above}/lib/python%d.%d/site-packages" % sys.version_info[:2])
"""


def render_wrapper(name: str, number: int) -> str:
    """Render the file of one command."""
    return fill_template("wrapper.sh", name=quote(name), comment=as_comment(name), number=str(number), argosy=ARGOSY)


def render_start(start: StartFile) -> str:
    """Render the file that the wrappers of a version share."""
    alternative = "" if start.runtime == "bwrap" else "load its module, or "
    head = fill_template(
        "start.sh",
        argosy=ARGOSY,
        what=as_comment(start.what),
        number=str(start.number),
        runtime=start.runtime,
        path=quote(start.path),
        identity=start.identity,
        program=start.program,
        alternative=alternative,
    )
    last = render_bwrap(start) if start.runtime == "bwrap" else render_apptainer(start)
    return "\n".join((head, _image(start), _command(start), last))


def _image(start: StartFile) -> str:
    if start.runtime == "bwrap":
        return _trees(start)
    gone = f"$argosy_image, a link to {in_double_quotes(start.elsewhere)}" if start.elsewhere else "$argosy_image"
    hint = (
        'argosy wrap update \\"$argosy_prefix\\" --image FILE'
        if start.elsewhere
        else 'argosy wrap rollback \\"$argosy_prefix\\"'
    )
    return f"""\
argosy_version=$argosy_prefix/versions/{start.number} argosy_image=$argosy_prefix/versions/{start.number}/{start.image}
[ -r "$argosy_image" ] || argosy_fail "cannot read the image: {gone}" \\
    "restore it, or: {hint}"
"""


def _trees(start: StartFile) -> str:
    own = [tree for tree in (*start.trees, start.root.folder) if tree and "/" not in tree]
    looks = [f'[ -d "$argosy_trees/{in_double_quotes(tree)}" ] || argosy_gone={quote(tree)}' for tree in own]
    rows = [
        f"argosy_version=$argosy_prefix/versions/{start.number}",
        'argosy_trees=$argosy_prefix/cache/trees argosy_gone=""',
        *looks,
        '[ -z "$argosy_gone" ] || argosy_fail "the unpacked image is gone: $argosy_trees/$argosy_gone" \\',
        '    "unpack it again: argosy wrap update \\"$argosy_prefix\\""',
    ]
    return "\n".join(rows) + "\n"


def _command(start: StartFile) -> str:
    names = " ".join(start.drop)
    on_top = f"""\
# Lets an environment on top find the packages of the image, if it was created with --system-site-packages.
[ -z "$argosy_above" ] || export PYTHONPATH="$argosy_prefix/{ON_TOP}"
"""
    return f"""\
# Keep variables of host software, and the user's ~/.local, out of the container.
unset -v {names}
export PYTHONNOUSERSITE=1 ARGOSY_WRAP="$argosy_prefix"
{on_top if start.on_top else ""}"""


def write_version_files(
    folder: Path, version: Version, plan: ContainerPlan, inside: InContainer, commands: CommandsPlan, root: Root
) -> None:
    """Write the files of a version into the folder of its image."""
    _write_wrappers(folder / "bin", commands, version.number)
    _write_inside(folder / "inside", commands, version.identity)
    _write_venv(folder / "inside", inside)
    start = _start(folder, version, plan, inside, root)
    (folder / "start.sh").write_text(render_start(start), encoding="utf-8")
    if start.runtime == "bwrap":
        (folder / "join.sh").write_text(render_join(start), encoding="utf-8")
        (folder / "names.sh").write_text(render_names(start), encoding="utf-8")
    write_version(folder, version)


def _write_wrappers(folder: Path, commands: CommandsPlan, number: int) -> None:
    folder.mkdir()
    for command in commands.commands:
        file = folder / command.name
        file.write_text(render_wrapper(command.name, number), encoding="utf-8")
        file.chmod(0o777 & folder.stat().st_mode)  # the umask, without changing it for other threads


def _write_inside(folder: Path, commands: CommandsPlan, identity: str) -> None:
    """Create the folder that the container shows as DIR: the same command paths, as links to the programs.

    With them, ``sys.executable`` is valid in the container and on the host, and so is an environment on top of it.
    """
    (folder / "bin").mkdir(parents=True)
    for command in commands.commands:
        (folder / "bin" / command.name).symlink_to(command.target)
    for name, target in commands.links:
        (folder / name).symlink_to(target)
    (folder / f".inside-{identity}").write_text("This file is visible only in the container.\n", encoding="utf-8")


def _write_venv(folder: Path, inside: InContainer) -> None:
    """Make the prefix a venv in the container, on which other venvs can be created."""
    config, customize = render_venv(inside), _render_customize(inside)
    if config:
        (folder / CONFIG).unlink()
        (folder / CONFIG).write_text(config, encoding="utf-8")
        (folder / ON_TOP).mkdir()
        (folder / ON_TOP / "sitecustomize.py").write_text(customize, encoding="utf-8")


def _start(folder: Path, version: Version, plan: ContainerPlan, inside: InContainer, root: Root) -> StartFile:
    image = folder / version.image
    entry = plan.entry
    return StartFile(
        number=version.number,
        identity=version.identity,
        what=str(version.recipe),
        runtime=plan.runtime.name,
        program=plan.runtime.program,
        image=version.image,
        elsewhere=str(image.readlink()) if image.is_symlink() else "",
        path=inside.path or DEFAULT_PATH,
        on_top=bool(render_venv(inside)),
        drop=dropped_variables(version.recipe),
        shadowed=shadowed_folders(inside),
        binds=version.settings.binds,
        variables=version.settings.variables,
        gpu=version.settings.gpu,
        host=version.settings.host,
        attach=entry.attach,
        at="" if version.recipe.at.startswith(ROOT) else version.recipe.at,
        layer_part=entry.image.layer_part,
        trees=tuple(_named(Path(tree), version) for tree in entry.trees),
        devices=entry.devices,
        root=root,
    )


def _named(tree: Path, version: Version) -> str:
    """Return a tree's name for start.sh: for a tree of the prefix the name, which stays valid if the prefix moves."""
    return tree.parent.name if tree.parent.name in version.trees else str(tree.resolve())
