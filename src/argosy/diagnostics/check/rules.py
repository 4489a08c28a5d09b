"""Judge an image against a site: what cannot work there, what may be slow, what cannot be told from here; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.builder.python.torch_index import index_of
from argosy.core.errors import ArgosyError, ToolMissing, UsageError
from argosy.core.model import ContainerRequest, GpuMode, Image, ImageKind
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.diagnostics.check.collect import Contents, look_into
from argosy.images.find import find_image
from argosy.images.open import GO_ARCH, Opened, open_image
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.torch_build import BACKENDS
from argosy.runtimes.choose import one_partition
from argosy.runtimes.open_container import open_container
from argosy.runtimes.runtime import RUNTIMES, load_runtime, refuse_image
from argosy.sites.load import load_site
from argosy.sites.profile import Site

OK, BAD, MIND, UNKNOWN = "ok", "bad", "mind", "not known"
MOUNTED_BY_ALL = frozenset({"gzip"})
OLDEST_GLIBC = (2, 28)
"""What wheels of today's torch need (manylinux_2_28)."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes
    ----------
    state
        ``ok``; ``bad`` for what cannot work there; ``mind`` for what may be slow; ``not known``.
    hint
        What to change where it is not ok.
    """

    name: str
    state: str
    said: str
    hint: str = ""


def judge_image(
    image: Image, compressors: tuple[str, ...], contents: Contents | None, site: Site
) -> tuple[Finding, ...]:
    """Judge an image.

    Parameters
    ----------
    compressors
        Of its file systems: the base's, the layer's.
    contents
        None where the image cannot be started on this machine.
    """
    return (
        *_arch(image, site),
        *_runtime(image, site),
        *_layer(image, site),
        *_compressors(compressors, site),
        *(_inside(image, contents, site) if contents else _not_started()),
    )


def _arch(image: Image, site: Site) -> Iterator[Finding]:
    wanted = GO_ARCH.get(site.node.arch, site.node.arch)
    if not image.arch or not wanted:
        yield Finding("architecture", UNKNOWN, "the image or the profile does not tell it")
    elif image.arch != wanted:
        hint = f"build it on a machine of that kind; a site's own base for {wanted} helps"
        yield Finding("architecture", BAD, f"the image is {image.arch}, nodes of {site.name} are {wanted}", hint)
    else:
        yield Finding("architecture", OK, image.arch)


def _runtime(image: Image, site: Site) -> Iterator[Finding]:
    name = site.runtime.name
    if name not in RUNTIMES:
        yield Finding("runtime", UNKNOWN, f"the profile of {site.name} names {name or 'none'}", "try it: argosy prove")
        return
    refusal, hint = refuse_image(load_runtime(name), image.kind, image.path)
    yield Finding("runtime", BAD, refusal, hint) if refusal else Finding("runtime", OK, f"{name} starts such an image")


def _layer(image: Image, site: Site) -> Iterator[Finding]:
    if image.layer_offset < 0:
        yield Finding("layer", OK, "none of its own: nothing to attach")
        return
    facts = site.proved.facts
    overlay, bind = facts.get("attach.overlay", ""), facts.get("attach.bind", "")
    if site.runtime.name not in {"apptainer", "singularity"} and site.runtime.name in RUNTIMES:
        takes = ImageKind.SIF in load_runtime(site.runtime.name).traits.images
        hint = f"{one_partition(image.path)}, or the form that the runtime takes: --format sqsh"
        yield Finding("layer", MIND if takes else BAD, f"{site.runtime.name} attaches no layer of a SIF", hint)
    elif overlay == "yes":
        yield Finding("layer", OK, f"attaches as overlay: proved on {site.proved.date}")
    elif bind == "yes":
        yield Finding("layer", OK, f"attaches by a bind mount: proved on {site.proved.date}; launch chooses it there")
    elif overlay == "no":
        yield Finding("layer", BAD, "attaches neither as overlay nor by a bind mount there", one_partition(image.path))
    else:
        prove = f"argosy prove {site.name} --image {quote(image.path)}"
        hint = f"try it: {prove}; a layer that is skipped ends a job with code 6"
        yield Finding("layer", UNKNOWN, "nobody has tried overlays there", hint)


def _compressors(compressors: tuple[str, ...], site: Site) -> Iterator[Finding]:
    odd = sorted({name for name in compressors if name not in MOUNTED_BY_ALL})
    by_fuse = site.runtime.user_namespaces or site.proved.facts.get("runtime.mode") == "user namespace"
    if not odd or by_fuse:
        yield Finding("compressor", OK, ", ".join(compressors) or "none")
    else:
        said = f"{', '.join(odd)}: a setuid starter mounts it by the kernel, which must know it"
        yield Finding("compressor", UNKNOWN, said, f"try it: argosy prove {site.name} --image IMAGE")


def _not_started() -> Iterator[Finding]:
    hint = "ask again on a machine that can start it"
    yield Finding("contents", UNKNOWN, "the image cannot be started here: torch, glibc, MPI were not looked at", hint)


def _inside(image: Image, contents: Contents, site: Site) -> Iterator[Finding]:
    if image.argosy:
        hint = "the runtime did not attach the layer here, or the image is damaged: build it again"
        entry = "/opt/argosy/enter is there"
        yield Finding("entry", OK, entry) if contents.entry else Finding("entry", BAD, "no /opt/argosy/enter", hint)
    yield from _glibc(contents)
    yield from _torch(contents, site)
    yield from _network(contents, site)
    if site.launcher.mpi or site.launcher.mpiexec:
        hint = "only programs of --launcher mpi need one: take a base that has it, or bind the host's"
        yield Finding("MPI", OK, contents.mpi) if contents.mpi else Finding("MPI", MIND, "none in the image", hint)


def _glibc(contents: Contents) -> Iterator[Finding]:
    version = tuple(map(int, re.findall(r"\d+", contents.glibc)[:2]))
    if not version:
        hint = "the host's libraries and most wheels need it: take a base such as debian:bookworm"
        yield Finding("glibc", MIND, "another C library", hint)
    elif version < OLDEST_GLIBC:
        hint = "take a newer base: today's wheels need 2.28"
        yield Finding("glibc", MIND, contents.glibc, hint)
    else:
        yield Finding("glibc", OK, contents.glibc)


def _torch(contents: Contents, site: Site) -> Iterator[Finding]:
    version, vendor = contents.torch.get("__version__", ""), site.node.gpu_vendor
    if not version:
        yield Finding("torch", OK, "none in the image")
    elif vendor not in BACKENDS:
        yield Finding("torch", OK, f"{version}; {site.name} has no GPUs" if not vendor else version)
    elif contents.torch.get(BACKENDS[vendor]):
        yield Finding("torch", OK, f"{version}, {BACKENDS[vendor]} {contents.torch[BACKENDS[vendor]]}")
    else:
        others = ", ".join(name for name in BACKENDS.values() if contents.torch.get(name)) or "the CPU only"
        said = f"{version} is for {others}; GPUs of {site.name} are {vendor}'s and need {BACKENDS[vendor]}"
        hint = f"build it with --site {site.name} and --extra-index-url {index_of(site)}, or over a base that has torch"
        yield Finding("torch", BAD, said, hint)


def _network(contents: Contents, site: Site) -> Iterator[Finding]:
    wanted = site.network.plugin
    if not wanted:
        return
    binds = [path for bind in site.binds for path in bind.paths if "nccl" in path or "fabric" in path or "cxi" in path]
    has = contents.plugin or contents.libfabric
    if contents.plugin:
        yield Finding("network plugin", OK, contents.plugin)
    elif binds:
        yield Finding("network plugin", OK, f"not in the image; {site.name} binds {binds[0]}")
    else:
        hint = f"{site.name} needs {wanted}: take one of its bases (argosy sites show {site.name}), else NCCL uses TCP"
        yield Finding("network plugin", MIND, f"none in the image{f' beside {has}' if has else ''}", hint)


def check_image(session: Session, reference: str, site: str) -> tuple[Finding, ...]:
    """Check an image; nothing is submitted, and no GPU is needed.

    Raises
    ------
    ArgosyError
        When there is no such image or site.
    """
    profile = load_site(site, session.host)
    if "://" in reference:
        raise UsageError(f"{reference} is not here", hint="fetch it first: argosy images pull, or argosy build over it")
    opened = open_image(find_image(reference, session))
    image = opened.image
    judged = judge_image(image, _node_compressors(image), _contents(session, reference), profile)
    return (*judged, *_signature(opened, profile, session))


def _signature(opened: Opened, site: Site, session: Session) -> tuple[Finding, ...]:
    """Judge who signed an image, where the site asks for it."""
    if not site.images.signed_by:
        return ()
    from argosy.images.signatures import find_signers  # noqa: PLC0415 - few sites ask for it

    path, programs = opened.image.path, session.host.programs
    try:
        signer = find_signers(opened.sif, path, site.images.signed_by, session.runner, programs)[0]
    except ToolMissing as error:
        return (Finding("signature", UNKNOWN, error.what, error.hint),)
    except ArgosyError as error:
        return (Finding("signature", BAD, f"{error.what}; {'; '.join(error.evidence.splitlines())}", error.hint),)
    return (Finding("signature", OK, f"{signer.name}, {signer.fingerprint}"),)


def _node_compressors(image: Image) -> tuple[str, ...]:
    if image.kind is ImageKind.TREE:
        return ()
    offsets = [offset for offset in (image.base_offset, image.layer_offset) if offset >= 0]
    return tuple(read_superblock(Path(image.path), offset).compressor for offset in offsets)


def _contents(session: Session, reference: str) -> Contents | None:
    """Start the image here; None, with the reason told, where this machine cannot."""
    try:
        plan = open_container(ContainerRequest(gpu=GpuMode.NONE, workdir="/"), reference, session)
        return look_into(plan, session)
    except ArgosyError as error:
        session.reporter.note(f"the image was not started here: {error.what}")
        return None
