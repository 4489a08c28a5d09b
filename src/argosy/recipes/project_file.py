"""Read ``argosy.toml`` and check it; errors name file, line and key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from argosy.core.errors import UsageError
from argosy.core.os_errors import refuse_special_file
from argosy.core.parse import SHA256
from argosy.core.toml_lines import TomlFault, find_fault, find_line, load_toml
from argosy.recipes.build_options import BuildOptions
from argosy.recipes.launch_options import LaunchKeys, LaunchOptions
from argosy.recipes.option_row import PROJECT_FILE, OneOrMore, refuse_other_choices, rows, toml_fields
from argosy.recipes.trust import refuse_foreign


def _key(meaning: str) -> Meta:
    """Return the meaning of a key, for the schema."""
    return Meta(description=meaning)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the project file; an unknown key is an error."""

    def given(self) -> dict[str, Any]:
        """Return the keys with values that differ from the defaults."""
        defaults = type(self)()
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value != getattr(defaults, name)}


_ImageKeys: Any = msgspec.defstruct(
    "_ImageKeys", toml_fields(BuildOptions), bases=(Table,), frozen=True, kw_only=True, forbid_unknown_fields=True
)


class ImageTable(_ImageKeys):  # type: ignore[misc]
    """``[image]``: the image that `argosy build` builds in this folder, with the options of `BuildOptions`."""

    conda: Annotated[OneOrMore, _key("Environment file or list of files, relative to the project's folder.")] = ()
    pip: Annotated[OneOrMore, _key("Requirements file or list of files.")] = ()
    sources: Annotated[OneOrMore, _key("Any file that argosy build reads, or a list of files.")] = ()
    output: Annotated[str, _key("The image file. Default: the folder's name with .sif.")] = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The environment files, in the order in which they are merged."""
        return (*words(self.conda), *words(self.pip), *words(self.sources))


class Fetch(Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file from the network, with its digest, because the file may change on the server."""

    url: Annotated[str, _key("Address of the file.")] = ""
    sha256: Annotated[str, _key("Its digest: 64 hexadecimal digits.")] = ""


class StepTable(Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[step]]``: one change of the image in addition to its packages; exactly one of `run`, `copy` and `fetch`."""

    run: Annotated[
        OneOrMore, _key("Command line for the image's shell, or a list of lines. They run as root or simulated root.")
    ] = ()
    copy: Annotated[OneOrMore, _key("File or folder of the project, or a list of them, to copy to 'to'.")] = ()
    fetch: Annotated[Fetch | None, _key("File to download to 'to'.")] = None
    to: Annotated[str, _key("Target of copy and fetch in the image; a folder if it ends with a slash.")] = ""
    before: Annotated[
        Literal["", "packages"], _key("With 'packages', the step runs before packages are installed.")
    ] = ""


class StageTable(Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[stage]]``: a build in another base, whose results are copied into the image."""

    name: Annotated[str, _key("Name of the stage, for messages.")] = ""
    base: Annotated[str, _key("Base of the stage, as for --base; usually one with compilers.")] = ""
    copy: Annotated[
        OneOrMore, _key("File or folder of the project, or a list of them, to copy into the folder of the stage.")
    ] = ()
    run: Annotated[OneOrMore, _key("Command line for the stage's shell in that folder, or a list of lines.")] = ()
    results: Annotated[dict[str, str], _key("Path in the stage, relative to its folder -> path in the image.")] = (
        msgspec.field(default_factory=dict)
    )


_LaunchKeys: Any = msgspec.defstruct(
    "_LaunchKeys", toml_fields(LaunchKeys), bases=(Table,), frozen=True, kw_only=True, forbid_unknown_fields=True
)


class JobTable(_LaunchKeys):  # type: ignore[misc]
    """``[job.NAME]``: a launch; each key is the option of `argosy launch` of that name, with ``_`` for ``-``.

    The keys are defined by `argosy.recipes.launch_options.LaunchKeys`: the options, the ``image`` (by default the
    output of ``[image]``) and the ``command``, a list of arguments.
    """


class ProjectTable(Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    image: Annotated[ImageTable, _key("The image that argosy build builds in this folder.")] = ImageTable()
    step: Annotated[tuple[StepTable, ...], _key("Changes of the image in addition to its packages, in order.")] = ()
    stage: Annotated[
        tuple[StageTable, ...], _key("Builds in other bases, whose results are copied into the image.")
    ] = ()
    launch: Annotated[
        JobTable,
        Meta(
            description="Defaults for every launch in this folder; bind, env, workdir, contain and signed_by also "
            "apply to argosy run and argosy shell."
        ),
    ] = JobTable()
    job: Annotated[dict[str, JobTable], _key("Launches by name: argosy launch NAME.")] = msgspec.field(
        default_factory=dict
    )


JOB_KEYS = {
    "image": "Image of the job. Default: the output of [image].",
    "command": "Program and its arguments: a list of strings.",
}
"""Meaning of the keys of a job that are not options."""


def project_schema() -> dict[str, Any]:
    """Return the JSON schema of ``argosy.toml``, with the meaning of each key."""
    options = {"ImageTable": rows(BuildOptions), "JobTable": rows(LaunchOptions)}
    schema = msgspec.json.schema(ProjectTable)
    for record, definition in schema["$defs"].items():
        meanings = JOB_KEYS | {name: row.help for name, row in options.get(record, {}).items()}
        definition.pop("description", None)
        for name, key in definition["properties"].items():
            key.pop("default", None)  # defaults are internal values, for example 0 for "not set"
            if "description" not in key:
                key["description"] = meanings[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": PROJECT_FILE, **schema}


class Project(msgspec.Struct, frozen=True):
    """A valid project file."""

    path: Path
    """The file; paths in it are relative to its folder."""
    shown: str
    """Its name in messages."""
    text: str
    table: ProjectTable

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return self.path.parent

    @property
    def output(self) -> Path:
        """The image file that the project builds."""
        return self.folder / (self.table.image.output or f"{self.folder.resolve().name}.sif")

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def where(self, *keys: str | int) -> str:
        """Return ``file:line`` of a key for a message, for example of ``where("job", "train", "nodes")``."""
        return f"{self.shown}:{find_line(self.text, tuple(map(str, keys)))}"

    def file_of(self, word: str, *place: str | int) -> Path:
        """Return the path of a file in a table's ``copy``."""
        path = self.folder / word
        if not path.exists():
            hint = "paths are relative to the folder of the project file"
            raise self.fault(f"no such file: {word}", *place, "copy", hint=hint)
        return path

    def refuse_missing(self) -> None:
        """Check that the files to copy exist, before the build starts."""
        copied = (("step", [row.copy for row in self.table.step]), ("stage", [row.copy for row in self.table.stage]))
        for kind, lists in copied:
            for number, files in enumerate(lists):
                for word in words(files):
                    self.file_of(word, kind, number)

    def fault(self, what: str, *keys: str | int, hint: str = "") -> UsageError:
        """Return the error for an invalid value."""
        return UsageError(what, evidence=f"{self.where(*keys)}: {'.'.join(map(str, keys))}", hint=hint)


def words(value: OneOrMore) -> tuple[str, ...]:
    """Return one value or a list of values as a tuple."""
    return (value,) if isinstance(value, str) else value


HINTS = {
    "found a time without quotes": 'write the time in quotes, for example time = "00:15:00"',
    "expected a list in [ ], found a table": "begin each with two brackets: [[step]], [[stage]]",
    "expected text in quotes, found": 'write the value in quotes, for example time = "30"',
    "expected a table, found a list": 'write NAME = "VALUE" pairs in braces, for example { OMP_NUM_THREADS = "1" }',
    "expected a list in [ ]": 'write a list, for example ["python", "train.py"]',
}
"""Hints for faults, by a part of the fault's description."""


SYNONYMS = {text.lstrip("-"): key for key, row in rows(LaunchOptions).items() for text in row.synonyms}
"""Name of an option in Slurm or torchrun -> the key of a job."""


def find_project(folder: Path) -> Project | None:
    """Read the project file of a folder; return None if it has none."""
    path = folder / PROJECT_FILE
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path} is a broken link to {path.readlink()}", hint="repair or remove the link")
    return read_project_here(path) if path.is_file() else None


def read_project_here(path: Path) -> Project:
    """Read the project file of the current folder, which nobody named, unless another user owns it.

    Raises
    ------
    UsageError
        If it belongs to another user, or is not valid.
    """
    refuse_foreign(path)
    return read_project(path)


def read_project(path: Path, shown: str = "") -> Project:
    """Read a project file.

    `shown` is the name of the file in messages; if it is empty, they have its file name.
    """
    shown = shown or path.name
    refuse_special_file(path, shown)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        hint = "check the path and its permissions; the file must be UTF-8"
        raise UsageError(f"cannot read {shown}", evidence=f"{path}: {error}", hint=hint) from error
    project = Project(path.absolute(), shown, text, _parse(shown, text))
    refuse_contradictions(project)
    return project


def _parse(name: str, text: str) -> ProjectTable:
    hint = "write text in quotes, lists in [ ], and the name of a table in [ ] on its own line"
    table = load_toml(text, name, hint=hint)
    jobs = table.get("job", {})
    try:
        for job in jobs if isinstance(jobs, dict) else ():
            within: tuple[str, ...] = ("job", job)
            msgspec.convert(jobs[job], JobTable)
        within = ()
        return msgspec.convert(table, ProjectTable)
    except msgspec.ValidationError as error:
        raise _explain(name, find_fault(text, str(error), ProjectTable, within)) from error


def _explain(name: str, fault: TomlFault) -> UsageError:
    place = f"{name}:{fault.line}: {fault.key}"
    if fault.unknown:
        ours = SYNONYMS.get(fault.unknown.replace("_", "-"), "") if fault.key.startswith(("job.", "launch.")) else ""
        hint = f"did you mean {ours!r}?" if ours else fault.hint
        return UsageError(f"{name} has an unknown key {fault.unknown!r}", evidence=place, hint=hint)
    hint = next((text for part, text in HINTS.items() if part in fault.what), "")
    return UsageError(f"{name} is not valid", evidence=f"{place}: {fault.what}", hint=hint)


def refuse_contradictions(project: Project) -> None:
    """Refuse combinations of keys that contradict each other."""
    names = [stage.name for stage in project.table.stage]
    found = [
        *(fault for number, step in enumerate(project.table.step) for fault in _faults_of_step(number, step)),
        *(fault for number, stage in enumerate(project.table.stage) for fault in _faults_of_stage(number, stage)),
        *(
            (f"two stages have the name {name!r}", ("stage", number, "name"), "")
            for number, name in enumerate(names)
            if name in names[:number]
        ),
        *(
            (f"{key} cannot be negative", ("job", name, key), "")
            for name, job in project.table.job.items()
            for key in ("nodes", "gpus", "gpus_per_node", "ranks", "cpus_per_rank", "resume")
            if getattr(job, key) < 0
        ),
    ]
    for what, place, hint in found:
        raise project.fault(what, *place, hint=hint)
    refuse_other_choices(project.table.image.given(), rows(BuildOptions), partial(project.where, "image"))
    refuse_other_choices(project.table.launch.given(), rows(LaunchOptions), partial(project.where, "launch"))
    for name, job in project.table.job.items():
        refuse_other_choices(job.given(), rows(LaunchOptions), partial(project.where, "job", name))


_Fault = tuple[str, tuple[str | int, ...], str]
"""The fault, the keys that lead to it, and a hint."""


def _faults_of_step(number: int, step: StepTable) -> Iterator[_Fault]:
    place = ("step", number)
    kinds = [kind for kind in ("run", "copy", "fetch") if getattr(step, kind)]
    if len(kinds) != 1:
        found = f"found {' and '.join(kinds)}" if kinds else "found none"
        what = f"a step must have exactly one of run, copy and fetch; {found}"
        yield what, place, "write a step for each"
    elif kinds == ["run"] and step.to:
        yield "a step with 'run' cannot have 'to'", (*place, "to"), ""
    elif kinds != ["run"] and not step.to.startswith("/"):
        what = f"a step with {kinds[0]!r} needs an absolute path in the image"
        yield what, (*place, "to" if step.to else kinds[0]), 'add to = "/opt/…", with a slash at the end for a folder'
    if step.fetch and not SHA256.match(step.fetch.sha256):
        what = "'fetch' needs a sha256 of 64 lowercase hexadecimal digits"
        yield what, (*place, "fetch"), "compute it with sha256sum FILE"
    if step.fetch and not step.fetch.url.startswith(("https://", "http://", "file:///")):
        yield "'fetch' needs an address: https://…", (*place, "fetch"), ""


def _faults_of_stage(number: int, stage: StageTable) -> Iterator[_Fault]:
    for key, meaning in (("name", "a name"), ("base", "a base"), ("run", "lines to run"), ("results", "results")):
        if not getattr(stage, key):
            yield f"a stage needs {meaning}", ("stage", number), f"add {key} = …"
    for source, target in stage.results.items():
        if not target.startswith("/"):
            what = f"the result {source!r} needs an absolute path in the image"
            yield what, ("stage", number, "results"), ""
