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
from collections.abc import Callable, Iterable

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
PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h and linux/seccomp.h."""

PATIENCE_SECONDS = 5.0
"""How long a proot has time to end all that it traces."""


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


FORGOTTEN_AFTER_SECONDS = 86400.0
"""Age of a proot's files after which a process number that means nothing here, as in a container, is of a dead one."""


def _remove_leftovers(number: int) -> None:
    """Remove the files of a proot that was killed: 5.1.0 keeps them in /tmp, also with PROOT_TMP_DIR.

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


def _sweep_leftovers() -> None:
    """Remove the files of this user's dead proots that nobody removed, since all were killed at once."""
    import contextlib  # noqa: PLC0415 - as in main
    import re  # noqa: PLC0415 - likewise
    import time  # noqa: PLC0415 - likewise

    for name in os.listdir("/tmp"):  # noqa: PTH208, S108 - pathlib loads more
        found = re.fullmatch(r"proot(?:ed)?-(\d+)-.{6}", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):  # noqa: PTH110 - likewise
            with contextlib.suppress(OSError):
                status = os.lstat(f"/tmp/{name}")  # noqa: S108 - that is where proot puts it
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > FORGOTTEN_AFTER_SECONDS:
                    _remove_leftovers(int(found[1]))


def main() -> None:
    """Run a program, and all that it starts, without the newer calls; with them where the kernel takes no filter.

    The program is proot, or starts with it.  When proot is gone, a program that it traced goes on with this machine's
    files in place of the tree's, so none may outlive it:

    - This process stays. It ends all of them when it gets a signal, or when its parent is gone.
      Handlers and signal mask are set before the fork: a signal waits until there is a child to be ended.
    - Proot kills all that it traces, in whatever process group, on SIGQUIT.  So it is ended by that, also by the kernel
      if we are killed (PR_SET_PDEATHSIG); SIGKILL would leave them running.
    - What is left when proot has ended, killed by somebody else or not, is our child by then, since we are a subreaper,
      and is killed.
    """
    import ctypes  # noqa: PLC0415 - here and below: planning needs none
    import signal  # noqa: PLC0415 - likewise

    call, starter = ctypes.CDLL(None).prctl, os.getppid()
    ending = {each for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if _is_heeded(each)} | {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    call(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    call(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != starter:
        sys.exit(128 + signal.SIGTERM)
    _sweep_leftovers()
    us = os.getpid()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        call(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        if os.getppid() != us:
            os._exit(128 + signal.SIGKILL)
        _run_filtered(call)

    def end_all(_number: int, _frame: object) -> None:
        _end_proot(child)
        _remove_leftovers(child)
        os._exit(128 + signal.SIGTERM)

    for each in ending:
        signal.signal(each, end_all)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    _kill_children(besides=child)
    code_of_child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code_of_child < 0:
        _remove_leftovers(child)
    sys.exit(code_of_child if code_of_child >= 0 else 128 - code_of_child)


def _is_heeded(number: int) -> bool:
    import signal  # noqa: PLC0415 - as in main

    return signal.getsignal(number) is not signal.SIG_IGN


def _run_filtered(call: Callable[..., int]) -> None:
    """Become the program that was asked for, under the filter."""
    import ctypes  # noqa: PLC0415 - as in main

    steps = plan_old_calls(os.uname().machine)
    code = ctypes.create_string_buffer(render_filter(steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))  # struct sock_fprog of linux/filter.h
    if steps and call(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        call(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


def _end_proot(child: int) -> None:
    """End proot with all that it traces; one that does not end, since it is stopped, is killed after these."""
    import contextlib  # noqa: PLC0415 - as in main
    import signal  # noqa: PLC0415 - likewise
    import time  # noqa: PLC0415 - likewise

    os.kill(child, signal.SIGCONT)
    os.kill(child, signal.SIGQUIT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) and time.monotonic() < deadline:
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGSTOP)  # it starts nothing more, also where it has no group yet
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    _kill_children(besides=child)
    os.waitpid(child, 0)


def _kill_children(besides: int) -> None:
    """Kill what is left of an ended program's processes: the kernel gave them to us."""
    import contextlib  # noqa: PLC0415 - as in main
    import signal  # noqa: PLC0415 - likewise

    while left := [number for number in _children() if number != besides]:
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for number in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(number, 0)


def _children() -> list[int]:
    """Give our children; none where the kernel does not list them (CONFIG_PROC_CHILDREN)."""
    import contextlib  # noqa: PLC0415 - as in main

    with contextlib.suppress(OSError), open("/proc/thread-self/children", encoding="ascii") as file:  # noqa: PTH123 - pathlib loads more
        return [int(number) for number in file.read().split()]
    return []


if __name__ == "__main__":
    main()
