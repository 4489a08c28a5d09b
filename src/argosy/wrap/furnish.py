"""Write the files of a version beside its image: wrappers, what they share, what DIR shows inside, the record."""

from __future__ import annotations

from pathlib import Path

from argosy.containers import ContainerPlan
from argosy.layout import DEFAULT_PATH, ROOT
from argosy.wrap.places import write_version
from argosy.wrap.plan import CommandsPlan, dropped_variables, shadowed_folders
from argosy.wrap.records import Inside, Version
from argosy.wrap.render import render_start, render_wrapper
from argosy.wrap.starters_bwrap import render_join, render_names
from argosy.wrap.starting import Start
from argosy.wrap.tops import Root
from argosy.wrap.venvs import CONFIG, ON_TOP, render_customize, render_venv


def furnish(
    folder: Path, version: Version, plan: ContainerPlan, inside: Inside, commands: CommandsPlan, root: Root
) -> None:
    """Fill the folder of a version; its image is there already."""
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
        file.chmod(0o777 & ~_umask(folder))


def _umask(folder: Path) -> int:
    """Give the caller's umask as a folder just made shows it, without changing it for other threads."""
    return 0o777 & ~folder.stat().st_mode


def _write_inside(folder: Path, commands: CommandsPlan, identity: str) -> None:
    """Make what DIR shows inside: the same command paths, as links to the programs themselves.

    So ``sys.executable`` is a path that is right inside and outside, and an environment made on top of it too.
    """
    (folder / "bin").mkdir(parents=True)
    for command in commands.commands:
        (folder / "bin" / command.name).symlink_to(command.target)
    for name, target in commands.links:
        (folder / name).symlink_to(target)
    (folder / f".inside-{identity}").write_text("This file is seen inside the container only.\n", encoding="utf-8")


def _write_venv(folder: Path, inside: Inside) -> None:
    """Let DIR be a venv inside, and one on which other venvs can be made."""
    config, customize = render_venv(inside), render_customize(inside)
    if config:
        (folder / CONFIG).unlink()
        (folder / CONFIG).write_text(config, encoding="utf-8")
        (folder / ON_TOP).mkdir()
        (folder / ON_TOP / "sitecustomize.py").write_text(customize, encoding="utf-8")


def _start(folder: Path, version: Version, plan: ContainerPlan, inside: Inside, root: Root) -> Start:
    image = folder / version.image
    entry = plan.entry
    return Start(
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
    """Name a tree as start.sh does: one of the prefix by its name there, which stays right where the prefix moves."""
    return tree.parent.name if tree.parent.name in version.trees else str(tree.resolve())
