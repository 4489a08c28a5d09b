"""What a build may leave behind: one row per format; it writes nothing.

==================  ===================================================================================
``sif``             one file of two partitions, base and layer: Argosy's own form
``sqsh``            one squashfs of the whole tree: enroot, pyxis, Apptainer, SingularityCE
``layer``           the layer alone, to be bound over a base that is there already
``oci``             an OCI layout, a folder: skopeo, umoci, podman
``oci-archive``     the same as one tar file: podman, buildah, skopeo
``docker-archive``  what ``docker load`` reads
==================  ===================================================================================
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from argosy.core.layout import ENTER, ROOT, Activation
from argosy.core.shell import join, quote, safe_path

FAMILIES = ("APPTAINER", "SINGULARITY")


class OutputFormat(StrEnum):
    """The words of ``--format``."""

    SIF = "sif"
    SQSH = "sqsh"
    LAYER = "layer"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"


FORMATS = tuple(form.value for form in OutputFormat)

OCI_FORMATS = frozenset({OutputFormat.OCI, OutputFormat.OCI_ARCHIVE, OutputFormat.DOCKER_ARCHIVE})
"""Formats of layers and a configuration, as registries and Docker have them."""


def render_use(form: OutputFormat, output: Path, *, base: str, program: str, activation: Activation) -> tuple[str, ...]:
    """Say how an output is used: command lines, and for a layer the variables that a bind does not bring."""
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
    """Return a line of `render_use` with the output's path as the user typed it.

    The whole path stays for pyxis, which takes a relative one for an image of a registry.
    """
    return line if "--container-image=" in line else line.replace(quote(output), quote(shown))


def _render_layer_use(output: Path, base: str, program: str, activation: Activation) -> tuple[str, ...]:
    """Say how a layer is bound over its base: by ``enter`` alone, or by variables and any command.

    A bind shows what lies below ``/opt/argosy``, and nothing sources ``/.singularity.d`` of a layer: so the layer's
    environment comes as variables of the runtime, or by `enter`, which sets it itself.  Without ``--no-eval`` the
    runtime would run what stands in backticks in a value.
    """
    bind = join(("-B", f"{output}:{ROOT}:image-src={ROOT}"))
    return (
        f"run it: apptainer exec {bind} {quote(base)} {ENTER} {program}",
        f"or set these variables, then: apptainer exec --no-eval {bind} {quote(base)} {program}",
        *render_layer_variables(activation),
    )


def render_layer_variables(activation: Activation) -> tuple[str, ...]:
    """Give the environment of a layer as variables of Apptainer and SingularityCE, one export a line.

    ``PREPEND_PATH`` is the one list that both can put something before; any other list is set as a whole.
    """
    pairs = [("PREPEND_PATH" if name == "PATH" else name, first) for name, first in activation.prepend]
    pairs += [*activation.identity, *activation.default]
    return tuple(f"export {family}ENV_{name}={quote(value)}" for name, value in pairs for family in FAMILIES)
