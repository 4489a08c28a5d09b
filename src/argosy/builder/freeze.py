"""List the packages of any image from the records of package managers, and compare two images.

The records are those of conda (conda-meta), pip (dist-info), dpkg and rpm.  An Argosy image contains its lock; for any
other image, a lock is created from the records.  The only program of the image that runs is its own `rpm`, if it has
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name, canonicalize_version

from argosy.builder.backends.container import find_build_container
from argosy.builder.backends.plan import list_backends
from argosy.builder.bases.base import Base, open_base
from argosy.builder.downloads import static_uv
from argosy.builder.python.base_python import site_folders
from argosy.core.errors import ToolFailed
from argosy.core.model import Image
from argosy.core.parse import decode_json
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.redact import redact, split_login
from argosy.core.session import Session
from argosy.core.store import work_folder
from argosy.core.tool_errors import run_checked
from argosy.images.find import fetch_or_find_image, means_reference, open_reference
from argosy.images.flat import FlatLayer, base_source, layer_source
from argosy.images.rootfs import resolve_in_root
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.pack import is_incomplete
from argosy.images.squashfs.superblock import Source
from argosy.images.tree_digests import Entries, describe_entries, is_removal
from argosy.images.unpack import find_known, unpack_source
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, SourceKind, Tools
from argosy.recipes.relock import LockChange, compare_locks
from argosy.recipes.uv_options import UvSettings
from argosy.version import VERSION

ROOT = "squashfs-root/"
OF_DEBIAN = "usr/lib/python3/dist-packages/"
"""Files here belong to Debian packages, which dpkg lists."""

RPM_FOLDERS = ("var/lib/rpm/", "usr/lib/sysimage/rpm/")
RPM_QUERY = ("rpm", "-qa", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n")


class _CondaRecord(msgspec.Struct, frozen=True):
    """The keys of a file of ``conda-meta`` that a lock contains."""

    name: str
    version: str
    build: str
    sha256: str | None = None
    md5: str | None = None
    url: str | None = None


def parse_conda(text: str) -> Iterator[LockedPackage]:
    """Read one record of ``conda-meta``."""
    record = decode_json(text, _CondaRecord)
    sha256 = (record.sha256,) if record.sha256 else ()
    url, md5 = redact(record.url or ""), record.md5 or ""
    yield LockedPackage(
        record.name, record.version, sha256, kind=PackageKind.CONDA, build=record.build, url=url, md5=md5
    )


def parse_dist(text: str) -> Iterator[LockedPackage]:
    """Read a Python package's METADATA or PKG-INFO."""
    head = dict(re.findall(r"^(Name|Version): *(\S+)", text.partition("\n\n")[0], re.MULTILINE))
    if "Name" in head and "Version" in head:
        yield LockedPackage(canonicalize_name(head["Name"]), head["Version"])


def parse_dpkg(text: str) -> Iterator[LockedPackage]:
    """Read the installed packages from dpkg's status file."""
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): *(.+)$", stanza, re.MULTILINE))
        if "Package" in fields and "Version" in fields and fields.get("Status", "ok installed").endswith(" installed"):
            yield LockedPackage(fields["Package"], fields["Version"].strip(), kind=PackageKind.DEB)


def parse_rpm(text: str) -> Iterator[LockedPackage]:
    """Read the output of `RPM_QUERY`, without public keys."""
    for line in text.splitlines():
        name, _, version = line.partition("\t")
        if version and name != "gpg-pubkey":
            yield LockedPackage(name, version, kind=PackageKind.RPM)


Parse = Callable[[str], Iterator[LockedPackage]]

RECORDS: tuple[tuple[re.Pattern[str], Parse], ...] = (
    (re.compile(r"(?:.*/)?conda-meta/[^/]+\.json\Z"), parse_conda),
    (re.compile(r".*\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)\Z"), parse_dist),
    (re.compile(r"var/lib/dpkg/status(?:\.d/[^/.]+)?\Z"), parse_dpkg),
)
"""Paths of package records, and their parsers."""


def freeze(name: str, session: Session) -> Lock:
    """Return the lock of an image, or create one from its package records."""
    reference = name if means_reference(name, session) else str(fetch_or_find_image(name, session))
    with work_folder(session.work_parent()) as work:
        base = open_base(reference, session, work)
        if base.lock and not base.is_converted:
            return base.lock
        packages = [*_read_records(base.image, session, work), *_ask_rpm(base, session, work)]
    image = base.image
    return Lock(
        base=LockedBase(Path(base.reference).name, base.digest, base.source.length, image.arch),
        tools=Tools(VERSION),
        time=base.time,
        content=base.digest,
        python=next((p.version for p in packages if p.name == "python" and p.kind is PackageKind.CONDA), ""),
        packages=_joined(packages),
    )


def freeze_whole(name: str, session: Session) -> Lock:
    """Return the lock of an image with all its packages: of the layer, of build steps, and of the base."""
    reference = name if means_reference(name, session) else str(fetch_or_find_image(name, session))
    with work_folder(session.work_parent()) as work:
        base = open_base(reference, session, work)
        if base.lock is None or base.is_converted:
            return freeze(name, session)
        image = base.image
        packages = list(_read_records(image, session, work))
        if image.layer_offset >= 0:
            packages += _read_records(replace(image, base_offset=image.layer_offset), session, work)
    return replace(base.lock, packages=_joined([*packages, *base.lock.packages]))


def _list_files(image: Image, session: Session) -> list[str]:
    """List the paths in the base of an image, without the leading slash."""
    argv = ("unsquashfs", "-no-progress", "-o", str(image.base_offset), "-l", image.path)
    reply = run_checked(session.runner, Command(argv), doing="listing the image")
    return [line.removeprefix(ROOT) for line in reply.stdout.splitlines() if line.startswith(ROOT)]


def _read_records(image: Image, session: Session, work: Path) -> Iterator[LockedPackage]:
    paths = [path for path in _list_files(image, session) if not path.startswith(OF_DEBIAN)]
    wanted = [(path, parse) for path in paths for pattern, parse in RECORDS if pattern.match(path)]
    if not wanted:
        return
    names, tree = work / f"records-{image.base_offset}.txt", work / f"records-{image.base_offset}"
    names.write_text("".join(f"{path}\n" for path, _ in wanted), errors="surrogateescape", encoding="utf-8")
    options = ("-no-progress", "-quiet", "-no-xattrs", "-no-wildcards", "-o", str(image.base_offset))
    command = Command(("unsquashfs", *options, "-d", str(tree), "-ef", str(names), image.path))
    reply = session.runner.run(command)
    if is_incomplete(reply):
        raise ToolFailed(
            "cannot read the package records of the image",
            evidence=reply.stderr.strip(),
            hint="check the file with 'argosy images info', and that the disk has free space",
        )
    for path, parse in wanted:
        if (record := resolve_in_root(tree, path)).is_file():
            yield from parse_record(parse, record.read_text(errors="replace", encoding="utf-8"))


def parse_record(parse: Parse, text: str) -> list[LockedPackage]:
    """Read one record; a damaged record lists no packages."""
    try:
        return list(parse(text))
    except ValueError:
        return []


def _ask_rpm(base: Base, session: Session, work: Path) -> Iterator[LockedPackage]:
    """Run the image's own rpm, because the format of its database has changed three times."""
    if not any(path.startswith(RPM_FOLDERS) for path in _list_files(base.image, session)):
        return
    uv = static_uv(session, UvSettings())
    yield from parse_record(
        parse_rpm, find_build_container(session, base, uv, work, list_backends(session.host)).run(*RPM_QUERY).stdout
    )


def match_lock(base: Base, tree: Path, session: Session) -> Base:
    """Return a converted image with the packages that are in its environment, which other tools may have changed.

    Parameters
    ----------
    tree
        The unpacked layer of the image.
    """
    if base.lock is None or base.lock.has_conda:  # conda's own Python is asked for its packages
        return base
    locked = {package.name: package for package in base.lock.packages}
    found = {package.name: package for site in site_folders(tree) for package in _read_dists(site)}
    names = sorted(name for name in {*locked, *found} if _version(locked, name) != _version(found, name))
    if not names:
        return base
    changes = ", ".join(f"{name} {_shown(found, name)} (locked: {_shown(locked, name)})" for name in names)
    session.reporter.note(f"the environment of {base.reference} has changed since it was locked: {changes}")
    packages = tuple(found[name] if name in names else locked[name] for name in sorted(found))
    return replace(base, opened=replace(base.opened, lock=replace(base.lock, packages=packages)))


def _read_dists(site: Path) -> Iterator[LockedPackage]:
    """Read the packages in a ``site-packages`` folder. Links are not followed: they could lead out of the image."""
    for folder in sorted(site.glob("*.dist-info")):
        record = folder / "METADATA"
        if record.is_file() and not (folder.is_symlink() or record.is_symlink()):
            yield from parse_record(parse_dist, record.read_text(errors="replace", encoding="utf-8"))


def _version(packages: Mapping[str, LockedPackage], name: str) -> str:
    return canonicalize_version(packages[name].version) if name in packages else ""


def _shown(packages: Mapping[str, LockedPackage], name: str) -> str:
    return packages[name].version if name in packages else "none"


def _joined(packages: Iterable[LockedPackage]) -> tuple[LockedPackage, ...]:
    """Return each package once; a package from conda is not listed again for its dist-info."""
    by_conda = {package.name for package in packages if package.kind is PackageKind.CONDA}
    kept = {
        (package.name, package.kind): package
        for package in packages
        if package.kind is not PackageKind.PYPI or package.name not in by_conda
    }
    return tuple(kept[key] for key in sorted(kept))


def render_requirements(lock: Lock) -> str:
    """Render the pip packages as a requirements file; a package that no index has gets its address, or is a comment."""
    return "".join(f"{_requirement(p)}\n" for p in lock.packages if p.kind is PackageKind.PYPI)


def _requirement(package: LockedPackage) -> str:
    text = f"{package.name}=={package.version}"
    if package.source is SourceKind.INDEX:
        return text
    if package.url:
        return f"{package.name} @ {redact(split_login(package.url)[0])}"
    return f"# {text} was installed from a folder or file, so no index has it: write its path or address here"


def render_explicit(lock: Lock) -> str:
    """Render the conda packages like ``conda list --explicit``."""
    conda = [package for package in lock.packages if package.kind is PackageKind.CONDA]
    rows = [f"{p.url}#{f'sha256:{p.sha256[0]}' if p.sha256 else p.md5}".rstrip("#") for p in conda]
    return "\n".join(("@EXPLICIT", *rows)) + "\n"


class FileChange(msgspec.Struct, frozen=True):
    """A difference between two trees: ``+`` only in the second, ``-`` only in the first, ``~`` changed."""

    sign: str
    path: str


class ImageDifference(msgspec.Struct, frozen=True):
    """Report the differences between two images."""

    changes: tuple[LockChange, ...]
    """Differences of packages, variables, base, Python and content."""
    files: tuple[FileChange, ...]
    """Differences of the layers' files."""
    notes: tuple[str, ...] = ()
    """Parts that were not compared, and why."""


MOST_FILES_OF_A_FOLDER = 8
FOLDER_OF_A_FILE = re.compile(r".*?/site-packages/[^/]+|opt/argosy/env/[^/]+|[^/]+/[^/]+/[^/]+|.*")
"""The folder of an installed package, or one close to the root."""


def render_files(files: Sequence[FileChange]) -> list[str]:
    """Render the differences of files; of a folder with many of them, only their number."""
    folders: dict[str, list[FileChange]] = {}
    for change in files:
        found = FOLDER_OF_A_FILE.match(change.path)
        folders.setdefault(found[0] if found else change.path, []).append(change)
    lines = []
    for folder, changes in folders.items():
        if len(changes) > MOST_FILES_OF_A_FOLDER:
            lines.append(f"~ {folder}: {len(changes)} files differ; --json lists them")
        else:
            lines += [f"{change.sign} {change.path}" for change in changes]
    return lines


def compare_images(one: str, other: str, session: Session) -> ImageDifference:
    """Compare two images of any kind."""
    changes = compare_locks(freeze(one, session), freeze(other, session))
    if not any(change.name in ("content", "base") for change in changes):
        return ImageDifference(changes, ())
    opened = [open_reference(name, session) for name in (one, other)]
    layers = [layer for each in opened if (layer := layer_source(each.image))]
    if len(layers) < len(opened):
        note = "files were not compared: one of the images has no layer that can be separated from its base"
        return ImageDifference(changes, (), (note,))
    with work_folder(session.work_parent()) as work:
        trees = [_describe_layer(each, session, work / str(number)) for number, each in enumerate(layers)]
        return ImageDifference(changes, compare_trees(trees[0], trees[1], [base_source(each.image) for each in opened]))


def _describe_layer(layer: FileSlice | FlatLayer, session: Session, tree: Path) -> Entries:
    unpack_source(session, layer, tree, "-no-xattrs", doing="unpacking the layer")
    return describe_entries(tree)


def compare_trees(one: Entries, other: Entries, bases: Sequence[Source]) -> tuple[FileChange, ...]:
    """Return the differences of two images by path; a folder that only one image has is listed without its content.

    Parameters
    ----------
    one, other
        The entries of the layers. A layer that changes a file of its base has the folders above it, too.
    bases
        The base of each layer.
    """
    known = [
        find_known(base, layer.keys() - own.keys())
        for base, own, layer in zip(bases, (one, other), (other, one), strict=True)
    ]
    signs: dict[str, str] = {}
    for path in sorted(one.keys() | other.keys()):
        had, has = (_exists(path, layer, names) for layer, names in zip((one, other), known, strict=True))
        if (had or has) and one.get(path) != other.get(path):
            signs[path] = "~" if had and has else "+" if has else "-"
    return tuple(_leave_out_folders(signs, one.keys() ^ other.keys()))


def _exists(path: str, layer: Entries, known: frozenset[str]) -> bool:
    """Return whether an image has a path: in its layer, or in its base if that is `known`."""
    return not is_removal(layer[path]) if path in layer else path in known


def _leave_out_folders(signs: Mapping[str, str], in_one: set[str]) -> Iterator[FileChange]:
    """Yield the changes without the content of folders that one image lacks, and without folders of the base.

    Parameters
    ----------
    in_one
        The paths that only one of the layers has.
    """
    parents, lacking = {str(Path(path).parent) for path in signs}, set[str]()
    for path, sign in signs.items():
        if (below := str(Path(path).parent) in lacking) or sign != "~":
            lacking.add(path)
        if not (below or (sign == "~" and path in in_one and path in parents)):
            yield FileChange(sign, path)
