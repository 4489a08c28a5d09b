"""Check an image, or all images of the catalog, against a site.

An image is started once to find out what it contains; the answer is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from argosy.builder.python.torch_index import index_of
from argosy.core.cache import remember_text
from argosy.core.errors import ArgosyError, CheckFailed, ToolMissing, UsageError
from argosy.core.findings import Finding, State
from argosy.core.model import APPTAINERS, ContainerRequest, GpuMode, Image, ImageKind
from argosy.core.parse import parse_json
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import in_double_quotes, quote, read_function
from argosy.core.tool_errors import tool_error
from argosy.host.architectures import go_arch
from argosy.images.catalog import with_images_of
from argosy.images.describe import CatalogEntry
from argosy.images.find import open_ready, open_reference
from argosy.images.libraries import (
    ASK_TORCH,
    BACKENDS,
    JAX_FOR,
    MPICH,
    NO_LIBRARY,
    ONLY_MPICH,
    OPEN_MPI,
    SEVERAL,
    USE_MPICH,
    advise_base,
    describe_cpu_jax,
    describe_old_driver,
    describe_unfit_mpi,
    family_of_name,
)
from argosy.images.open import OpenedImage
from argosy.images.part_digest import describe_part
from argosy.images.signatures import find_signers
from argosy.images.squashfs.superblock import read_superblock
from argosy.runtimes.open_container import open_container, start_command
from argosy.runtimes.runtime import RUNTIMES, export_command, image_refusal, load_runtime
from argosy.sites.job_settings import SLINGSHOT, describe_missing_plugin
from argosy.sites.load import load_site
from argosy.sites.profile import Site

MARK = "argosy:"
"""Prefix of each line of the report, since scripts of the image may print too."""

SCRIPT = Path(__file__).with_name("scripts") / "contents.sh"
ALWAYS_MOUNTABLE = frozenset({"gzip"})
CONTENTS = "contents"
"""Name of the finding for an image that was not started, so that its contents are unknown."""

OLDEST_GLIBC = (2, 28)
"""Version of glibc that current PyTorch wheels need (manylinux_2_28)."""


class Contents(msgspec.Struct, frozen=True):
    """The contents of an image that matter for a site."""

    glibc: str = ""
    """Version of glibc; empty if the image has another C library."""
    torch: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Values of ``torch/version.py``: ``__version__``, ``cuda``, ``hip``, ``xpu``; empty without PyTorch."""
    mpi: str = ""
    libfabric: str = ""
    plugin: str = ""
    """An MPI, libfabric, and a network plugin of NCCL or RCCL; empty if there is none."""
    mpi_family: str = ""
    """``openmpi``, ``mpich`` (also Intel MPI and MVAPICH), ``several``, or empty if it is not known."""
    mpi4py: bool = False
    """Whether Python finds mpi4py."""
    entry: bool = False
    """Whether ``/opt/argosy/enter`` exists."""


def parse_contents(text: str) -> Contents | None:
    """Parse the output of ``contents.sh``; None if the output is incomplete."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(MARK):
            key, _, value = line.removeprefix(MARK).partition("=")
            found.setdefault(key, value)
    if "end" not in found:
        return None
    try:
        torch = parse_json(found.get("torch") or "{}")
    except ValueError:
        torch = {}
    return Contents(
        glibc=found.get("glibc", ""),
        torch=torch if isinstance(torch, dict) else {},
        mpi=found.get("mpi", "") or found.get("mpilib", ""),
        libfabric=found.get("libfabric", ""),
        plugin=found.get("plugin", ""),
        mpi_family=_family(found),
        mpi4py=found.get("mpi4py") == "yes",
        entry=found.get("entry") == "yes",
    )


def _family(found: Mapping[str, str]) -> str:
    """Return the MPI of an image from its libraries; an old Open MPI has a library with the name of MPICH's."""
    if {OPEN_MPI, MPICH} <= found.keys():
        return SEVERAL
    files = (name for name in (OPEN_MPI, MPICH) if name in found)
    return family_of_name(found.get("mpi", "")) or next(files, "")


@cache
def _program() -> str:
    return str(read_function(SCRIPT, "contents", {"ASK_TORCH": in_double_quotes(ASK_TORCH)}))


def _inspect_image(image: Image, session: Session, *, unpack: bool) -> Contents | None:
    """Return the contents of an image; for an image file, the answer is cached until the file changes.

    It fails if this machine cannot start the image, or could only after it unpacked it and `unpack` is false.
    """
    memo = None
    if image.kind is not ImageKind.TREE:  # the time of a folder does not show changes below it
        program = hashlib.sha256(_program().encode()).hexdigest()[:8]
        memo = session.paths.cache / "contents" / f"{describe_part(image.path, 0, 0).identity}-{program}"
    return parse_contents(remember_text(memo, lambda: _start(image, session, unpack=unpack)))


def _start(image: Image, session: Session, *, unpack: bool) -> str:
    request = ContainerRequest(gpu=GpuMode.NONE, workdir="/")
    plan = open_container(request, image.path, session, dry=True)
    if plan.runtime.traits.unpacks and not unpack and not all(Path(tree).exists() for tree in plan.entry.trees):
        hint = f"unpack it: argosy check {quote(image.shown)}"
        raise CheckFailed(f"{plan.runtime.name} has to unpack the image first", hint=hint)
    plan = open_container(request, image.path, session)
    command = start_command(plan, ("/bin/sh", "-c", _program(), "sh"), session)
    reply = session.runner.run(command)
    if parse_contents(reply.stdout) is None:
        raise tool_error(command, reply, doing="inspecting the image")
    return reply.stdout


def check_contents(
    image: Image, compressors: tuple[str, ...], contents: Contents | None, site: Site, why: str = ""
) -> tuple[Finding, ...]:
    """Check an image and its contents against a site.

    Parameters
    ----------
    compressors
        Compressors of the image's squashfs file systems: the base's, the layer's.
    contents
        None if this machine cannot start the image.
    why
        Why it cannot.
    """
    return (
        _check_architecture(image, site),
        _check_runtime(image, site),
        _check_layer(image, site),
        _check_compressors(compressors, site),
        *(_check_inside(image, contents, site) if contents else (_not_started(why),)),
    )


def _check_architecture(image: Image, site: Site) -> Finding:
    wanted = go_arch(site.node.architecture)
    if not image.arch or not wanted:
        return Finding("architecture", State.UNKNOWN, "the image or the profile does not name its architecture")
    if image.arch != wanted:
        hint = f"build it on a machine with {wanted}, or over one of the site's own bases"
        evidence = f"the image is for {image.arch}, nodes of {site.name} are {wanted}"
        return Finding("architecture", State.FAIL, evidence, hint)
    return Finding("architecture", State.OK, image.arch)


def _check_runtime(image: Image, site: Site) -> Finding:
    name = site.runtime.name
    if name not in RUNTIMES:
        evidence = f"the profile of {site.name} names {f'the unknown runtime {name}' if name else 'no runtime'}"
        return Finding("runtime", State.UNKNOWN, evidence, f"test the site: argosy sites validate {site.name}")
    refusal, hint = image_refusal(load_runtime(name), image.kind, image.shown)
    if refusal:
        return Finding("runtime", State.FAIL, refusal, hint)
    return Finding("runtime", State.OK, f"{name} can start this image")


def _check_layer(image: Image, site: Site) -> Finding:
    if image.layer_offset < 0:
        return Finding("layer", State.OK, "the image has no separate layer")
    facts = site.validated.facts
    overlay, bind = facts.get("attach.overlay", ""), facts.get("attach.bind", "")
    if site.runtime.name not in APPTAINERS and site.runtime.name in RUNTIMES:
        reads_sif = ImageKind.SIF in load_runtime(site.runtime.name).traits.images
        hint = export_command(image.shown, "sif" if reads_sif else "sqsh")
        state = State.WARN if reads_sif else State.FAIL
        return Finding("layer", state, f"{site.runtime.name} cannot attach the layer of a SIF", hint)
    if overlay == "yes":
        return Finding("layer", State.OK, f"attaches as an overlay, tested there on {site.validated.date}")
    if bind == "yes":
        return Finding("layer", State.OK, f"attaches by a bind mount, tested there on {site.validated.date}")
    if overlay == "no":
        evidence = f"attaches neither as an overlay nor by a bind mount, tested there on {site.validated.date}"
        return Finding("layer", State.FAIL, evidence, export_command(image.shown, "sif"))
    validate = f"argosy sites validate {site.name} --image {quote(image.shown)}"
    hint = f"test it: {validate}; a job whose layer is not attached ends with code 6"
    return Finding("layer", State.UNKNOWN, "overlays have not been tested at this site", hint)


def _check_compressors(compressors: tuple[str, ...], site: Site) -> Finding:
    unusual = sorted({name for name in compressors if name not in ALWAYS_MOUNTABLE})
    by_fuse = site.runtime.user_namespaces or site.validated.facts.get("runtime.mode") == "user namespace"
    if not unusual or by_fuse:
        return Finding("compressor", State.OK, ", ".join(compressors) or "none")
    evidence = f"{', '.join(unusual)}: the site's kernel must support it, since a setuid runtime mounts the image"
    return Finding("compressor", State.UNKNOWN, evidence, f"test it: argosy sites validate {site.name} --image IMAGE")


def _not_started(why: str) -> Finding:
    evidence = f"PyTorch, glibc and MPI were not checked: {why or 'this machine cannot start the image'}"
    return Finding(CONTENTS, State.UNKNOWN, evidence, "check it on a machine that can start the image")


def _check_inside(image: Image, contents: Contents, site: Site) -> Iterator[Finding]:
    if image.argosy:
        yield _check_entry(contents)
    yield _check_glibc(contents)
    yield _check_torch(contents, site)
    if jax := describe_cpu_jax(image, site.node.gpu_vendor):
        evidence = f"{jax}, so JAX computes on the CPU; {site.name} has GPUs"
        yield Finding("JAX", State.WARN, evidence, f"{JAX_FOR[site.node.gpu_vendor]}, and build again")
    yield from _check_network(contents, site)
    has_mpi4py = contents.mpi4py or "mpi4py" in image.packages
    if site.launcher.mpi or site.launcher.mpiexec or has_mpi4py:
        yield _check_mpi(contents, site, has_mpi4py=has_mpi4py)


def _check_mpi(contents: Contents, site: Site, *, has_mpi4py: bool) -> Finding:
    how = "mpiexec" if site.launcher.mpiexec else site.launcher.mpi
    if contents.mpi_family == SEVERAL:
        evidence = f"the image contains Open MPI and MPICH; its mpirun: {contents.mpi}"
        wanted = "mpich" if how in ONLY_MPICH else "openmpi or mpich"
        hint = f"a program that uses the other one runs as rank 0 of 1; for mpi4py: --env MPI4PY_MPIABI={wanted}"
        return Finding("MPI", State.WARN, evidence, hint)
    if unfit := describe_unfit_mpi(contents.mpi_family, how, site.name):
        return Finding("MPI", State.WARN, f"{contents.mpi}; {unfit}", USE_MPICH)
    if has_mpi4py and not contents.mpi:
        return Finding("MPI", State.WARN, NO_LIBRARY, f"{advise_base(how)}, or bind the host's MPI")
    if contents.mpi:
        return Finding("MPI", State.OK, contents.mpi)
    hint = "only programs of --launcher mpi need one: use a base that contains it, or bind the host's"
    return Finding("MPI", State.WARN, "the image contains none", hint)


def _check_entry(contents: Contents) -> Finding:
    if contents.entry:
        return Finding("entry", State.OK, "/opt/argosy/enter exists")
    hint = "build the image again; either it is damaged, or the runtime here did not attach the layer"
    return Finding("entry", State.FAIL, "/opt/argosy/enter does not exist", hint)


def _check_glibc(contents: Contents) -> Finding:
    version = tuple(map(int, re.findall(r"\d+", contents.glibc)[:2]))
    if not version:
        hint = "use a base with glibc, for example debian:bookworm: the host's libraries and most wheels need it"
        return Finding("glibc", State.WARN, "the image has another C library", hint)
    if version < OLDEST_GLIBC:
        oldest = ".".join(map(str, OLDEST_GLIBC))
        evidence = f"{contents.glibc} is older than {oldest}, which current wheels need"
        return Finding("glibc", State.WARN, evidence, "use a newer base")
    return Finding("glibc", State.OK, contents.glibc)


def _check_torch(contents: Contents, site: Site) -> Finding:
    version, vendor = contents.torch.get("__version__", ""), site.node.gpu_vendor
    if not version:
        if vendor:
            hint = "ignore this if the program uses the GPUs without PyTorch"
            return Finding("torch", State.WARN, f"the image does not contain PyTorch; {site.name} has GPUs", hint)
        return Finding("torch", State.OK, "the image does not contain PyTorch")
    if vendor not in BACKENDS:
        return Finding("torch", State.OK, version if vendor else f"{version}; {site.name} has no GPUs")
    old = describe_old_driver(contents.torch, site.node.cuda)
    if old:
        hint = f"build it with --site {site.name}, or use an image with NVIDIA's package cuda-compat"
        return Finding("torch", State.WARN, f"{old} on {site.name}", hint)
    if contents.torch.get(BACKENDS[vendor]):
        return Finding("torch", State.OK, f"{version}, {BACKENDS[vendor]} {contents.torch[BACKENDS[vendor]]}")
    others = ", ".join(name for name in BACKENDS.values() if contents.torch.get(name)) or "the CPU only"
    evidence = f"{version} is built for {others}; the {vendor} GPUs of {site.name} need {BACKENDS[vendor]}"
    index = f"--extra-index-url {index_of(site)}"
    hint = f"build it with --site {site.name} and {index}, or over a base that contains PyTorch"
    state = State.FAIL
    plain = [partition.name for partition in site.partitions if partition.gpus == 0]
    if plain and not any(contents.torch.get(name) for name in BACKENDS.values()):
        state, hint = State.WARN, f"use it with --partition {' or '.join(plain)}; for GPUs, {hint}"
    return Finding("torch", state, evidence, hint)


def _check_network(contents: Contents, site: Site) -> Iterator[Finding]:
    wanted = site.network.plugin
    if not wanted:
        if (missing := describe_missing_plugin(site)) and not contents.plugin:
            hint = f'use an image with the plugin, and add use = ["{SLINGSHOT[site.node.gpu_vendor]}"] to the profile'
            yield Finding("network plugin", State.WARN, missing, hint)
        return
    binds = [path for bind in site.binds for path in bind.paths if "nccl" in path or "fabric" in path or "cxi" in path]
    if contents.plugin:
        yield Finding("network plugin", State.OK, contents.plugin)
    elif binds:
        yield Finding("network plugin", State.OK, f"not in the image; {site.name} binds {binds[0]}")
    else:
        has = f"; it contains {contents.libfabric}" if contents.libfabric else ""
        hint = f"use one of the site's bases (argosy sites show {site.name}); without {wanted} NCCL uses TCP"
        yield Finding("network plugin", State.WARN, f"the image contains none{has}", hint)


def check_image(session: Session, reference: str, site: str) -> tuple[Finding, ...]:
    """Check an image. No job is submitted and no GPU is needed.

    Raises
    ------
    ArgosyError
        When the image or the site does not exist.
    """
    profile = load_site(site, session.host)
    if "://" in reference:
        raise UsageError(
            f"cannot check {reference}: it is not on this machine",
            hint="download it with 'argosy images pull', or build over it with 'argosy build'",
        )
    session = with_images_of(profile, session)
    return _check_opened(open_reference(reference, session), profile, session)


def _check_opened(opened: OpenedImage, site: Site, session: Session, *, unpack: bool = True) -> tuple[Finding, ...]:
    """Check an opened image; without `unpack`, it is not started if that needs minutes for unpacking."""
    image = opened.image
    contents, why = None, ""
    try:
        contents = _inspect_image(image, session, unpack=unpack)
    except ArgosyError as error:
        why = error.what
    findings = check_contents(image, _compressors_of(image), contents, site, why)
    return (*findings, *_check_signature(opened, site, session))


def _check_signature(opened: OpenedImage, site: Site, session: Session) -> tuple[Finding, ...]:
    if not site.images.signed_by:
        return ()
    path, programs = opened.image.path, session.host.programs
    try:
        signer = find_signers(opened.sif, path, site.images.signed_by, session.runner, programs)[0]
    except ToolMissing as error:
        return (Finding("signature", State.UNKNOWN, error.what, error.hint),)
    except ArgosyError as error:
        evidence = f"{error.what}; {'; '.join(error.evidence.splitlines())}"
        return (Finding("signature", State.FAIL, evidence, error.hint),)
    return (Finding("signature", State.OK, f"{signer.name}, {signer.fingerprint}"),)


def _compressors_of(image: Image) -> tuple[str, ...]:
    if image.kind is ImageKind.TREE:
        return ()
    offsets = [offset for offset in (image.base_offset, image.layer_offset) if offset >= 0]
    return tuple(read_superblock(Path(image.path), offset).compressor for offset in offsets)


def check_entries(entries: Sequence[CatalogEntry], site: str, session: Session) -> list[CatalogEntry]:
    """Return the entries with the answer whether they work at a site; images are started, but not unpacked.

    Raises
    ------
    ArgosyError
        If the site does not exist.
    """
    profile = load_site(site, session.host)
    checked: list[CatalogEntry] = []
    for entry in entries:
        try:
            findings = _check_opened(open_ready(Path(entry.path), session), profile, session, unpack=False)
        except ArgosyError as error:
            checked.append(replace(entry, works="no", reason=error.what))
            continue
        works, reason = summarize_findings(findings)
        checked.append(replace(entry, works=works, reason=reason))
    return checked


def summarize_findings(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return ``yes``, ``no`` or ``unknown``, and the reason; with ``yes``, the warnings."""
    wrong = [each for each in findings if each.state is State.FAIL]
    if wrong:
        return "no", _reasons(wrong)
    blind = [each for each in findings if each.state is State.UNKNOWN and each.what == CONTENTS]
    if blind:
        return "unknown", _reasons(blind)
    return "yes", _reasons([each for each in findings if each.state is State.WARN])


def _reasons(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{each.what}: {each.evidence}" for each in findings)
