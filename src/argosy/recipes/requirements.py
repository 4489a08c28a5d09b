"""Parse requirements files in pip's full syntax; included files are not opened here.

Source: "Requirements File Format" and "Requirement Specifiers" of pip's reference, PEP 508.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qs, quote, unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.core.suggest import did_you_mean
from argosy.recipes.recipe import Entry, Include, PipKind, PipLine, PipOption, Where, bad_line
from argosy.recipes.source_text import checked_marker, expand, parse_lines

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?"
_REWRITES = (
    # Common mistakes and their corrections, the most specific first.
    (re.compile(r"^(?:[!%$>] *)?(?:sudo )?(?:python[\d.]* -m )?pip[\d.]* install (?:-U |--upgrade )?"), ""),
    (re.compile(r"^[-*] +"), ""),
    (re.compile(r"""^["'](.*)["'],?$"""), r"\1"),
    (re.compile(r"^[\w./:-]+::"), ""),
    (re.compile(r"\s\^\s*(?=\d)"), ">="),
    (re.compile(r"\s~\s*(?=\d)"), "~="),
    (re.compile(r"[,;\s]+$"), ""),
    (re.compile(r"=>"), ">="),
    (re.compile(r"=<"), "<="),
    (re.compile(r"~>"), "~="),
    (re.compile(rf"^({_NAME})=([^=<>!~\s]+)=[\w.]+$"), r"\1==\2"),
    (re.compile(rf"^({_NAME})\s*=\s*([^=<>!~\s]+)"), r"\1==\2"),
    (re.compile(rf"^({_NAME})\s*[: @]\s*v?(\d[^\s,]*)$"), r"\1==\2"),
    (re.compile(r"([<>]=?\s*\d[\d.]*?)\.\*"), r"\1"),
    (re.compile(r"([<>=!~]=?\s*[\w.*+]+)\s+(?=[<>=!~])"), r"\1,"),
    (re.compile(r"([<>=!~])\s+="), r"\1="),
)

_SEVERAL = re.compile(rf"^(?:{_NAME}(?:[=<>!~]=?[\w.*]+)?(?:\s*,\s*|\s+|$)){{2,}}$")

_PROGRAMS = "conda|mamba|micromamba|apt|apt-get|brew|dnf|yum|module|source|export|cd|git|bash|curl|wget"

_INSTALL = r"^(?:[!%$>] *)?(?:sudo )?(?:python[\d.]* -m )?(?:uv )?pip[\d.]* install (?:.* )?"

_FOREIGN_LINES = (
    (
        re.compile(r"^\w[\w.-]*=[^=\s/]+=\w+$"),
        "a line of 'conda list --export'; use 'conda env export' to write an environment.yml",
    ),
    (
        re.compile(r"^[\w.-]+\s+\d\S*\s+(?:\S*_\d+|\d\w*|main|mkl|openblas|conda_forge)(?:\s+[\w./:-]+)?$"),
        "a line of 'conda list'; use 'conda env export' to write an environment.yml",
    ),
    (re.compile(r"^[\w.-]+==\S+\s+\(/"), "a package installed from a folder; write the folder, or only NAME==VERSION"),
    (
        re.compile(rf"{_INSTALL}(?:-i|--index-url)[ =]"),
        "a command; write each package on its own line, and the index on another: --extra-index-url URL",
    ),
    (
        re.compile(rf"{_INSTALL}-(?!U |-upgrade )"),
        "a command; write only the arguments after 'install', each option and package on its own line",
    ),
    (
        re.compile(rf"^(?:[!%$>] *)?(?:sudo )?(?:{_PROGRAMS})\s+[A-Za-z./~-]"),
        "a command; list packages, one per line, and put other commands into a [[step]] of an argosy.toml",
    ),
    (re.compile(r"^Package\s+Version\b"), "a table of 'pip list'; use 'pip freeze' to write a requirements file"),
    (re.compile(r"^(?:WARNING|ERROR|DEPRECATION): "), "a message of a program; remove it"),
    (re.compile(r"^\[[\w.-]+\]$"), "TOML; a project file must have the name pyproject.toml"),
    (re.compile(r"\{\{|\{%"), "a template; fill it in first"),
    (re.compile(r"^(?:<<<<<<< |=======$|>>>>>>> )"), "a merge conflict of git; choose one side"),
    (re.compile(r"^version https://git-lfs"), "a pointer of Git LFS, not the file itself; run git lfs pull"),
    (re.compile(r"^<(?:!DOCTYPE|html|\?xml)", re.IGNORECASE), "a web page; download the file itself"),
    (re.compile(r"^(?:import \w|from \w[\w.]* import )"), "Python code; list packages, one per line"),
    (re.compile("[\u00a0\u200b-\u200f\u2060\ufeff]"), "text with invisible characters; type the line again"),
    (re.compile("^[\u2013\u2014\u2212]|[\u201c\u201d\u2264\u2265]"), "text with typographic characters; use - and >="),
)
"""Patterns of lines of other programs and formats, with the rest of the hint."""

_COMMAND_OPTIONS = {
    **dict.fromkeys(("--no-deps", "--upgrade", "-U", "--user", "--quiet", "-q", "--force-reinstall"), "remove it"),
    "--install-option": "pip removed it; remove it here, too",
    "--no-build-isolation": "remove it, and pass --no-build-isolation NAME to argosy",
}


_PACKAGE_OF: Mapping[str, str] = {
    "cv2": "opencv-python-headless",  # opencv-python itself needs libGL, which images seldom have
    "opencv": "opencv-python-headless",
    "pil": "pillow",
    "pytorch": "torch",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow-gpu": "tensorflow",
    "yaml": "pyyaml",
}
"""Names that people write for a package: of a module, of conda or an old one -> name of the package in PyPI."""


def suggest_package(name: str) -> str:
    """Return the hint for a name that PyPI does not have, or has only to point to another one; empty for others."""
    if name == "pkg-resources":
        return "remove this line: pip freeze of Debian and Ubuntu adds it by mistake, and no index has it"
    return f"{name} is in the package {_PACKAGE_OF[name]}: write that name" if name in _PACKAGE_OF else ""


def _suggest_for_option(name: str, known: Iterable[str]) -> str:
    if name in _COMMAND_OPTIONS:
        return f"this is an option of the command 'pip install', not of files: {_COMMAND_OPTIONS[name]}"
    return did_you_mean(name, known, "see 'Requirements File Format' in pip's documentation")


def _suggest_for_foreign(text: str) -> str:
    """Return the hint for a line of another format; empty if the line may belong to a requirements file."""
    return next((f"this is {what}" for pattern, what in _FOREIGN_LINES if pattern.search(text)), "")


def _suggest_requirement(text: str) -> str:
    """Return a corrected line that pip accepts, or an empty string.

    Each correction is tried alone before all of them together, to change as little as possible.
    """
    guess = next((guess for guess in _guesses(text) if guess != text and _is_requirement(guess)), "")
    written = re.match(r"[\w.-]+", guess)
    package = _PACKAGE_OF.get(canonicalize_name(written[0])) if written else None
    return f"{package}{guess[written.end() :]}" if written and package else guess


def _suggest_for_index(line: str) -> str:
    """Return the hint for ``--index-url`` after a package. On a line of its own it would be the index of all packages.

    The address is taken from the line as written: an expanded variable may contain a secret.
    """
    found = re.search(r"(?:--index-url|--pypi-url|-i)[=\s]*(?P<url>\S+)", line)
    url = redact(found["url"]) if found else "URL"
    if of_torch := _TORCH_INDEX.match(url):
        return f"remove it, and pass --torch-backend {of_torch['name']} to argosy"
    return f"write --extra-index-url {url} on its own line: --index-url replaces PyPI for all packages"


_TORCH_INDEX = re.compile(r"https://download\.pytorch\.org/whl/(?P<name>cu\d+|rocm[\d.]+|xpu|cpu)/?\Z")


def _guesses(text: str) -> Iterator[str]:
    for pattern, meant in _REWRITES:
        yield pattern.sub(meant, text)
    every = text
    for pattern, meant in _REWRITES:
        every = pattern.sub(meant, every)
    yield every


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


SHORT = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}
VALUED = (
    *("--index-url", "--extra-index-url", "--find-links", "--requirement", "--constraint", "--editable"),
    *("--no-binary", "--only-binary", "--trusted-host", "--use-feature"),
)
FLAGS = ("--no-index", "--pre", "--require-hashes", "--prefer-binary")
PACKAGE_OPTIONS = ("--hash", "--config-settings", "--global-option")
SAME = {"--pypi-url": "--index-url", "--config-setting": "--config-settings", "-C": "--config-settings"}

HASH_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|git\+|hg\+|svn\+|bzr\+|file:")
_VCS = ("git+", "hg+", "svn+", "bzr+")
ARCHIVE = re.compile(r"(?i)\.(whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz|tar)(?=\[|;|\s|\Z)")
_LOCAL = re.compile(r"(?P<path>[^;]*?)(?P<extras>\[[^\]/]*\])?\s*(?:;(?P<marker>.*))?\Z")
_ROOT = re.compile(r"(?:file://)?/*(?:\$\{PROJECT_ROOT\}|\{root(?::parent)*:uri\})/*(?P<rest>.*)")
"""An address relative to the project: PDM and hatch replace the variable when they build the project."""
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_SCP = re.compile(r"(git\+)?(ssh://)?(\w+@[\w.-]+):(?!\d+/)(?=[\w.~-]+/)")
_SSH_URL = r"git+ssh://\3/"
_SHORT_SSH = re.compile(r"\w+@(?!file:)[\w.-]+:[\w.~-]+/")

_Option = tuple[str, str]


def parse_requirements(
    text: str, file: str, *, environment: Mapping[str, str], first_line: int = 1
) -> tuple[Entry, ...]:
    """Parse the text of a requirements file, or of one item below ``pip:`` in an environment file."""
    if "@EXPLICIT" in text.split():
        raise UsageError(
            f"cannot include {file}: it is an explicit list of conda packages",
            hint="pass it to argosy on its own, or list the packages in an environment.yml",
        )
    entries: list[Entry] = []
    for where, line in parse_lines(text, file, first=first_line):
        entries += _parse_line(line, where, environment)
    return tuple(entries)


def _parse_line(line: str, where: Where, environment: Mapping[str, str]) -> Iterator[Entry]:
    """Parse one logical line: a package with its options, or options for all of them."""
    if hint := _suggest_for_foreign(line):
        raise bad_line("invalid line in a requirements file", where, line, hint=hint)
    package, options = _split_options(expand(line, where, environment), where, line)
    for_one = [(name, value) for name, value in options if name in PACKAGE_OPTIONS]
    for_all = [(name, value) for name, value in options if name not in PACKAGE_OPTIONS]
    if package:
        if for_all:
            hint = _suggest_for_index(line) if for_all[0][0] == "--index-url" else "write it on its own line"
            raise bad_line(f"{for_all[0][0]} cannot follow a package", where, line, hint=hint)
        yield _with_options(parse_package(package, where, line), for_one, line)
        return
    entries = [_parse_option(name, value, where, line) for name, value in for_all]
    if for_one and not any(isinstance(entry, PipLine) for entry in entries):
        raise bad_line(f"{for_one[0][0]} needs a package before it", where, line)
    for entry in entries:
        yield _with_options(entry, for_one, line) if isinstance(entry, PipLine) else entry


def _split_options(text: str, where: Where, line: str) -> tuple[str, list[_Option]]:
    """Split a line at its first option, as pip does."""
    found = re.search(r"(?:^|\s)(?=-)", text)
    if not found:
        return text, []
    try:
        words = shlex.split(text[found.end() :])
    except ValueError as error:
        raise bad_line(f"missing closing quote ({error})", where, line) from error
    return text[: found.start()].strip(), list(_pair_options(words, where, line))


def _pair_options(words: list[str], where: Where, line: str) -> Iterator[_Option]:
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word.startswith("-") and not word.startswith("--") and len(word) > len("-r"):
            name, equals, value = word[:2], "=", word[2:].removeprefix("=")
        name = SHORT.get(name, SAME.get(name, name))
        if name in FLAGS:
            yield name, ""
            continue
        if name not in (*VALUED, *PACKAGE_OPTIONS):
            raise _unknown(name, where, line)
        value = value if equals else next(rest, "")
        if not value:
            raise bad_line(f"{name} needs a value", where, line)
        yield name, value


def _unknown(name: str, where: Where, line: str) -> UsageError:
    if not name.startswith("-"):
        hint = "write each package on its own line, and quote paths that contain spaces"
        return bad_line(f"unexpected argument '{name}'", where, line, hint=hint)
    hint = _suggest_for_option(name, (*VALUED, *FLAGS, *PACKAGE_OPTIONS))
    return bad_line(f"unknown option {name} in a requirements file", where, line, hint=hint)


def _parse_option(name: str, value: str, where: Where, line: str) -> Entry:
    if name in ("--requirement", "--constraint"):
        return Include(value, constraint=name == "--constraint", where=where)
    if name == "--editable":
        return replace(parse_package(value, where, line), editable=True)
    return PipOption(name.removeprefix("--"), value, where)


def _with_options(package: PipLine, options: list[_Option], line: str) -> PipLine:
    """Add hashes and build settings to a package."""
    hashes = tuple(value.lower() for name, value in options if name == "--hash")
    for item in hashes:
        algorithm, _, digest = item.partition(":")
        if len(digest) != HASH_DIGITS.get(algorithm) or not re.fullmatch("[0-9a-f]+", digest):
            hint = "write --hash=sha256:<64 hexadecimal digits>"
            raise bad_line(f"invalid hash '{item}'", package.where, line, hint=hint)
    if any(name == "--global-option" for name, _ in options):
        raise bad_line("--global-option is not supported", package.where, line, hint="use --config-settings KEY=VALUE")
    settings = tuple(value for name, value in options if name == "--config-settings")
    return replace(package, hashes=hashes, settings=settings)


def parse_package(text: str, where: Where, line: str) -> PipLine:
    """Parse a requirement in the form of PEP 508, a URL, a version control address, or a path."""
    if _SHORT_SSH.match(text):
        raise bad_line("ssh's short form is not a URL", where, line, hint=f"write {_SCP.sub(_SSH_URL, text)}")
    if _looks_local(text):
        return _parse_local(text, where, line)
    if _URL.match(text):
        return _parse_url(text, where, line)
    try:
        parsed = Requirement(text)
    except InvalidRequirement as error:
        raise _invalid_requirement(text, where, line, error) from error
    name = canonicalize_name(parsed.name)
    if name == "python":
        raise bad_line("Python is not a pip package", where, line, hint=_PYTHON_HINT)
    checked_marker(str(parsed.marker or ""), where, line)
    if parsed.url is None:
        return PipLine(line, name, PipKind.INDEX, where, spec=text)
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return _with_url(PipLine(line, name, PipKind.URL, where, spec=text, extras=extras), parsed.url, parsed.marker)


def locked_line(
    name: str, where: Where, *, version: str = "", address: str = "", path: str = "", marker: str = "",
    extras: Iterable[str] = (), hashes: Iterable[str] = (),
) -> PipLine:  # fmt: skip
    """Return the line of a package of a lock: at its path, at its address, or else at its version."""
    own, names = tuple(sorted(filter(None, hashes))), f"[{','.join(sorted(extras))}]" if extras else ""
    if path:
        return PipLine(path, "", PipKind.LOCAL, where, path=path, extras=names, marker=marker, hashes=own)
    suffix = f" ; {checked_marker(marker, where)}" if marker else ""
    if address:
        found = parse_package(f"{name}{names} @ {address}{suffix}", where, address)
        return found if found.kind is PipKind.VCS else replace(found, hashes=own)
    if not version:
        raise UsageError(f"{name} has no version", evidence=str(where), hint="lock again with its own tool")
    spec = f"{name}{names}=={version}{suffix}"
    return PipLine(spec, name, PipKind.INDEX, where, spec=spec, hashes=own)


def at_commit(url: str) -> str:
    """Return the address of a git package in pip's form: locks write ``URL?subdirectory=FOLDER&rev=NAME#COMMIT``."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if not parts.fragment or "=" in parts.fragment:
        return url
    folder = parse_qs(parts.query).get("subdirectory", [""])[0]
    suffix = f"#subdirectory={quote(folder)}" if folder else ""
    return f"{parts._replace(query='', fragment='').geturl()}@{parts.fragment}{suffix}"


def package_of(file: str) -> tuple[str, str]:
    """Return package and version from the file name of a wheel or sdist; empty texts for other names."""
    try:
        name, version = parse_wheel_filename(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return "", ""
    return name, str(version)


_PYTHON_HINT = "choose a base with the Python that you need, or write 'python=3.11' in an environment.yml"


def _looks_local(text: str) -> bool:
    if text.startswith((".", "/", "~")):
        return True
    plain = not _URL.match(text) and "@" not in text
    return plain and ("/" in text.partition(";")[0] or bool(ARCHIVE.search(text)))


def _parse_local(text: str, where: Where, line: str) -> PipLine:
    found = _LOCAL.match(text)
    if not found or not found["path"].strip():
        raise bad_line("expected a path", where, line)
    marker = checked_marker(found["marker"] or "", where, line)
    extras = (found["extras"] or "").replace(" ", "")
    return PipLine(line, "", PipKind.LOCAL, where, path=found["path"].strip(), extras=extras, marker=marker)


def _parse_url(text: str, where: Where, line: str) -> PipLine:
    """Parse an address without a name, or with the name in ``#egg=NAME``."""
    address, _, marker = text.partition(" ;") if " ;" in text else text.partition("; ")
    checked_marker(marker, where, line)
    if address.startswith(_VCS) and _SCP.match(address):
        raise bad_line("ssh's short form is not a URL", where, line, hint=f"write {_SCP.sub(_SSH_URL, address)}")
    egg = _EGG.search(address)
    name = canonicalize_name(egg[1]) if egg else ""
    package = PipLine(line, name, PipKind.URL, where, spec=text)
    return _with_url(package, address.strip(), marker.strip())


def _with_url(package: PipLine, url: str, marker: Marker | str | None) -> PipLine:
    """Set the kind of a package by its address."""
    if url.startswith(_VCS):
        if not url.startswith("git+"):
            hint = "write a release as NAME==VERSION, or the path of a local copy"
            raise bad_line("git is the only supported version control", package.where, package.text, hint=hint)
        return replace(package, kind=PipKind.VCS)
    if found := _ROOT.match(url):
        path = "../" * found[0].count(":parent") + found["rest"] or "."
        name = package.name or "NAME"
        hint = (
            f'write {name} without the address, and below [tool.uv.sources]: {name} = {{ path = "{path.rstrip("/")}" }}'
        )
        raise bad_line("the address has a variable of PDM or hatch", package.where, package.text, hint=hint)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise bad_line(f"invalid URL ({error})", package.where, package.text) from error
    if parts.scheme == "file":
        path = unquote(parts.path) or "/"
        return replace(package, kind=PipKind.LOCAL, spec="", path=path, marker=str(marker or ""))
    if not parts.scheme:
        guess = _suggest_requirement(package.text)
        hint = f"did you mean {guess}?" if guess else "write NAME==VERSION for a version, or NAME for the newest"
        raise bad_line("expected an address after '@'", package.where, package.text, hint=hint)
    if parts.scheme not in ("http", "https"):
        hint = {"git": "git+https://…", "ssh": "git+ssh://…"}.get(parts.scheme, "")
        what = f"cannot download a package by '{parts.scheme}'"
        raise bad_line(what, package.where, package.text, hint=f"write {hint}" if hint else "")
    return package


def _invalid_requirement(text: str, where: Where, line: str, error: InvalidRequirement) -> UsageError:
    guess = _suggest_requirement(text)
    reason = str(error).splitlines()[0].strip()
    other = "write one package per line" if _SEVERAL.match(text) else f"write NAME[EXTRA]==VERSION; {reason}"
    hint = f"did you mean {guess}?" if guess else other
    return bad_line("invalid requirement", where, line, hint=hint)
