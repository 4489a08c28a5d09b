"""Write an image in another format, for a build or from an existing image."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer, find_shell_container
from argosy.builder.backends.plan import RootfsSpec
from argosy.builder.output.assemble import (
    Content,
    make_whole,
    merge_trees,
    plan_metadata,
    unpack_base,
    unpack_layer,
    write_whole,
)
from argosy.builder.output.oci import (
    ImageConfig,
    Layer,
    Layering,
    write_docker_archive,
    write_layer,
    write_layout,
    write_layout_archive,
)
from argosy.core.errors import ToolFailed, UsageError
from argosy.core.layout import DEFAULT_PATH, ENV_SCRIPT, GPU_LIBRARIES, Activation, parse_env_script, plan_activation
from argosy.core.locks import hold_lock
from argosy.core.model import ImageKind
from argosy.core.os_errors import refuse_unwritable_folder
from argosy.core.process import Command
from argosy.core.progress import size_of, watch_growth
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.shell import NAME, quote
from argosy.core.store import atomic_file, atomic_folder, refuse_existing, sweep_parts, work_folder
from argosy.core.tool_errors import run_checked
from argosy.host.architectures import go_arch
from argosy.images.find import open_reference
from argosy.images.flat import base_source, layer_source
from argosy.images.formats import OCI_FORMATS, OutputFormat, refuse_suffix, render_use
from argosy.images.identify import Kind, identify_file
from argosy.images.open import OpenedImage
from argosy.images.sif.format import Sif
from argosy.images.sif.write import FileSlice, Piece, copy_slice, whole_of, write_pieces
from argosy.images.squashfs.join import can_join, join_squashfs
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.squashfs.tables import device_nodes
from argosy.images.unpack import unpack_source
from argosy.recipes.lock import Lock
from argosy.version import VERSION


class ExportRequest(msgspec.Struct, frozen=True):
    """Request an export of an image."""

    image: str
    form: OutputFormat
    output: Path
    force: bool = False


class ExportReport(msgspec.Struct, frozen=True):
    """Report an export."""

    output: str
    form: str
    size: int
    """Bytes of the output."""
    seconds: float
    use: tuple[str, ...]
    """Lines that show how to use it."""


def export_image(request: ExportRequest, session: Session) -> ExportReport:
    """Write an image in another format.

    If it fails, the output is absent, or as it was before.
    """
    refuse_output(request.output, request.form, force=request.force)
    opened = open_reference(request.image, session)
    with (
        reserve_output(request.output, request.form, session, force=request.force),
        session.step("export", str(request.output)) as step,
        work_folder(session.work_parent()) as work,
    ):
        content = content_of(opened, session)
        size = write_output(request.form, request.output, content, opened.sif, session, work, force=request.force)
        step.result = f"{render_size(size)} written to {request.output}"
    activation = _activation_of(opened, session) if request.form is OutputFormat.LAYER else plan_activation()
    program = "python" if content.lock and content.lock.python else "COMMAND"
    use = render_use(
        request.form, request.output, base=name_base_for_use(content.lock), program=program, activation=activation
    )
    return ExportReport(str(request.output), request.form.value, size, step.seconds, use)


def name_base_for_use(lock: Lock | None) -> str:
    """Return how a runtime refers to an image's base, or ``BASE`` if it is neither a file nor in a registry."""
    reference = lock.base.reference if lock else ""
    return reference if "://" in reference or Path(reference).is_file() else "BASE"


def content_of(opened: OpenedImage, session: Session) -> Content:
    """Return the content of an image."""
    image, lock = opened.image, opened.lock
    if image.kind is ImageKind.TREE:
        raise UsageError(
            f"cannot export {image.path}: it is a folder",
            hint=f"pack it first: argosy build requirements.txt --base {quote(image.path)} -o IMAGE",
        )
    path = Path(image.path)
    return Content(
        name=path.stem,
        base=base_source(image),
        layer=layer_source(image),
        lock=lock,
        arch=image.arch or go_arch(session.host.target),
        time=lock.time if lock else read_superblock(path, image.base_offset).mkfs_time,
    )


def _activation_of(opened: OpenedImage, session: Session) -> Activation:
    """Read the environment from the layer."""
    image = opened.image
    offset = image.layer_offset if image.layer_offset >= 0 else image.base_offset
    argv = ("unsquashfs", "-no-progress", "-o", str(offset), "-cat", image.path, ENV_SCRIPT.lstrip("/"))
    return parse_env_script(run_checked(session.runner, Command(argv), doing="reading the layer's environment").stdout)


@contextmanager
def reserve_output(output: Path, form: OutputFormat, session: Session, *, force: bool) -> Iterator[None]:
    """Let one process at a time write a given output, and remove what killed ones left; others wait."""
    refuse_unwritable_folder(output.parent)
    name = output.with_name(f".{output.name}.lease")
    with hold_lock(name, what=f"writing {output.name}", waiting=session.waiting):
        sweep_parts(output)
        refuse_output(output, form, force=force)
        yield


def refuse_output(output: Path, form: OutputFormat, *, force: bool) -> None:
    """Refuse an existing output; ``--force`` replaces a folder only if it is an OCI layout."""
    refuse_suffix(output, form)
    refuse_unwritable_folder(output.parent)
    if form is not OutputFormat.OCI:
        refuse_existing(output, force=force)
    elif output.exists() and not (force and identify_file(output).kind is Kind.OCI_LAYOUT):
        what = "choose another name with -o" + ("" if force else ", or --force to replace an OCI layout")
        raise UsageError(f"{output} already exists", evidence=f"it is {identify_file(output).description}", hint=what)


def write_output(
    form: OutputFormat, output: Path, content: Content, sif: Sif | None, session: Session, work: Path, *, force: bool
) -> int:
    """Write a content in one format, and return the size of the output in bytes.

    Raises
    ------
    UsageError
        If only the layer is requested, but there is none, or it also changes system folders.
    """
    if content.layer is not None and content.lock and content.lock.system and form is OutputFormat.LAYER:
        raise UsageError(
            f"cannot write only the layer: steps changed system folders of {content.name} outside /opt/argosy",
            hint="choose another --format; all others contain the whole tree",
        )
    if form in OCI_FORMATS:
        return _write_oci(form, output, content, session, work, force=force)
    writers: dict[OutputFormat, Callable[[Path], int]] = {
        OutputFormat.SIF: lambda beside: write_whole(
            beside, make_whole(content, session, work), content, plan_metadata(sif, content.lock)
        ),
        OutputFormat.SQSH: lambda beside: _write_sqsh(beside, content, session, work),
        OutputFormat.LAYER: lambda beside: _write_layer(beside, content, session, work),
    }
    with atomic_file(output, force=force) as beside, watch_growth(session.meter("writing"), beside):
        return writers[form](beside)


def _write_layer(beside: Path, content: Content, session: Session, work: Path) -> int:
    if isinstance(content.layer, FileSlice):
        with beside.open("wb") as copy:
            copy_slice(copy.fileno(), content.layer, 0)
        return beside.stat().st_size
    tree = unpack_layer(content, work, session)
    if tree is None:
        raise UsageError(
            f"{content.name} has no separate layer",
            evidence="it was not built by Argosy, or was packed as a whole",
            hint="build it with --format delta",
        )
    run_pack(session, tree, beside, time=content.time)
    return beside.stat().st_size


def _write_oci(form: OutputFormat, output: Path, content: Content, session: Session, work: Path, *, force: bool) -> int:
    blobs = work / "layout/blobs/sha256"
    layers, facts = make_layers(content, blobs, session, work, compress=form is not OutputFormat.DOCKER_ARCHIVE)
    meter = session.meter("writing", size_of(blobs))
    with _output_of(form, output, force=force) as beside, watch_growth(meter, beside):
        if form is OutputFormat.DOCKER_ARCHIVE:
            write_docker_archive(beside, blobs, facts, layers, tag=f"{_docker_name(content.name)}:latest")
            return beside.stat().st_size
        write_layout(work / "layout", facts, layers)
        if form is OutputFormat.OCI_ARCHIVE:
            write_layout_archive(beside, work / "layout", time=facts.time)
            return beside.stat().st_size
        for entry in (work / "layout").iterdir():
            shutil.move(entry, beside / entry.name)
        return sum(each.stat().st_size for each in beside.rglob("*") if each.is_file())


@contextmanager
def _output_of(form: OutputFormat, output: Path, *, force: bool) -> Iterator[Path]:
    if form is OutputFormat.OCI:
        with atomic_folder(output, replace=force) as folder:
            yield folder
    else:
        with atomic_file(output, force=force) as file:
            yield file


def make_layers(
    content: Content, blobs: Path, session: Session, work: Path, *, compress: bool
) -> tuple[list[Layer], ImageConfig]:
    """Write the layers of an OCI image into a folder, and return them with the image's configuration."""
    blobs.mkdir(parents=True)
    base, layer = unpack_base(content, work, session), unpack_layer(content, work, session)
    below = f"base {content.lock.base.reference if content.lock else content.name}"
    with watch_growth(session.meter("packing the layers"), blobs):
        layers = [write_layer(base, blobs, Layering(below, keep_owners=session.host.can_mount, compress=compress))]
        if layer is not None:
            above = Layering(f"argosy {VERSION}", time=content.time, under=base, compress=compress)
            layers.append(write_layer(layer, blobs, above))
    if layer is not None:
        merge_trees(layer, base, root=base)
    container = find_shell_container(session, RootfsSpec("", tree=str(base)), scratch=work / "ask")
    variables = _read_image_environment(container)
    command = ("python",) if content.lock and content.lock.python else ("/bin/sh",)
    return layers, ImageConfig(content.arch, content.time, variables, _labels(content.lock), command)


PROCESS_VARIABLES = frozenset({"HOME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "USER", "LOGNAME", "HOSTNAME", "PS1"})
RUNTIME_PREFIXES = ("APPTAINER", "SINGULARITY", "ARGOSY_WORK", "PROOT")


def _read_image_environment(build_container: BuildContainer) -> tuple[tuple[str, str], ...]:
    """Run the image's own scripts, and return the variables that they set."""
    # An empty LANG shows the value of images that set LANG only if it is empty.
    reply = build_container.run_checked(
        "/bin/cat", "/proc/self/environ", variables=(("LANG", ""),), doing="reading the image's environment"
    )
    return parse_image_environment(reply.stdout)


def parse_image_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``/proc/PID/environ``, without variables that belong to the process and not to the image."""
    rows = (row.partition("=") for row in text.split("\0"))
    found = {name: value for name, _, value in rows if NAME.match(name) and value}
    kept = {
        name: value
        for name, value in found.items()
        if name not in PROCESS_VARIABLES and not name.startswith(RUNTIME_PREFIXES) and "\n" not in value
    }
    libraries = [part for part in kept.pop("LD_LIBRARY_PATH", "").split(":") if part and part != GPU_LIBRARIES]
    if libraries:
        kept["LD_LIBRARY_PATH"] = ":".join(libraries)
    return (("PATH", kept.pop("PATH", DEFAULT_PATH)), *sorted(kept.items()))


def _labels(lock: Lock | None) -> tuple[tuple[str, str], ...]:
    """Return labels: the two of the OCI specification for the base, and the content digest."""
    if lock is None:
        return ()
    spec = "org.opencontainers.image.base"
    return (
        (f"{spec}.digest", lock.base.digest),
        (f"{spec}.name", lock.base.reference),
        ("argosy.content", lock.content),
    )


def _docker_name(name: str) -> str:
    """Return a name that Docker accepts: lower case letters, digits and single separators."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "image"


RC = Path(__file__).with_name("rc.sh").read_text(encoding="utf-8")
EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
"""Bits of the mode of a new SIF file, which a squashfs does not have: no program starts it."""
HAS_ETC = "[ -d /etc ] && [ ! -L /etc ]"


def _write_sqsh(path: Path, content: Content, session: Session, work: Path) -> int:
    """Write base and layer as one squashfs with enroot's files and without device nodes; return its size in bytes."""
    packed = _pack_joinable(content, session, work)
    build_container = _open_packed(packed, session, work)
    tree, layer = work / "enroot", work / "enroot.sqfs"
    tree.mkdir()
    if build_container.run("/bin/sh", "-c", HAS_ETC).code == 0:
        write_enroot_files(tree, _read_image_environment(build_container))
    run_pack(session, tree, layer, time=content.time, like=read_superblock(packed))
    write_pieces(path, _join_enroot_files(packed, layer, time=content.time))
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~EXECUTABLE)
    return path.stat().st_size


def _join_enroot_files(packed: Path, layer: Path, *, time: int) -> tuple[Piece, ...]:
    """Add enroot's files to the image, and leave out its device nodes.

    enroot mounts the machine's ``/dev``, and ``enroot create`` and pyxis unpack the image as the user: unsquashfs 4.5
    and later then fails at a device node.
    """
    whole = whole_of(packed)
    return join_squashfs(whole, (whole_of(layer),), time=time, without=device_nodes(whole))


def _pack_joinable(content: Content, session: Session, work: Path) -> Path:
    """Return a squashfs of base and layer that can be joined with another one."""
    packed = work / "whole.sqfs"
    write_pieces(packed, make_whole(content, session, work).pieces)
    if can_join(read_superblock(packed)):
        return packed
    tree, again = work / "unpacked", work / "again.sqfs"
    unpack_source(session, whole_of(packed), tree, doing="unpacking the base")
    run_pack(session, tree, again, time=content.time, all_root=not session.host.can_mount, keep_times=True)
    return again


def _open_packed(packed: Path, session: Session, work: Path) -> BuildContainer:
    """Return a container with a squashfs as its root; it is unpacked first if no build backend can mount it."""
    with suppress(ToolFailed):
        return find_shell_container(session, RootfsSpec(str(packed)), scratch=work / "ask")
    tree = work / "tree"
    unpack_source(session, whole_of(packed), tree, doing="unpacking the image")
    return find_shell_container(session, RootfsSpec("", tree=str(tree)), scratch=work / "ask-tree")


def write_enroot_files(tree: Path, variables: tuple[tuple[str, str], ...]) -> None:
    """Write the files that enroot reads: ``/etc/environment`` and ``/etc/rc`` (enroot's doc/image-format.md).

    Values with ``${`` are left out, because enroot would insert a variable of the host.
    """
    etc = tree / "etc"
    etc.mkdir(parents=True)
    lines = [f"{name}={value}\n" for name, value in variables if "${" not in value]
    for name, text, mode in (("environment", "".join(lines), 0o644), ("rc", RC, 0o755)):
        (etc / name).write_text(text, encoding="utf-8")
        (etc / name).chmod(mode)
    for folder in (tree, etc):
        folder.chmod(0o755)
