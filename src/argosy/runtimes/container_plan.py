"""Plan a container: mounts, variables, GPUs and the layer; pure functions."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.layout import NOT_FROM_CALLER, ROOT
from argosy.core.model import (
    BARE_PREFIX,
    Bind,
    Choice,
    ContainerRequest,
    Entry,
    GpuMode,
    Host,
    Image,
    ImageKind,
    Variable,
    plain_fingerprint,
)
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.shell import NAME, Word
from argosy.host.gpus import choose_gpu_mode
from argosy.images.open import refuse_other_arch
from argosy.runtimes.apptainer import leaks, parse_bind_variables
from argosy.runtimes.choose import choose_attach, choose_runtime
from argosy.runtimes.runtime import SYSTEM_FOLDERS, TEMPORARY, Runtime, StepRuntime, load_runtime

MOST_BIND_PARTS = 3

SYSTEM = frozenset(
    f"/{name}"
    for name in (
        *SYSTEM_FOLDERS,
        *("usr/bin", "usr/include", "usr/lib", "usr/lib64", "usr/libexec", "usr/sbin", "usr/share"),
        *("usr/local", "usr/local/bin", "usr/local/lib", "var/lib"),
    )
)
"""Folders that every image has; the host's folder is not mounted there, even if it is the current directory."""

CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""Variables that name a file with a site's certificate authority. Programs in the container read the same file."""

VERSIONED = ("torch", "rocm", "cuda", "nccl")
"""Software in an image on whose version site settings may depend."""


class ContainerPlan(msgspec.Struct, frozen=True):
    """An entry, the runtime that starts it, and the choices with their reasons."""

    runtime: Runtime
    entry: Entry
    choices: tuple[Choice, ...]

    def argv(self, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        return self.runtime.argv(self.entry, command)

    def exports(self) -> tuple[Variable, ...]:
        """Return the variables to export before the runtime starts."""
        return self.runtime.exports(self.entry)


def plan_container(request: ContainerRequest, image: Image, host: Host) -> ContainerPlan:
    """Choose runtime, layer attachment, GPU mode and mounts for an image on a machine.

    Raises
    ------
    ImageError, ToolMissing, CheckFailed, UsageError
        If the image is for another architecture, no runtime is installed, or requested GPUs are not found.
    """
    refuse_other_arch(image, host.target)
    runtime, why_runtime = choose_runtime(request.runtime, host, image)
    attach, why_attach = choose_attach(image, host, runtime)
    gpu, why_gpu = choose_gpu_mode(request.gpu, host, runtime.traits.driver or f"{runtime.name} finds the driver")
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
    _refuse_hiding_binds(entry)
    refusal = runtime.refusal(entry, host)
    if refusal:
        raise UsageError(f"{runtime.name} cannot do this: {refusal}", hint="choose another runtime with --runtime")
    return ContainerPlan(runtime, entry, (why_runtime, why_attach, why_gpu))


def _refuse_hiding_binds(entry: Entry) -> None:
    """Refuse a mount over the whole image, or over the environment of an image that Argosy built."""
    hidden = ROOT if entry.image.argosy else "/"
    for bind in () if entry.image.kind is ImageKind.HOST else entry.binds:
        if lies_below(hidden, os.path.normpath(bind.target)):
            raise UsageError(
                f"cannot mount {bind.source} on {bind.target}: it would hide the image's own {hidden}",
                hint="choose another folder in the container: --bind SRC:DST",
            )


def refuse_outside_jobs(plan: ContainerPlan) -> None:
    """Reject a runtime whose containers srun starts, because this start is outside of a job.

    Raises
    ------
    UsageError
        If srun starts the runtime's containers.
    """
    if isinstance(plan.runtime, StepRuntime):
        raise UsageError(
            f"{plan.runtime.name} starts containers in jobs only",
            evidence="srun starts them through a Slurm plug-in",
            hint="use argosy launch with --site, or choose another runtime with --runtime",
        )


def _plan_drop(host: Host) -> tuple[str, ...]:
    """Return the caller's variables to drop: those that refer to host software, and options of runtimes."""
    return (*(name for name in NOT_FROM_CALLER if name in host.environment), *leaks(host.environment))


def fileless_image(reference: str, runtime: str) -> Image | None:
    """Return the image of a reference that the runtime pulls itself, or that means no container.

    Return None if the reference is a file or an image that Argosy must pull.
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
    """Return the bind mounts: home, current directory, TMPDIR and files of certificates, then the requested ones.

    If the current directory is a system folder, the image's own folder is used. Mounts from a site's modules
    (``APPTAINER_BIND``) are added, because `leaks` removes the variables. With ``--contain``, only requested mounts are
    added. Paths below another mount are skipped. If a link in a mount leads out of it, for example ``~/scratch`` to
    another file system, its target is mounted.
    """
    modules = () if request.contain else tuple(parse_bind_variables(host.environment))
    temporary = host.environment.get("TMPDIR", "")
    here = "" if host.cwd in SYSTEM else host.cwd
    certificates = [host.environment.get(name, "") for name in CERTIFICATES]
    usual = [] if request.contain else [host.person.home, here, temporary, *certificates]
    usual = [path for path in usual if path != os.devnull]  # mounted, it would be no device any more
    binds: list[Bind] = []
    for path in usual:
        place = _landing(path, binds, host.links, contain=False)
        if path.startswith("/") and path != "/" and not any(_covers(bind, place) for bind in binds):
            binds.append(Bind(place, place, optional=path in {temporary, *certificates}))
    asked: list[Bind] = []
    for bind in (_whole(each, host.cwd) for each in request.binds):
        place = _landing(bind.target, binds, host.links, contain=request.contain)
        moved = replace(bind, target=place, source=place if bind.source == bind.target else bind.source)
        asked += [] if _is_there(moved, binds) else [moved]
    return (*binds, *modules, *asked)


def _landing(path: str, binds: list[Bind], links: Mapping[str, str], *, contain: bool) -> str:
    """Resolve the host's links in the target of a mount, because runtimes cannot mount on or behind a link.

    The folders for temporary files are the host's in every container.
    """
    seen = [*binds, *(() if contain else (Bind(path, path) for path in TEMPORARY))]
    for _ in links:
        link = next(
            (link for link in links if lies_below(path, link) and any(_covers(bind, link) for bind in seen)), ""
        )
        if not link:
            break
        path = links[link] + path.removeprefix(link)
    return path


def _whole(bind: Bind, folder: str) -> Bind:
    """Make the paths of a mount absolute; a relative source without a target has the same path inside."""
    if bind.source.startswith("/"):
        return bind
    path = os.path.normpath(os.path.join(folder, bind.source))  # noqa: PTH118 - text alone
    return replace(bind, source=path, target=path if bind.target == bind.source else bind.target)


def left_to_nodes(plan: ContainerPlan) -> ContainerPlan:
    """Remove optional mounts if the runtime cannot skip missing ones; the job script then adds them on the nodes."""
    return plan if plan.runtime.traits.skips_binds else without_binds(plan, {b for b in plan.entry.binds if b.optional})


def without_binds(plan: ContainerPlan, left_out: Collection[Bind]) -> ContainerPlan:
    """Return the plan without some of its mounts."""
    binds = tuple(bind for bind in plan.entry.binds if bind not in left_out)
    return replace(plan, entry=replace(plan.entry, binds=binds)) if left_out else plan


def _is_there(bind: Bind, binds: list[Bind]) -> bool:
    """Return whether another mount already contains this one, so that it can be omitted."""
    return bind.source == bind.target and not bind.read_only and any(_covers(each, bind.target) for each in binds)


def _covers(bind: Bind, path: str) -> bool:
    return bind.source == bind.target and lies_below(path, bind.source)


def lies_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it, by its text alone."""
    return (path + "/").startswith(folder.rstrip("/") + "/")


NOT_EXPANDED = re.compile(r"^~|\$[A-Za-z_{]")
"""Text that a shell would have replaced."""


def parse_bind(text: str) -> Bind:
    r"""Parse ``SRC[:DST[:ro|rw]]``; ``\:`` is a colon in a path.

    Raises
    ------
    UsageError
        If the text does not have that form.
    """
    parts = [part.replace("\0", ":") for part in text.replace("\\:", "\0").split(":")]
    source, target, mode = [*parts, "", ""][:3]
    if len(parts) > MOST_BIND_PARTS or not source or mode not in {"", "ro", "rw"}:
        raise UsageError(
            f"invalid bind mount {text!r}",
            evidence="the form is SRC[:DST[:ro|rw]]",
            hint="the option is ro or rw; write a colon in a path as \\:",
        )
    if NOT_EXPANDED.search(source) and not os.path.lexists(source):
        raise UsageError(
            f"invalid bind mount {text!r}",
            evidence=f"there is no {source!r}: only a shell replaces ~ and $NAME, and not between single quotes",
            hint="write the full path",
        )
    if target and not target.startswith("/"):
        raise UsageError(
            f"invalid bind mount {text!r}",
            evidence=f"the target {target!r} does not begin with /",
            hint="write an absolute path; write a colon in a path as \\:",
        )
    return Bind(source, target or source, read_only=mode == "ro")


def parse_variable(text: str, environment: Mapping[str, str]) -> Variable:
    """Parse ``NAME=VALUE``, or ``NAME`` for the caller's value.

    Raises
    ------
    UsageError
        If the name is invalid, or the caller does not have the variable.
    """
    name, given, value = text.partition("=")
    if not NAME.match(name):
        raise UsageError(f"{name!r} is not a variable name", evidence=f"--env {text}", hint="write --env NAME=VALUE")
    if not given and name not in environment:
        raise UsageError(
            f"cannot pass {name}: it is not set", evidence=f"--env {name}", hint=f"write --env {name}=VALUE"
        )
    return Variable(name, value if given else environment[name], inherited=not given)


BETWEEN_BINDS = re.compile(r",(?=/)")
"""Apptainer's separator of bind mounts. A comma that no slash follows is part of a path."""


def parse_container(given: Mapping[str, Any], environment: Mapping[str, str]) -> ContainerRequest:
    """Create a request from option values, by name with ``_`` for ``-``.

    Raises
    ------
    UsageError
        If a bind mount, a variable or a fingerprint is invalid.
    """
    variables = [parse_variable(text, environment) for text in given.get("env", ())]
    return ContainerRequest(
        binds=tuple(parse_bind(each) for text in given.get("bind", ()) for each in BETWEEN_BINDS.split(text)),
        variables=tuple({variable.name: variable for variable in variables}.values()),
        workdir=str(parse_path(given["workdir"])) if given.get("workdir") else "",
        gpu=GpuMode(given.get("gpu") or GpuMode.AUTO),
        contain=bool(given.get("contain", False)),
        runtime=given.get("runtime", ""),
        signed_by=tuple(map(parse_signer, given.get("signed_by", ()))),
        enter=given.get("enter", ""),
    )


def parse_signer(text: str) -> str:
    """Parse the fingerprint of a key that must have signed the image.

    Raises
    ------
    UsageError
        If it is not a valid fingerprint.
    """
    try:
        return plain_fingerprint(text)
    except ValueError as error:
        hint = "pass the 40 digits that 'apptainer key list' or 'gpg --fingerprint' prints"
        raise UsageError(f"invalid key fingerprint {text!r}", evidence=f"--signed-by {text}", hint=hint) from error


def parse_versions(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``torch=2.7,rocm=6.2``, the versions in an image that cannot be inspected.

    Raises
    ------
    UsageError
        If a name is not torch, rocm, cuda or nccl, or a version is invalid.
    """
    pairs: list[tuple[str, str]] = []
    for part in filter(None, text.split(",")):
        name, _, version = part.strip().partition("=")
        if name not in VERSIONED or not re.match(r"\d+(\.\d+)*\Z", version):
            raise UsageError(
                f"invalid version {part!r}",
                evidence=f"known: {', '.join(VERSIONED)}",
                hint="use NAME=VERSION, for example torch=2.7,rocm=6.2",
            )
        pairs.append((name, version))
    return tuple(pairs)
