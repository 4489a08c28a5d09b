"""The text of a prefix's shell files: one small wrapper per command, and what they share; text only.

A wrapper starts nothing before the runtime, which takes its place: signals, exit codes and standard streams are the
program's own.  Everything that depends on the node or the caller is asked of the shell itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from argosy.model import Attach, Bind, Devices, GpuWay
from argosy.runtimes.apptainer import FAMILIES, GPU_FLAGS
from argosy.runtimes.bwrap_scripts import ENTER, HOLD, JOIN
from argosy.shell import Late, quote, render_programs
from argosy.version import VERSION as ARGOSY
from argosy.wrap.plan import SYSTEM_FOLDERS

INSTALLERS = ("pip", "python")
"""Commands by which people install into an environment."""

OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""What a runtime sets inside; a task that was started from there carries it along to a node where it means nothing."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that a user's environment may set: they were meant for another container."""


@dataclass(frozen=True, slots=True)
class Start:
    """All that the shared file of a version says.

    Attributes
    ----------
    what
        What was wrapped, for the reader.
    image
        The image's file name in the version's folder.
    elsewhere
        Where the image really lies, if that name is a link; empty otherwise.
    path
        The PATH inside, behind the prefix's own commands.
    drop
        Variables of the caller that stay outside.
    shadowed
        Folders at the image's root that hold something of its own.
    trees
        Unpacked trees in ``DIR/cache/trees``, the layer first, or absolute paths (bwrap).
    layer_part
        Descriptor id of the layer, where it has to be bound out of the image's file; 0 otherwise.
    """

    number: int
    identity: str
    what: str
    runtime: str
    program: str
    image: str
    elsewhere: str
    path: str
    drop: tuple[str, ...]
    shadowed: tuple[str, ...]
    binds: tuple[Bind, ...]
    variables: tuple[tuple[str, str], ...]
    gpu: GpuWay
    host: bool
    attach: Attach = Attach.OVERLAY
    layer_part: int = 0
    trees: tuple[str, ...] = ()
    devices: Devices = Devices()


def render_wrapper(name: str, number: int) -> str:
    """Render the file of one command."""
    start = f"../../{number}/start.sh"
    return f"""\
#!/bin/sh
# {name}, inside the container of this prefix; start.sh tells how.  Made by Argosy {ARGOSY}, which need not be here.
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
    blocks += [_bwrap(start)] if start.runtime == "bwrap" else [_apptainer(start)]
    return "\n".join(blocks)


def _head(start: Start) -> str:
    return f"""\
# shellcheck shell=sh
# How each command of this prefix starts: the files in bin/ read this.  Made by Argosy {ARGOSY}; it needs no Argosy.
#     what     {start.what}
#     version  {start.number}
#     runtime  {start.runtime}
# No program is started before the runtime, which takes this process's place.

argosy_fail() {{
    printf "argosy: %s\\n" "$1" >&2
    [ -z "${{2-}}" ] || printf "  -> %s\\n" "$2" >&2
    exit 125
}}
argosy_absolute() {{
    argosy_here=$PWD
    CDPATH="" cd -- "$1" && argosy_folder=$PWD && CDPATH="" cd -- "$argosy_here" || argosy_fail "cannot enter $1"
}}
"""


def _place(start: Start) -> str:
    return f"""\
# The prefix, as it was called, and the command as the program shall see it: a path that is right inside and outside.
argosy_folder=${{argosy_self%/*}}
case $argosy_folder in
/*/../* | /*/./* | *//* | */.. | */.) argosy_absolute "$argosy_folder" ;;
/*) ;;
*) argosy_absolute "$argosy_folder" ;;
esac
argosy_prefix=${{argosy_folder%/bin}}
argosy_prefix=${{argosy_prefix%/versions/{start.number}}}
argosy_command=$argosy_prefix/bin/$argosy_name argosy_path=$argosy_prefix/bin:{quote(start.path)} argosy_above=""
if [ "$argosy_self" != "$0" ] && [ -r "${{0%/*}}/../pyvenv.cfg" ]; then
    argosy_absolute "${{0%/*}}"
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
case $argosy_name:${1-}:${2-}:${3-} in
pip*:install:* | pip*:uninstall:* | python*:-m:pip:install | python*:-m:pip:uninstall)
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
        return "argosy_version=$argosy_prefix/versions/" + str(start.number) + "\n"
    gone = f"$argosy_image, a link to {start.elsewhere}," if start.elsewhere else "$argosy_image"
    way = "argosy wrap update \\\"$argosy_prefix\\\" --image FILE" if start.elsewhere else "argosy wrap rollback \\\"$argosy_prefix\\\""
    return f"""\
argosy_version=$argosy_prefix/versions/{start.number} argosy_image=$argosy_prefix/versions/{start.number}/{start.image}
[ -r "$argosy_image" ] || argosy_fail "the image is gone or cannot be read: {_text(gone)}" \\
    "bring it back, or: {way}"
"""


def _text(text: str) -> str:
    """Give text for double quotes in which only our own variables are expanded."""
    return text.replace("`", "\\`")


def _command(start: Start) -> str:
    names = " ".join(start.drop)
    return f"""\
# Software of the host stays outside, the user's ~/.local too.
unset -v {names}
export PYTHONNOUSERSITE=1 ARGOSY_WRAP="$argosy_prefix"
"""


def _visible(start: Start, mount: str, try_mount: str) -> str:
    """Render what of the host is seen inside; a later mount stands first, since words are put in front."""
    binds = [_bound(bind, mount) for bind in reversed(start.binds)]
    rows = [
        "# What is seen of the host, the last mount first: the prefix itself, the folder of an environment on top, the",
        "# current directory, TMPDIR, home, and the node's file systems.",
        _mount(mount, Late("$argosy_version/inside"), Late("$argosy_prefix"), read_only=True),
        *binds,
        f'[ -z "$argosy_above" ] || {_mount(mount, Late("$argosy_above"), Late("$argosy_above"))}',
        "case $PWD in",
        f"{_system_cases(start)}) ;;",
        f"*) {_mount(mount, Late('$PWD'), Late('$PWD'))} ;;",
        "esac",
        'for argosy_place in "${TMPDIR-}" "${HOME-}"; do',
        '    case $argosy_place in "" | /) continue ;; esac',
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, Late("$argosy_place"), Late("$argosy_place"))}',
        "done",
        *_places(start, mount),
    ]
    return "\n".join(rows) + "\n"


def _places(start: Start, mount: str) -> list[str]:
    # With --host the system folders of the host take the place of the image's; /opt holds the layer, so one by one.
    skipped = ("dev", "opt", "proc", "run", "sys", "tmp") if start.host else (*SYSTEM_FOLDERS, *start.shadowed)
    return [
        f"for argosy_place in /*{' /opt/*' if start.host else ''}; do",
        f"    case $argosy_place in {' | '.join(f'/{name}' for name in skipped)}{' | /opt/argosy' if start.host else ''}) continue ;; esac",
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, Late("$argosy_place"), Late("$argosy_place"))}',
        "done",
    ]


def _system_cases(start: Start) -> str:
    names = [name for name in (*SYSTEM_FOLDERS, *start.shadowed) if name not in {"tmp", "var", "run", "opt"}]
    return " | ".join(["/", *(f"/{name} | /{name}/*" for name in names)])


def _bound(bind: Bind, mount: str) -> str:
    return _mount(mount, bind.source, bind.target, read_only=bind.read_only)


def _mount(way: str, source: Late | str, target: Late | str, *, read_only: bool = False) -> str:
    """Render one mount put in front of the words gathered so far."""
    if way == "bwrap":
        option = "--ro-bind" if read_only else "--bind"
        return f'set -- {option} {quote(source)} {quote(target)} "$@"'
    # One line of CSV, whose fields are quoted: paths may hold commas, colons and blanks.
    fields = (f'\\"src={_inner(source)}\\"', f'\\"dst={_inner(target)}\\"', *(("ro",) if read_only else ()))
    return f'set -- --mount "type=bind,{",".join(fields)}" "$@"'


def _inner(word: Late | str) -> str:
    """Give a word for within double quotes."""
    if isinstance(word, Late):
        return word.expression
    return "".join(f"\\{sign}" if sign in '\\"$`' else sign for sign in word)


def _gpu(start: Start) -> list[str]:
    if start.gpu is not GpuWay.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# GPUs as this node has them.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: Late | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in FAMILIES)


def _apptainer(start: Start) -> str:
    path = Late("$argosy_prefix/bin:$PATH") if start.host else Late("$argosy_path")
    inside = [f"{family}_{name}" for family in FAMILIES for name in OF_A_CONTAINER]
    changing = [f"{family}_{name}" for family in FAMILIES for name in CHANGES_THE_CONTAINER]
    leaked = [f"{family}ENV_{name}" for family in FAMILIES for name in ("PREPEND_PATH", "APPEND_PATH", *start.drop)]
    layer = []
    if start.attach is Attach.BIND:
        fields = f'type=bind,\\"src=$argosy_image\\",dst=/opt/argosy,id={start.layer_part},image-src=/opt/argosy'
        layer = [f'set -- --mount "{fields}" "$@"']
    rows = [
        "# Settings of other containers do not count here; mounts that the site's modules ask for do, except where they",
        "# were carried out of a container by a task that was started in it.",
        f'[ -z "${{APPTAINER_CONTAINER-}}${{SINGULARITY_CONTAINER-}}" ] || unset -v {" ".join(inside)}',
        f"unset -v {' '.join(changing)}",
        f"unset -v {' '.join(leaked)}",
        f"export {_both('PATH', path)}",
        *(f"export {_both(name, value)}" for name, value in start.variables),
        "",
        'set -- "$argosy_image" "$argosy_command" "$@"',
        _visible(start, "apptainer", "").rstrip(),
        *layer,
        *_gpu(start),
        *_workdir(start),
        f'exec {start.program} --quiet exec --no-eval "$@"',
    ]
    return "\n".join(rows) + "\n"


def _workdir(start: Start) -> list[str]:
    return ["case $PWD in", f"{_system_cases(start)}) ;;", '*) set -- --pwd "$PWD" "$@" ;;', "esac"]


def _bwrap(start: Start) -> str:
    path = Late("PATH=$argosy_prefix/bin:$PATH") if start.host else Late("PATH=$argosy_path")
    libraries = ":".join(start.devices.library_folders)
    variables = [quote(path), *(quote(f"{name}={value}") for name, value in start.variables)]
    variables += [quote(f"{variable.name}={variable.value}") for variable in start.devices.variables]
    trees = [quote(Late(f"$argosy_prefix/cache/trees/{tree}/root") if "/" not in tree else tree) for tree in start.trees]
    rows = [
        *_who(),
        "",
        f'set -- {quote(libraries)} {len(variables) + 1} "HOME=${{HOME:-/}}" {" ".join(variables)} "$argosy_command" "$@"',
        "argosy_rest=$#",
        'set -- -- /bin/sh -c "$hold" argosy-hold "$@"',
        'set -- --remount-ro / "$@"',
        *_devices(start.devices),
        _visible(start, "bwrap", "").rstrip(),
        "for argosy_place in /tmp /var/tmp; do",
        '    [ ! -d "$argosy_place" ] || set -- --bind "$argosy_place" "$argosy_place" "$@"',
        "done",
        "for argosy_place in resolv.conf hosts localtime; do",
        '    set -- --ro-bind-try "/etc/$argosy_place" "/etc/$argosy_place" "$@"',
        "done",
        'set -- --bind root / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"',
        f'set -- {len(trees)} {" ".join(trees)} "$(($# - argosy_rest))" "$@"',
        'set -- "$argosy_passwd" "$argosy_group" "$argosy_parents" "" "$walk_in" "" "$@"',
        'set -- sh -c "$join" argosy-join "$argosy_prefix/cache/mount" "$@"',
        'set -- --mount --propagation slave -- "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --user --map-root-user "$@"',
        "# The tools of the system, not those of this prefix.",
        f"PATH={quote('/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin')}{':$PATH' if start.host else ''}",
        'exec unshare "$@"',
    ]
    programs = render_programs((JOIN, HOLD, ENTER))
    return "\n".join([*programs, *rows]) + "\n"


def _who() -> list[str]:
    return [
        "# Who calls, without a start of id(1).",
        "while read -r argosy_key argosy_id argosy_rest; do",
        "    case $argosy_key in Uid:) argosy_uid=$argosy_id ;; Gid:) argosy_gid=$argosy_id ;; esac",
        "done < /proc/self/status",
        'argosy_passwd="" argosy_group="" argosy_user=${USER:-user$argosy_uid}',
        'if [ "$argosy_uid" != 0 ]; then',
        "    argosy_passwd=$argosy_user:x:$argosy_uid:$argosy_gid::${HOME:-/}:/bin/sh",
        "    argosy_group=$argosy_user:x:$argosy_gid:$argosy_user",
        "fi",
        "# Folders that mounts lie in are made in the upper tree, where they belong to the caller.",
        'argosy_parents=""',
        'for argosy_place in "$argosy_prefix" "${HOME:-/}" "$PWD"; do',
        "    case $argosy_place in /bin* | /sbin* | /lib* | /run* | /usr* | /etc*) continue ;; esac",
        '    argosy_parents="${argosy_parents}upper${argosy_place%/*}',
        '"',
        "done",
    ]


def _devices(devices: Devices) -> list[str]:
    return [f'set -- --ro-bind-try {quote(bind.source)} {quote(bind.target)} "$@"' for bind in devices.binds]
