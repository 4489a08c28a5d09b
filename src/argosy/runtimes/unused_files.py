"""Find the files of an image that a command never opens: run the command in the image under strace."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.errors import ImageError, ToolMissing, UsageError
from argosy.core.model import ContainerRequest, Image, ImageKind
from argosy.core.process import Command, find_program
from argosy.core.session import Session
from argosy.core.shell import render_command
from argosy.core.store import work_folder
from argosy.core.tool_errors import run_checked
from argosy.images.find import fetch_or_find_image
from argosy.images.open import inspect_squashfs, open_image
from argosy.images.squashfs.pack import parse_whiteouts
from argosy.runtimes.run import RunRequest, prepare_run

MARK = "argosy-slim"
"""Name of the shell that executes the command: the log lines after its start are those of the container."""

CALLS = "?open,openat,?openat2,execve,execveat"
OPENED = re.compile(r" = \d+<(/[^>]+)>$")
"""The path of a descriptor, as ``strace -y`` prints it: absolute, with links resolved."""

STARTED = re.compile(r"\bexecve(?:at\([^,]*, |\()\"((?:[^\"\\]|\\.)+)\"")
LISTED = re.compile(r"([-l])\S{9} \S+ +(\d+) \d{4}-\d\d-\d\d \d\d:\d\d /(.+)")
"""A file or link in the output of ``unsquashfs -lls -d ''``."""

PACKAGE = re.compile(r"(.*/(?:site|dist)-packages/[^/]+)/")
STANDARD = re.compile(r"(.*/lib/python3\.\d+)/")
NEEDED = re.compile(r"(?:.*/)?s?bin(?:/|\Z)|etc(?:/|\Z)|var/lib/(?:dpkg|rpm)|usr/lib/sysimage")
"""Folders that are never suggested for removal: programs, because strace does not show interpreters that the kernel
opens; settings; databases of package managers."""

LOADER = re.compile(r"(?:.*/)?ld-[^/]*\.so[^/]*\Z")
OWN = ("usr/local/", "opt/")
LAYER = "opt/argosy/"
DEPTH, MOST_LINKS, MOST_ROWS, MOST_RESULTS = 3, 40, 20, 20
WORTH_BYTES = 1_000_000


class Group(msgspec.Struct, frozen=True):
    """The files of one Python package or one folder; sizes in bytes, unpacked."""

    name: str
    files: int
    size: int
    unopened: int
    unopened_size: int


class Slimming(msgspec.Struct, frozen=True):
    """The files of an image that a command did not open."""

    image: str
    command: tuple[str, ...]
    code: int
    """Exit code of the command."""
    groups: tuple[Group, ...]
    """All packages and folders, the largest total size of unopened files first."""
    packages: tuple[str, ...]
    folders: tuple[str, ...]
    """Those without any opened file: Python packages by the name of their folder, other folders by path."""
    results: tuple[str, ...]
    """Opened files that belong to no package manager; a stage of a project file would copy them."""


def slim_image(name: str, command: tuple[str, ...], session: Session) -> Slimming:
    """Run a command in an image and return the files that it never opened.

    Raises
    ------
    UsageError
        If there is no command.
    ToolMissing
        If strace is not installed.
    ArgosyError
        See `argosy.runtimes.run.prepare_run`.
    """
    if not command:
        raise UsageError(
            "no command given", hint="pass a command that uses the image: argosy images slim IMAGE -- COMMAND"
        )
    if not find_program("strace"):
        raise ToolMissing(
            "cannot trace the command: strace is not installed",
            hint="apt-get install strace, or use a machine that has it",
        )
    path = fetch_or_find_image(name, session)
    files, links = _list_image(inspect_squashfs(open_image(path), session).image, session)
    runtime = "bwrap" if "bwrap" in session.host.programs else ""
    request = RunRequest(name, ("/bin/sh", "-c", 'exec "$@"', MARK, *command), ContainerRequest(runtime=runtime))
    _, entered = prepare_run(request, session)
    with work_folder(session.work_parent()) as work:
        log = work / "trace"
        words = ("strace", "-f", "-qq", "-y", "-z", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(log))
        with session.step("run", " ".join(command)):
            reply = session.runner.run(Command((*words, *entered.argv), env=entered.env, cwd=session.host.cwd))
        trace = log.read_text(errors="replace", encoding="utf-8") if log.exists() else ""
    opened = opened_files(trace, links)
    if not opened:
        raise ImageError(
            "cannot trace the command: strace saw no file of the image",
            evidence=reply.stderr.strip()[-500:],
            hint="try: argosy run IMAGE -- COMMAND; the image needs /bin/sh, and the machine must allow ptrace",
        )
    return group_files(str(path), command, reply.code, files, opened)


def _list_image(image: Image, session: Session) -> tuple[dict[str, int], dict[str, str]]:
    """Return the files of an image with their sizes in bytes, and its links with their targets.

    Raises
    ------
    ImageError
        If the image is a folder.
    """
    if image.kind is ImageKind.TREE:
        raise ImageError(
            f"cannot list the files of {image.path}: it is a folder",
            hint="first build an image file: argosy build --base FOLDER",
        )
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    for offset in (image.base_offset, image.layer_offset):
        if offset < 0:
            continue
        words = ("unsquashfs", "-no-progress", "-lls", "-o", str(offset), "-d", "", image.path)
        listing = run_checked(session.runner, Command(words), doing="listing the image").stdout
        for gone in parse_whiteouts(listing):
            files = {path: size for path, size in files.items() if not f"{path}/".startswith(f"{gone}/")}
        for kind, size, path in parse_listing(listing):
            if kind == "l":
                link, _, target = path.partition(" -> ")
                links[link] = target
            else:
                files[path] = size
    return files, links


def parse_listing(listing: str) -> Iterator[tuple[str, int, str]]:
    """Yield kind, size in bytes and path of each file and link in a listing of unsquashfs."""
    for line in listing.splitlines():
        if found := LISTED.fullmatch(line):
            yield found[1], int(found[2]), found[3]


def opened_files(trace: str, links: Mapping[str, str]) -> frozenset[str]:
    """Return the paths in the image, without the first slash, that were opened or executed."""
    lines = trace.splitlines()
    starts = [number for number, line in enumerate(lines) if f'"{MARK}"' in line]
    found: set[str] = set()
    for line in lines[starts[-1] :] if starts else ():
        if opened := OPENED.search(line):
            found.add(opened[1].lstrip("/"))
        elif started := STARTED.search(line):
            found.add(follow(started[1].lstrip("/"), links))
    return frozenset(found)


def follow(path: str, links: Mapping[str, str]) -> str:
    """Resolve the links in a path of the image."""
    parts, done = path.split("/"), ""
    for _ in range(MOST_LINKS * len(parts)):
        if not parts:
            break
        here = posixpath.join(done, parts.pop(0)) if done else parts.pop(0)
        if here not in links:
            done = here
            continue
        target = links[here]
        whole = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(done, target))
        parts, done = [*whole.split("/"), *parts], ""
    return done


def group_of(path: str) -> str:
    """Return the group of a file: its Python package, the standard library, or a folder."""
    for pattern in (PACKAGE, STANDARD):
        if found := pattern.match(path):
            return found[1]
    return "/".join(path.split("/")[:-1][:DEPTH])


def group_files(
    image: str, command: tuple[str, ...], code: int, files: Mapping[str, int], opened: frozenset[str]
) -> Slimming:
    """Group the files of an image by package and folder, and count those that were not opened."""
    members: dict[str, list[str]] = {}
    for path in files:
        members.setdefault(group_of(path), []).append(path)
    used = opened | {path for path in files if LOADER.match(path)}
    groups = sorted(
        (_sum(name, paths, files, used) for name, paths in members.items()), key=lambda g: (-g.unopened_size, g.name)
    )
    idle = [group.name for group in groups if group.unopened == group.files and group.size >= WORTH_BYTES]
    own = {path for path in files if path.startswith(OWN) and not path.startswith(LAYER)}
    return Slimming(
        image=image,
        command=command,
        code=code,
        groups=tuple(groups),
        packages=tuple(name.rpartition("/")[2] for name in idle if PACKAGE.match(f"{name}/")),
        folders=tuple(f"/{name}" for name in idle if name and not PACKAGE.match(f"{name}/") and not NEEDED.match(name)),
        results=tuple(f"/{path}" for path in sorted(opened & own)),
    )


def _sum(name: str, paths: Iterable[str], files: Mapping[str, int], used: frozenset[str]) -> Group:
    sizes = [(files[path], path in used) for path in paths]
    left = [size for size, was_used in sizes if not was_used]
    return Group(name, len(sizes), sum(size for size, _ in sizes), len(left), sum(left))


def render_slimming(found: Slimming, *, suggest: bool) -> str:
    """Render the result as a table; with `suggest`, add how to make the image smaller."""
    total, idle = (sum(getattr(group, name) for group in found.groups) for name in ("size", "unopened_size"))
    rows = [group for group in found.groups if group.unopened_size][:MOST_ROWS]
    lines = [f"{'never opened':>14} {'of':>10}  where"]
    lines += [f"{_mega(row.unopened_size):>14} {_mega(row.size):>10}  {row.name or '/'}" for row in rows]
    lines.append(f"{_mega(idle)} of {_mega(total)} were never opened by: {render_command(found.command)}")
    if found.code:
        lines.append(f"the command failed with exit code {found.code}: it may need more files than it opened")
    return "\n".join((*lines, *(_advice(found) if suggest else ())))


def _mega(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _advice(found: Slimming) -> Iterator[str]:
    yield ""
    if found.packages:
        yield f"remove from the environment file, with the packages that depend on them: {', '.join(found.packages)}"
    if found.folders:
        yield "remove in argosy.toml, and build with --format flat, because a layer cannot shrink its base:"
        yield "  [[step]]"
        yield f'  run = "rm -rf {" ".join(found.folders)}"'
    if found.results:
        yield "or copy only the opened files into a small base:"
        yield "  [[stage]]"
        yield '  name = "programs"'
        yield f'  base = "{Path(found.image).name}"'
        pairs = ", ".join(f'"{path}" = "{path}"' for path in found.results[:MOST_RESULTS])
        more = f"   # and {len(found.results) - MOST_RESULTS} more: --json" if len(found.results) > MOST_RESULTS else ""
        yield f"  results = {{ {pairs} }}{more}"
    if not (found.packages or found.folders or found.results):
        yield "no package or folder of more than 1 MB is completely unused"
    yield "before you remove anything, repeat this with the commands of all your jobs: only one was traced"
