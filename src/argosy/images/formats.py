"""The output formats of a build, and the commands that use each of them.

==================  ===================================================================================
``sif``             SIF file with one partition, or two for base and layer: the default format
``sqsh``            squashfs file of the whole tree: enroot, pyxis, Apptainer, SingularityCE
``layer``           squashfs file of the layer alone, to be mounted over its base
``oci``             OCI layout, a folder: skopeo, umoci, podman
``oci-archive``     OCI layout as a tar file: podman, buildah, skopeo
``docker-archive``  tar file for ``docker load``
==================  ===================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.layout import ENTER, ROOT, Activation
from argosy.core.model import APPTAINER_FAMILIES
from argosy.core.shell import join, quote, safe_path


class OutputFormat(StrEnum):
    """The values of ``--format``."""

    SIF = "sif"
    SQSH = "sqsh"
    LAYER = "layer"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"


FORMATS = tuple(form.value for form in OutputFormat)

OCI_FORMATS = frozenset({OutputFormat.OCI, OutputFormat.OCI_ARCHIVE, OutputFormat.DOCKER_ARCHIVE})
"""Formats that consist of layers and a configuration, for registries and Docker."""


SUFFIXES: Mapping[OutputFormat, tuple[str, ...]] = {
    OutputFormat.SIF: (".sif", ".simg", ".img"),
    OutputFormat.SQSH: (".sqsh", ".sqfs", ".squashfs"),
    OutputFormat.LAYER: (".sqsh", ".sqfs", ".squashfs"),
    OutputFormat.OCI_ARCHIVE: (".tar", ".oci"),
    OutputFormat.DOCKER_ARCHIVE: (".tar",),
}
"""The suffixes of files of each format. A name without a suffix is valid for each; an OCI layout is a folder."""

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*")
"""A suffix that names a kind of file. In the name torch-2.7 it is a part of the version."""


def refuse_suffix(output: Path, form: OutputFormat) -> None:
    """Refuse an output whose name says that it is another kind of file.

    Raises
    ------
    UsageError
        If the suffix is not one of the format.
    """
    known, suffix = SUFFIXES.get(form, ()), output.suffix.lower()
    if not known or not _SUFFIX.fullmatch(suffix) or suffix in {*known, f".{form}"}:
        return
    others = [f"--format {other}" for other, suffixes in SUFFIXES.items() if suffix in suffixes]
    plain = output
    while _SUFFIX.fullmatch(plain.suffix):
        plain = plain.with_suffix("")
    instead = f"; or add {' or '.join(others)}" if others else ""
    raise UsageError(
        f"{output.name} is not a name for a file of the format {form}",
        evidence=f"known suffixes: {', '.join(known)}, or none",
        hint=f"name it {plain.name}{known[0]}{instead}",
    )


def render_use(form: OutputFormat, output: Path, *, base: str, program: str, activation: Activation) -> tuple[str, ...]:
    """Render the commands that use an output; for a layer, also the variables that a bind mount does not set."""
    if form is OutputFormat.LAYER:
        return _render_layer_use(output, base, program, activation)
    shown = safe_path(str(output))
    lines = [f"run it: argosy run {shown} -- {program}"]
    if form is OutputFormat.SQSH:
        lines.append(f"or:     apptainer exec {shown} {program}")
        lines.append(f"or:     srun --container-image={quote(str(output.absolute()))} {program}")
    if form in {OutputFormat.OCI, OutputFormat.OCI_ARCHIVE}:
        lines.append(f"or:     podman pull {quote(f'{form}:{output}')}")
    if form is OutputFormat.DOCKER_ARCHIVE:
        lines.append(f"or:     docker load -i {shown}")
    return tuple(lines)


def shorten_use(line: str, output: str, shown: str) -> str:
    """Replace the absolute path of the output in a line of `render_use` by the path that the user typed.

    A line for pyxis keeps the absolute path, because pyxis takes a relative path for an image in a registry.
    """
    return line if "--container-image=" in line else line.replace(quote(output), quote(shown))


def _render_layer_use(output: Path, base: str, program: str, activation: Activation) -> tuple[str, ...]:
    """Render the commands that mount a layer over its base: with ``enter``, or with variables and any command.

    A bind mount adds only files below ``/opt/argosy``, and no runtime reads ``/.singularity.d`` of a layer. The layer's
    environment therefore comes from variables of the runtime, or from `enter`. Without ``--no-eval`` the runtime would
    run commands in backticks in a value.
    """
    bind = join(("-B", f"{output}:{ROOT}:image-src={ROOT}"))
    return (
        f"run it: apptainer exec {bind} {quote(base)} {ENTER} {program}",
        f"or set these variables, then: apptainer exec --no-eval {bind} {quote(base)} {program}",
        *render_layer_variables(activation),
    )


def render_layer_variables(activation: Activation) -> tuple[str, ...]:
    """Render the environment of a layer as variables of Apptainer and SingularityCE, one export per line.

    Both can only prepend to ``PATH``, with ``PREPEND_PATH``; any other list is set as a whole.
    """
    pairs = [("PREPEND_PATH" if name == "PATH" else name, first) for name, first in activation.prepend]
    pairs += [*activation.identity, *activation.default]
    return tuple(f"export {family}ENV_{name}={quote(value)}" for name, value in pairs for family in APPTAINER_FAMILIES)
