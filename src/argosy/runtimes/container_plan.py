"""Plan how a container is entered: mounts, variables, GPUs, the way the layer attaches; it asks no machine."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import (
    BARE_PREFIX,
    Bind,
    Choice,
    ContainerRequest,
    Devices,
    Entry,
    GpuMode,
    Host,
    Image,
    ImageKind,
    Variable,
    plain_fingerprint,
)
from argosy.core.records import replace
from argosy.core.shell import NAME, Word
from argosy.host.gpus import choose_gpu_mode
from argosy.images.open import check_arch
from argosy.runtimes.apptainer import leaks, parse_bind_variables
from argosy.runtimes.choose import choose_attach, choose_runtime
from argosy.runtimes.runtime import Runtime, load_runtime

MOST_BIND_PARTS = 3

TEMPORARY = (Bind("/tmp", "/tmp"), Bind("/var/tmp", "/var/tmp"))  # noqa: S108 - mounts of every container

SYSTEM = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "opt", "proc", "run", "sbin", "sys", "var"),
        *("usr", "usr/bin", "usr/include", "usr/lib", "usr/lib64", "usr/libexec", "usr/sbin", "usr/share"),
        *("usr/local", "usr/local/bin", "usr/local/lib", "var/lib"),
    )
)
"""What an image has of its own: who starts in such a folder does not mean the machine's."""

VERSIONED = ("torch", "rocm", "cuda", "nccl")
"""What settings of sites may ask of an image."""


class ContainerPlan(msgspec.Struct, frozen=True):
    """An entry with the runtime that speaks it, and the reason of each choice."""

    runtime: Runtime
    entry: Entry
    choices: tuple[Choice, ...]

    def argv(self, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        return self.runtime.argv(self.entry, command)

    def exports(self) -> tuple[Variable, ...]:
        """Give what must be exported before the runtime starts."""
        return self.runtime.exports(self.entry)


def plan_container(request: ContainerRequest, image: Image, host: Host) -> ContainerPlan:
    """Choose runtime, attachment, GPU way and mounts for one image on one machine.

    Raises
    ------
    ImageError, ToolMissing, CheckFailed, UsageError
        When the image is for another machine, no runtime is here, GPUs are asked for and none is seen.
    """
    check_arch(image, host.target)
    runtime, why_runtime = choose_runtime(request.runtime, host, image)
    attach, why_attach = choose_attach(image, host, runtime.name)
    gpu, why_gpu = choose_gpu_mode(request.gpu, host, runtime.name)
    is_bare = image.kind is ImageKind.HOST
    here = "/" if request.contain else host.cwd
    workdir = os.path.join(here, request.workdir) if request.workdir else here  # noqa: PTH118 - text alone
    entry = Entry(
        image=image,
        attach=attach,
        binds=request.binds if is_bare else plan_binds(request, host),
        variables=request.variables,
        workdir=workdir,
        gpu=gpu,
        contain=request.contain,
        person=host.person,
        drop=() if is_bare else (*_plan_drop(host), *(("TMPDIR",) if request.contain else ())),
    )
    refusal = runtime.refuse(entry, host)
    if refusal:
        raise UsageError(f"{runtime.name} cannot do this: {refusal}", hint="choose another runtime with --runtime")
    return ContainerPlan(runtime, entry, (why_runtime, why_attach, why_gpu))


def refuse_outside_jobs(plan: ContainerPlan) -> None:
    """Refuse a start here and now by a runtime whose containers srun starts: the command would run without one.

    Raises
    ------
    UsageError
        Always for such a runtime.
    """
    if plan.runtime.traits.by_srun:
        raise UsageError(
            f"{plan.runtime.name} starts containers in jobs only",
            evidence="srun starts them, by a plug-in of Slurm",
            hint="launch it with --site, or choose another runtime with --runtime",
        )


def _plan_drop(host: Host) -> tuple[str, ...]:
    """Name the caller's variables that stay outside: those about software of the host, and options of runtimes."""
    return (*(name for name in NOT_FROM_CALLER if name in host.environment), *leaks(host.environment))


def fileless_image(reference: str, runtime: str) -> Image | None:
    """Give the image of a reference that is no file: the machine's own software, or what the runtime fetches by itself.

    None where it names a file, or an image that Argosy fetches.
    """
    if reference.startswith(BARE_PREFIX):
        return Image(path=reference.removeprefix(BARE_PREFIX), kind=ImageKind.HOST, digest="", arch="")
    fetches = bool(runtime) and ImageKind.REGISTRY in load_runtime(runtime).traits.images
    if runtime == "edf" and reference.endswith(".toml"):
        return Image(path=reference, kind=ImageKind.EDF, digest="", arch="")
    scheme, found, rest = reference.partition("://")
    if runtime == "docker" and reference.startswith("docker-daemon:"):
        return Image(path=reference, kind=ImageKind.REGISTRY, digest="", arch="")
    if fetches and found and scheme == "docker":
        return Image(path=rest, kind=ImageKind.REGISTRY, digest="", arch="")
    return None


def plan_binds(request: ContainerRequest, host: Host) -> tuple[Bind, ...]:
    """Give the bind mounts: home, the current directory and TMPDIR as they are, then what was asked.

    A current directory that is a folder of the system is the image's own.

    Mounts that a site's modules set (``APPTAINER_BIND``) are carried too: `leaks` takes the variables away.  With
    ``--contain`` nothing of the host but what was asked.  What lies below a mount is there already; where a link in a
    mount leads out of it, as ``~/scratch`` to another file system, what it leads to is mounted.
    """
    modules = () if request.contain else parse_bind_variables(host.environment)
    temporary = host.environment.get("TMPDIR", "")
    here = "" if host.cwd in SYSTEM else host.cwd
    usual = [] if request.contain else [host.person.home, here, temporary]
    binds: list[Bind] = []
    for path in usual:
        place = _landing(path, binds, host.links, contain=False)
        if path.startswith("/") and path != "/" and not any(_covers(bind, place) for bind in binds):
            binds.append(Bind(place, place, optional=path == temporary))
    asked: list[Bind] = []
    for bind in (_whole(each, host.cwd) for each in request.binds):
        place = _landing(bind.target, binds, host.links, contain=request.contain)
        moved = replace(bind, target=place, source=place if bind.source == bind.target else bind.source)
        asked += [] if _is_there(moved, binds) else [moved]
    return (*binds, *modules, *asked)


def _landing(path: str, binds: list[Bind], links: Mapping[str, str], *, contain: bool) -> str:
    """Follow the host's links in a mount's target: runtimes mount neither on a link nor behind one.

    The folders for temporary files are the host's without a mount of ours.
    """
    seen = [*binds, *(() if contain else TEMPORARY)]
    for _ in links:
        link = next(
            (link for link in links if _lies_below(path, link) and any(_covers(bind, link) for bind in seen)), ""
        )
        if not link:
            break
        path = links[link] + path.removeprefix(link)
    return path


def _whole(bind: Bind, folder: str) -> Bind:
    """Make the paths of a mount absolute; a relative one is the same place inside."""
    if bind.source.startswith("/"):
        return bind
    path = os.path.normpath(os.path.join(folder, bind.source))  # noqa: PTH118 - text alone
    return replace(bind, source=path, target=path if bind.target == bind.source else bind.target)


def left_to_nodes(plan: ContainerPlan) -> ContainerPlan:
    """Leave optional mounts to the nodes: to the runtime where it can skip them, else to the job's script."""
    return plan if plan.runtime.traits.skips_binds else without_binds(plan, {b for b in plan.entry.binds if b.optional})


def without_binds(plan: ContainerPlan, left_out: Collection[Bind]) -> ContainerPlan:
    """Give the container without some of its mounts."""
    binds = tuple(bind for bind in plan.entry.binds if bind not in left_out)
    return replace(plan, entry=replace(plan.entry, binds=binds)) if left_out else plan


def _is_there(bind: Bind, binds: list[Bind]) -> bool:
    """Tell whether a mount can be left out: what it shows is there already, and it makes nothing read-only."""
    return bind.source == bind.target and not bind.read_only and any(_covers(each, bind.target) for each in binds)


def _covers(bind: Bind, path: str) -> bool:
    return bind.source == bind.target and _lies_below(path, bind.source)


def _lies_below(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def parse_bind(text: str) -> Bind:
    r"""Read ``SRC[:DST[:ro|rw]]``; in a path, ``\:`` stands for a colon.

    Raises
    ------
    UsageError
        When it is not of that form.
    """
    parts = [part.replace("\0", ":") for part in text.replace("\\:", "\0").split(":")]
    source, target, mode = [*parts, "", ""][:3]
    if len(parts) > MOST_BIND_PARTS or not source or mode not in {"", "ro", "rw"}:
        raise UsageError(
            f"{text!r} is no bind mount", evidence="the form is SRC[:DST[:ro]]", hint="write a colon in a path as \\:"
        )
    if target and not target.startswith("/"):
        raise UsageError(
            f"{text!r} is no bind mount",
            evidence=f"the path inside, {target!r}, does not begin with /",
            hint="write it whole; a colon in a path as \\:",
        )
    return Bind(source, target or source, read_only=mode == "ro")


def parse_variable(text: str, environment: Mapping[str, str]) -> Variable:
    """Read ``NAME=VALUE``, or ``NAME``, which takes the caller's value.

    Raises
    ------
    UsageError
        When the name is none, or the caller has no such variable.
    """
    name, given, value = text.partition("=")
    if not NAME.match(name):
        raise UsageError(f"{name!r} is not a variable name", evidence=f"--env {text}", hint="write --env NAME=VALUE")
    if not given and name not in environment:
        raise UsageError(f"{name} is not set here", evidence=f"--env {name}", hint=f"write --env {name}=VALUE")
    return Variable(name, value if given else environment[name], inherited=not given)


def parse_container(said: Mapping[str, Any], environment: Mapping[str, str]) -> ContainerRequest:
    """Make a request of words: options by name with ``_`` for ``-``, which are the keys of a project file too.

    Raises
    ------
    UsageError
        When a bind mount, a variable, a way for GPUs or a fingerprint is none.
    """
    gpu = said.get("gpu") or GpuMode.AUTO.value
    ways = [way.value for way in GpuMode]
    if gpu not in ways:
        raise UsageError(f"there is no way {gpu!r} for GPUs", evidence=f"known: {', '.join(ways)}")
    variables = [parse_variable(text, environment) for text in said.get("env", ())]
    return ContainerRequest(
        binds=tuple(map(parse_bind, said.get("bind", ()))),
        variables=tuple({variable.name: variable for variable in variables}.values()),
        workdir=said.get("workdir", ""),
        gpu=GpuMode(gpu),
        contain=bool(said.get("contain", False)),
        runtime=said.get("runtime", ""),
        signed_by=tuple(map(parse_signer, said.get("signed_by", ()))),
    )


def parse_signer(text: str) -> str:
    """Read the fingerprint of a key that must have signed the image.

    Raises
    ------
    UsageError
        When it is none.
    """
    try:
        return plain_fingerprint(text)
    except ValueError as error:
        raise UsageError(f"--signed-by: {error}") from error


def parse_versions(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``torch=2.7,rocm=6.2``: what an image holds that cannot be asked.

    Raises
    ------
    UsageError
        When a name is none of torch, rocm, cuda and nccl, or a version is no number.
    """
    pairs: list[tuple[str, str]] = []
    for part in filter(None, text.split(",")):
        name, _, version = part.strip().partition("=")
        if name not in VERSIONED or not re.match(r"\d+(\.\d+)*\Z", version):
            raise UsageError(
                f"{part!r} is no version of what an image holds",
                evidence=f"known: {', '.join(VERSIONED)}",
                hint="write it as torch=2.7,rocm=6.2",
            )
        pairs.append((name, version))
    return tuple(pairs)


def with_mounts(plan: ContainerPlan, *, devices: Devices, trees: tuple[str, ...], scratch: str) -> ContainerPlan:
    """Add to a plan the unpacked trees and the folder that a runtime needs which cannot mount an image file."""
    return replace(plan, entry=replace(plan.entry, devices=devices, trees=trees, scratch=scratch))
