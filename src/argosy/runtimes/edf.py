"""The Container Engine of CSCS: srun starts containers that an Environment Definition File (EDF) describes; words only.

The script writes the file and names it by ``srun --environment=FILE``; ``#SBATCH --environment`` is advised against
(https://github.com/eth-cscs/cscs-docs, docs/software/container-engine/run.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.core.suggest import suggest_word
from argosy.runtimes.pyxis import LAYER_HINT, ODD, enroot_reference
from argosy.runtimes.runtime import Traits, forced_variables, with_image_environment

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
"""From here on a code point needs eight digits."""

SAFE = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Edf(msgspec.Struct, frozen=True):
    """What such a file says.

    Attributes
    ----------
    image
        A squashfs file, or a reference as enroot writes it: ``nvcr.io#nvidia/pytorch:24.03-py3``.
    mounts
        ``SOURCE:TARGET[:FLAGS]`` each.
    """

    image: Word = ""
    base: tuple[str, ...] = ()
    mounts: tuple[Word, ...] = ()
    workdir: Word = ""
    entrypoint: bool = True
    writable: bool = True
    env: tuple[tuple[str, Word], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def parse_edf(text: str, place: str) -> Edf:
    """Read an EDF.

    Raises
    ------
    UsageError
        When it is no TOML, has a key that the engine does not know, or a value of another type: with file and key.
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place} is no TOML", evidence=str(error), hint="see the line that it names") from error
    for key, value in table.items():
        if key not in KEYS:
            near = suggest_word(key, KEYS)
            known = f"the engine knows {', '.join(KEYS)}"
            raise UsageError(
                f"{place}: unknown key {key!r}", evidence=known, hint=f"did you mean {near}?" if near else ""
            )
        if not isinstance(value, KEYS[key]):
            raise UsageError(
                f"{place}: {key} is of the wrong type", evidence=f"{key} = {value!r}", hint="see the EDF reference"
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
    """Render an EDF, one word per line; late where only the job knows a value."""
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
    """Join dotted and nested names: both ways to write annotations are one."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        whole = f"{prefix}{name}"
        found += _flat(value, f"{whole}.") if isinstance(value, dict) else [(whole, str(value))]
    return found


def _line(name: str, value: Word) -> Word:
    text = _value(value)
    return ShellExpr(f"{name} = {text.expression}") if isinstance(text, ShellExpr) else f"{name} = {text}"


def _mounts(mounts: tuple[Word, ...]) -> Word:
    texts = [_value(mount) for mount in mounts]
    if not any(isinstance(text, ShellExpr) for text in texts):
        return f"mounts = [{', '.join(map(str, texts))}]"
    parts = [text.expression if isinstance(text, ShellExpr) else in_double_quotes(text) for text in texts]
    return ShellExpr(f"mounts = [{', '.join(parts)}]")


def _value(value: Word) -> Word:
    return ShellExpr(f'\\"{value.expression}\\"') if isinstance(value, ShellExpr) else _text(value)


def _text(value: Word) -> str:
    """Write a TOML string: what the engine would expand is doubled, and control characters are escaped."""
    plain = str(value).replace("${", "$${")
    return '"' + "".join(SAFE.get(c, c if c.isprintable() else _escape(c)) for c in plain) + '"'


def _escape(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < ASTRAL else f"\\U{ord(sign):08x}"


TRAITS = Traits(
    images=frozenset({ImageKind.SQUASHFS, ImageKind.REGISTRY, ImageKind.EDF}),
    caller="all of it, except what names software of the host; an image's own value wins",
    by_srun=True,
)


class ContainerEngine(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "edf"
    program: str = "srun"
    package: str = "CSCS's Container Engine, a plug-in of Slurm (the site's administrators do that)"
    proof: str = "rendered"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - it is not this machine that has the engine
        """Say why the engine cannot do what is asked; empty where it can."""
        if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
            return f"the Container Engine carries GPUs in by its own hooks, and has no way '{entry.gpu}'"
        odd = next((bind for bind in entry.binds if ODD.search(bind.source + bind.target)), None)
        if odd:
            return f"a mount of {odd.source!r} cannot be said: blanks, commas and colons end its words"
        return ""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Give nothing: the variables stand in the file."""
        return ()

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give what srun starts in the container."""
        return with_image_environment(entry, command, hint=LAYER_HINT)

    def variables(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - see document
        """Give nothing: the variables stand in the file."""
        return ()

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Give the options of srun."""
        return (ShellExpr("--environment=$environment"), *entry.options)

    def document(self, entry: Entry) -> tuple[Word, ...]:
        """Give the lines of the EDF."""
        registry = entry.image.kind is ImageKind.REGISTRY
        mounts: list[Word] = [f"{b.source}:{b.target}" + (":ro" if b.read_only else "") for b in entry.binds]
        if not entry.contain and not entry.person.home:
            mounts.append(ShellExpr("$HOME:$HOME"))
        if not entry.contain and not entry.workdir:
            mounts.append(ShellExpr("$PWD:$PWD"))
        given = entry.image.kind is ImageKind.EDF
        image = enroot_reference(entry.image.path) if registry else entry.image.path
        edf = Edf(
            image="" if given else image,
            base=(entry.image.path,) if given else (),
            mounts=tuple(mounts),
            workdir=entry.workdir or ("/" if entry.contain else ShellExpr("$PWD")),
            entrypoint=False,
            writable=False,
            env=tuple((variable.name, variable.value) for variable in forced_variables(entry)),
            annotations=entry.annotations,
        )
        return render_edf(edf)


EDF = ContainerEngine()
