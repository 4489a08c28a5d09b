"""Guess what a broken line was meant to be; it never changes what is built, it only words a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.requirements import InvalidRequirement, Requirement

from argosy.nearest import nearest_word

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?"
_REWRITES = (
    # What was written, and what it usually means.  Order: the most specific first.
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

_OF_OTHERS = (
    (
        re.compile(r"^\w[\w.-]*=[^=\s/]+=\w+$"),
        "a line of 'conda list --export': 'conda env export' writes an environment.yml",
    ),
    (
        re.compile(r"^[\w.-]+\s+\d\S*\s+\S*_\d+(?:\s+[\w./:-]+)?$"),
        "a line of 'conda list': 'conda env export' writes an environment.yml",
    ),
    (
        re.compile(r"^[\w.-]+==\S+\s+\(/"),
        "a package that is installed from a folder: name the folder, or NAME==VERSION alone",
    ),
    (
        re.compile(r"^(?:[!%$>] *)?(?:sudo )?(?:python[\d.]* -m )?(?:uv )?pip[\d.]* install (?:.* )?-(?!U |-upgrade )"),
        "a command: write what stands behind 'install', each option and each package on a line of its own",
    ),
    (
        re.compile(rf"^(?:[!%$>] *)?(?:sudo )?(?:{_PROGRAMS})\s+[A-Za-z./~-]"),
        "a command: name the packages, one a line; what it is to do can be a [[step]] of an argosy.toml",
    ),
    (re.compile(r"^Package\s+Version\b"), "a table of 'pip list': 'pip freeze' writes a requirements file"),
    (re.compile(r"^(?:WARNING|ERROR|DEPRECATION): "), "a message that got into the file: take it out"),
    (re.compile(r"^\[[\w.-]+\]$"), "TOML: a project is read from its pyproject.toml, by that name"),
    (re.compile(r"\{\{|\{%"), "a template: fill it in first"),
    (re.compile(r"^(?:<<<<<<< |=======$|>>>>>>> )"), "left of a conflict that git could not merge: choose one side"),
    (re.compile(r"^version https://git-lfs"), "a pointer of Git LFS, and not the file: git lfs pull"),
    (re.compile(r"^<(?:!DOCTYPE|html|\?xml)", re.IGNORECASE), "a web page: download the file itself"),
    (re.compile(r"^(?:import \w|from \w[\w.]* import )"), "Python: name the packages, one a line"),
    (re.compile("[\u00a0\u200b-\u200f\u2060\ufeff]"), "copied with invisible characters: type the line anew"),
    (re.compile("^[\u2013\u2014\u2212]|[\u201c\u201d\u2264\u2265]"), "typeset: write - and >= as a keyboard does"),
)
"""Lines of other programs and formats, as they are found in files of that name."""

_OF_COMMANDS = {
    **dict.fromkeys(("--no-deps", "--upgrade", "-U", "--user", "--quiet", "-q", "--force-reinstall"), "take it out"),
    "--install-option": "pip has it no more, take it out",
    "--no-build-isolation": "take it out, and say --no-build-isolation NAME to argosy",
}


def suggest_for_option(name: str, known: Iterable[str]) -> str:
    """Say what to do about an option that no requirements file knows."""
    if name in _OF_COMMANDS:
        return f"an option of the command 'pip install', and not of files: {_OF_COMMANDS[name]}"
    near = nearest_word(name, known)
    return f"did you mean {near}?" if near else "see 'Requirements File Format' in pip's documentation"


def suggest_for_foreign(text: str) -> str:
    """Say what a line is that no requirements file has, and what to do about it; nothing where it may be one of its."""
    return next((f"this is {what}" for pattern, what in _OF_OTHERS if pattern.search(text)), "")


def suggest_requirement(text: str) -> str:
    """Give the nearest line that pip would understand, or nothing.

    One rewriting alone is tried before all of them together, so that as little as possible is changed.
    """
    return next((guess for guess in _guesses(text) if guess != text and _is_requirement(guess)), "")


def suggest_for_several(text: str) -> str:
    """Say what to do about a line that names several packages; nothing where it does not."""
    return "write one package a line" if _SEVERAL.match(text) else ""


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
