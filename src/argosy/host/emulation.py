"""Programs of another architecture: which of them the kernel hands to an emulator, as QEMU's packages register it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed
from argosy.core.model import Host
from argosy.core.records import replace

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""Where the kernel lists what it starts by an interpreter (Linux, admin-guide/binfmt-misc.rst)."""

ELF64 = "7f454c4602"
MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64le", 0xF3: "riscv64"}
"""e_machine of the ELF header (elf(5)) -> what ``uname -m`` says; all of them are little-endian."""

KINDS = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "arm64v8": "aarch64", "ppc64el": "ppc64le"}
"""What else an architecture is called, by Go and Docker, and by Debian -> what ``uname -m`` says."""

UNSEEN = "not mounted here, so nobody can tell what the kernel knows"
INSTALL = "let root install an emulator (Debian, Ubuntu, Fedora: qemu-user-static)"


class Emulator(msgspec.Struct, frozen=True):
    """An entry of binfmt_misc that runs the programs of an architecture.

    Attributes
    ----------
    program
        The emulator's path.
    fixed
        Whether it was opened when it was registered (flag F), so that it need not be there in a container.
    """

    arch: str
    program: str
    fixed: bool


def parse_entry(text: str) -> Emulator | None:
    """Read an entry of binfmt_misc; None where it is disabled, or not for programs of an architecture."""
    first, *lines = text.splitlines() or [""]
    rows = {name.rstrip(":"): value for name, _, value in (line.partition(" ") for line in lines)}
    magic = rows.get("magic", "")
    if first != "enabled" or rows.get("offset") != "0" or not magic.startswith(ELF64) or len(magic) < 40:  # noqa: PLR2004 - 20 bytes
        return None
    machine = MACHINES.get(int.from_bytes(bytes.fromhex(magic[36:40]), "little"))
    return Emulator(machine, rows.get("interpreter", ""), "F" in rows.get("flags", "")) if machine else None


def find_emulators(folder: Path) -> Iterator[Emulator]:
    """Read what is registered here; nothing where the kernel's list cannot be read."""
    try:
        entries = sorted(folder.iterdir())
        texts = [entry.read_text(encoding="utf-8") for entry in entries if entry.name not in {"register", "status"}]
    except OSError:
        return
    yield from filter(None, map(parse_entry, texts))


def machine_named(word: str) -> str:
    """Give an architecture as ``uname -m`` writes it: arm64 and linux/arm64 are aarch64; unknown words as they are."""
    plain = word.lower().removeprefix("linux/").removesuffix("/v8")
    return KINDS.get(plain, plain)


def is_emulated(arch: str, folder: Path = BINFMT) -> bool:
    """Tell whether an emulator here runs the programs of an architecture, in containers, too."""
    return any(each.arch == arch and each.fixed for each in find_emulators(folder))


def emulating(host: Host, arch: str, folder: Path = BINFMT) -> Host:
    """Note in the host that programs of another architecture run by an emulator; its own needs none.

    Raises
    ------
    CheckFailed
        Where nothing here runs them.
    """
    if arch == host.arch:
        return replace(host, emulated="")
    if is_emulated(arch, folder):
        return replace(host, emulated=arch)
    found = (each.program for each in find_emulators(folder) if each.arch == arch)
    seen = [f"{program} is registered without the flag F: it is not found in a container" for program in found]
    raise CheckFailed(
        f"programs for {arch} do not run on this machine, which is {host.arch}",
        evidence="\n".join(seen)
        or f"{folder}: {'nothing there runs them' if (folder / 'status').exists() else UNSEEN}",
        hint=f"build on a machine of that kind, or {INSTALL}",
    )
