"""Say for which machine conda packages are chosen: conda's virtual packages; never those of the login node."""

from __future__ import annotations

import re

import msgspec

from argosy.errors import UsageError

SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le", "riscv64": "linux-riscv64"}

OLDEST_KERNEL = "4.18"
"""Of RHEL 8, the oldest system on which clusters run: what needs a newer kernel would fail there."""

VirtualPackage = tuple[str, str, str]


class CondaTarget(msgspec.Struct, frozen=True):
    """The machine that the environment is for.

    Attributes
    ----------
    arch
        As ``uname -m`` says it.
    glibc
        Version of the base's C library; empty where it has another one.
    cuda
        Version of CUDA that the driver of the nodes supports; empty: no NVIDIA GPU is assumed.
    archspec
        Instruction set of the site's nodes, as its profile says; empty: the architecture's common one.
    """

    arch: str
    glibc: str
    cuda: str = ""
    archspec: str = ""

    @property
    def subdir(self) -> str:
        """Give conda's word for the architecture.

        Raises
        ------
        UsageError
            Where conda has no packages for it.
        """
        if self.arch not in SUBDIRS:
            raise UsageError(f"conda has no packages for {self.arch}", hint="use pip packages over the base's Python")
        return SUBDIRS[self.arch]


def plan_virtual_packages(target: CondaTarget) -> tuple[VirtualPackage, ...]:
    """Give the virtual packages: name, version, build.

    The instruction set is the architecture's common one where no site says more: packages for newer processors are not
    chosen because the login node has one.
    """
    rows = [("__unix", "0", "0"), ("__linux", OLDEST_KERNEL, "0"), ("__archspec", "1", target.archspec or target.arch)]
    rows += [("__glibc", target.glibc, "0")] if target.glibc else []
    rows += [("__cuda", target.cuda, "0")] if target.cuda else []
    return tuple(rows)


def parse_glibc(text: str) -> str:
    """Read the version out of ``getconf GNU_LIBC_VERSION`` or the first line of ``ldd --version``; empty: no glibc."""
    lines = text.strip().splitlines()
    if not lines or "musl" in text or not re.search(r"(?i)glibc|gnu libc|ldd", lines[0]):
        return ""
    found = re.findall(r"(?<![\w.])2\.\d+(?:\.\d+)?", lines[0])
    return found[-1] if found else ""


def parse_cuda(text: str) -> str:
    """Check a version of CUDA.

    Raises
    ------
    UsageError
        When it is none.
    """
    if text and not re.fullmatch(r"\d{1,2}(\.\d{1,2})?", text):
        raise UsageError(f"'{text}' is no version of CUDA", hint="write --cuda 12.8")
    return text
