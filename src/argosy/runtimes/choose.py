"""Choose the runtime, find the module that provides it, and choose how it attaches the layer, each with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from argosy.core.errors import CheckFailed, ImageError, ToolMissing
from argosy.core.model import (
    APPTAINER_FAMILIES,
    APPTAINERS,
    Attach,
    Choice,
    ChoiceKey,
    Entry,
    GpuMode,
    Host,
    Image,
    ImageKind,
)
from argosy.recipes.user_config import configured_site
from argosy.runtimes.runtime import AUTOMATIC, Runtime, export_command, image_refusal, load_runtime
from argosy.sites.load import load_site, sites_here
from argosy.sites.profile import Site

LAYER_SKIPPERS = ("UNDERLAY", "UNSQUASH", "TMP_SANDBOX")
"""Options that make Apptainer or SingularityCE drop an overlay partition, as variables ``APPTAINER_…`` and
``SINGULARITY_…`` (EnvKeys in cmd/internal/cli/action_flags.go of both)."""

OFF = frozenset({"", "0", "f", "false", "n", "no", "off"})


def choose_runtime(asked: str, host: Host, image: Image) -> tuple[Runtime, Choice]:
    """Choose the requested runtime, or the first of `AUTOMATIC` that is installed and can start the image.

    Raises
    ------
    UsageError
        If there is no runtime with the requested name.
    ToolMissing
        If the requested runtime is not installed, or no runtime works.
    ImageError
        If the requested runtime does not start this kind of image.
    """
    if image.kind is ImageKind.HOST and not asked:
        return load_runtime("bare"), Choice(ChoiceKey.RUNTIME, "bare", "bare: means no container", "option")
    if asked:
        runtime = load_runtime(asked)
        refusal, hint = image_refusal(runtime, image.kind, image.shown)
        if refusal:
            raise ImageError(f"{runtime.name} cannot start this image", evidence=refusal, hint=hint)
        if runtime.program not in host.programs and image.kind is not ImageKind.HOST:
            raise _missing_runtime(runtime, host)
        return runtime, Choice(ChoiceKey.RUNTIME, runtime.name, "requested", "option")
    bare = bare_entry(image, host)
    rejected: list[str] = []
    for runtime in map(load_runtime, AUTOMATIC):
        why_not = (
            f"{runtime.program} is not installed"
            if runtime.program not in host.programs
            else runtime.refusal(bare, host)
        )
        if not why_not:
            return runtime, Choice(ChoiceKey.RUNTIME, runtime.name, "; ".join(["found on PATH", *rejected]), "machine")
        rejected.append(why_not)
    raise ToolMissing(
        "no container runtime works on this machine",
        evidence="\n".join(rejected),
        hint=f"install {load_runtime('bwrap').package}, or {load_runtime('apptainer').package}",
    )


def gpu_at_sites(asked: GpuMode, runtime: str, sites: Iterable[Site]) -> GpuMode:
    """Return ``none`` instead of ``auto`` at a site that uses no option for GPUs, because its containers see /dev.

    Parameters
    ----------
    runtime
        The chosen runtime: only Apptainer and SingularityCE show the devices of the host.
    """
    if asked is not GpuMode.AUTO or runtime not in APPTAINERS:
        return asked
    # A cluster has one profile for each kind of node; those for nodes without GPUs do not count.
    ways = {site.runtime.gpu for site in sites if site.node.gpu_vendor}
    return GpuMode.NONE if ways == {GpuMode.NONE.value} else asked


def choose_attach(image: Image, host: Host, runtime: Runtime) -> tuple[Attach, Choice]:
    """Choose how the layer is attached to the base: as overlay, unless the runtime would skip the overlay partition.

    Raises
    ------
    CheckFailed
        If only ``/opt/argosy`` can be attached, but build steps changed files outside of it.
    """
    one = image.kind is ImageKind.TREE or (image.layer_offset < 0 and not _is_unpacked_apart(image, runtime))
    if one:
        return Attach.FLAT, _attach(Attach.FLAT, "the image has no separate layer", "image")
    if runtime.traits.layer == "bind":
        return _bound(image, "the unpacked layer is mounted on /opt/argosy", "machine")
    if runtime.traits.layer == "overlay":
        return Attach.OVERLAY, _attach(Attach.OVERLAY, "an overlay of base and layer is mounted first", "machine")
    skipping = (f"{family}_{key}" for family in APPTAINER_FAMILIES for key in LAYER_SKIPPERS)
    if name := next((name for name in skipping if host.environment.get(name, "").strip().lower() not in OFF), ""):
        return _bound(image, f"{name} is set, which skips the overlay partition", "environment")
    if host.overlay == "no":
        return _bound(image, f"{runtime.name}'s configuration skips overlay partitions", "machine")
    return Attach.OVERLAY, _attach(Attach.OVERLAY, "the image's overlay partition is mounted over its base", "machine")


def _is_unpacked_apart(image: Image, runtime: Runtime) -> bool:
    """Return whether a runtime unpacks the base and the layer of a flat image into two folders.

    Images with the same base then share one unpacked base.
    """
    layer = runtime.traits.layer
    return len(image.base_spans) > 1 and (layer == "overlay" or (layer == "bind" and not image.system))


def _bound(image: Image, why: str, source: str) -> tuple[Attach, Choice]:
    """Choose to bind-mount the layer's folder; fail if the layer changes files outside of it."""
    if image.system:
        command = export_command(image.shown, "sif")
        raise CheckFailed(
            "cannot attach the whole layer of this image",
            evidence=f"{why}, but build steps changed files outside /opt/argosy",
            hint=f"export the image as one file system, which every runtime starts: {command}",
        )
    return Attach.BIND, _attach(Attach.BIND, why, source)


def bare_entry(image: Image, host: Host) -> Entry:
    """Return the simplest entry of an image, to find out whether a runtime can start it at all."""
    return Entry(
        image=image,
        attach=Attach.FLAT,
        binds=(),
        variables=(),
        workdir="",
        gpu=GpuMode.NONE,
        contain=False,
        person=host.person,
    )


def _missing_runtime(runtime: Runtime, host: Host) -> ToolMissing:
    here = [name for name in AUTOMATIC if load_runtime(name).program in host.programs]
    return ToolMissing(
        f"'{runtime.program}' is not installed on this machine",
        evidence=f"--runtime {runtime.name} needs it; installed: {', '.join(here) or 'no other runtime'}",
        hint=f"install {runtime.package}" + (f", or use --runtime {here[0]}" if here else ""),
    )


def _attach(attach: Attach, why: str, source: str) -> Choice:
    return Choice(ChoiceKey.LAYER, attach.value, why, source)


def find_runtime_module(host: Host) -> str:
    """Return the command that loads the runtime of the configured site, or of a detected one; empty if none is needed.

    Raises
    ------
    SiteError, UsageError
        If the configured site has no valid profile, or a configuration file is not valid.
    """
    name = configured_site("", host.environment)
    sites = (load_site(name, host),) if name else sites_here(host)
    return next((command for site in sites if (command := load_command(site))), "")


def load_command(site: Site) -> str:
    """Return the command that loads the module of a site's runtime; empty if the runtime needs no module."""
    name = site.runtime.name
    return next((f"module load {module}" for module in site.modules.load if name and name in module.lower()), "")


@contextmanager
def suggesting_module(host: Host) -> Iterator[None]:
    """Add the site's module to the error that no runtime is installed."""
    try:
        yield
    except ToolMissing as error:
        command = find_runtime_module(host)
        if command:
            error.hint = f"run '{command}' first; elsewhere, {error.hint}"
        raise
