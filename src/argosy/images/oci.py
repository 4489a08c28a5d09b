"""What an OCI image says of itself, and the scripts that say the same to Apptainer; it never unpacks anything.

The folder ``/.singularity.d`` is how Apptainer and SingularityCE keep an image's environment and main program, and what
bubblewrap's containers here read too.  Variables forced by ``--env`` are set after ``99-base.sh``, by its very name
(``action_scripts`` of both), so an image whose folder lacks that file loses them.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import ImageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.shell import NAME, join, quote
from argosy.images.tree_digests import walk_tree

ENV_SCRIPT = ".singularity.d/env/10-docker2singularity.sh"
LAST_SCRIPT = ".singularity.d/env/99-base.sh"
RUNSCRIPT = ".singularity.d/runscript"
LABELS = ".singularity.d/labels.json"

LATEST_TIME = (1 << 32) - 1
"""A squashfs keeps times as 32 bits without a sign."""

LAST_TEXT = """\
#!/bin/sh
# The driver's libraries, which --nv and --rocm bind there; runtimes set forced variables after this file.
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
export LD_LIBRARY_PATH
"""


class OciConfig(msgspec.Struct, frozen=True):
    """An image's configuration.

    Attributes
    ----------
    digest
        ``sha256:…`` of the configuration's bytes: it names the content of every layer too, and is what Docker calls the
        image's id; the same from a registry, an archive or Docker's store.
    arch
        Go's name of the architecture.
    created
        Seconds since 1970; 0 where it is not told.
    layers
        How many layers the image is made of; None where it is not told.
    """

    digest: str
    arch: str
    created: int = 0
    layers: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


def parse_config(text: str, name: str) -> OciConfig:
    """Read a configuration (OCI image specification, config.md; Docker's is alike).

    Raises
    ------
    ImageError
        When it is none, as for an artifact that is no container image.
    """
    try:
        whole = json.loads(text)
        inner = whole.get("config") or {}
        return OciConfig(
            digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
            arch=_text(whole["architecture"]),
            created=_parse_time(whole.get("created")),
            layers=len(whole["rootfs"]["diff_ids"]) if "rootfs" in whole else None,
            variables=tuple(_split(word) for word in _texts(inner.get("Env"))),
            entrypoint=_texts(inner.get("Entrypoint")),
            command=_texts(inner.get("Cmd")),
            labels=tuple(sorted((_text(key), _text(value)) for key, value in (inner.get("Labels") or {}).items())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(
            f"{name} is no container image",
            evidence=f"its configuration cannot be read: {error!r}",
            hint="give the reference of an image that Docker can run",
        ) from error


def check_layers(config: OciConfig, manifest: str, name: str) -> None:
    """Refuse an image whose manifest has not the layers that its configuration stands for: part of it would be missing.

    Raises
    ------
    ImageError
        With both numbers.
    """
    there = len(json.loads(manifest).get("layers") or ())
    if config.layers not in {None, there}:
        raise ImageError(
            f"{name} is not whole",
            evidence=f"its manifest names {there} layers, and its configuration {config.layers}",
            hint="push the image anew",
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r:.80}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value or ()))


def _split(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _parse_time(value: object) -> int:
    """Read RFC 3339 with up to nanoseconds; 0 for anything else, and for times that no squashfs can hold."""
    try:
        seconds, _, _ = str(value).partition(".")
        zone = "" if seconds.endswith("Z") or "+" in seconds else "+00:00"
        time = int(datetime.fromisoformat(seconds + zone).timestamp())
    except (ValueError, OverflowError):
        return 0
    return time if 0 <= time <= LATEST_TIME else 0


def render_env_script(variables: Iterable[tuple[str, str]]) -> str:
    """Render the image's ENV as Apptainer does: PATH always, any other variable only where it is not set.

    A name that no shell takes is left out: nothing could export it.
    """
    lines = ["#!/bin/sh"]
    for name, value in variables:
        if name == "PATH":
            lines.append(f"export PATH={quote(value)}")
        elif NAME.match(name):
            lines.append(f'[ -n "${{{name}:-}}" ] || export {name}={quote(value)}')
    return "\n".join(lines) + "\n"


def render_runscript(config: OciConfig) -> str:
    """Render the main program: ENTRYPOINT with the arguments given, or CMD where none are."""
    default = config.command or (() if config.entrypoint else ("/bin/sh",))
    lines = ["#!/bin/sh", "# ENTRYPOINT and CMD of the image."]
    if default:
        lines.append(f"[ $# -gt 0 ] || set -- {join(default)}")
    start = f"{join(config.entrypoint)} " if config.entrypoint else ""
    lines.append(f'exec {start}"$@"')
    return "\n".join(lines) + "\n"


def render_labels(config: OciConfig) -> str:
    """Render ``labels.json``."""
    return json.dumps(dict(config.labels), indent=1, sort_keys=True) + "\n"


def _render_scripts(config: OciConfig) -> Mapping[str, str]:
    """Give the files that say an image's configuration to the runtimes: text by path."""
    return {
        ENV_SCRIPT: render_env_script(config.variables),
        RUNSCRIPT: render_runscript(config),
        LABELS: render_labels(config),
        LAST_SCRIPT: LAST_TEXT,
    }


def render_inspection(config: OciConfig) -> str:
    """Render ``inspect-metadata.json``: what ``apptainer inspect`` shows of a SIF file without starting it."""
    attributes = {
        "labels": dict(config.labels),
        "environment": {f"/{ENV_SCRIPT}": render_env_script(config.variables)},
        "runscript": render_runscript(config),
    }
    return json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True)


MOUNT_FOLDERS = ("dev", "etc", "home", "proc", "root", "sys", "tmp", "var", "var/tmp")
MOUNT_FILES = ("etc/hosts", "etc/resolv.conf")
"""What Apptainer mounts over: in a read-only image without overlay a mount point that is missing cannot be made."""

MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}


def prepare_rootfs(tree: Path, config: OciConfig) -> None:
    """Add the scripts for the image's environment and main program, and the mount points that are missing."""
    with translate_os_errors(tree):
        tree.chmod(stat.S_IMODE(tree.stat().st_mode) | 0o755)
        for name, text in _render_scripts(config).items():
            if name == LAST_SCRIPT and os.path.lexists(tree / name):
                continue  # an image that was made by Apptainer has its own
            _write_script(tree, name, text)
        for name in MOUNT_FOLDERS:
            _add_folder(tree, name)
        for name in MOUNT_FILES:
            parent = tree / Path(name).parent
            if not parent.is_symlink() and parent.is_dir() and not os.path.lexists(tree / name):
                _write_new(tree / name, "", 0o644)


def _write_script(tree: Path, name: str, text: str) -> None:
    """Write a file below folders of our own: a link in their place is replaced."""
    path = tree / name
    for folder in reversed([tree / parent for parent in Path(name).parents if str(parent) != "."]):
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            folder.unlink()
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    path.unlink(missing_ok=True)
    _write_new(path, text, 0o755 if text.startswith("#!") else 0o644)


def _write_new(path: Path, text: str, mode: int) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    path.chmod(mode)


def _add_folder(tree: Path, name: str) -> None:
    path = tree / name
    if any((tree / parent).is_symlink() for parent in Path(name).parents) or os.path.lexists(path):
        return
    path.mkdir()
    path.chmod(MODES.get(name, 0o755))


def make_readable(tree: Path) -> None:
    """Let the packer read what only root may (``/etc/shadow``, ``sudo``): an ordinary user who unpacked owns it all."""
    _allow(str(tree))
    for path in walk_tree(str(tree)):
        _allow(path)


def _allow(path: str) -> None:
    mode = os.lstat(path).st_mode
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o400
    if not stat.S_ISLNK(mode) and mode & wanted != wanted:
        os.chmod(path, stat.S_IMODE(mode) | wanted)  # noqa: PTH101 - 100,000 of them: no Path for each
