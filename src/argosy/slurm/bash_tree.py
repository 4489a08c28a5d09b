"""Parse shell text into the syntax tree of tree-sitter's grammar of bash, and decode its ``$'…'`` quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from operator import itemgetter

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

NAME = re.compile(rb"[A-Za-z_]\w*|\d")
NEW_LINE = re.compile(rb"(?<!\\)\n")
HERE = re.compile(rb"")
BACKQUOTE, IN_WORD = re.compile(rb"`"), re.compile(rb"[\w:/.,+%@}-]")

ROUNDS = 20
"""The most rounds of corrections. In text that is not a script, a correction may have no effect and come again."""

Edit = tuple[int, re.Pattern[bytes], bytes]
"""A position in the text, what is replaced there, and by what."""

ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|c(?P<control>.)|(?P<sign>.))",
    re.DOTALL,
)

SIGNS: Mapping[str, str] = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True)) | {
    each: each for each in "\\'\"?"
}
"""Letter behind a backslash -> the character that it means; another letter keeps its backslash."""


def parse_bash(text: str) -> Node:
    """Return the root of the syntax tree of shell text.

    tree-sitter-bash 0.25 misreads three forms, which are changed before the text is parsed again. It ends a word at the
    second variable of ``$A/$B/c``, and reads ``B/c`` as the next word: such a variable gets braces. And it joins a line
    ``A=1 B=2`` with the next one, as if both were one command: the line gets a semicolon. And it ends a word at a
    backquote, as in ``tcp:`hostname`:1``: the backquotes become ``$(…)``.
    """
    source = text.encode()
    root = _parser().parse(source).root_node
    for _ in range(ROUNDS):
        edits = [*_cut_variables(root, source), *_joined_lines(root, source), *_backquotes(root, source)]
        if not edits:
            break
        for at, pattern, new in sorted(edits, key=itemgetter(0), reverse=True):
            source = source[:at] + pattern.sub(new, source[at:], count=1)
        root = _parser().parse(source).root_node
    return root


def _cut_variables(root: Node, source: bytes) -> list[Edit]:
    """Return the edits of variables of which only the dollar sign is in the word."""
    ends = (node.end_byte for node in captured(root, '(concatenation "$" @it)'))
    return [(at, NAME, rb"{\g<0>}") for at in ends if NAME.match(source, at)]


def _joined_lines(root: Node, source: bytes) -> list[Edit]:
    """Return the edits of assignments that are joined with a command on a later line."""
    found = list[Edit]()
    for node in captured(root, "(command (variable_assignment) @it)"):
        after = node.next_named_sibling
        while after and after.type == "comment":
            after = after.next_named_sibling
        if after and NEW_LINE.search(source, node.end_byte, after.start_byte):
            found.append((node.end_byte, HERE, b";"))
    return found


def _backquotes(root: Node, source: bytes) -> list[Edit]:
    """Return the edits of commands between backquotes behind other text, unless they contain a backslash."""
    found = list[Edit]()
    for node in captured(root, "(command_substitution) @it"):
        start, end = node.start_byte, node.end_byte
        inside = source[start + 1 : end - 1]
        if source[start : start + 1] == b"`" and IN_WORD.match(source, start - 1) and not re.search(rb"[\\`]", inside):
            found += [(start, BACKQUOTE, b"$("), (end - 1, BACKQUOTE, b")")]
    return found


def captured(root: Node, query: str) -> list[Node]:
    """Return the nodes below `root` that a query captures as ``@it``."""
    return QueryCursor(_query(query)).captures(root).get("it", [])


def node_text(node: Node) -> str:
    """Return the text of a node as it is written."""
    return (node.text or b"").decode(errors="replace")


READ_AS_COMMANDS = re.compile(r"\b(eval|trap)\b|/dev/stdin")
"""Commands for which a text is the text of further commands."""

TEXTS = "(string_content) @it (raw_string) @it (ansi_c_string) @it (heredoc_body) @it (comment) @it"
QUOTES: Mapping[str, tuple[int, int]] = {"raw_string": (1, 1), "ansi_c_string": (2, 1)}
"""Number of signs before and behind the text."""

NOT_NEW_LINE = re.compile(rb"[^\n]")


def without_texts(text: str, *, keep_run: bool = True) -> str:
    """Return shell text with ``_`` in place of its comments, here-documents and the plain text between quotes.

    `keep_run` keeps texts that the shell may run: those of a statement with ``eval`` or ``trap``.
    """
    if keep_run and READ_AS_COMMANDS.search(text):
        return text
    root = parse_bash(text)
    source = bytearray(root.text or b"")
    for node in captured(root, TEXTS):
        before, after = QUOTES.get(node.type, (0, 0))
        start, end = node.start_byte - root.start_byte + before, node.end_byte - root.start_byte - after
        source[start:end] = NOT_NEW_LINE.sub(b"_", source[start:end])
    return "\n" * root.start_point[0] + source.decode(errors="replace")


@cache
def _query(text: str) -> Query:
    return Query(Language(tree_sitter_bash.language()), text)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def decode_ansi_text(text: str) -> str:
    r"""Replace the escapes in the text between ``$'`` and ``'``, for example ``\t`` in ``$'a\tb'``."""
    return ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    if sign := found["sign"]:
        return SIGNS.get(sign, found[0])
    if found["control"]:
        return chr(ord(found["control"]) & 0x1F)
    number = int(found["octal"], 8) & 0xFF if found["octal"] else int(found["hex"] or found["u"] or found["U"], 16)
    return chr(number) if number <= 0x10FFFF else found[0]  # noqa: PLR2004 - the last character of Unicode
