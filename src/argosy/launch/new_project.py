"""Write the files of a new project: argosy.toml, requirements.txt and a program that runs.

A folder that has programs or an environment file gets only argosy.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.shell import quote
from argosy.core.store import write_text
from argosy.recipes.build_options import DEFAULT_BASE
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.read import find_environment_files
from argosy.sites.profile import Site

TEMPLATES = Path(__file__).with_name("templates")
TEMPLATE_NAMES = ("ddp", "hello", "lightning", "mpi")
"""Programs that a project can begin with; each is a folder of `TEMPLATES`."""

BASES = {"mpi": "debian:bookworm+openmpi-bin"}
"""The base of the image, by template; the others name none, so that the build may choose a base of the site."""

WITH_TORCH = frozenset({"ddp", "lightning"})
"""Templates that need torch."""

JOB_KEYS = {
    "mpi": 'launcher = "mpi"\nenv = { MPI4PY_MPIABI = "openmpi" }\n',
}
"""Keys of ``[job.train]`` that a template needs in addition."""


PROGRAMS = ("train.py", "main.py", "run.py")
"""Usual names of the program of a project."""


class NewProject(msgspec.Struct, frozen=True):
    """A project to be written."""

    folder: Path
    """Folder of the project; it may exist, but none of the files may."""
    template: str
    """One of `TEMPLATE_NAMES`; empty: the folder has its own files, and gets only argosy.toml."""
    site: Site
    account: str = ""
    """Account to charge; empty: a site that needs one gets a line to fill in."""
    has_gpus: bool = True
    """Whether this machine has GPUs. Without, a project for this machine takes the small build of torch for the CPU."""

    @property
    def takes_cpu_torch(self) -> bool:
        """Whether the image gets the build of torch for the CPU."""
        return self.site.name == "local" and not self.has_gpus and self.template in WITH_TORCH


def holds_project(folder: Path) -> bool:
    """Return whether a folder has an environment file or a Python program, and so needs no template."""
    return bool(find_environment_files(folder)) or any(folder.glob("*.py"))


def write_project(project: NewProject) -> tuple[Path, ...]:
    """Write the files of a project, and return their paths.

    Raises
    ------
    UsageError
        When a file exists, or the template needs Slurm; no file is changed then.
    CheckFailed
        When the folder cannot be written.
    """
    if project.template == "mpi" and not project.site.has_slurm:
        raise UsageError(
            "the mpi template needs a site with Slurm", hint="name one: --site NAME; see 'argosy sites ls'"
        )
    template = TEMPLATES / project.template
    of_template = ("requirements.txt", "train.py") if project.template else ()
    files = {PROJECT_FILE: render_project(project)}
    files |= {name: (template / name).read_text(encoding="utf-8") for name in of_template}
    paths = {project.folder / name: text for name, text in files.items()}
    for path in paths:
        if path.exists() or path.is_symlink():
            hint = f"{_suggest_build(project.folder)}choose another folder"
            raise UsageError(f"{path} already exists", evidence="argosy init changes no existing file", hint=hint)
    with translate_os_errors(project.folder, "FOLDER"):
        project.folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            write_text(path, text)
    return tuple(paths)


def _suggest_build(folder: Path) -> str:
    """Return the first part of a hint: how to build the image of a folder that has files already; else empty."""
    there = "" if folder == Path() else f"cd {quote(str(folder))} && "
    if (folder / PROJECT_FILE).is_file():
        return f"to build the image of this project: {there}argosy build; or "
    if not holds_project(folder):
        return ""
    return f"for a project file that names the files of this folder: {there}argosy init, without --template; or "


def render_project(project: NewProject) -> str:
    """Render argosy.toml; the comments name what the site requires and offers."""
    site, slurm = project.site, project.site.slurm
    name = re.sub(r"[^\w.-]+", "-", project.folder.resolve().name).strip("-.") or "project"
    if project.template:
        image = ["# The image: 'argosy build' builds it from requirements.txt.", "[image]", 'pip = "requirements.txt"']
    else:
        image = list(_render_sources(project.folder))
    image += _render_bases(project)
    image.append(f'output = "{name}.sif"')
    if site.name != "local":
        image.append(f'site = "{site.name}"  # chooses the build of torch')
    if not project.template and site.name == "local" and not project.has_gpus:
        image.append('# torch_backend = "cpu"  # the small build of PyTorch, for machines without GPUs')
    if project.takes_cpu_torch:
        image.append('torch_backend = "cpu"  # this machine has no GPU; remove this line to build for GPUs')
    launch = ["# Options of every job.", "[launch]", f'site = "{site.name}"']
    if site.has_slurm:
        for key in dict.fromkeys(("account", *slurm.required)):
            if key == "account" and project.account:
                launch.append(f'account = "{project.account}"')
            elif key != "time":
                launch.append(f'# {key} = "…"' + (f"  # {site.name} requires it" if key in slurm.required else ""))
        launch.append('time = "10:00"')
    job = ["# The job: 'argosy launch train' starts it.", "[job.train]"]
    if project.template:
        job.append('command = ["python", "train.py"]')
    else:
        job.append(f'command = ["python", "{_find_program(project.folder)}"]  # your program and its arguments')
    job.append("nodes = 1" if site.has_slurm and site.node.gpus else f"ranks = {2 if project.template else 1}")
    job += JOB_KEYS.get(project.template, "").splitlines()
    return "\n".join((*image, "", *launch, "", *job, ""))


def _render_bases(project: NewProject) -> list[str]:
    """Render the base that the template needs, and the bases of the site as comments."""
    known, has_mpi = project.site.images.bases, project.template == "mpi"
    named = BASES.get(project.template)
    lines = [f'base = "{named}"'] if named else [f'# base = "{DEFAULT_BASE}"  # the default']
    lines += [f'# base = "{base.name}"  # contains torch' for base in known if base.torch or "torch" in base.holds]
    return lines + [f'# base = "{base.name}"  # contains mpi' for base in known if has_mpi and "mpi" in base.holds]


def _render_sources(folder: Path) -> Iterator[str]:
    """Render the beginning of ``[image]`` for a folder that has its own files."""
    first, *others = find_environment_files(folder) or ("",)
    if first:
        also = f"  # also here: {', '.join(others)}" if others else ""
        yield from (f"# The image: 'argosy build' builds it from {first}.", "[image]", f'sources = "{first}"{also}')
    else:
        yield from ("# The image, which 'argosy build' builds.", "[image]")
        yield '# sources = "requirements.txt"  # a file with the packages of the program'


def _find_program(folder: Path) -> str:
    """Return the name of the program in a folder that is the most likely one, as an example."""
    return next((name for name in PROGRAMS if (folder / name).is_file()), PROGRAMS[0])
