"""Check whether the commands of a prefix start on this machine: `argosy wrap check`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from argosy.core.errors import ArgosyError, CheckFailed
from argosy.core.findings import Finding, State, has_failed
from argosy.core.process import Command
from argosy.core.render import count
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.libraries import ASK_TORCH, BACKENDS, parse_torch
from argosy.images.open import inspect_squashfs, open_image
from argosy.images.prefix import version_folder
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import start_command
from argosy.runtimes.runtime import load_runtime
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.wrap.model import InContainer, PrefixRecipe, PrefixSourceKind, Version
from argosy.wrap.templates import read_template
from argosy.wrap.versions import CACHE, open_prefix


def check(prefix: Path, session: Session) -> tuple[Finding, ...]:
    """Check files, image, runtime and unpacked trees of a prefix, then start the container of its commands once."""
    version = open_prefix(prefix)
    folder = version_folder(prefix, version.number)
    found = [_files(folder, version), _image(folder, version, prefix, session), _runtime(version, prefix, session)]
    found += [_trees(prefix, version)] if version.trees else []
    if not has_failed(found):
        found.append(_start(prefix, folder, version, session))
    return tuple(found)


def _files(folder: Path, version: Version) -> Finding:
    wanted = [folder / "start.sh", *(folder / "bin" / each.name for each in version.commands)]
    gone = [path.name for path in wanted if not path.is_file()]
    if gone:
        hint = "write them again: argosy wrap update DIR"
        return Finding("files", State.FAIL, f"missing: {', '.join(gone[:8])}", hint=hint)
    return Finding("files", State.OK, f"{count(len(version.commands), 'command')} of version {version.number}")


def _image(folder: Path, version: Version, prefix: Path, session: Session) -> Finding:
    path = folder / version.image
    if path.is_symlink() and not path.exists():
        hint = f"restore it, or: argosy wrap update {quote(str(prefix))} --image FILE"
        return Finding("image", State.FAIL, f"{path.readlink()} does not exist", hint=hint)
    hint = f"argosy wrap rollback {quote(str(prefix))}, or build it again: argosy wrap update {quote(str(prefix))}"
    try:
        opened = inspect_squashfs(open_image(path), session)
    except ArgosyError as error:
        return Finding("image", State.FAIL, str(error), hint=hint)
    size = path.stat().st_size if path.is_file() else 0
    if version.size != size or version.digest != opened.image.digest:
        return Finding("image", State.FAIL, f"it changed: {size} bytes instead of {version.size}", hint=hint)
    return Finding("image", State.OK, str(path.resolve()))


def _runtime(version: Version, prefix: Path, session: Session) -> Finding:
    runtime = load_runtime(version.runtime)
    if runtime.program in session.host.programs:
        return Finding("runtime", State.OK, session.host.programs[runtime.program])
    hint = f"load its module, or: argosy wrap update {quote(str(prefix))} --runtime NAME"
    return Finding("runtime", State.FAIL, f"{runtime.program} is not installed", hint=hint)


def _trees(prefix: Path, version: Version) -> Finding:
    gone = [tree for tree in version.trees if not (prefix / CACHE / "trees" / tree / "root").is_dir()]
    if gone:
        hint = f"unpack them again: argosy wrap update {quote(str(prefix))}"
        return Finding("trees", State.FAIL, f"missing below {prefix / CACHE}: {', '.join(gone)}", hint=hint)
    return Finding("trees", State.OK, f"{len(version.trees)} unpacked")


def _start(prefix: Path, folder: Path, version: Version, session: Session) -> Finding:
    """Start the container with the shared file of the wrappers, and run a shell of the image instead of a command."""
    name = version.commands[0].name
    words = ("/bin/sh", "-c", read_template("check.sh"), str(prefix / "bin" / name), str(folder / "start.sh"))
    targets = tuple(each.target for each in version.commands)
    reply = session.runner.run(Command((*words, read_template("check-commands.sh"), *targets)))
    lines = reply.stdout.splitlines()
    gone, apart = ([line.removeprefix(key) for line in lines if line.startswith(key)] for key in ("gone:", "apart:"))
    if reply.code != 0 or "whole" not in lines:
        said = reply.stderr.strip() or f"exit code {reply.code}"
        return Finding("start", State.FAIL, said, hint=f"try a command: {prefix}/bin/{name}")
    if gone:
        return Finding("start", State.FAIL, f"not in the image: {', '.join(gone[:8])}", hint="argosy wrap update DIR")
    if apart:
        hint = f"wrap the folder of this Python first: argosy wrap update {quote(str(prefix))} -w FOLDER"
        return Finding("start", State.FAIL, "; ".join(apart), hint=hint)
    return Finding("start", State.OK, "the container starts and contains every command")


def refuse_gpu_build_at_site(recipe: PrefixRecipe, plan: ContainerPlan, inside: InContainer, session: Session) -> None:
    """Refuse an image or installation whose torch does not support the GPUs of the site, if ``--site`` is given."""
    if not recipe.site or recipe.kind is PrefixSourceKind.FILES:
        return
    site = load_site(recipe.site, session.host)
    python = next((each for each in inside.programs if PurePosixPath(each).name in {"python", "python3"}), "")
    if not python or site.node.gpu_vendor not in BACKENDS:
        return
    reply = session.runner.run(start_command(plan, (python, "-I", "-c", ASK_TORCH), session))
    refuse_gpu_build(parse_torch(reply.stdout), site, str(recipe))


def refuse_gpu_build(torch: Mapping[str, str], site: Site, what: str) -> None:
    """Refuse a build of torch for GPUs of another vendor than the site's; an image without torch passes."""
    backend = BACKENDS[site.node.gpu_vendor]
    if not torch.get("__version__") or torch.get(backend):
        return
    others = ", ".join(name for name in BACKENDS.values() if torch.get(name)) or "only the CPU"
    raise CheckFailed(
        f"torch {torch['__version__']} of {what} cannot use the GPUs of {site.name}",
        evidence=f"{site.name} has GPUs of {site.node.gpu_vendor}, which need {backend}\nthis torch supports {others}",
        hint=f"wrap one with a torch for {backend}, or omit --site {site.name}",
    )
