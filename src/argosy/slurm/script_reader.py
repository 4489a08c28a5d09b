"""Parse a hand-written job script: its ``#SBATCH`` options and its statements, with the line of each; pure.

tree-sitter's grammar of bash finds the parts, so that quotes, continued lines, here-documents and nested commands are
read as bash reads them.  Nothing is run, and a variable keeps its place in a word until `expand` fills it in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Literal, NamedTuple

import msgspec
from tree_sitter import Node

from argosy.core.records import replace
from argosy.slurm.bash_tree import captured, node_text, parse_bash
from argosy.slurm.bash_words import parse_word, value_parts
from argosy.slurm.sbatch import SBATCH_FLAGS, Option, split_options
from argosy.slurm.script_words import Word, WordPart

SHELL = re.compile(r"#!.*\b(?:ba|da|k|mk|z|a)?sh\b")
"""First line of a script that a POSIX shell runs; the grammar does not fit csh and Python."""

LAST_BACKSLASH = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*\Z")
"""A backslash at the end of a script, behind which no line follows that it could continue."""

OWNERS = frozenset({"command", "declaration_command"})
"""Nodes that contain the assignments which belong to them."""

LISTS = frozenset({"program", "list"})
"""Nodes of the syntax tree whose children are statements that run in sequence."""

ASSIGNMENTS = frozenset({"variable_assignment", "variable_assignments", "declaration_command"})

EXPORT = re.compile(r"export\b|(declare|typeset|local)\s+-\w*x")
"""Declarations that export their variables."""


class Assignment(NamedTuple):
    """A variable that a statement sets."""

    name: str
    words: tuple[Word, ...]
    """The value; an array has any number of words, any other value has one.

    ``NAME+=value`` appends to the old value, so the first word begins with the variable itself. ``export NAME`` leaves
    the value as it is: its only word is the variable itself.
    """


class Statement(msgspec.Struct, frozen=True):
    """One statement of a script."""

    line: int
    end: int
    """First and last line, from 1."""
    kind: Literal["command", "assignment", "compound"]
    """``command``, ``assignment``, or ``compound`` for loops, conditions, functions and everything else."""
    text: str
    """The statement as it is written."""
    words: tuple[Word, ...] = ()
    """The words of a command."""
    assigned: tuple[Assignment, ...] = ()
    """Variables that an assignment sets, or that precede a command."""
    exported: bool = False
    """Whether the assignment exports its variables."""
    redirects: str = ""
    """Redirections of a command's output, as they are written."""
    inputs: tuple[Word, ...] = ()
    """Files that the command reads as its standard input."""
    background: bool = False
    """Whether ``&`` follows the command."""
    condition: str = ""
    """``&&`` or ``||`` if it stands before the statement: the statement depends on the one before it."""
    commands: tuple[str, ...] = ()
    """Names of the commands inside a compound statement."""

    @property
    def place(self) -> str:
        """Its lines in words."""
        return f"lines {self.line} to {self.end}" if self.end > self.line else f"line {self.line}"


class JobScript(msgspec.Struct, frozen=True):
    """A job script: options that sbatch reads, those below the first command, and the statements in order."""

    options: tuple[Option, ...]
    late_options: tuple[Option, ...]
    statements: tuple[Statement, ...]
    commands: tuple[Statement, ...] = ()
    """Every command and assignment at any depth, also in loops, functions and ``$(…)``, without here-documents."""
    texts: tuple[tuple[int, int], ...] = ()
    """First and last line of each here-document, and of each quoted text from its second line."""


def parse_job_script(text: str) -> JobScript:
    """Parse a job script. A part that is not valid bash becomes a ``compound`` statement.

    A script for another interpreter than a POSIX shell has options, but no statements.
    """
    text = LAST_BACKSLASH.sub(r"\1\n", text.replace("\r\n", "\n"))
    lines = text.split("\n")
    is_shell = not lines[0].startswith("#!") or SHELL.match(lines[0])
    root = parse_bash(text if is_shell else "")
    documents = (_lines(node) for node in captured(root, "(heredoc_body) @it"))
    quoted = (_lines(node) for node in captured(root, "(raw_string) @it (string) @it"))
    texts = (*documents, *((start + 1, end) for start, end in quoted if end > start))
    inner = {line for start, end in texts for line in range(start, end + 1)}
    options: list[Option] = []
    late: list[Option] = []
    into = options
    for number, line in enumerate(lines, 1):
        if line.startswith("#SBATCH") and not line[7:8].isalnum():
            into.extend(
                split_options(_split_words(line[7:]), flags=SBATCH_FLAGS, line=number)[0] if number not in inner else ()
            )
        elif line.strip() and not line.lstrip().startswith("#"):
            into = late
    return JobScript(tuple(options), tuple(late), tuple(_walk_statements(root)), _collect_commands(root), texts)


def parse_commands(text: str) -> tuple[Statement, ...]:
    """Parse every command and assignment of shell text, at any depth."""
    return _collect_commands(parse_bash(text))


def _collect_commands(root: Node) -> tuple[Statement, ...]:
    substitutions = captured(root, "(command_substitution) @it")
    others = (*captured(root, "(heredoc_body) @it"), *(each for each in substitutions if _is_arithmetic(each)))
    ranges = [(node.start_byte, node.end_byte) for node in others]
    found = captured(root, "(command) @it (declaration_command) @it (variable_assignment) @it (unset_command) @it")
    return tuple(
        _parse_simple(node)
        for node in sorted(found, key=lambda node: (node.start_byte, -node.end_byte))
        if not any(start <= node.start_byte < end for start, end in ranges)
        and not (node.type == "variable_assignment" and node.parent and node.parent.type in OWNERS)
    )


def _is_arithmetic(substitution: Node) -> bool:
    """Return whether commands are arithmetic: the grammar takes ``$((N * 2))`` in a default for a subshell."""
    text = substitution.text or b""
    return text.startswith(b"$((") and text.endswith(b"))")


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Parse the statements of shell text, for example of the argument of ``bash -c``."""
    return tuple(_walk_statements(parse_bash(text)))


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _lines(node: Node) -> tuple[int, int]:
    return node.start_point[0] + 1, node.end_point[0] + 1


def _walk_statements(root: Node) -> Iterator[Statement]:
    """Find the statements below a node in order; ``a && b`` and ``a; b`` are two.

    A list of a thousand commands is a tree of that depth, so this does not recurse.
    """
    waiting = [(root, False, "")]
    while waiting:
        node, background, condition = waiting.pop()
        if node.type not in LISTS:
            yield replace(_parse_statement(node), background=background, condition=condition)
            continue
        children = node.children
        before = condition
        found: list[tuple[Node, bool, str]] = []
        for child, after in zip_longest(children, children[1:]):
            if child.is_named and child.type != "comment":
                found.append((child, background or (after is not None and after.type == "&"), before))
            before = child.type if child.type in {"&&", "||"} else ""
        waiting += reversed(found)


def _parse_statement(node: Node) -> Statement:
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        if body is None or body.type != "command" or _has_document(node) or _has_document(body):
            return _parse_compound(node)
        return _parse_redirected(body, whole=node)
    if node.type == "pipeline":
        return _parse_pipeline(node)
    is_simple = node.type in ASSIGNMENTS or node.type == "unset_command"
    is_command = node.type == "command" and not (node.has_error or _has_document(node))
    if _is_misread(node) or not (is_simple or is_command):
        return _parse_compound(node)
    return _parse_redirected(node, whole=node) if is_command else _parse_simple(node)


def _is_misread(node: Node) -> bool:
    r"""Return whether the grammar joined two lines, the second of which begins with ``\cp``, or cut ``A=$B\_$C``."""
    children = node.named_children if node.type in OWNERS else []
    words = [each for each in children if not each.type.endswith("_redirect")]
    return any((each.text or b"").startswith(b"\n") for each in words) or any(
        each.end_byte == after.start_byte for each, after in pairwise(words)
    )


def _has_document(node: Node) -> bool:
    """Return whether a command has a here-document or a here-string."""
    return any(child.type in {"heredoc_redirect", "herestring_redirect"} for child in node.named_children)


def _parse_redirected(command: Node, *, whole: Node) -> Statement:
    """Parse a command with its redirections, which may stand before, between and behind its arguments.

    The grammar takes the arguments behind a redirection for further files of it.
    """
    line, end = _lines(whole)
    parents = dict.fromkeys((command, whole))
    redirects = [child for node in parents for child in node.named_children if child.type == "file_redirect"]
    files = {each: each.children_by_field_name("destination") for each in redirects}
    inputs = [each for each in redirects if any(child.type == "<" for child in each.children)]
    arguments = [parse_word(word) for words in files.values() for word in words[1:]]
    simple = _parse_simple(command)
    return replace(
        simple,
        line=line,
        end=end,
        text=node_text(whole),
        words=(*simple.words, *arguments),
        redirects=" ".join(_redirect_text(each, words) for each, words in files.items() if each not in inputs),
        inputs=tuple(parse_word(files[each][0]) for each in inputs if files[each]),
    )


def _redirect_text(redirect: Node, files: list[Node]) -> str:
    text = redirect.text or b""
    return (text[: files[0].end_byte - redirect.start_byte] if files else text).decode(errors="replace")


def _parse_simple(node: Node) -> Statement:
    """Parse one command or assignment."""
    line, end = _lines(node)
    text = node_text(node)
    if node.type in ASSIGNMENTS:
        is_exported = bool(node.type == "declaration_command" and EXPORT.match(text))
        return Statement(line, end, "assignment", text, (), tuple(_parse_assignments(node)), is_exported)
    if node.type == "unset_command":
        return Statement(
            line, end, "command", text, ((WordPart("text", "unset"),), *map(parse_word, node.named_children))
        )
    return Statement(line, end, "command", text, tuple(_command_words(node)), tuple(_parse_assignments(node)))


def _parse_compound(node: Node) -> Statement:
    line, end = _lines(node)
    return Statement(line, end, "compound", node_text(node), commands=tuple(_command_names(node)))


def _command_names(node: Node) -> Iterator[str]:
    if node.type == "command_name":
        yield node_text(node)
    elif node.type == "command_substitution":
        return
    for child in node.named_children:
        yield from _command_names(child)


def _parse_pipeline(node: Node) -> Statement:
    """Parse ``COMMAND | tee FILE`` as COMMAND with a redirection; any other pipeline is not taken apart."""
    _, end = _lines(node)
    first, *others = node.named_children
    is_output = all(each.type == "command" and node_text(each).startswith(("tee", "ts", "cat")) for each in others)
    if not is_output:
        return _parse_compound(node)
    inner = _parse_statement(first)
    redirects = " ".join((inner.redirects, "|", *(node_text(each) for each in others))).strip()
    return replace(inner, text=node_text(node), end=end, redirects=redirects)


def _parse_assignments(node: Node) -> Iterator[Assignment]:
    """Parse the assignments of a declaration, of a command or of a line that only assigns."""
    children = [node] if node.type == "variable_assignment" else node.named_children
    options = [node_text(each) for each in children if each.type == "word"]
    for each in children:
        if each.type == "variable_name" and not options:
            yield Assignment(node_text(each), ((WordPart("variable", node_text(each), quoted=True),),))
        name, value = each.child_by_field_name("name"), each.child_by_field_name("value")
        if each.type != "variable_assignment" or name is None or name.type != "variable_name":
            continue
        before = WordPart("variable", node_text(name), "", quoted=True)
        is_added = any(child.type == "+=" for child in each.children)
        if value is None:
            yield Assignment(node_text(name), ((WordPart("text", ""),),))
        elif value.type == "array":
            words = tuple(parse_word(part) for part in value.named_children if part.type != "comment")
            yield Assignment(node_text(name), ((replace(before, all_elements=True),), *words) if is_added else words)
        else:
            text = tuple(value_parts(parse_word(value)))
            yield Assignment(node_text(name), ((before, *text) if is_added else text,))


def _command_words(node: Node) -> Iterator[Word]:
    for child in node.named_children:
        if child.type == "command_name":
            yield parse_word(child.named_children[0] if child.named_children else child)
        elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "comment"}:
            yield parse_word(child)
