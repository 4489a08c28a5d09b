"""Parse shell text into the syntax tree of tree-sitter's grammar of bash."""

from __future__ import annotations

import re
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

NAME = re.compile(rb"[A-Za-z_]\w*|\d")


def parse_bash(text: str) -> Node:
    """Return the root of the syntax tree of shell text.

    tree-sitter-bash 0.25 ends a word at the second variable of ``$A/$B/c``, and reads ``B/c`` as the next word. With
    braces it reads the whole word, so such a variable gets braces before the text is parsed again.
    """
    source = text.encode()
    root = _parser().parse(source).root_node
    while cut := _cut_variables(root, source):
        for at in sorted(cut, reverse=True):
            source = source[:at] + NAME.sub(rb"{\g<0>}", source[at:], count=1)
        root = _parser().parse(source).root_node
    return root


def _cut_variables(root: Node, source: bytes) -> list[int]:
    """Return where the names of variables begin of which only the dollar sign is in the word."""
    ends = (node.end_byte for node in captured(root, '(concatenation "$" @it)'))
    return [at for at in ends if NAME.match(source, at)]


def captured(root: Node, query: str) -> list[Node]:
    """Return the nodes below `root` that a query captures as ``@it``."""
    return QueryCursor(_query(query)).captures(root).get("it", [])


@cache
def _query(text: str) -> Query:
    return Query(Language(tree_sitter_bash.language()), text)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))
