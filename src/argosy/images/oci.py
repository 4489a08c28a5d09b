"""Read the configuration of an OCI image, and render it as the scripts that Apptainer reads.

Apptainer and SingularityCE keep an image's environment and main program in the folder ``/.singularity.d``. The
containers that Argosy starts with bubblewrap read it, too. Both runtimes set the variables of ``--env`` after the file
``99-base.sh``, which they find by its name (``action_scripts``): an image without that file loses the variables.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from argosy.core.errors import ImageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import decode_json, parse_json
from argosy.core.shell import NAME, join, quote
from argosy.images.squashfs.superblock import LATEST_TIME
from argosy.images.tree_digests import walk_tree

ENV_SCRIPT = ".singularity.d/env/10-docker2singularity.sh"
LAST_SCRIPT = ".singularity.d/env/99-base.sh"
RUNSCRIPT = ".singularity.d/runscript"
LABELS = ".singularity.d/labels.json"


LAST_TEXT = """\
#!/bin/sh
# Directory of the driver libraries that --nv and --rocm bind. Runtimes set the variables of --env after this file.
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
export LD_LIBRARY_PATH
"""


class OciConfig(msgspec.Struct, frozen=True):
    """The configuration of an OCI image."""

    digest: str
    """``sha256:…`` of the configuration, Docker's image id. It identifies the content of all layers, and is the
    same in a registry, an archive and Docker's store."""
    arch: str
    """Go's name of the architecture."""
    created: int = 0
    """Seconds since 1970, 0 if unknown."""
    layers: int | None = None
    """Number of layers, None if unknown."""
    variables: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


class OciPlatform(msgspec.Struct, frozen=True):
    """The platform of an image in an index."""

    os: str = ""
    architecture: str = ""


MOST_BYTES = 1 << 50
"""No layer has a petabyte: a larger size in a manifest is damage."""


class OciLayer(msgspec.Struct, frozen=True, rename="camel"):
    """A layer in a manifest; `size` in bytes."""

    media_type: str = ""
    digest: str = ""
    size: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)] = 0


class OciEntry(msgspec.Struct, frozen=True):
    """A manifest in an index."""

    digest: str
    platform: OciPlatform | None = None


class OciManifest(msgspec.Struct, frozen=True):
    """A manifest, which has layers, or an index, which has manifests (Docker's formats are compatible)."""

    layers: tuple[OciLayer, ...] | None = None
    manifests: tuple[OciEntry, ...] | None = None


def parse_oci_manifest(text: str, name: str) -> OciManifest:
    """Parse a manifest or an index (OCI image specification; Docker's schema 2 and manifest list).

    Raises
    ------
    ImageError
        If the text is neither.
    """
    try:
        return decode_json(text, OciManifest)
    except msgspec.DecodeError as error:
        raise ImageError(
            f"cannot read the manifest of {name}", evidence=str(error), hint="push the image again"
        ) from error


def parse_config(text: str, name: str) -> OciConfig:
    """Parse a configuration (OCI image specification, config.md; Docker's format is compatible).

    Raises
    ------
    ImageError
        If the text is not a configuration: the reference names an artifact other than a container image.
    """
    try:
        whole = parse_json(text)
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
            f"{name} is not a container image",
            evidence=f"its configuration cannot be read: {error!r}",
            hint="pass the reference of an image that Docker can run",
        ) from error


def refuse_other_layers(config: OciConfig, manifest: str, name: str) -> None:
    """Refuse an image whose manifest and configuration differ in the number of layers: some would be missing.

    Raises
    ------
    ImageError
        If the numbers differ.
    """
    listed = len(parse_oci_manifest(manifest, name).layers or ())
    if config.layers not in {None, listed}:
        raise ImageError(
            f"{name} is incomplete",
            evidence=f"its manifest lists {listed} layers, but its configuration lists {config.layers}",
            hint="push the image again",
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
    """Parse a time in RFC 3339; return 0 for other texts and for times outside the range of a squashfs."""
    try:
        seconds, _, _ = str(value).partition(".")
        zone = "" if seconds.endswith("Z") or "+" in seconds else "+00:00"
        time = int(datetime.fromisoformat(seconds + zone).timestamp())
    except (ValueError, OverflowError):
        return 0
    return time if 0 <= time <= LATEST_TIME else 0


def render_oci_env(variables: Iterable[tuple[str, str]]) -> str:
    """Render the image's ENV as Apptainer does: always set PATH, and set other variables only if they are empty.

    Names that are not valid in a shell are omitted, because no shell can export them.
    """
    lines = ["#!/bin/sh"]
    for name, value in variables:
        if name == "PATH":
            lines.append(f"export PATH={quote(value)}")
        elif NAME.match(name):
            lines.append(f'[ -n "${{{name}:-}}" ] || export {name}={quote(value)}')
    return "\n".join(lines) + "\n"


def render_runscript(config: OciConfig) -> str:
    """Render the main program: ENTRYPOINT with the given arguments, or with CMD if there are none."""
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
    """Return the files that pass an image's configuration to the runtimes: text by path."""
    return {
        ENV_SCRIPT: render_oci_env(config.variables),
        RUNSCRIPT: render_runscript(config),
        LABELS: render_labels(config),
        LAST_SCRIPT: LAST_TEXT,
    }


def render_inspection(config: OciConfig) -> str:
    """Render ``inspect-metadata.json``, which ``apptainer inspect`` prints for a SIF file without starting it."""
    attributes = {
        "labels": dict(config.labels),
        "environment": {f"/{ENV_SCRIPT}": render_oci_env(config.variables)},
        "runscript": render_runscript(config),
    }
    return json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True)


MOUNT_FOLDERS = ("dev", "etc", "home", "proc", "root", "sys", "tmp", "var", "var/tmp")
MOUNT_FILES = ("etc/hosts", "etc/resolv.conf")
"""Mount points of Apptainer. They must exist, because a read-only image without an overlay cannot get new ones."""

MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}


def prepare_rootfs(tree: Path, config: OciConfig) -> None:
    """Add the scripts for the image's environment and main program, and missing mount points."""
    with translate_os_errors(tree):
        tree.chmod(stat.S_IMODE(tree.stat().st_mode) | 0o755)
        for name, text in _render_scripts(config).items():
            if name == LAST_SCRIPT and os.path.lexists(tree / name):
                continue  # an image made by Apptainer has its own
            _write_script(tree, name, text, config.created)
        for name in MOUNT_FOLDERS:
            _add_folder(tree, name)
        for name in MOUNT_FILES:
            parent = tree / Path(name).parent
            if not parent.is_symlink() and parent.is_dir() and not os.path.lexists(tree / name):
                _write_new(tree / name, "", 0o644, config.created)


def _write_script(tree: Path, name: str, text: str, time: int) -> None:
    """Write a file below `/.singularity.d`, and replace symbolic links and files among its parent folders."""
    path = tree / name
    for folder in reversed([tree / parent for parent in Path(name).parents if str(parent) != "."]):
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            folder.unlink()
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    path.unlink(missing_ok=True)
    _write_new(path, text, 0o755 if text.startswith("#!") else 0o644, time)


def _write_new(path: Path, text: str, mode: int, time: int) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    path.chmod(mode)
    os.utime(path, (time, time))


def _add_folder(tree: Path, name: str) -> None:
    path = tree / name
    if any((tree / parent).is_symlink() for parent in Path(name).parents) or os.path.lexists(path):
        return
    path.mkdir()
    path.chmod(MODES.get(name, 0o755))


def settle_times(tree: Path, time: int) -> None:
    """Set the time of everything but files, which have the times of their layers; unpacking changes folders."""
    os.utime(tree, (time, time))
    for path in walk_tree(str(tree)):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 <= status.st_mtime <= LATEST_TIME:
            os.utime(path, (time, time), follow_symlinks=False)


def make_readable(tree: Path) -> None:
    """Make files readable for the packer that only root may read (``/etc/shadow``, ``sudo``).

    An ordinary user who unpacked an image owns all of its files.
    """
    _allow(str(tree))
    for path in walk_tree(str(tree)):
        _allow(path)


def _allow(path: str) -> None:
    mode = os.lstat(path).st_mode
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o400
    if not stat.S_ISLNK(mode) and mode & wanted != wanted:
        os.chmod(path, stat.S_IMODE(mode) | wanted)  # noqa: PTH101 - 100,000 of them: no Path for each
