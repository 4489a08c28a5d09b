"""Find and write files in the unpacked tree of an image: symbolic links of the tree never lead out of it.

The kernel follows an absolute link of a tree to the machine's own files. Use these functions for each path in a tree
that the author of an image, a build step or a program in a container could have changed.
"""

from __future__ import annotations

from pathlib import Path

from argosy.core.errors import ImageError

MAX_LINKS = 40
"""Maximum number of symbolic links in one path, as on Linux; see path_resolution(7)."""


def resolve_in_root(root: Path, path: str) -> Path:
    """Return the file that a path in the tree `root` names, as openat2(2) finds it with ``RESOLVE_IN_ROOT``.

    Raises
    ------
    ImageError
        If the path has more links than Linux follows, for example a link to itself.
    """
    parts, done, links_left = [part for part in path.split("/") if part], root, MAX_LINKS
    while parts:
        part = parts.pop(0)
        if part == ".":
            continue
        if part == "..":
            done = done if done == root else done.parent
        elif (done / part).is_symlink():
            if not links_left:
                raise ImageError(
                    f"cannot find /{path.lstrip('/')} in the image: more than {MAX_LINKS} symbolic links",
                    evidence=f"the last one: {done / part} -> {(done / part).readlink()}",
                    hint="use another image: programs in this one cannot open the path either",
                )
            links_left -= 1
            link = str((done / part).readlink())
            done = root if link.startswith("/") else done
            parts = [*(each for each in link.split("/") if each), *parts]
        else:
            done = done / part
    return done


def locate_in_root(root: Path, path: str) -> Path:
    """Return the entry at a path in the tree `root`: like `resolve_in_root`, but a link at its end is not followed."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return resolve_in_root(root, folder) / name if name not in {"", ".", ".."} else resolve_in_root(root, path)


def write_in_root(root: Path, path: str, text: str, *, mode: int = 0o644) -> None:
    """Write a file into the tree `root`; an existing one is removed: it may be a link, or a hard link to the cache."""
    file = locate_in_root(root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def find_link(root: Path, path: str) -> Path | None:
    """Return the first symbolic link among a path in the tree `root` and its parent folders; None if there is none."""
    whole = Path(path.lstrip("/"))
    return next((each for each in reversed((whole, *whole.parents)) if (root / each).is_symlink()), None)
