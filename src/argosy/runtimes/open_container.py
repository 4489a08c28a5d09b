"""From the word a user gives for an image to a container that can be entered here.

`argosy run` and `argosy launch` share these effects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, ContainerRequest, Host, Image, ImageKind
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.gpu_probe import probe_devices
from argosy.host.probe import read_links
from argosy.images.find import find_image, refined, refuse_layer
from argosy.images.open import GO_ARCH, Opened, open_image
from argosy.images.part_digest import describe_part, known_digest, part_digest, tree_name
from argosy.runtimes.command_check import plan_command_binds
from argosy.runtimes.container_plan import ContainerPlan, fileless_image, plan_container, with_mounts, without_binds

ROOT_KEY = "root"


def open_container(
    request: ContainerRequest, reference: str, session: Session, *, command: tuple[str, ...] = (), dry: bool = False
) -> ContainerPlan:
    """Open an image and plan its container; unpack it where the runtime cannot mount it.

    Parameters
    ----------
    command
        What will run in it: folders of files that it names are bound, where the usual mounts do not show them.
    dry
        Only say what would be: nothing is unpacked.

    Raises
    ------
    ArgosyError
        As `find_image`, `open_image` and `plan_container` do.
    """
    named = fileless_image(reference, request.runtime)
    if named is not None and request.signed_by:
        _refuse_unverified(reference, named, request.runtime)
    if named is not None and named.kind is ImageKind.HOST:
        return plan_container(request, named, session.host)
    wanted = replace(request, binds=(*plan_command_binds(command, request, session.host), *request.binds))
    host = _with_links(session.host, wanted)
    if named is not None:
        return _present(plan_container(wanted, _checked(named), host))
    opened = refined(open_image(find_image(reference, session)), session)
    refuse_layer(opened, session)
    plan = _present(plan_container(wanted, opened.image, _running(opened.image, host)))
    if request.signed_by:
        plan = replace(plan, choices=(*plan.choices, _signed(request, opened, session, dry=dry)))
    if not plan.runtime.traits.unpacks:
        return plan
    scratch = session.paths.cache / "mount"
    if not dry:
        from argosy.core.os_errors import translate_os_errors  # noqa: PLC0415 - a dry run writes nothing

        with translate_os_errors(scratch, "ARGOSY_CACHE"):
            scratch.mkdir(parents=True, exist_ok=True)
    trees = _tree_paths(opened, session) if dry else _unpack(opened, session)
    return with_mounts(plan, devices=probe_devices(plan.entry.gpu, session.runner), trees=trees, scratch=str(scratch))


def _with_links(host: Host, request: ContainerRequest) -> Host:
    """Add to the machine's facts the symbolic links on the way to the folders that the container shows."""
    asked = [os.path.join(host.cwd, bind.target) for bind in request.binds]  # noqa: PTH118 - text alone
    return replace(host, links=read_links([host.person.home, host.cwd, host.environment.get("TMPDIR", ""), *asked]))


def _running(image: Image, host: Host) -> Host:
    """Note in the host that an emulator runs the image's programs; where none does, the plan will refuse the image."""
    if image.arch in {"", GO_ARCH.get(host.target, host.target)}:
        return host
    from argosy.host.emulation import is_emulated, machine_named  # noqa: PLC0415 - for another machine's image only

    machine = machine_named(image.arch)
    return replace(host, emulated=machine) if is_emulated(machine) else host


def _refuse_unverified(reference: str, image: Image, runtime: str) -> None:
    """Refuse an image that is no file, where a signature is asked for: there is nothing to verify.

    Raises
    ------
    UsageError
        Always.
    """
    if image.kind is ImageKind.HOST:
        raise UsageError(f"{reference} is no image that somebody signed", hint="leave --signed-by out")
    raise UsageError(
        f"nobody can tell who signed {reference}: {runtime} fetches it by itself",
        hint="give a SIF file: argosy images pull fetches one from oras://",
        key="images.signed_by",
    )


def _signed(request: ContainerRequest, opened: Opened, session: Session, *, dry: bool) -> Choice:
    """Verify who signed an image, and say it; in a dry run only which signers will do."""
    if dry:
        return Choice(ChoiceKey.SIGNED_BY, " or ".join(request.signed_by), "verified at the start", "option")
    from argosy.images.signatures import find_signers  # noqa: PLC0415 - where it is asked for

    path, host = opened.image.path, session.host
    signer = find_signers(opened.sif, path, request.signed_by, session.runner, host.programs)[0]
    return Choice(ChoiceKey.SIGNED_BY, signer.fingerprint, f"verified; {signer.name}", "option")


def _present(plan: ContainerPlan) -> ContainerPlan:
    """Leave out the optional mounts of what is not on this machine, as a TMPDIR that another session removed."""
    missing = {bind for bind in plan.entry.binds if bind.optional and not os.path.isdir(bind.source)}  # noqa: PTH112 - likewise
    return without_binds(plan, missing)


def _checked(image: Image) -> Image:
    """Read an environment definition file that is here, so that its faults are said before a job waits for them."""
    path = Path(image.path).expanduser().absolute()
    if image.kind is not ImageKind.EDF or not path.is_file():
        return image
    from argosy.runtimes.edf import parse_edf  # noqa: PLC0415 - such a file only

    parse_edf(path.read_text(errors="replace", encoding="utf-8"), str(path))
    return replace(image, path=str(path))


def _tree_paths(opened: Opened, session: Session) -> tuple[str, ...]:
    """Give where the unpacked trees of an image lie, or would lie: the layer first."""
    if opened.image.kind is ImageKind.TREE:
        return (opened.image.path,)
    names = [tree_name(part.key(session, dry=True)) for part in _parts(opened)]
    return tuple(str(session.paths.cache / "trees" / name / ROOT_KEY) for name in names)


def _unpack(opened: Opened, session: Session) -> tuple[str, ...]:
    if opened.image.kind is ImageKind.TREE:
        return (opened.image.path,)
    from argosy.images.rootfs_cache import (  # noqa: PLC0415 - with store and leases 30 calls: a dry run unpacks nothing
        unpacked,
    )

    image = Path(opened.image.path)
    return tuple(
        str(
            unpacked(
                session,
                image,
                offset=part.offset,
                key=part.key(session),
                what=part.name,
                look_again=partial(part.key, session),
            )
        )
        for part in _parts(opened)
    )


class _Part(msgspec.Struct, frozen=True):
    """A squashfs in an image.

    Attributes
    ----------
    name
        What it is to the user.
    claim
        The digest that the image gives for it; empty if it gives none.
    hashed
        Whether its tree is known by its bytes, so that images share it; else by the file's identity.
    """

    path: str
    offset: int
    size: int
    name: str
    claim: str = ""
    hashed: bool = True

    def key(self, session: Session, *, dry: bool = False) -> str:
        """Give the key of its tree; a dry run writes no memo, and takes 10 GB of a base for what the image claims."""
        part = describe_part(self.path, self.offset, self.size)
        if not self.hashed:
            return f"file:{part.identity()}"
        cache = session.paths.cache
        if dry and self.claim:
            return known_digest(part, cache) or self.claim
        return part_digest(part, cache, remember=not dry)


def layer_tree_key(opened: Opened, session: Session) -> str:
    """Give the key of the tree of an image's layer; of its one file system, where it has no layer."""
    return _parts(opened)[0].key(session)


def _parts(opened: Opened) -> list[_Part]:
    """Give each squashfs in an image, the layer first.

    Images over one base share its tree; any other file has a tree of its own and need not be read before.
    """
    image, lock, name = opened.image, opened.lock, Path(opened.image.path).name
    if lock is None or image.layer_offset < 0:
        return [_Part(image.path, image.base_offset, image.base_size, name, hashed=False)]
    return [
        _Part(image.path, image.layer_offset, image.layer_size, f"the layer of {name}"),
        _Part(image.path, image.base_offset, image.base_size, f"the base of {name}", lock.base.digest),
    ]


def outer_environment(plan: ContainerPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Give the environment in which the runtime is started here and now."""
    kept = {name: value for name, value in environment.items() if name not in plan.entry.drop}
    return kept | {variable.name: str(variable.value) for variable in plan.exports()}


def with_shell(plan: ContainerPlan) -> ContainerPlan:
    """Give the plan for somebody who types into it."""
    return replace(plan, entry=replace(plan.entry, interactive=True))
