"""The Container Engine of CSCS: srun starts containers that an Environment Definition File (EDF) describes.

The job script writes the file and passes it with ``srun --environment=FILE``. CSCS advises against
``#SBATCH --environment`` (https://github.com/eth-cscs/cscs-docs, docs/software/container-engine/run.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join_words
from argosy.core.suggest import did_you_mean
from argosy.core.toml_lines import load_toml
from argosy.runtimes.enroot import LAYER_HINT, image_argument, mount_of_srun, mount_path_refusal
from argosy.runtimes.runtime import StepRuntime, Traits, forced_variables, with_image_environment

KEYS: Mapping[str, type | tuple[type, ...]] = {
    "base_environment": (str, list),
    "image": str,
    "mounts": list,
    "workdir": str,
    "entrypoint": bool,
    "writable": bool,
    "env": dict,
    "annotations": dict,
    "devices": list,
}

ASTRAL = 0x10000
"""First code point that needs eight digits in a TOML escape."""

SAFE = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Edf(msgspec.Struct, frozen=True):
    """Contents of an EDF."""

    image: Word = ""
    """A squashfs file, or a reference as enroot writes it: ``nvcr.io#nvidia/pytorch:24.03-py3``."""
    base: tuple[str, ...] = ()
    mounts: tuple[Word, ...] = ()
    """``SOURCE:TARGET[:FLAGS]`` each."""
    workdir: Word = ""
    entrypoint: bool = True
    writable: bool = True
    env: tuple[tuple[str, Word], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def parse_edf(text: str, file: str) -> Edf:
    """Parse an EDF; `file` is its path for error messages.

    Raises
    ------
    UsageError
        If it is not valid TOML, or has an unknown key or a value of the wrong type.
    """
    table = load_toml(text, file)
    for key, value in table.items():
        if key not in KEYS:
            known = f"known keys: {', '.join(KEYS)}"
            raise UsageError(
                f"{file}: unknown key {key!r}",
                evidence=known,
                hint=did_you_mean(key, KEYS, "remove the key, or move it to [env] or [annotations]"),
            )
        if not isinstance(value, KEYS[key]):
            raise UsageError(
                f"{file}: {key} has the wrong type", evidence=f"{key} = {value!r}", hint="see the EDF reference"
            )
    base = table.get("base_environment", ())
    return Edf(
        image=table.get("image", ""),
        base=(base,) if isinstance(base, str) else tuple(map(str, base)),
        mounts=tuple(map(str, table.get("mounts", ()))),
        workdir=table.get("workdir", ""),
        entrypoint=table.get("entrypoint", True),
        writable=table.get("writable", True),
        env=tuple((name, str(value)) for name, value in table.get("env", {}).items()),
        annotations=tuple(_flat(table.get("annotations", {}))),
    )


def render_edf(edf: Edf) -> tuple[Word, ...]:
    """Render the lines of an EDF; a line is a `ShellExpr` if only the job knows its value."""
    lines: list[Word] = []
    if edf.base:
        lines.append(f"base_environment = [{', '.join(map(_text, edf.base))}]")
    lines += [_line("image", edf.image)] if edf.image else []
    if edf.mounts:
        lines.append(_mounts(edf.mounts))
    lines += [_line("workdir", edf.workdir)] if edf.workdir else []
    lines.append(f"entrypoint = {'true' if edf.entrypoint else 'false'}")
    lines.append(f"writable = {'true' if edf.writable else 'false'}")
    if edf.env:
        lines += ["[env]", *(_line(name, value) for name, value in edf.env)]
    if edf.annotations:
        lines += ["[annotations]", *(f"{name} = {_text(value)}" for name, value in edf.annotations)]
    return tuple(lines)


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested tables as dotted names; annotations may be written in both forms."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        whole = f"{prefix}{name}"
        found += _flat(value, f"{whole}.") if isinstance(value, dict) else [(whole, str(value))]
    return found


def _line(name: str, value: Word) -> Word:
    return join_words((f"{name} = ", _value(value)), "")


def _mounts(mounts: tuple[Word, ...]) -> Word:
    return join_words(("mounts = [", join_words(map(_value, mounts), ", ", escape=in_double_quotes), "]"), "")


def _value(value: Word) -> Word:
    return ShellExpr(f'\\"{value.expression}\\"') if isinstance(value, ShellExpr) else _text(value)


def _text(value: Word) -> str:
    """Render a TOML string; ``${`` is doubled, so that the engine does not expand it."""
    plain = str(value).replace("${", "$${")
    return '"' + "".join(SAFE.get(c, c if c.isprintable() else _escape(c)) for c in plain) + '"'


def _escape(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < ASTRAL else f"\\U{ord(sign):08x}"


class ContainerEngine(StepRuntime, frozen=True):
    """The adapter of the Container Engine."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - only compute nodes have the engine
        """Return the reason why the engine cannot start the entry; empty if it can."""
        if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
            return f"the Container Engine adds GPUs with its own hooks and does not support --gpu {entry.gpu}"
        return mount_path_refusal(entry)

    def exports(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Return nothing: the variables are in the file."""
        return ()

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command that srun starts in the container."""
        return with_image_environment(entry, command, hint=LAYER_HINT)

    def variables(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Return nothing: the variables are in the file."""
        return ()

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Return the srun options."""
        return (ShellExpr("--environment=$argosy_edf"), *entry.options)

    def document(self, entry: Entry) -> tuple[Word, ...]:
        """Return the lines of the EDF."""
        mounts: list[Word] = [mount_of_srun(bind) for bind in entry.binds]
        if not entry.contain and not entry.person.home:
            mounts.append(ShellExpr("$HOME:$HOME"))
        if not entry.contain and not entry.workdir:
            mounts.append(ShellExpr("$PWD:$PWD"))
        given = entry.image.kind is ImageKind.EDF
        edf = Edf(
            image="" if given else image_argument(entry.image),
            base=(entry.image.path,) if given else (),
            mounts=tuple(mounts),
            workdir=entry.workdir or ("/" if entry.contain else ShellExpr("$PWD")),
            entrypoint=False,
            writable=False,
            env=tuple((variable.name, variable.value) for variable in forced_variables(entry)),
            annotations=entry.annotations,
        )
        return render_edf(edf)


EDF = ContainerEngine(
    name="edf",
    program="srun",
    package="CSCS's Container Engine, a Slurm plug-in (the site's administrators install it)",
    proof="rendered",
    traits=Traits(
        images=frozenset({ImageKind.SQUASHFS, ImageKind.REGISTRY, ImageKind.EDF}),
        caller="all, except those that refer to host software; the image's own values win",
        host_mpi=True,
        pmi2=True,
    ),
)
