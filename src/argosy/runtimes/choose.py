"""Choose the runtime, and how the layer attaches, each with its reason; pure, the machine is a record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from argosy.core.errors import CheckFailed, ImageError, ToolMissing
from argosy.core.model import Attach, Choice, ChoiceKey, Entry, GpuMode, Host, Image, ImageKind
from argosy.core.shell import quote
from argosy.runtimes.runtime import AUTOMATIC, Runtime, load_runtime, refuse_image

LAYER_SKIPPERS = ("UNDERLAY", "UNSQUASH", "TMP_SANDBOX")
"""Options that make Apptainer or SingularityCE drop an overlay partition, as variables ``APPTAINER_…`` and
``SINGULARITY_…`` (EnvKeys in cmd/internal/cli/action_flags.go of both)."""

OFF = frozenset({"", "0", "f", "false", "n", "no", "off"})


def choose_runtime(asked: str, host: Host, image: Image) -> tuple[Runtime, Choice]:
    """Choose the runtime: the one asked for, else the first of the table that is here and does not refuse.

    Raises
    ------
    UsageError
        When no runtime has the name asked for.
    ToolMissing
        When the one asked for, or every one, is missing: with the packages to install and what was found instead.
    ImageError
        When the one asked for starts no image of this form.
    """
    if image.kind is ImageKind.HOST and not asked:
        return load_runtime("bare"), Choice(
            ChoiceKey.RUNTIME, "bare", "no image is named: the machine's own software", "option"
        )
    if asked:
        runtime = load_runtime(asked)
        refusal, hint = refuse_image(runtime, image.kind, image.path)
        if refusal:
            raise ImageError(f"{runtime.name} cannot start this", evidence=refusal, hint=hint)
        if runtime.program not in host.programs and image.kind is not ImageKind.HOST:
            raise _missing_runtime(runtime, host)
        return runtime, Choice(ChoiceKey.RUNTIME, runtime.name, "asked for", "option")
    bare = bare_entry(image, host)
    passed: list[str] = []
    for runtime in map(load_runtime, AUTOMATIC):
        why_not = (
            f"{runtime.program} is not here" if runtime.program not in host.programs else runtime.refuse(bare, host)
        )
        if not why_not:
            return runtime, Choice(ChoiceKey.RUNTIME, runtime.name, "; ".join(["found on PATH", *passed]), "machine")
        passed.append(why_not)
    raise ToolMissing(
        "no container runtime works here",
        evidence="\n".join(passed),
        hint=f"install {load_runtime('bwrap').package}, or {load_runtime('apptainer').package}",
    )


def choose_attach(image: Image, host: Host, runtime: str) -> tuple[Attach, Choice]:
    """Choose how the layer joins the base: overlay, unless the runtime would skip the partition without a word.

    Raises
    ------
    CheckFailed
        When only the layer's folder can be attached, and its steps changed more than that.
    """
    if image.kind is ImageKind.TREE or image.layer_offset < 0:
        return Attach.FLAT, _attach(Attach.FLAT, "the image has no layer of its own", "image")
    if runtime == "podman":
        return _bound(image, "the layer's own tree is mounted on /opt/argosy", "machine")
    if runtime == "bwrap":
        return Attach.OVERLAY, _attach(Attach.OVERLAY, "base and layer are joined before bubblewrap starts", "machine")
    name = _skipper(host.environment)
    if name:
        return _bound(image, f"with {name} the overlay partition would be skipped", "environment")
    if host.overlay == "no":
        return _bound(image, f"{runtime}'s configuration skips overlay partitions", "machine")
    return Attach.OVERLAY, _attach(Attach.OVERLAY, "the image's overlay partition is mounted over its base", "machine")


def one_partition(image: str) -> str:
    """Give the command that writes an image with one partition, in seconds."""
    flat = Path(image).with_suffix(".flat.sif")
    return f"argosy images export {quote(image)} --format sif -o {quote(str(flat))}"


def _bound(image: Image, why: str, source: str) -> tuple[Attach, Choice]:
    """Attach the layer by a bind of its folder; refuse a layer that changes more than its folder."""
    if image.system:
        raise CheckFailed(
            "only a part of this image's layer would be attached",
            evidence=f"{why}, and its steps changed files outside /opt/argosy",
            hint=f"write it as one file system, which every runtime takes: {one_partition(image.path)}",
        )
    return Attach.BIND, _attach(Attach.BIND, why, source)


def bare_entry(image: Image, host: Host) -> Entry:
    """Give the plainest entry of an image: by it runtimes are asked whether they start it at all."""
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
        f"'{runtime.program}' is not installed here",
        evidence=f"--runtime {runtime.name} needs it; found instead: {', '.join(here) or 'no other runtime'}",
        hint=f"install {runtime.package}" + (f", or use --runtime {here[0]}" if here else ""),
    )


def _skipper(environment: Mapping[str, str]) -> str:
    names = (f"{family}_{key}" for family in ("APPTAINER", "SINGULARITY") for key in LAYER_SKIPPERS)
    return next((name for name in names if environment.get(name, "").strip().lower() not in OFF), "")


def _attach(attach: Attach, why: str, source: str) -> Choice:
    return Choice(ChoiceKey.LAYER, attach.value, why, source)
