"""Give the resolver packages that are not in an index: local folders and git repositories.

Local folders are mounted as copies, because most builds write into the folder that they build: setuptools writes
``build`` and ``NAME.egg-info`` there, and includes leftovers of an earlier build in the next wheel.

uv runs git and ssh of the base.  They get the user's ssh agent (which signs, but does not reveal keys), ssh
configuration, known hosts, and netrc.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.core.model import Bind, Host
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.core.store import remove_path
from argosy.recipes.recipe import PipKind, PipLine, Recipe
from argosy.recipes.uv_options import UvSettings

NOT_SOURCE = frozenset({"__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"})
IMAGES = (".sif", ".sqsh", ".sqfs")
MOST_BYTES, MOST_FILES = 512 << 20, 50_000
"""A larger folder also holds data or results; it is built in place, as pip does."""


class _TooMuch(Exception):
    """A folder is too large to copy."""


def _is_package(path: Path) -> bool:
    """Return whether a folder is the source of a Python package."""
    return any((path / name).is_file() for name in ("pyproject.toml", "setup.py"))


def repository_around(package: Path, home: Path) -> Path | None:
    """Find the git repository around a package's folder: its tags give the version of a workspace member.

    A repository that contains the home folder does not count.
    """
    if (package / ".git").exists():
        return None
    found = next((folder for folder in package.parents if (folder / ".git").is_dir()), None)
    return None if found is None or home.is_relative_to(found) else found


def bring_in(paths: tuple[str, ...], build_container: BuildContainer, work: Path) -> tuple[Bind, ...]:
    """Return bind mounts of existing paths, each at its own path; for package folders, mount a copy."""
    home = Path(build_container.session.host.person.home)
    packages = [Path(path) for path in paths if _is_package(Path(path))]
    around = dict.fromkeys(str(found) for path in packages if (found := repository_around(path, home)))
    binds = [Bind(path, path, read_only=True) for path in around]
    for number, path in enumerate(paths):
        if not Path(path).exists():
            continue
        if not _is_package(Path(path)):
            binds.append(Bind(path, path, read_only=True))
            continue
        copy = work / "sources" / str(number)
        try:
            with translate_os_errors(work):
                _copy(Path(path), copy)
            binds.append(Bind(str(copy), path))
        except _TooMuch:
            remove_path(copy)
            build_container.session.reporter.note(
                f"{path} is large and is built in place; its build may leave files there"
            )
            binds.append(Bind(path, path))
    return tuple(binds)


def _copy(source: Path, target: Path) -> None:
    """Copy files and links with their times, without unreadable and special files."""
    size = count = 0
    for folder, folders, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        folders[:] = [name for name in folders if not _is_left_out(Path(folder, name))]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder, name)
            if name.endswith(IMAGES):
                continue
            if not path.is_symlink() and (not path.is_file() or not os.access(path, os.R_OK)):
                continue
            size, count = size + path.lstat().st_size, count + 1
            if size > MOST_BYTES or count > MOST_FILES:
                raise _TooMuch
            shutil.copy2(path, here / name, follow_symlinks=False)


def _is_left_out(folder: Path) -> bool:
    return folder.name in NOT_SOURCE or (folder / "pyvenv.cfg").is_file()


GIT, SSH = "git", "openssh-client"
"""Names of Debian packages."""

NO_GIT = re.compile(r"Git executable not found|cannot run ssh|'git' was not found")
USE_GIT = (
    "the base has no git: use one that has it (debian:bookworm+git+openssh-client), install it with conda "
    "('- git' under dependencies), or in a [[step]] before the packages"
)
NO_HOST = "Host key verification failed"
NO_KEY = re.compile(r"Permission denied \([\w,-]*publickey")
_VERSION_OF_GIT = re.compile(
    r"setuptools[-_]scm|hatch-vcs|versioningit|vcs-versioning|pdm.*scm"
    r"|source\s*=\s*[\"']scm[\"']|poetry[-_]dynamic[-_]versioning"
)
_SSH_ADDRESS = re.compile(r"git\+ssh://|git\+[\w.-]+@")

NO_REPOSITORY = (
    (re.compile(r"unable to detect version for"), "SETUPTOOLS_SCM_PRETEND_VERSION"),  # setuptools-scm, hatch-vcs
    (re.compile(r"Cannot find the version from SCM"), "PDM_BUILD_SCM_VERSION"),  # pdm-backend
    (re.compile(r"Unable to detect version control system"), "POETRY_DYNAMIC_VERSIONING_BYPASS"),
    (re.compile(r"requires either an sdist tarball, or access to an upstream git"), "PBR_VERSION"),
    (re.compile(r"is not in a Git repository"), ""),  # versioningit
)
"""Texts of build tools that find no version in git, and the variable that sets it; empty if there is none."""

VERSION_VARIABLE = re.compile(
    r"(?:SETUPTOOLS_SCM|VCS_VERSIONING)_PRETEND_VERSION(?:_FOR_\w+)?"
    r"|PDM_BUILD_SCM_VERSION|POETRY_DYNAMIC_VERSIONING_BYPASS|PBR_VERSION"
)
"""Variables that set the version of a package that otherwise gets it from git."""

_BUILT_FOLDER = re.compile(r"build `[^`]+ @ (file://[^`]+)`")

GIT_SETTINGS = "[safe]\n\tdirectory = *\n"
"""In the container, the user's files may appear to belong to another user; git would refuse them."""


def find_git_packages(recipe: Recipe) -> tuple[str, ...]:
    """Return the Debian packages for repositories and for local folders whose version comes from git."""
    addresses = [line.spec for line in recipe.pip if line.kind is PipKind.VCS]
    if not addresses and not any(_asks_git(line) for line in recipe.pip):
        return ()
    return (GIT, SSH) if any(_SSH_ADDRESS.search(address) for address in addresses) else (GIT,)


def _asks_git(line: PipLine) -> bool:
    """Return whether the build of a local folder gets its version from git."""
    folder = Path(line.path)
    if line.kind is not PipKind.LOCAL or not (folder / ".git").exists():
        return False
    files = (folder / "pyproject.toml", folder / "setup.py", folder / "setup.cfg")
    return any(
        _VERSION_OF_GIT.search(file.read_text(errors="replace", encoding="utf-8")) for file in files if file.is_file()
    )


class GitAccess(msgspec.Struct, frozen=True):
    """The settings of git and ssh on this machine, and of tools that get versions from git."""

    agent: str = ""
    """Socket of the ssh agent, or empty."""
    config: str = ""
    known_hosts: str = ""
    """The user's ssh files; empty if they do not exist."""
    versions: tuple[tuple[str, str], ...] = ()
    """Variables that set the version of packages, see `VERSION_VARIABLE`."""


def find_git_access(host: Host) -> GitAccess:
    """Find the user's ssh agent and ssh files, and the variables that set versions."""
    agent = host.environment.get("SSH_AUTH_SOCK", "")
    agent = agent if agent and Path(agent).is_socket() else ""
    folder = Path(host.person.home) / ".ssh"
    config, known_hosts = (str(path) if path.is_file() else "" for path in (folder / "config", folder / "known_hosts"))
    versions = (pair for pair in sorted(host.environment.items()) if VERSION_VARIABLE.fullmatch(pair[0]) and pair[1])
    return GitAccess(agent, config, known_hosts, tuple(versions))


def add_git_access(settings: UvSettings, recipe: Recipe, access: GitAccess) -> UvSettings:
    """Add to uv's settings what the build of the recipe's own folders, archives and repositories needs.

    Variables that set a version are for all of them; ssh agent and ssh files are for repositories.
    """
    if access.versions and any(line.kind is not PipKind.INDEX for line in recipe.pip):
        set_here = ", ".join(f"{name}={value}" for name, value in access.versions)
        settings = replace(
            settings,
            environment=(*settings.environment, *access.versions),
            notes=(*settings.notes, f"{set_here} sets the version of packages that are built"),
        )
    if not any(line.kind is PipKind.VCS for line in recipe.pip):
        return settings
    config = ("-F", access.config) if access.config else ()
    known = ("-o", f'UserKnownHostsFile="{access.known_hosts}"') if access.known_hosts else ()
    command = " ".join(map(quote, ("ssh", "-o", "BatchMode=yes", *config, *known)))
    agent = (("SSH_AUTH_SOCK", access.agent),) if access.agent else ()
    files = filter(None, (access.config, access.known_hosts, access.agent))
    return replace(
        settings,
        environment=(*settings.environment, ("GIT_SSH_COMMAND", command), *agent),
        local_paths=(*settings.local_paths, *files),
    )


def write_git_home(home: Path, settings: UvSettings) -> None:
    """Write git's settings into the home folder of the container, and link the netrc there."""
    (home / ".gitconfig").write_text(GIT_SETTINGS, encoding="utf-8")
    netrc = dict(settings.environment).get("NETRC")
    if netrc and not (home / ".netrc").is_symlink():
        (home / ".netrc").symlink_to(netrc)


def set_versions(settings: UvSettings) -> tuple[str, ...]:
    """Return the variables that set versions, as ``NAME=VALUE``: what is built with them is not used without them."""
    return tuple(f"{name}={value}" for name, value in settings.environment if VERSION_VARIABLE.fullmatch(name))


def advise_on_git(text: str, settings: UvSettings, has_git: Callable[[], bool] = lambda: True) -> str:
    """Return a hint for a repository that could not be fetched or is missing; empty if git did not fail."""
    if NO_GIT.search(text):
        return USE_GIT
    for said, variable in NO_REPOSITORY:
        if said.search(text):
            return _advise_on_version(text, variable, has_git)
    if NO_HOST in text:
        return "ssh does not know this host: connect to it once (ssh HOST) to add it to known_hosts"
    if NO_KEY.search(text):
        agent = "SSH_AUTH_SOCK" in dict(settings.environment)
        return (
            "add the key to your ssh agent; ssh-add -l lists its keys"
            if agent
            else "start an ssh agent (eval $(ssh-agent) && ssh-add), then build again"
        )
    return ""


def _advise_on_version(text: str, variable: str, has_git: Callable[[], bool]) -> str:
    """Return the hint for a package whose build found no version in git: it has no repository, or the base no git."""
    built = _BUILT_FOLDER.search(text)
    folder = Path(unquote(urlsplit(built[1]).path)) if built else None
    if folder and any((each / ".git").is_dir() for each in (folder, *folder.parents)) and not has_git():
        return USE_GIT
    # The variable of one package does not change the versions of others that are built, too.
    own = re.search(r"\bSETUPTOOLS_SCM_PRETEND_VERSION_FOR_\w+", text)
    name = own[0] if own and not own[0].endswith("_FOR_") else variable
    by_hand = f", or set its version: export {name}=VERSION" if name else ""
    return (
        f"{folder or 'the source'} has no .git folder, from which its build gets the version: clone the repository "
        f"instead of unpacking an archive of it, install the release from the index (NAME==VERSION){by_hand}"
    )
