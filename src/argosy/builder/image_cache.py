"""Avoid builds: report an output that is already right, or copy an unmodified image of the same lock.

The cache holds only small records of where images are.  They keep no image alive: a file that is missing, has changed
or belongs to another user is ignored.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from argosy.builder.inputs import BuildInputs
from argosy.builder.records import BuildReport, BuildRequest, StepTimes
from argosy.core.cache import final_name, read_memo, write_memo
from argosy.core.errors import ImageError
from argosy.core.layout import NO_PREFIX_LAYOUT, Activation, plan_activation
from argosy.core.model import Image
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.flat import base_source
from argosy.images.formats import OutputFormat, render_use
from argosy.images.identify import Kind, identify_file
from argosy.images.open import OpenedImage, inspect_squashfs, open_image
from argosy.images.part_digest import FilePart, describe_part
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import FileSlice, write_pieces
from argosy.images.squashfs.pack import packer_version
from argosy.recipes.lock import Lock, Tools, render_lock
from argosy.version import VERSION

MEMOS = "made"
"""Folder of the cache with one file for each lock: the images that were made from it."""

MAX_REMEMBERED = 4
"""Images remembered for one lock, the newest first."""


def read_state(path: str | Path) -> FilePart | None:
    """Return a file's present state, or None if the file is missing or belongs to another user."""
    with suppress(OSError):
        if os.stat(path).st_uid == os.geteuid():  # noqa: PTH116 - a shared cache may hold other users' records
            return describe_part(path, 0, 0)
    return None


def remember_image(request: BuildRequest, lock: Lock, session: Session) -> None:
    """Remember where a new image is."""
    state = read_state(request.output)
    if request.form is not OutputFormat.SIF or state is None:
        return
    file = memo_file(lock, session.paths.cache, flatten=request.flatten)
    others = (each for each in read_remembered(file) if each.path != state.path)
    write_memo(file, (state, *others)[:MAX_REMEMBERED])


def memo_file(lock: Lock, cache: Path, *, flatten: bool | None) -> Path:
    """Return the file that remembers a lock's images: by Argosy's version, ignoring versions of other programs."""
    key = f"{VERSION} {flatten} {render_lock(replace(lock, tools=Tools('')))}"
    return cache / MEMOS / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def read_remembered(file: Path) -> tuple[FilePart, ...]:
    """Read the remembered images. Another user could point to an image that only looks like one of this lock."""
    return read_memo(file, tuple[FilePart, ...]) or ()


def copy_cached_image(request: BuildRequest, inputs: BuildInputs, clock: StepTimes) -> BuildReport | None:
    """Copy an image that was built earlier from the same lock.

    Returns
    -------
    None if there is no such image, or if the request needs a build.
    """
    lock = inputs.lock
    if lock is None or not _covers_whole_image(request) or not _can_copy(request, lock):
        return None
    file = memo_file(lock, clock.session.paths.cache, flatten=request.flatten)
    for state in read_remembered(file):
        found = _open_unchanged(state, request, clock.session, lock=lock)
        if found and found.lock and _copy(state, request, clock):
            remember_image(request, lock, clock.session)
            notes = (f"copied from {state.path}, which has the same content", *describe_differences(inputs, found.lock))
            report = _report_existing(request, found.image, found.lock, notes)
            return replace(report, timings=tuple(clock.timings), seconds=time.monotonic() - clock.started)
    return None


def _can_copy(request: BuildRequest, lock: Lock) -> bool:
    """Return whether a copy is enough: a request for a site, for example, also checks torch."""
    needs_build = request.engine.no_cache or request.site or request.prefix_layout != NO_PREFIX_LAYOUT
    return not needs_build and request.base in ("", lock.base.reference)


def _open_unchanged(state: FilePart, request: BuildRequest, session: Session, *, lock: Lock) -> OpenedImage | None:
    """Open a remembered image if it has not changed, belongs to the lock, and was packed by the expected version."""
    if read_state(state.path) != state:
        return None
    with suppress(ImageError):
        found = open_image(Path(state.path))
        cache, flatten = session.paths.cache, request.flatten
        same = found.lock and memo_file(found.lock, cache, flatten=flatten) == memo_file(lock, cache, flatten=flatten)
        if found.lock and same and _has_form(found.image, request):
            packer = found.lock.tools.mksquashfs
            return found if packer == lock.tools.mksquashfs or packer == packer_version(session) else None
    return None


def copy_unchanged(state: FilePart, target: Path) -> None:
    """Copy an image that is still in this state.

    Raises
    ------
    ImageError
        If the image changes meanwhile, cannot be read, or is damaged.
    """
    write_pieces(target, (FileSlice(Path(state.path), 0, state.length),))
    verify_sif(target)
    if read_state(state.path) != state:
        raise ImageError(f"cannot copy {state.path}: it changed during the copy", hint="build again")


def _copy(state: FilePart, request: BuildRequest, clock: StepTimes) -> bool:
    """Copy an image; return False if it is damaged or changed meanwhile, so that it must be built."""
    try:
        with (
            clock.step("copy", f"the same image, from {state.path}") as step,
            atomic_file(request.output, force=request.force) as beside,
        ):
            copy_unchanged(state, beside)
            step.result = f"{render_size(state.length)} written to {final_name(request.output)}"
    except ImageError:
        return False
    return True


def report_finished_output(request: BuildRequest, inputs: BuildInputs) -> BuildReport | None:
    """Return the report for an output that already matches the lock, or None if it must be built."""
    if inputs.lock is None or request.engine.no_cache or not _covers_whole_image(request):
        return None
    if identify_file(request.output).kind is not Kind.SIF:
        return None
    found = open_image(request.output)
    is_right = found.lock and _has_form(found.image, request) and has_same_content(found.lock, inputs.lock)
    if found.lock is None or not is_right:
        return None
    note = f"{request.output} already matches the lock; nothing was done"
    return _report_existing(request, found.image, found.lock, (note,))


def replace_own_output(request: BuildRequest, session: Session) -> BuildRequest:
    """Return the request with `force` if the output is an image that an earlier build of the same project wrote.

    A project names one image, which each build renews.  The image is the project's own if its lock names one of the
    project's files or, without files, has steps as the project has.  A note tells what is replaced.
    """
    project = request.project
    if project is None or request.force or request.output != project.output:
        return request
    built = None
    with suppress(ImageError):
        if identify_file(request.output).kind in (Kind.SIF, Kind.SQUASHFS):
            built = inspect_squashfs(open_image(request.output), session).lock
    if built is None:
        return request
    files = {Path(file).name.partition("[")[0] for file in project.table.image.files}  # uv.lock[NAME]
    is_own = files & {each.path for each in built.sources} if files else built.steps and project.table.step
    if not is_own:
        return request
    name = os.path.relpath(request.output)
    session.reporter.note(f"{name} was built from an earlier state of this project; the new image replaces it")
    return replace(request, force=True)


def _has_form(image: Image, request: BuildRequest) -> bool:
    """Return whether an image has as many partitions as requested."""
    return request.flatten is None or request.flatten == (image.layer_part == 0)


def _covers_whole_image(request: BuildRequest) -> bool:
    """Return whether a lock determines the whole image file."""
    scripts = request.before or request.after  # a lock does not record what scripts write
    return request.form is OutputFormat.SIF and not scripts


def _report_existing(request: BuildRequest, image: Image, lock: Lock, notes: tuple[str, ...]) -> BuildReport:
    """Report an output for which nothing was installed or packed."""
    report = report_output(request, lock, layer_bytes=image.layer_size, activation=plan_activation())
    return replace(report, base_bytes=base_source(image).length, notes=notes)


def report_output(
    request: BuildRequest, lock: Lock, *, layer_bytes: int, activation: Activation, base: str = ""
) -> BuildReport:
    """Report an image by its lock, without the facts of a build."""
    program = "python" if lock.python else "COMMAND"
    return BuildReport(
        output=str(request.output),
        digest=lock.content,
        base=lock.base.reference,
        base_digest=lock.base.digest,
        base_bytes=lock.base.size,
        layer_bytes=layer_bytes,
        python=lock.python,
        packages=len(lock.packages),
        backend="",
        timings=(),
        form=request.form.value,
        use=render_use(request.form, request.output, base=base, program=program, activation=activation),
    )


def has_same_content(one: Lock, other: Lock) -> bool:
    """Return whether two locks have the same content and packages over the same base, made by the same steps.

    A lock that was merged or edited by hand may have the packages of one image and the digest of another.
    """
    same_steps = (one.steps, one.stages) == (other.steps, other.stages)
    names, others = ({(each.kind, each.name, each.version) for each in lock.packages} for lock in (one, other))
    return same_steps and names == others and one.content == other.content and one.base.digest == other.base.digest


def describe_differences(inputs: BuildInputs, built: Lock) -> tuple[str, ...]:
    """Describe how an image built from a lock differs, or may differ, from the one that was locked."""
    lock = inputs.lock
    if lock is None:
        return ()
    if lock.content != built.content:
        return (f"the content differs from the lock: {built.content} instead of {lock.content}",)
    if lock.tools.mksquashfs != built.tools.mksquashfs:
        versions = f"mksquashfs {built.tools.mksquashfs} instead of {lock.tools.mksquashfs}"
        return (f"same content, packed by another version ({versions}): the bytes of the file may differ",)
    return ()
