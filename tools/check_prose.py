# noqa: INP001 - a program, not a package
"""Find phrases that the style of this project does not allow: run by `make check`.

Usage: `python tools/check_prose.py [PATH ...]`. Without arguments the script reads the paths in `CHECKED`.
It prints file, line, sentence and a suggestion for each finding, and exits with 1 if there is one.

It reads Markdown without code, strings and comments of Python files, TOML files, and comments of shell scripts.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[1]

CHECKED = (
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "pyproject.toml",
    ".ci/run",
    "docs/**/*.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "gpu/**/*.py",
    "lab/README.md",
    "lab/cluster",
    "lab/in",
    "lab/rootfs",
    "lab/lib/*.sh",
    "contrib/**/*.md",
    "contrib/**/*.py",
    "packaging/*",
    "packaging/bundle/*",
    "src/argosy/**/*.py",
    "src/argosy/**/*.sh",
    "src/argosy/diagnostics/why/marks.toml",
    "src/argosy/diagnostics/why/signatures/*.toml",
    "tools/*",
)
"""Paths that must be clean."""

GENERATED = (
    "docs/reference/argosy-toml.md",
    "docs/reference/cli.md",
    "docs/reference/cli/*.md",
    "docs/reference/figures.md",
    "docs/reference/gpu.md",
    "docs/reference/python.md",
    "docs/reference/runtimes.md",
    "docs/reference/site-profile.md",
    "docs/reference/sites/*.md",
)
"""Pages that `tools/make_reference.py` and `python -m bench` write: their source is checked instead."""

EXCEPTIONS = {
    "tools/check_prose.py": "it contains the phrases themselves",
    "lab/lib/recipe.sh": "the name of the lab's root file system contains its digest",
}
"""Files that are never checked, each with the reason."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for a normalised sentence, and what to write instead."""

    pattern: re.Pattern[str]
    advice: str


def _rule(pattern: str, advice: str) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), advice)


PARTICIPLES = r"\w+ed|\w+en|yet|run|read|set|got|found|made|met|kept|built|left|sent|begun|put|cut|become|come|gone|had"

RULES = (
    _rule(
        r"\b(is|are|was|were|be) (also )?(said|told)\b", "write who reports it: 'Argosy prints …', 'the error names …'"
    ),
    _rule(r"\bsays so\b", "write what is printed, or where"),
    _rule(r"\bof (ours|yours|theirs)\b", "use 'our', 'your', 'their'"),
    _rule(r"(?<!here )\b(is|are) no (?!longer\b|more than\b|less than\b)[a-z]", "use 'is not a …'"),
    _rule(rf"\b(has|have) not (?!(been|{PARTICIPLES})\b)", "use 'does not have'"),
    _rule(r"\bnone of (them|it|these)\b", "use 'not among …', 'no …'"),
    _rule(r"\b(leave|leaves|left|leaving) (\w+ )?away\b", "use 'omit', 'without'"),
    _rule(r"\bways? out\b", "use 'hint' or 'fix'"),
    _rule(r"\bas \d+[GMK]B?\b", "use 'for example 60G'"),
    _rule(r"\banew\b", "use 'again' or 'rebuild'"),
    _rule(r"\bstands? (for|there|in|as|beside|at|on)\b", "use 'is', 'means' or 'appears'"),
    _rule(r"\bone after the other\b", "use 'in sequence' or 'one at a time'"),
    _rule(r"\bwithout a word\b", "use 'without a warning'"),
    _rule(r"\bfor whom?( \w+)? (wants?|has|have|needs?)\b", "use 'if you …', 'users who …'"),
    _rule(r"\bother way (a)?round\b", "use 'in the opposite direction', 'vice versa'"),
    _rule(r"\bbeside\b", "use 'next to', 'in addition to' or 'compared with'"),
    _rule(r"\bhas no word\b", "use 'has no option'"),
    _rule(r"\bwhere (none|it is not|it has|there (is|are)|nothing|nobody)\b", "use 'if' for a condition"),
    _rule(r"\bgoes? on\b(?! PATH)", "use 'continues'"),
    _rule(r"\bcarriers?\b", "use 'build backend'"),
    _rule(r"\b(in the )?own words\b", "use 'syntax', 'options' or 'message'"),
    _rule(r"\bfound wanting\b|\bcannot be had\b|\bis to be had\b", "use 'is not available'"),
)

STARTS = re.compile(r"^(What|Who|Whoever|Where|Whose) (?!.*\?[\"')*]*$)")
START_ADVICE = "begin with the subject; use 'if' for a condition"
SEMICOLONS = 2
SEMICOLON_ADVICE = "write separate sentences"


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence with the line of each."""

    words: tuple[str, ...]
    lines: tuple[int, ...]
    heading: bool = False
    """A heading or a table cell: it may begin with a question word."""

    @property
    def text(self) -> str:
        """Return the words, joined by single spaces."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence that breaks a rule."""

    path: str
    line: int
    sentence: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}\n    {self.advice}"


END = re.compile(r"[.!?:][\"')*]*$")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
HEADING = re.compile(r"^#+ ")


def split_sentences(text: str, first: int = 1) -> Iterator[Sentence]:
    """Split a text whose first line has the number `first`.

    Table cells, list items, headings and changes of the indentation end a sentence.
    """
    words: list[str] = []
    lines: list[int] = []
    indent: int | None = None
    for number, line in enumerate([*text.splitlines(), ""], first):
        heading, row = bool(HEADING.match(line)), line.lstrip().startswith("|")
        before, indent = indent, len(line) - len(line.lstrip())
        # In the sections of a docstring, the description of a parameter is indented more than its name.
        other = before is not None and indent != before
        if number == first or ITEM.match(line):
            indent = None
        if words and (not line.strip() or heading or row or other or ITEM.match(line)):
            yield from _split(words, lines)
            words, lines = [], []
        if row or heading:
            for cell in line.split("|") if row else [HEADING.sub("", line)]:
                found = cell.split()
                yield from _split(found, [number] * len(found), heading=True)
            continue
        found = ITEM.sub("", line).split()
        words += found
        lines += [number] * len(found)


def _split(words: Sequence[str], lines: Sequence[int], *, heading: bool = False) -> Iterator[Sentence]:
    start = 0
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else "A"
        if END.search(word) and not following[0].islower():
            yield Sentence(tuple(words[start : index + 1]), tuple(lines[start : index + 1]), heading)
            start = index + 1
    if words[start:]:
        yield Sentence(tuple(words[start:]), tuple(lines[start:]), heading)


def find_in(sentence: Sentence, path: str) -> Iterator[Finding]:
    """Find the rules that a sentence breaks."""
    text = sentence.text
    for rule in RULES:
        for match in rule.pattern.finditer(text):
            line = sentence.lines[text.count(" ", 0, match.start())]
            yield Finding(path, line, text, rule.advice)
    if STARTS.search(text) and not sentence.heading:
        yield Finding(path, sentence.lines[0], text, START_ADVICE)
    if (
        text.count(";") >= SEMICOLONS and ":" not in text and not sentence.heading
    ):  # after a colon they separate the items of a list
        yield Finding(path, sentence.lines[0], text, SEMICOLON_ADVICE)


def _blank(text: str, pattern: str, instead: str = "") -> str:
    """Replace matches, and keep the number of lines."""
    found = re.compile(pattern, re.MULTILINE | re.DOTALL)
    return found.sub(lambda match: instead + "\n" * match[0].count("\n"), text)


def read_markdown(text: str) -> Iterator[Sentence]:
    """Read the prose of a page: no code, no comments, no addresses of links."""
    text = _blank(text, r"^ *```.*?^ *```$")
    text = _blank(text, r"(?<=\n\n)( {4}[^\n]*\n)+")
    text = _blank(text, r"<!--.*?-->")
    text = _blank(text, r"``?[^`]+``?", "CODE")
    yield from split_sentences(_blank(text, r"\]\([^)]*\)"))


def read_python(text: str) -> Iterator[Sentence]:
    """Read strings, formatted ones too, and comments."""
    inside = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            parts = (value.value if isinstance(value, ast.Constant) else "VALUE" for value in node.values)
            yield from _read_string("".join(map(str, parts)), node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield from _read_string(node.value, node.lineno)
    comments = [
        (token.start[0], token.string.lstrip("#: "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("#!")
    ]
    yield from _read_comments(comments)


def _read_string(text: str, line: int) -> Iterator[Sentence]:
    if " " in text:
        yield from split_sentences(_blank(text, r"``?[^`]+``?", "CODE"), line)


def _read_comments(comments: Sequence[tuple[int, str]]) -> Iterator[Sentence]:
    """Join comments on consecutive lines."""
    at = 0
    while at < len(comments):
        first, texts = comments[at][0], [comments[at][1]]
        while at + 1 < len(comments) and comments[at + 1][0] == comments[at][0] + 1:
            at += 1
            texts.append(comments[at][1])
        yield from split_sentences(_blank("\n".join(texts), r"``?[^`]+``?", "CODE"), first)
        at += 1


def read_shell(text: str) -> Iterator[Sentence]:
    """Read the comments of a shell script."""
    found = ((number, re.search(r"(?:^|\s)#(?!!)\s*(.*)", line)) for number, line in enumerate(text.splitlines(), 1))
    yield from _read_comments([(number, match[1]) for number, match in found if match])


def read_toml(text: str) -> Iterator[Sentence]:
    """Read a TOML file line by line: comments and strings."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from split_sentences(line.lstrip("# ").replace("|", " "), number)


READERS = {".md": read_markdown, ".py": read_python, ".toml": read_toml, ".sh": read_shell}


def check(path: Path) -> list[Finding]:
    """Return the findings of a file."""
    name = str(path.relative_to(REPO)) if path.is_relative_to(REPO) else str(path)
    reader = READERS.get(path.suffix, read_shell)
    return [found for sentence in reader(path.read_text(encoding="utf-8")) for found in find_in(sentence, name)]


def checked_files(patterns: Sequence[str] = CHECKED) -> list[Path]:
    """Return the files that the patterns name, without generated pages and exceptions."""
    left_out = {path for pattern in GENERATED for path in REPO.glob(pattern)} | {REPO / n for n in EXCEPTIONS}
    found = {path for pattern in patterns for path in REPO.glob(pattern) if path.is_file()}
    return sorted(found - left_out)


def _files(path: Path) -> list[Path]:
    """Return the files of a folder that a reader understands, or the file itself."""
    return sorted(file for file in path.rglob("*") if file.suffix in READERS) if path.is_dir() else [path]


def main(arguments: Sequence[str]) -> int:
    """Print the findings, and return the exit code."""
    paths = [path for argument in arguments for path in _files(Path(argument).resolve())] or checked_files()
    findings = [finding for path in paths for finding in check(path)]
    for finding in findings:
        print(finding)  # noqa: T201 - its interface
    if findings:
        print(f"{len(findings)} phrases to reword", file=sys.stderr)  # noqa: T201 - its interface
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
