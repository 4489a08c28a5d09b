"""Names of architectures, and emulators for programs of other ones, as registered by QEMU's packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed
from argosy.core.model import Host
from argosy.core.records import replace

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""Folder in which the kernel lists interpreters of binary formats (Linux, admin-guide/binfmt-misc.rst)."""

ELF64 = "7f454c4602"
MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64le", 0xF3: "riscv64"}
"""e_machine of the ELF header (elf(5)) -> architecture as in ``uname -m``; all are little-endian."""

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architecture as in ``uname -m`` -> its name in Go, Docker and image files, if that differs."""

KINDS = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "arm64v8": "aarch64", "ppc64el": "ppc64le"}
"""Names of architectures in Go, Docker and Debian -> architecture as in ``uname -m``."""

UNSEEN = "not mounted, so the registered emulators are unknown"
INSTALL = "install an emulator as root (Debian, Ubuntu, Fedora: qemu-user-static)"


class Emulator(msgspec.Struct, frozen=True):
    """An entry of binfmt_misc that runs the programs of an architecture."""

    arch: str
    program: str
    """The emulator's path."""
    fixed: bool
    """Whether the kernel opened it at registration (flag F), so that containers need not contain it."""


def parse_entry(text: str) -> Emulator | None:
    """Parse an entry of binfmt_misc; return None if it is disabled or not for the programs of an architecture."""
    first, *lines = text.splitlines() or [""]
    rows = {name.rstrip(":"): value for name, _, value in (line.partition(" ") for line in lines)}
    magic = rows.get("magic", "")
    if first != "enabled" or rows.get("offset") != "0" or not magic.startswith(ELF64) or len(magic) < 40:  # noqa: PLR2004 - 20 bytes
        return None
    machine = MACHINES.get(int.from_bytes(bytes.fromhex(magic[36:40]), "little"))
    return Emulator(machine, rows.get("interpreter", ""), "F" in rows.get("flags", "")) if machine else None


def find_emulators(folder: Path) -> Iterator[Emulator]:
    """Yield the registered emulators; none if the kernel's list is not readable."""
    try:
        entries = sorted(folder.iterdir())
        texts = [entry.read_text(encoding="utf-8") for entry in entries if entry.name not in {"register", "status"}]
    except OSError:
        return
    yield from filter(None, map(parse_entry, texts))


def go_arch(machine: str) -> str:
    """Return the name in Go of an architecture as in ``uname -m``; an unknown one is returned unchanged."""
    return GO_NAMES.get(machine, machine)


def machine_named(word: str) -> str:
    """Return the name of an architecture as in ``uname -m``, for example aarch64 for linux/arm64."""
    plain = word.lower().removeprefix("linux/").removesuffix("/v8")
    return KINDS.get(plain, plain)


def is_emulated(arch: str, folder: Path = BINFMT) -> bool:
    """Return whether an emulator runs the programs of an architecture, also in containers."""
    return any(each.arch == arch and each.fixed for each in find_emulators(folder))


def emulating(host: Host, arch: str, folder: Path = BINFMT) -> Host:
    """Return the host with the emulated architecture set; empty if the architecture is the host's own.

    Raises
    ------
    CheckFailed
        If no emulator runs programs of the architecture.
    """
    if arch == host.arch:
        return replace(host, emulated="")
    if is_emulated(arch, folder):
        return replace(host, emulated=arch)
    found = (each.program for each in find_emulators(folder) if each.arch == arch)
    seen = [f"{program} is registered without the flag F, so containers do not find it" for program in found]
    raise CheckFailed(
        f"cannot run programs for {arch} on this machine, which is {host.arch}",
        evidence="\n".join(seen)
        or f"{folder}: {'no emulator is registered' if (folder / 'status').exists() else UNSEEN}",
        hint=f"build on a machine with {arch}, or {INSTALL}",
    )
