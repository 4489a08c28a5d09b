"""Run the program that compiles modules to byte code, with the environment's own Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from argosy.builder.backends.container import WORK_INSIDE, BuildContainer
from argosy.core.layout import ENV_PREFIX
from argosy.core.process import OnLine

PLAIN = ("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME", "PYTHONHASHSEED=0")
START = (*PLAIN, f"{ENV_PREFIX}/bin/python", "-B", "-s", "-S", "-W", "ignore", "-c")
"""Starts the environment's Python with only the modules of its standard library.  Up to Python 3.10, byte code contains
sets in the order of their hashes, which would be random with -I."""

COMPILE = """\
import sys
sys.path.remove("")
import errno, gc, importlib.util, marshal, os
if not hasattr(importlib.util, "source_hash"):
    sys.exit()  # Python 3.6 and older do not support unchecked byte code
# The tree is read-only: unchecked byte code saves a stat() for each import, and does not contain a time.
UNCHECKED = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
ENDING = ".%s.pyc" % sys.implementation.cache_tag
gc.disable()  # it takes a tenth of the time; a process compiles at most one group of modules
made = set()

def compile_file(root, path):
    with open(root + path, "rb", buffering=0) as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except Exception:
        return  # test data of packages is often invalid Python
    folder, _, name = (root + path).rpartition("/")
    folder += "/__pycache__"
    write(folder, name[:-3] + ENDING, UNCHECKED + importlib.util.source_hash(source) + marshal.dumps(code))

def write(folder, name, data):
    target = folder + "/" + name
    if folder not in made:
        os.makedirs(folder, exist_ok=True)
        made.add(folder)
    if os.path.isfile(target):
        os.unlink(target)  # it may be a hard link to the cache
    try:
        with open(target, "xb") as file:
            file.write(data)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            os.unlink(target)
        raise

def compile_group(head, *paths):
    root = head[len("root "):]
    for path in paths:
        try:
            compile_file(root, path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                sys.stderr.write("%s: %s\\n" % (path, os.strerror(error.errno)))
                sys.stderr.flush()
                return 1
    return 0

text = open(sys.argv[1], encoding="utf-8", errors="surrogateescape").read()
groups = [group.split("\\n") for group in text[:-1].split("\\n\\n")]
waiting, most, started, done, ended = groups[::-1], int(sys.argv[2]), {}, 0, False
while waiting or started:
    if waiting and len(started) < most:
        group = waiting.pop()
        child = os.fork()
        if not child:
            os._exit(compile_group(*group))
        started[child] = len(group) - 1
        continue
    child, code = os.wait()
    if code:
        waiting, ended = [], True
    done += started.pop(child)
    sys.stderr.write("compiling byte code: %d of %d modules\\n" % (done, sum(map(len, groups)) - len(groups)))
    sys.stderr.flush()
if ended:
    sys.exit("a compiling process failed")
"""
"""Compiles modules with the environment's Python, like compileall, which takes a tenth more time and does not report a
full disk.  A module that cannot be compiled, or written for another reason, is skipped.

Each group of modules is a paragraph: a line ``root FOLDER``, and the final paths of the modules, which are now below
that folder. It gets a new process, because byte code marks the objects that are referenced more than once, and
earlier modules in the same process would count as references."""


def render_group(root: str, prefix: Path, group: Iterable[str]) -> str:
    """Render a group of modules for the compiler: where they are now, and their final paths."""
    return f"root {root}\n" + "".join(f"{ENV_PREFIX}{path[len(str(prefix)) :]}\n" for path in group)


def run_compiler(
    build_container: BuildContainer, work: Path, groups: Sequence[str], on_line: OnLine | None = None
) -> None:
    """Compile groups of modules on all processors, in this order.

    Parameters
    ----------
    groups
        The groups, as `render_group` renders them.
    """
    with tempfile.NamedTemporaryFile("w", dir=work, prefix="compile-", encoding="utf-8") as file:
        file.write("\n".join(groups))
        file.flush()
        inside = f"{WORK_INSIDE}/{Path(file.name).name}"
        build_container.run_checked(
            *(*START, COMPILE, inside, str(build_container.session.host.cpus)),
            doing="compiling byte code",
            on_line=on_line,
        )
