"""The site configuration of tykky as what we need of it; pure.

Its sections and keys: https://github.com/CSCfi/hpc-container-wrapper, ``configs/*.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Bind
from argosy.core.suggest import suggest_word

SECTIONS = ("defaults", "force", "appends", "prepends")

TAKEN = frozenset(
    {
        *("container_src", "isolate", "share_container", "installation_prefix", "mount_points"),
        *("wrapper_paths", "extra_envs", "wrapper_ld_library_paths", "pre_install", "post_install"),
        *("installation_file_paths", "env_file", "requirements_file", "mode"),
    }
)

NOTHING_TO_DO = frozenset(
    {
        *("add_ld", "build_tmpdir", "composable", "conda_arch", "conda_version", "container_image", "create_wrappers"),
        *("env_name", "installation_path", "log_level", "mamba", "max_num_cpus", "num_cpus", "pipcache", "sqfs_image"),
        *("build_tmpdir_base", "singularity_executable_path", "source_mount_point", "sqfs_options", "sqfs_src"),
        *("update_installation", "uv", "workdir"),
    }
)
"""What tells tykky how to do its work, and changes nothing of what users get."""

REFUSED: Mapping[str, str] = {
    "wrap_all": "name what is to be wrapped: -w PATH,PATH",
    "template_script": "give the steps as a script: post_install: [{file: SCRIPT}], or --post-install SCRIPT",
    "excluded_mount_points": "argosy run --contain IMAGE shows nothing of the host",
    "tykky_abuse": "values are no shell code here: write the value itself, or $NAME of a variable that is set",
    "wrap_src": "wrap-install DIR -w PATHS --prefix PREFIX",
}
"""What we do in another way -> that way."""

TEMPLATES = frozenset({f"{name}.sh" for name in ("conda", "conda_modify", "uvenv", "venv", "venv_modify", "wrap")})
"""Steps that tykky itself brings: what it does by them, we do by our own."""

SYSTEM = ("bin", "etc", "lib", "lib64", "opt", "run", "sbin", "usr", "var")
"""Of these folders nothing of the host is seen unasked; all others at a node's root are."""


class Conf(msgspec.Struct, frozen=True):
    """What a configuration asks for.

    Attributes
    ----------
    base
        The base of a build; empty: ours.
    isolate
        Whether the host's system folders stay outside; None: as the command has it.
    share
        Link to an image instead of copying it.
    prefix
        Folder that a new prefix is made as where none is named.
    files
        What is to be installed, where a configuration alone says it.
    mode
        What a configuration alone asks for: ``conda``, ``venv``, or the change of one.
    environs
        Files of variables.
    before, after
        Scripts to run before and after the installation.
    """

    base: str = ""
    isolate: bool | None = None
    share: bool = False
    prefix: str = ""
    files: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    paths: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    mode: str = ""
    environs: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Variants(msgspec.Struct, frozen=True):
    """How the work is done and told, as variables of tykky have it.

    Attributes
    ----------
    work
        Folder for the work files of a build; empty: ours.
    notes
        What has no meaning here.
    """

    work: str = ""
    quiet: bool = False
    verbose: bool = False
    notes: tuple[str, ...] = ()


def merge_conf(site: Mapping[str, object], user: Mapping[str, object]) -> dict[str, object]:
    """Join a site's sections and a user's keys: defaults, then the user's, then lists that are added, then the forced.

    Raises
    ------
    UsageError
        When the site's has something else than sections.
    """
    for name, section in site.items():
        if name not in SECTIONS or not isinstance(section, Mapping | None):
            raise UsageError(f"the site configuration of tykky has no section {name!r}", evidence=", ".join(SECTIONS))
    parts = {name: section for name in SECTIONS if isinstance(section := site.get(name), Mapping)}
    merged: dict[str, object] = {**parts.get("defaults", {}), **user}
    for key, more in parts.get("appends", {}).items():
        merged[key] = [*_list(merged.get(key)), *_list(more)]
    for key, more in parts.get("prepends", {}).items():
        merged[key] = [*_list(more), *_list(merged.get(key))]
    return merged | dict(parts.get("force", {}))


def read_conf(merged: Mapping[str, object], environment: Mapping[str, str]) -> Conf:
    """Take what we need; a key that we have no word for is an error that names what to use.

    Parameters
    ----------
    environment
        What ``$NAME`` in a value stands for.

    Raises
    ------
    UsageError
        For a key that tykky does not have, or that we do in another way.
    """
    _judge_keys(merged)

    def texts(key: str) -> tuple[str, ...]:
        return tuple(Template(str(each)).safe_substitute(environment) for each in _list(merged.get(key)))

    source = next(iter(texts("container_src")), "auto")
    isolate = merged.get("isolate")
    libraries = ":".join(texts("wrapper_ld_library_paths"))
    return Conf(
        base="" if source == "auto" else source,
        isolate=None if isolate is None else _yes(isolate),
        share=_yes(merged.get("share_container", False)),
        prefix=next(iter(texts("installation_prefix")), ""),
        files=texts("installation_file_paths") or (*texts("env_file"), *texts("requirements_file")),
        binds=tuple(Bind(point, point) for point in texts("mount_points") if _is_hidden(point)),
        paths=texts("wrapper_paths"),
        variables=(*_variables(merged.get("extra_envs")), *((("LD_LIBRARY_PATH", libraries),) if libraries else ())),
        mode=next(iter(texts("mode")), ""),
        environs=tuple(str(row["file"]) for row in _rows(merged.get("extra_envs")) if "file" in row),
        before=_files("pre_install", merged),
        after=_files("post_install", merged),
    )


def read_variants(environment: Mapping[str, str]) -> Variants:
    """Take what variables of tykky say; what is without meaning here is told.

    Raises
    ------
    UsageError
        When the level of messages is no number.
    """
    level = environment.get("CW_LOG_LEVEL") or "2"
    if not level.isdigit():
        raise UsageError(f"CW_LOG_LEVEL={level} is no number", hint="0: errors only, 2: as ever, 3: each command, too")
    notes = []
    if environment.get("CW_DEBUG_KEEP_FILES"):
        notes.append(
            "CW_DEBUG_KEEP_FILES: a build that fails leaves nothing; CW_LOG_LEVEL=3 shows each of its commands"
        )
    if environment.get("CW_EXTRA_BIND_MOUNTS"):
        notes.append(
            "CW_EXTRA_BIND_MOUNTS: not read here; a bind mount is an option: argosy wrap update DIR -B SRC:DST"
        )
    return Variants(environment.get("CW_BUILD_TMPDIR", ""), level == "0", level not in {"0", "1", "2"}, tuple(notes))


def _judge_keys(merged: Mapping[str, object]) -> None:
    known = TAKEN | NOTHING_TO_DO | set(REFUSED)
    for key, value in merged.items():
        own = key == "template_script" and value in TEMPLATES
        unasked = key == "wrap_all" and not _yes(value)
        if key in REFUSED and not own and not unasked:
            raise UsageError(f"the key {key} of tykky is not taken over", hint=REFUSED[key])
        if key not in known:
            near = suggest_word(key, known)
            raise UsageError(f"tykky has no key {key!r}", hint=f"did you mean {near}?" if near else "")


def _is_hidden(point: str) -> bool:
    """Tell whether a container hides a folder of the host unless it is asked for."""
    if not point.startswith("/"):
        raise UsageError(f"mount_points: {point!r} does not begin with /", hint="name it by its whole path")
    return point.split("/")[1] in SYSTEM


def _files(key: str, merged: Mapping[str, object]) -> tuple[str, ...]:
    """Give the scripts of a key, which may hold lines of shell as well: those belong into a script."""
    for row in _list(merged.get(key)):
        if not isinstance(row, Mapping) or "file" not in row:
            hint = f"write the lines to a script: {key}: [{{file: SCRIPT}}]"
            raise UsageError(f"{key}: a script is run, lines are not", evidence=str(row), hint=hint)
    return tuple(str(row["file"]) for row in _rows(merged.get(key)))


def _rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in _list(value) if isinstance(row, Mapping)]


def _variables(value: object) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for row in _list(value):
        given = row if isinstance(row, Mapping) else {}
        if "file" in given:
            continue
        if given.get("type", "set") != "set" or "name" not in given:
            raise UsageError(
                "extra_envs: a variable with a fixed value is taken over",
                evidence=str(row),
                hint="type: set, name: NAME, value: VALUE; what is computed belongs into the user's environment",
            )
        found[str(given["name"])] = str(given.get("value", ""))
    return tuple(found.items())


def _yes(value: object) -> bool:
    return str(value).lower() in {"yes", "true", "1"}


def _list(value: object) -> list[object]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
