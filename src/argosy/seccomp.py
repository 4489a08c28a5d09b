"""Seccomp filters for programs of a base: system calls that this machine's ways into a base would refuse or misread.

`plan_owners`, in a user namespace of one user: changes of owner are answered with success, and not made.  Installers of
packages (dpkg, rpm) and their scripts give files to other users, become others and make device nodes; a namespace that
maps one user refuses that, though an image's layer keeps no owners at all.  Charliecloud's ``--force=seccomp`` does the
same (charliecloud.io, "ch-image", read 2026-11).

`plan_old_calls`, under proot: calls that are newer than it is do not exist.  proot 5.1.0 (Debian 12) knows no statx, so
``ls`` and ``stat`` see this machine's files; where the kernel has no such call, the C library uses the one before it.

As a program, ``python seccomp.py PROGRAM ARGUMENT…``, it runs another one under the second filter.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable

LOAD, AND, JUMP_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
"""Operations of classic BPF: BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_JMP|JEQ|K, BPF_RET|K (linux/bpf_common.h)."""

ALLOW, SUCCEED, NOT_THERE = 0x7FFF0000, 0x00050000, 0x00050026
"""SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with error 0 and with ENOSYS (linux/seccomp.h)."""

NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data (linux/seccomp.h)."""

FILE_TYPE, DEVICES = 0xF000, (0x2000, 0x6000)
"""S_IFMT, S_IFCHR and S_IFBLK."""

Step = tuple[int, int, int, int]
"""Operation, how many steps to jump over where true, where false, operand."""

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> its number, AUDIT_ARCH (linux/audit.h)."""

OWNERS = {
    # chown fchown lchown fchownat setuid setgid setreuid setregid setgroups setresuid setresgid capset
    "x86_64": (92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 126),
    "aarch64": (55, 54, 146, 144, 145, 143, 159, 147, 149, 91),
}
"""Calls that change an owner (asm/unistd.h of Linux; there is no chown and lchown on ARM)."""

NODES = {"x86_64": {133: 1, 259: 2}, "aarch64": {33: 2}}
"""mknod and mknodat, and which of their arguments is the mode."""

NEWER = {"x86_64": (332, 439, 437, 316, 452, 322), "aarch64": (291, 439, 437, 276, 452, 281)}
"""statx, faccessat2, openat2, renameat2, fchmodat2, execveat: calls with paths that are newer than proot 5.1.0."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2
"""linux/prctl.h and linux/seccomp.h."""


def plan_owners(machine: str) -> tuple[Step, ...]:
    """Give the filter for a namespace of one user, on a machine as ``uname -m`` calls it; none for an unknown one."""
    if machine not in MACHINES:
        return ()
    plain = (step for call in OWNERS[machine] for step in _answer(call, SUCCEED))
    devices = (step for call, mode in NODES[machine].items() for step in _succeed_for_devices(call, mode))
    return _filter(machine, (*plain, *devices))


def plan_old_calls(machine: str) -> tuple[Step, ...]:
    """Give the filter for programs under proot; none for a machine that is not known."""
    if machine not in MACHINES:
        return ()
    return _filter(machine, tuple(step for call in NEWER[machine] for step in _answer(call, NOT_THERE)))


def _filter(machine: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return (
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, MACHINES[machine]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, NUMBER),
        *steps,
        (RETURN, 0, 0, ALLOW),
    )


def _answer(call: int, answer: int) -> tuple[Step, ...]:
    return ((JUMP_EQUAL, 0, 1, call), (RETURN, 0, 0, answer))


def _succeed_for_devices(call: int, argument: int) -> tuple[Step, ...]:
    return (
        (JUMP_EQUAL, 0, 6, call),
        (LOAD, 0, 0, ARGUMENTS + 8 * argument),
        (AND, 0, 0, FILE_TYPE),
        (JUMP_EQUAL, 1, 0, DEVICES[0]),
        (JUMP_EQUAL, 0, 1, DEVICES[1]),
        (RETURN, 0, 0, SUCCEED),
        (RETURN, 0, 0, ALLOW),
    )


def render_filter(steps: Iterable[Step]) -> bytes:
    """Write a filter as ``bwrap --seccomp`` reads it: an array of struct sock_filter of this machine's byte order."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def remove_leftovers(number: int) -> None:
    """Remove what a proot that was killed left: 5.1.0 takes /tmp for its files, whatever is asked, and names itself.

    They are its loader (``prooted-``) and files that it made up for /proc (``proot-``); both names end in its number
    and six signs of mkstemp(3).
    """
    import contextlib  # noqa: PLC0415 - as in main
    import glob  # noqa: PLC0415 - likewise
    import shutil  # noqa: PLC0415 - likewise

    for path in glob.glob(f"/tmp/proot*-{number}-??????"):  # noqa: PTH207, S108 - pathlib loads more
        with contextlib.suppress(OSError):  # another user may have made a file of such a name
            if os.lstat(path).st_uid != os.geteuid():
                continue
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - likewise
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)  # noqa: PTH108 - likewise


def main() -> None:
    """Run a program, and all that it starts, without the newer calls; with them where the kernel takes no filter.

    We stay, to end all of them when whoever started us is gone.  They are a process group of their own and are killed
    at once: a program that outlives its proot goes on with this machine's files in place of the tree's, or, where it
    was about to be traced, is stopped for ever.
    """
    import contextlib  # noqa: PLC0415 - here and below: planning needs none
    import ctypes  # noqa: PLC0415 - likewise
    import signal  # noqa: PLC0415

    call = ctypes.CDLL(None).prctl
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        call(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        steps = plan_old_calls(os.uname().machine)
        code = ctypes.create_string_buffer(render_filter(steps))
        program = struct.pack("@HP", len(steps), ctypes.addressof(code))  # struct sock_fprog of linux/filter.h
        if steps and call(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            call(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0)
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted

    def end_all(_number: int, _frame: object) -> None:
        os.kill(child, signal.SIGSTOP)  # it starts nothing more, also where it has no group yet
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        remove_leftovers(child)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end_all)
    call(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    code_of_child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(code_of_child if code_of_child >= 0 else 128 - code_of_child)


if __name__ == "__main__":
    main()
