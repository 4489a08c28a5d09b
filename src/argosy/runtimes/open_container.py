"""Open an image and plan its container on this machine, for `argosy run` and `argosy launch`.

The plan says how programs start in the image: directly, by its start script, or in its conda environment.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from argosy.core.errors import ImageError, UsageError
from argosy.core.layout import ROOT
from argosy.core.model import Attach, Bind, Choice, ChoiceKey, ContainerRequest, GpuMode, Host, Image, ImageKind
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import parse_path
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import literal_argv
from argosy.host.architectures import go_arch
from argosy.host.gpus import probe_devices
from argosy.host.probe import read_links
from argosy.images.catalog import with_images_of
from argosy.images.find import open_reference, open_version
from argosy.images.flat import FlatLayer, base_source, layer_source
from argosy.images.open import OpenedImage, refuse_layer
from argosy.images.part_digest import cached_digest, describe_spans, part_digest, tree_name
from argosy.images.prefix import VERSIONS
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.superblock import Source, slices_of
from argosy.runtimes.choose import gpu_at_sites, suggesting_module
from argosy.runtimes.command_check import plan_command_binds
from argosy.runtimes.container_plan import CERTIFICATES, ContainerPlan, fileless_image, plan_container, without_binds
from argosy.runtimes.runtime import FILES
from argosy.sites.load import sites_here
from argosy.sites.profile import Site
from argosy.sites.profile_parts import ENTER_PHRASES

ROOT_FOLDER = "root"
"""Name of the folder with the files of an unpacked tree."""

FindSites = Callable[[], Iterable[Site]]


def open_container(
    request: ContainerRequest,
    reference: str,
    session: Session,
    *,
    command: tuple[str, ...] = (),
    dry: bool = False,
    site: Site | None = None,
    job_host: Host | None = None,
    for_job: bool = False,
) -> ContainerPlan:
    """Open an image and plan its container; unpack the image if the runtime cannot mount it.

    Parameters
    ----------
    command
        The command to run; folders of files among its arguments are mounted.
    dry
        Whether to plan only, without unpacking.
    site
        The site whose profile says how to enter its images; None for the sites of this machine.
    job_host
        The machine that starts the container; None for this one, whose programs read and convert the image.
    for_job
        Whether the plan is carried out later, so that an alias of the image may be moved until then.

    Raises
    ------
    ArgosyError
        See `open_reference` and `plan_container`.
    """
    host = job_host or session.host
    named = fileless_image(reference, request.runtime)
    if named is not None and request.signed_by:
        _refuse_unverified(reference, named, request.runtime)
    if named is not None and named.kind is ImageKind.HOST:
        return plan_container(request, named, host)
    wanted = replace(request, binds=(*plan_command_binds(command, request, host), *request.binds))
    host = _with_links(host, wanted)
    session = replace(session, host=replace(session.host, arch=host.arch))
    sites: FindSites = (lambda: (site,)) if site else partial(sites_here, session.host)
    if named is not None:
        plan = _drop_missing_binds(plan_container(wanted, _read_edf(named), host))
        return plan_entry(plan, request, reference, sites)
    opened = (open_version if for_job else open_reference)(reference, with_images_of(site, session))
    refuse_layer(opened, session)
    plan = _plan_with_site_gpu(wanted, opened.image, _with_emulator(opened.image, host), site)
    plan = plan_entry(_drop_missing_binds(plan), request, reference, sites)
    if request.signed_by:
        plan = replace(plan, choices=(*plan.choices, _verify_signature(request, opened, session, dry=dry)))
    return _with_trees(plan, opened, session, dry=dry) if plan.runtime.traits.unpacks else plan


def _with_trees(plan: ContainerPlan, opened: OpenedImage, session: Session, *, dry: bool) -> ContainerPlan:
    """Unpack an image for a runtime that starts containers from folders, and return the plan with its mounts."""
    scratch = session.paths.cache / "mount"
    if not dry:
        with translate_os_errors(scratch, "ARGOSY_CACHE"):
            scratch.mkdir(parents=True, exist_ok=True)
    trees: tuple[str, ...] = (opened.image.path,)
    if opened.image.kind is not ImageKind.TREE:
        parts = _parts(opened, plan.entry.attach)
        trees = _tree_paths(parts, session) if dry else _unpack(parts, session)
    devices = probe_devices(plan.entry.gpu, session.runner)
    return replace(plan, entry=replace(plan.entry, devices=devices, trees=trees, scratch=str(scratch)))


def _plan_with_site_gpu(request: ContainerRequest, image: Image, host: Host, site: Site | None) -> ContainerPlan:
    """Plan a container; on a node with GPUs, the profile of this machine's site decides whether it gets an option."""
    with suggesting_module(host):
        plan = plan_container(request, image, host)
    if site or request.contain or plan.entry.gpu not in {GpuMode.NV, GpuMode.ROCM}:
        return plan
    gpu = gpu_at_sites(request.gpu, plan.runtime.name, sites_here(host))
    return plan if gpu is request.gpu else plan_container(replace(request, gpu=gpu), image, host)


def _with_links(host: Host, request: ContainerRequest) -> Host:
    """Return the host with the symbolic links in the paths of mounted folders."""
    asked = [os.path.join(host.cwd, bind.target) for bind in request.binds]  # noqa: PTH118 - text alone
    named = [host.environment.get(name, "") for name in ("TMPDIR", *CERTIFICATES)]
    return replace(host, links=read_links([host.person.home, host.cwd, *named, *asked]))


def _with_emulator(image: Image, host: Host) -> Host:
    """Return the host with the emulated architecture, if an emulator runs the image's programs."""
    if image.arch in {"", go_arch(host.target)}:
        return host
    from argosy.host.architectures import is_emulated, machine_named  # noqa: PLC0415 - only for foreign images

    machine = machine_named(image.arch)
    return replace(host, emulated=machine) if is_emulated(machine) else host


def _refuse_unverified(reference: str, image: Image, runtime: str) -> None:
    """Raise the error for ``--signed-by`` with an image that is not a file."""
    if image.kind is ImageKind.HOST:
        raise UsageError(f"cannot verify a signature of {reference}: it is not an image", hint="omit --signed-by")
    raise UsageError(
        f"cannot verify the signature of {reference}: {runtime} pulls it itself",
        hint="use a SIF file: argosy images pull fetches one from oras://",
        key="images.signed_by",
    )


def _verify_signature(request: ContainerRequest, opened: OpenedImage, session: Session, *, dry: bool) -> Choice:
    """Verify the signature of an image and return the signer; a dry run only returns the accepted signers."""
    if dry:
        return Choice(ChoiceKey.SIGNED_BY, " or ".join(request.signed_by), "verified at the start", "option")
    from argosy.images.signatures import find_signers  # noqa: PLC0415 - only with --signed-by

    path, host = opened.image.path, session.host
    signer = find_signers(opened.sif, path, request.signed_by, session.runner, host.programs)[0]
    return Choice(ChoiceKey.SIGNED_BY, signer.fingerprint, f"verified; {signer.name}", "option")


def _drop_missing_binds(plan: ContainerPlan) -> ContainerPlan:
    """Remove mounts of missing paths: optional ones, such as a TMPDIR that another session removed, and the home.

    Service accounts may have a home that does not exist, or that is not a folder (``/nonexistent``, ``/dev/null``).
    """
    home = plan.entry.person.home
    missing = {
        bind
        for bind in plan.entry.binds
        if (bind.optional and not os.path.exists(bind.source))  # noqa: PTH110 - likewise
        or (bind == Bind(home, home) and not os.path.isdir(home))  # noqa: PTH112 - likewise
    }
    return without_binds(plan, missing)


def _read_edf(image: Image) -> Image:
    """Parse an existing EDF, so that its errors are reported before a job starts."""
    path = parse_path(image.path).absolute()
    if image.kind is not ImageKind.EDF or not path.is_file():
        return image
    from argosy.runtimes.edf import parse_edf  # noqa: PLC0415 - only for EDF files

    parse_edf(path.read_text(errors="replace", encoding="utf-8"), str(path))
    return replace(image, path=str(path))


def _tree_paths(parts: list[_Part], session: Session) -> tuple[str, ...]:
    """Return the paths of unpacked trees, whether they exist or not."""
    names = [tree_name(part.key(session, dry=True)) for part in parts]
    return tuple(str(session.paths.cache / "trees" / name / ROOT_FOLDER) for name in names)


def _unpack(parts: list[_Part], session: Session) -> tuple[str, ...]:
    from argosy.images.rootfs import find_link  # noqa: PLC0415 - a dry run does not unpack
    from argosy.images.rootfs_cache import unpack_cached  # noqa: PLC0415 - likewise

    layer, *base = (
        unpack_cached(
            session, part.source, key=part.key(session), what=part.name, look_again=partial(part.key, session)
        )
        for part in parts
    )
    if base and (link := find_link(layer, ROOT)):
        raise ImageError(
            f"cannot use {parts[0].name}: /{link} in it is a link to {(layer / link).readlink()}",
            evidence="the layer of an image that Argosy built has a folder there, which runtimes mount",
            hint="get the image again from its author",
        )
    return (str(layer), *map(str, base))


class _Part(msgspec.Struct, frozen=True):
    """The base or the layer of an image, or both."""

    source: Source | FlatLayer
    name: str
    """Description for users."""
    shared: bool = False
    """Whether its tree is cached by its bytes, so that images share it; else by the file's identity."""
    claim: str = ""
    """The digest that the image records for a shared part, or empty."""

    def key(self, session: Session, *, dry: bool = False) -> str:
        """Return the cache key of its tree; a dry run writes nothing and trusts the digest that the image records.

        Raises
        ------
        ImageError
            If the image was removed after it was opened.
        """
        try:
            return self._key(session, dry=dry)
        except FileNotFoundError as error:
            raise ImageError(
                f"{self.source.path} was removed or replaced meanwhile",
                evidence=str(error),
                hint="try again; argosy images ls lists the images",
            ) from error

    def _key(self, session: Session, *, dry: bool) -> str:
        source = self.source.whole if isinstance(self.source, FlatLayer) else self.source
        part = describe_spans(source.path, tuple((each.offset, each.length) for each in slices_of(source)))
        if not self.shared:
            return f"{'file' if source is self.source else 'layer'}:{part.identity}"
        cache = session.paths.cache
        if dry and self.claim:
            return cached_digest(part, cache) or self.claim
        return part_digest(part, cache, remember=not dry)


def name_of_image(image: Path) -> str:
    """Return the name that users know an image by: that of a link's target, and the prefix of a wrapped image."""
    file = image.resolve()
    return file.parents[2].name if file.parent.parent.name == VERSIONS else file.name


def layer_tree_key(opened: OpenedImage, attach: Attach, session: Session) -> str:
    """Return the cache key of the layer's tree; empty if it is not unpacked apart from the base."""
    layer, *base = _parts(opened, attach)
    return layer.key(session) if base else ""


def _parts(opened: OpenedImage, attach: Attach) -> list[_Part]:
    """Return what is unpacked of an image, the layer first.

    Images with the same base share its tree. The rest is cached by the file's identity, so it need not be hashed.
    """
    image, lock, name = opened.image, opened.lock, name_of_image(Path(opened.image.shown))
    layer = layer_source(image)
    if lock is None or layer is None or attach is Attach.FLAT:
        whole = FileSlice(Path(image.path), image.base_offset, image.base_size)
        return [_Part(whole, name)]
    return [
        _Part(layer, f"the layer of {name}"),
        _Part(base_source(image), f"the base of {name}", shared=True, claim=lock.base.digest),
    ]


def outer_environment(plan: ContainerPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which to start the runtime on this machine."""
    passed = {name: value for name, value in environment.items() if name not in plan.entry.drop}
    return passed | {variable.name: str(variable.value) for variable in plan.exports()}


def start_command(plan: ContainerPlan, command: tuple[str, ...], session: Session) -> Command:
    """Return what starts `command` in the container on this machine, with its environment."""
    return Command(literal_argv(plan.argv(command)), env=outer_environment(plan, session.host.environment))


def plan_entry(plan: ContainerPlan, request: ContainerRequest, reference: str, sites: FindSites) -> ContainerPlan:
    """Return the plan with the way in which programs start in its image: the requested one, else the site's.

    Images that Argosy built set their own environment, so the profile of a site is not asked about them.

    Parameters
    ----------
    reference
        The image, as the user gave it.
    sites
        Returns the sites whose profiles may contain the image; called only if they decide.
    """
    image = plan.entry.image
    if image.kind is ImageKind.HOST or (image.argosy and not request.enter):
        return plan
    for mode, source, why in _modes(request, image, reference, sites):
        if mode == "exec":
            return plan
        if mode == "run" and image.kind not in FILES:
            text = f"{plan.runtime.name} starts programs without the image's start script"
            row = Choice(ChoiceKey.ENTER, "exec", text, source)
            return replace(plan, choices=(*plan.choices, row))
        entry = replace(plan.entry, image=replace(image, enter=mode))
        return replace(plan, entry=entry, choices=(*plan.choices, Choice(ChoiceKey.ENTER, mode, why, source)))
    return plan


def _modes(request: ContainerRequest, image: Image, reference: str, sites: FindSites) -> Iterator[tuple[str, str, str]]:
    """Yield mode, source and reason, the first choice first."""
    if request.enter:
        yield request.enter, "option", "requested"
    for site in sites():
        if mode := _mode_at(site, {reference, image.path}):
            yield mode, f"site {site.name}", f"an image of the site, {ENTER_PHRASES[mode]}"


def _mode_at(site: Site, names: set[str]) -> str:
    """Return how the profile of a site enters an image with one of these names; empty if it does not know the image."""
    files = names | {str(Path(name).resolve()) for name in names if name.startswith("/")}
    for base in site.images.bases:
        if base.name in names or (base.name.startswith("/") and str(Path(base.name).resolve()) in files):
            return base.enter
    matching = (mode for pattern, mode in site.images.enter.items() if fnmatch.filter(files, pattern))
    return next(matching, "")
