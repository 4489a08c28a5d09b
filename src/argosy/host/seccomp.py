"""Plan seccomp filters for programs in a container, and start a program under one.

`plan_owners` is for a user namespace with one user.  It reports success for changes of the owner without making them.
Package installers (dpkg, rpm) and their scripts change owners, switch users and create device nodes, which such a
namespace refuses; the layer of an image does not keep owners anyway.  Charliecloud's ``--force=seccomp`` does the same
(charliecloud.io, "ch-image", read 2026-11).

`plan_old_calls` is for proot.  It hides system calls that are newer than proot.  proot 5.1.0 (Debian 12) does not know
statx, so that ``ls`` and ``stat`` would read this machine's files; without statx, the C library uses an older call.

Run as a program, ``python seccomp.py owners PROGRAM ARGUMENT…`` becomes a program under the first filter, and
``python seccomp.py proot PROGRAM ARGUMENT…`` runs proot under the second one.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
import shutil
import signal
import struct
import sys
import time
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
"""Operation, steps to skip if the comparison is true, steps to skip if it is false, operand."""

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> AUDIT_ARCH number (linux/audit.h)."""

OWNERS = {
    # chown fchown lchown fchownat setuid setgid setreuid setregid setgroups setresuid setresgid capset
    "x86_64": (92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 126),
    "aarch64": (55, 54, 146, 144, 145, 143, 159, 147, 149, 91),
}
"""System calls that change an owner (asm/unistd.h; ARM does not have chown and lchown)."""

NODES = {"x86_64": {133: 1, 259: 2}, "aarch64": {33: 2}}
"""mknod and mknodat, with the number of the argument that is the mode."""

NEWER = {"x86_64": (332, 439, 437, 316, 452, 322), "aarch64": (291, 439, 437, 276, 452, 281)}
"""statx, faccessat2, openat2, renameat2, fchmodat2, execveat: calls that take paths and are newer than proot 5.1.0."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2
PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h and linux/seccomp.h."""

OWNERS_FILTER, PROOT_FILTER = "owners", "proot"
"""First argument of this file as a program."""

PATIENCE_SECONDS = 5.0
"""Time that proot has to end all processes that it traces."""


def plan_owners(machine: str) -> tuple[Step, ...]:
    """Return the filter for a namespace with one user, or an empty one for an unknown machine (``uname -m``)."""
    if machine not in MACHINES:
        return ()
    plain = (step for call in OWNERS[machine] for step in _answer(call, SUCCEED))
    devices = (step for call, mode in NODES[machine].items() for step in _succeed_for_devices(call, mode))
    return _filter(machine, (*plain, *devices))


def plan_old_calls(machine: str) -> tuple[Step, ...]:
    """Return the filter for programs under proot, or an empty one for an unknown machine (``uname -m``)."""
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
    """Render a filter for ``bwrap --seccomp``: an array of struct sock_filter in this machine's byte order."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


FORGOTTEN_AFTER_SECONDS = 86400.0
"""Age after which files of proot are removed if their process id does not exist here.  The process of younger files may
run in another container."""


def _remove_leftovers(number: int) -> None:
    """Remove the files of a killed proot, which proot 5.1.0 keeps in /tmp even if PROOT_TMP_DIR is set.

    They are its loader (``prooted-``) and its replacements for files of /proc (``proot-``).  Both names end with its
    process id and six characters of mkstemp(3).
    """
    for path in glob.glob(f"/tmp/proot*-{number}-??????"):  # noqa: PTH207, S108 - pathlib loads more
        with contextlib.suppress(OSError):  # another user may have created a file with such a name
            if os.lstat(path).st_uid != os.geteuid():
                continue
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - likewise
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)  # noqa: PTH108 - likewise


def _sweep_leftovers() -> None:
    """Remove the files of this user's proots that were killed together with the process that removes them."""
    for name in os.listdir("/tmp"):  # noqa: PTH208, S108 - pathlib loads more
        found = re.fullmatch(r"proot(?:ed)?-(\d+)-.{6}", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):  # noqa: PTH110 - likewise
            with contextlib.suppress(OSError):
                status = os.lstat(f"/tmp/{name}")  # noqa: S108 - proot creates it there
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > FORGOTTEN_AFTER_SECONDS:
                    _remove_leftovers(int(found[1]))


def main() -> None:
    """Start the program of the command line under the filter that its first argument names."""
    if sys.argv[1] == OWNERS_FILTER:
        _exec_filtered(plan_owners(os.uname().machine), ctypes.CDLL(None).prctl)
    _run_proot()


def _run_proot() -> None:
    """Run proot, and everything that it starts, without the newer system calls.

    A traced program that outlives proot continues with this machine's files instead of those of the tree.  Therefore:

    - This process stays, and ends all programs when it gets a signal or its parent ends.  Handlers and signal mask are
      set before the fork, so that a signal waits until there is a child to end.
    - On SIGQUIT, proot kills every process that it traces, in any process group; after SIGKILL they would continue.
      This process therefore sends SIGQUIT, as does the kernel if this process is killed (PR_SET_PDEATHSIG).
    - Processes that remain when proot has ended become children of this process, which is a subreaper, and are killed.
    """
    call, starter = ctypes.CDLL(None).prctl, os.getppid()
    ending = {each for each in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN}
    ending |= {signal.SIGTERM}
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
        _exec_filtered(plan_old_calls(os.uname().machine), call)

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


def _exec_filtered(steps: tuple[Step, ...], call: Callable[..., int]) -> None:
    """Replace this process by the requested program, under a filter; without it if the kernel does not accept one."""
    code = ctypes.create_string_buffer(render_filter(steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))  # struct sock_fprog of linux/filter.h
    if steps and call(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        call(PR_SET_SECCOMP, FILTER_MODE, program, 0, 0)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is needed


def _end_proot(child: int) -> None:
    """End proot with all processes that it traces; if it does not end, for example because it is stopped, kill it."""
    os.kill(child, signal.SIGCONT)
    os.kill(child, signal.SIGQUIT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) and time.monotonic() < deadline:
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGSTOP)  # a stopped proot starts no more processes; it may not have a process group yet
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    _kill_children(besides=child)
    os.waitpid(child, 0)


def _kill_children(besides: int) -> None:
    """Kill the remaining processes of an ended program, which are children of this process now."""
    while left := [number for number in _children() if number != besides]:
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for number in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(number, 0)


def _children() -> list[int]:
    """Return the ids of the child processes; empty if the kernel does not list them (CONFIG_PROC_CHILDREN)."""
    with contextlib.suppress(OSError), open("/proc/thread-self/children", encoding="ascii") as file:  # noqa: PTH123 - pathlib loads more
        return [int(number) for number in file.read().split()]
    return []


if __name__ == "__main__":
    main()
