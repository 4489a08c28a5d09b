"""Read the configuration files of tykky.

Source of the sections and keys: https://github.com/CSCfi/hpc-container-wrapper, ``configs/*.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Bind
from argosy.core.suggest import did_you_mean

SECTIONS = ("defaults", "force", "appends", "prepends")

TAKEN = frozenset(
    {
        *("container_src", "isolate", "share_container", "installation_prefix", "mount_points"),
        *("wrapper_paths", "extra_envs", "wrapper_ld_library_paths", "pre_install", "post_install"),
        *("installation_file_paths", "env_file", "requirements_file", "mode"),
    }
)
"""Keys that are supported."""

NOTHING_TO_DO = frozenset(
    {
        *("add_ld", "build_tmpdir", "composable", "conda_arch", "conda_version", "container_image", "create_wrappers"),
        *("env_name", "installation_path", "log_level", "mamba", "max_num_cpus", "num_cpus", "pipcache", "sqfs_image"),
        *("build_tmpdir_base", "singularity_executable_path", "source_mount_point", "sqfs_options", "sqfs_src"),
        *("update_installation", "uv", "workdir"),
    }
)
"""Keys that change how tykky works, but not the result."""

REFUSED: Mapping[str, str] = {
    "wrap_all": "list the commands to wrap: -w PATH,PATH",
    "template_script": "put the steps into a script: post_install: [{file: SCRIPT}], or --post-install SCRIPT",
    "excluded_mount_points": "to hide all folders of the host, use: argosy run --contain IMAGE",
    "tykky_abuse": "write the value itself, or $NAME of a variable; shell code is not supported",
    "wrap_src": "use: wrap-install DIR -w PATHS --prefix PREFIX",
}
"""Keys that are not supported -> alternative."""

TEMPLATES = frozenset({f"{name}.sh" for name in ("conda", "conda_modify", "uvenv", "venv", "venv_modify", "wrap")})
"""Templates of tykky; Argosy has its own steps for them."""

SYSTEM = ("bin", "etc", "lib", "lib64", "opt", "run", "sbin", "usr", "var")
"""Folders of the host that a container does not show without a bind mount."""


class Conf(msgspec.Struct, frozen=True):
    """The settings of a configuration file."""

    base: str = ""
    """The base of a build; empty for the default."""
    isolate: bool | None = None
    """Whether the host's system folders are hidden; None for the default of the command."""
    share: bool = False
    """Whether an image is linked instead of copied."""
    prefix: str = ""
    """Default of ``--prefix``."""
    files: tuple[str, ...] = ()
    """Files to install, for ``advanced``."""
    binds: tuple[Bind, ...] = ()
    paths: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    mode: str = ""
    """Kind of environment, for ``advanced``: ``conda``, ``venv``, ``conda_modify`` or ``venv_modify``."""
    environs: tuple[str, ...] = ()
    """Files of variables."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Scripts to run before and after the installation."""


class LogSettings(msgspec.Struct, frozen=True):
    """The variables of tykky that change messages and work files."""

    work: str = ""
    """Folder for work files of a build; empty for the default."""
    quiet: bool = False
    verbose: bool = False
    notes: tuple[str, ...] = ()
    """Notes about variables without effect."""


def merge_conf(site: Mapping[str, object], user: Mapping[str, object]) -> dict[str, object]:
    """Join a site's sections and a user's keys: defaults, then the user's, then additions to lists, then forced values.

    Raises
    ------
    UsageError
        If the site's configuration contains anything but sections.
    """
    for name, section in site.items():
        if name not in SECTIONS or not isinstance(section, Mapping | None):
            raise UsageError(
                f"tykky's site configuration has no section {name!r}", hint=f"use one of {', '.join(SECTIONS)}"
            )
    parts = {name: section for name in SECTIONS if isinstance(section := site.get(name), Mapping)}
    merged: dict[str, object] = {**parts.get("defaults", {}), **user}
    for key, more in parts.get("appends", {}).items():
        merged[key] = [*_list(merged.get(key)), *_list(more)]
    for key, more in parts.get("prepends", {}).items():
        merged[key] = [*_list(more), *_list(merged.get(key))]
    return merged | dict(parts.get("force", {}))


def read_conf(merged: Mapping[str, object], environment: Mapping[str, str]) -> Conf:
    """Return the settings of a joined configuration.

    Parameters
    ----------
    environment
        Values of ``$NAME`` in the configuration.

    Raises
    ------
    UsageError
        If tykky does not have a key, or Argosy does not support it.
    """
    _refuse_unknown_keys(merged)

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


def read_log_settings(environment: Mapping[str, str]) -> LogSettings:
    """Return the settings in the variables of tykky.

    Raises
    ------
    UsageError
        If CW_LOG_LEVEL is not a number.
    """
    level = environment.get("CW_LOG_LEVEL") or "2"
    if not level.isdecimal():
        raise UsageError(
            f"invalid CW_LOG_LEVEL={level}: not a number",
            hint="use 0 for errors only, 2 for the default, 3 for each command",
        )
    notes = []
    if environment.get("CW_DEBUG_KEEP_FILES"):
        notes.append(
            "CW_DEBUG_KEEP_FILES has no effect: a failed build leaves no files; CW_LOG_LEVEL=3 prints its commands"
        )
    if environment.get("CW_EXTRA_BIND_MOUNTS"):
        notes.append("CW_EXTRA_BIND_MOUNTS has no effect; add a bind mount with: argosy wrap update DIR -B SRC:DST")
    return LogSettings(environment.get("CW_BUILD_TMPDIR", ""), level == "0", level not in {"0", "1", "2"}, tuple(notes))


def _refuse_unknown_keys(merged: Mapping[str, object]) -> None:
    known = TAKEN | NOTHING_TO_DO | set(REFUSED)
    for key, value in merged.items():
        own = key == "template_script" and value in TEMPLATES
        unasked = key == "wrap_all" and not _yes(value)
        if key in REFUSED and not own and not unasked:
            raise UsageError(f"tykky's key {key} is not supported", hint=REFUSED[key])
        if key not in known:
            raise UsageError(
                f"tykky has no key {key!r}", hint=did_you_mean(key, known, "check the key in tykky's documentation")
            )


def _is_hidden(point: str) -> bool:
    """Return whether a container hides a folder of the host without a bind mount."""
    if not point.startswith("/"):
        raise UsageError(f"mount_points: {point!r} does not begin with /", hint="write an absolute path")
    return point.split("/")[1] in SYSTEM


def _files(key: str, merged: Mapping[str, object]) -> tuple[str, ...]:
    """Return the scripts of a key; lines of shell code are not supported."""
    for row in _list(merged.get(key)):
        if not isinstance(row, Mapping) or "file" not in row:
            hint = f"put the lines into a script: {key}: [{{file: SCRIPT}}]"
            raise UsageError(f"{key}: shell code in the configuration is not supported", evidence=str(row), hint=hint)
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
                "extra_envs: only variables with a fixed value are supported",
                evidence=str(row),
                hint="write type: set, name: NAME, value: VALUE",
            )
        found[str(given["name"])] = str(given.get("value", ""))
    return tuple(found.items())


def _yes(value: object) -> bool:
    return str(value).lower() in {"yes", "true", "1"}


def _list(value: object) -> list[object]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
