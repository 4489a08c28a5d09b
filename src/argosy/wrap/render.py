"""The text of a prefix's shell files: one small wrapper per command, and what they share; text only.

A wrapper starts nothing before the runtime, which takes its place: signals, exit codes and standard streams are the
program's own.  Everything that depends on the node or the caller is asked of the shell itself.
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
from argosy.wrap.start import render_apptainer, render_bwrap, render_join, render_names
from argosy.wrap.start_settings import Start
from argosy.wrap.venvs import CONFIG, ON_TOP, render_customize, render_venv
from argosy.wrap.versions import write_version


def render_wrapper(name: str, number: int) -> str:
    """Render the file of one command."""
    start, what = f"../../{number}/start.sh", as_comment(name)
    return f"""\
#!/bin/sh
# {what}, inside the container of this prefix; start.sh tells how.  Made by Argosy {ARGOSY}, which need not be here.
argosy_name={quote(name)} argosy_self=$0
case $0 in */*) ;; *) argosy_self=./$0 ;; esac
# Called by a link, as from an environment made on top: follow it.
while [ -h "$argosy_self" ] && [ ! -r "${{argosy_self%/*}}/{start}" ]; do
    argosy_link=$(readlink -- "$argosy_self")
    case $argosy_link in /*) argosy_self=$argosy_link ;; *) argosy_self=${{argosy_self%/*}}/$argosy_link ;; esac
done
. "${{argosy_self%/*}}/{start}"
"""


def render_start(start: Start) -> str:
    """Render the file that the wrappers of a version share."""
    blocks = [_head(start), _place(start), _inside(start), _refuse_install(), _image(start), _command(start)]
    blocks += [render_bwrap(start)] if start.runtime == "bwrap" else [render_apptainer(start)]
    return "\n".join(blocks)


def _head(start: Start) -> str:
    return f"""\
# shellcheck shell=sh
# How each command of this prefix starts: the files in bin/ read this.  Made by Argosy {ARGOSY}; it needs no Argosy.
#     what     {as_comment(start.what)}
#     version  {start.number}
#     runtime  {start.runtime}
# No program is started before the runtime, which takes this process's place.

argosy_fail() {{
    printf "argosy: %s\\n" "$1" >&2
    [ -z "${{2-}}" ] || printf "  -> %s\\n" "$2" >&2
    exit 125
}}
case $PWD in /*) ;; *) argosy_fail "the folder that you are in was removed" "change to one that exists: cd" ;; esac
argosy_absolute() {{
    argosy_here=$PWD
    {{ CDPATH="" cd -- "$1" && argosy_folder=$PWD && CDPATH="" cd -- "$argosy_here"; }} || argosy_fail "cannot enter $1"
}}
# Nothing is mounted on a symbolic link, so a folder behind one is called by its real path.  A link at the root is a
# folder inside.
argosy_unlinked() {{
    argosy_folder=$1 argosy_place=$1
    while [ -n "${{argosy_place%/*}}" ]; do
        if [ -h "$argosy_place" ]; then
            argosy_folder=$(CDPATH="" cd -P -- "$1" 2> /dev/null && pwd) || argosy_folder=$1
            return
        fi
        argosy_place=${{argosy_place%/*}}
    done
}}
"""


def _place(start: Start) -> str:
    return f"""\
# The prefix, as it was called where that can be, and the command as the program shall see it: a path that is right
# inside and outside.
argosy_folder=${{argosy_self%/*}}
case $argosy_folder in
/*/../* | /*/./* | *//* | */.. | */.) argosy_absolute "$argosy_folder" ;;
/*) ;;
*) argosy_absolute "$argosy_folder" ;;
esac
argosy_folder=${{argosy_folder%/bin}}
argosy_unlinked "${{argosy_folder%/versions/{start.number}}}"
argosy_prefix=$argosy_folder
argosy_command=${{argosy_program-$argosy_prefix/bin/$argosy_name}} argosy_above=""
argosy_path=$argosy_prefix/bin:{quote(start.path)}
if [ "$argosy_self" != "$0" ] && [ -r "${{0%/*}}/../pyvenv.cfg" ]; then
    argosy_absolute "${{0%/*}}"
    argosy_unlinked "$argosy_folder"
    argosy_command=$argosy_folder/${{0##*/}} argosy_path=$argosy_folder:$argosy_path argosy_above=${{argosy_folder%/*}}
fi
"""


def _inside(start: Start) -> str:
    missing = "" if start.runtime == "bwrap" else "load its module"
    return f"""\
# Inside already: the program itself, no second container.
if [ -n "${{ARGOSY_WRAP-}}" ] && [ -e "$ARGOSY_WRAP/.inside-{start.identity}" ]; then
    [ -n "$argosy_above" ] || argosy_command=$ARGOSY_WRAP/bin/$argosy_name
    exec "$argosy_command" "$@"
fi
if ! command -v {start.program} > /dev/null; then
    [ ! -d /.singularity.d ] ||
        argosy_fail "$argosy_name of $argosy_prefix was called inside another container, where no {start.program} is" \\
            "call it outside: $argosy_prefix/bin/$argosy_name $*"
    argosy_fail "{start.program} is not on this node, and $argosy_name of $argosy_prefix starts by it" \\
        "{_or(missing)}wrap for what is here: argosy wrap update $argosy_prefix --runtime NAME"
fi
"""


def _or(text: str) -> str:
    return f"{text}, or " if text else ""


def _refuse_install() -> str:
    return """\
# An image never changes: what pip would install goes into the next version.
case "$argosy_name: $* " in
pip*": install "* | pip*": uninstall "* | pip*": -"*" install "* | pip*": -"*" uninstall "* | \
    python*": -m pip install "* | python*": -m pip uninstall "* | python*": -m pip -"*" install "*)
    case " $* " in
    *" --target"* | *" -t "* | *" --prefix"* | *" --root"* | *" --dry-run "* | *" --help "* | *" -h "*) ;;
    *)
        [ -n "$argosy_above" ] || argosy_fail "$argosy_prefix is an image, which pip cannot change" \\
            "add packages by: argosy wrap update \\"$argosy_prefix\\" PACKAGE…"
        ;;
    esac
    ;;
esac
"""


def _image(start: Start) -> str:
    if start.runtime == "bwrap":
        return _trees(start)
    gone = f"$argosy_image, a link to {start.elsewhere}," if start.elsewhere else "$argosy_image"
    way = (
        'argosy wrap update \\"$argosy_prefix\\" --image FILE'
        if start.elsewhere
        else 'argosy wrap rollback \\"$argosy_prefix\\"'
    )
    return f"""\
argosy_version=$argosy_prefix/versions/{start.number} argosy_image=$argosy_prefix/versions/{start.number}/{start.image}
[ -r "$argosy_image" ] || argosy_fail "the image is gone or cannot be read: {_text(gone)}" \\
    "bring it back, or: {way}"
"""


def _trees(start: Start) -> str:
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


def _text(text: str) -> str:
    """Give text for double quotes in which only our own variables are expanded."""
    return text.replace("`", "\\`")


def _command(start: Start) -> str:
    names = " ".join(start.drop)
    return f"""\
# Software of the host stays outside, the user's ~/.local too.
unset -v {names}
export PYTHONNOUSERSITE=1 ARGOSY_WRAP="$argosy_prefix"
{_on_top() if start.on_top else ""}"""


def _on_top() -> str:
    return f"""\
# An environment on top sees the packages of the image, if it was made so, after its own.
[ -z "$argosy_above" ] || export PYTHONPATH="$argosy_prefix/{ON_TOP}"
"""


def write_version_files(
    folder: Path, version: Version, plan: ContainerPlan, inside: InContainer, commands: CommandsPlan, root: Root
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


def _write_venv(folder: Path, inside: InContainer) -> None:
    """Let DIR be a venv inside, and one on which other venvs can be made."""
    config, customize = render_venv(inside), render_customize(inside)
    if config:
        (folder / CONFIG).unlink()
        (folder / CONFIG).write_text(config, encoding="utf-8")
        (folder / ON_TOP).mkdir()
        (folder / ON_TOP / "sitecustomize.py").write_text(customize, encoding="utf-8")


def _start(folder: Path, version: Version, plan: ContainerPlan, inside: InContainer, root: Root) -> Start:
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
