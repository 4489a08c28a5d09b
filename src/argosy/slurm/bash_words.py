"""Parse the words of shell text: nodes of the syntax tree of bash become words with their variables; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, groupby

from tree_sitter import Node

from argosy.core.records import replace
from argosy.slurm.bash_tree import decode_ansi_text, node_text
from argosy.slurm.script_words import Word, WordPart, is_glob, without_quotes

LATER_HOME = re.compile(r"(?<=:)~(?=[/:]|$)")
"""The home folder in a list of paths; only in the value of a variable, the shell replaces it."""

BLANKS = re.compile(r"(\s|\\\n)*")
"""White space and ends of continued lines, which the grammar adds to the variable or command behind them in quotes."""

QUOTED = r"""|"[^"]*"|'[^']*'"""
BRACES = re.compile(rf"(?<![$\\])\{{(?:[^{{}}\s,.\"']|\.(?!\.){QUOTED})*(?:,|\.\.)(?:[^{{}}\s\"']{QUOTED})*\}}")
"""A brace expansion of bash, for example ``{a,b}`` or ``{1..3}``; sh does not have it."""

VARIABLE = re.compile(r"(?P<name>\w+)(?P<all>\[[@*]\])?(?:(?P<sign>:[-=])(?P<default>.*))?", re.DOTALL)
"""A variable in braces that the shell replaces by its value or by a default."""

COMPUTED = frozenset({"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID"})
"""Variables that have another value each time when bash reads them."""


def value_parts(word: Word) -> Iterator[WordPart]:
    """Yield the parts of the value of a variable, which is not split: the elements of an array become one text."""
    for part in word:
        if part.all_elements:
            yield WordPart("shell", f"${{{part.text}[*]}}", quoted=True)
            continue
        if part.default and not part.quoted:
            default = without_quotes(part.default, quoted=False)
            yield replace(part, default=part.default if default is None else default, quoted=True)
            continue
        is_path = part.kind in {"text", "shell"} and not part.quoted
        for number, text in enumerate(LATER_HOME.split(part.text) if is_path else [part.text]):
            if number:
                yield WordPart("variable", "HOME", quoted=True)
            if text or not number:
                yield replace(part, text=text, quoted=True)


def parse_word(node: Node) -> Word:
    """Parse one word; plain texts that follow each other are one part."""
    parts: list[WordPart] = []
    for part in _parse_parts(node, quoted=False):
        if parts and part.kind == parts[-1].kind == "text":
            parts[-1] = WordPart("text", parts[-1].text + part.text, quoted=part.quoted or parts[-1].quoted)
        else:
            parts.append(part)
    return tuple(parts)


def _has_braces(concatenation: Node) -> bool:
    """Return whether a word contains braces that bash expands; those in quotes are text."""
    plain = {"word", "number", "brace_expression"}
    parts = (node_text(each) if each.type in plain else "_" for each in concatenation.children)
    return bool(BRACES.search("".join(parts)))


def _parse_concatenation(concatenation: Node, *, quoted: bool) -> Iterator[WordPart]:
    """Parse the parts of a word; the grammar cuts plain text with brackets, for example ``x[0-9]``."""
    groups = groupby(concatenation.children, lambda each: each.type in {"word", "number"})
    for number, (is_plain, nodes) in enumerate(groups):
        if is_plain:
            text = "".join(map(node_text, nodes))
            is_tilde = text.startswith("~") and number > 0 and not quoted  # only at the beginning, ~ is the home folder
            yield _unescape(f"\\{text}" if is_tilde else text, quoted=quoted)
        else:
            yield from chain.from_iterable(_parse_parts(each, quoted=quoted) for each in nodes)


def _parse_parts(node: Node, *, quoted: bool) -> Iterator[WordPart]:
    """Parse one node of a word; blanks before an expansion are plain text."""
    text = node_text(node)
    if node.type.endswith(("expansion", "_substitution")) and (blanks := BLANKS.match(text)) and blanks[0]:
        yield _unescape(blanks[0], quoted=quoted)
        text = text[blanks.end() :]
    match node.type:
        case "raw_string" | "ansi_c_string":
            plain = decode_ansi_text(text[2:-1]) if text.startswith("$") else text[1:-1]
            yield WordPart("text", plain, quoted=True)
        case "concatenation" if not quoted and _has_braces(node):
            yield WordPart("shell", text)
        case "concatenation":
            yield from _parse_concatenation(node, quoted=quoted)
        case "string":
            yield from _parse_double_quotes(node)
        case "command_substitution" if text in {"$(pwd)", "`pwd`"}:
            yield WordPart("variable", "PWD", quoted=quoted)
        case "simple_expansion" | "expansion":
            yield _parse_variable(text, quoted=quoted)
        case "word" | "number" | "string_content" | "variable_name":
            yield _unescape(text, quoted=quoted)
        case _:
            yield WordPart("shell", text, quoted=quoted) if node.is_named else _unescape(text, quoted=quoted)


def _parse_double_quotes(node: Node) -> Iterator[WordPart]:
    """Parse a text in double quotes; white space between its parts belongs to no node of the tree."""
    text = node.text or b""
    start, at = node.start_byte, 1
    yield WordPart("text", "", quoted=True)
    for child in node.named_children:
        gap = text[at : child.start_byte - start]
        if gap:
            yield _unescape(gap.decode(errors="replace"), quoted=True)
        yield from _parse_parts(child, quoted=True)
        at = child.end_byte - start
    gap = text[at:-1]
    if gap:
        yield _unescape(gap.decode(errors="replace"), quoted=True)


def _unescape(text: str, *, quoted: bool) -> WordPart:
    """Remove backslashes as the shell does; unquoted patterns and ``~`` are left to the shell."""
    if re.search(r"(?<!\\)\$", text):
        return WordPart("shell", text, quoted=quoted)
    if not quoted and (text.startswith("~") or is_glob(text)):
        return WordPart("shell", text)
    out, signs = [], iter(text)
    for sign in signs:
        if sign != "\\":
            out.append(sign)
            continue
        after = next(signs, "")
        if after != "\n":
            out.append(after if not quoted or after in '$`"\\' else f"\\{after}")
    return WordPart("text", "".join(out), quoted=quoted)


def _parse_variable(text: str, *, quoted: bool) -> WordPart:
    """Parse a variable; one whose value only bash can compute stays as it is written."""
    found = VARIABLE.fullmatch(text[2:-1] if text.startswith("${") else text[1:])
    # A command in the default computes it, like one in the value.
    is_computed = found and (found["name"] in COMPUTED or re.search(r"\$\(|`", found["default"] or ""))
    if not found or not found["name"].isidentifier() or is_computed or (quoted and text.endswith("[*]}")):
        return WordPart("shell", text, quoted=quoted)
    return WordPart(
        "variable",
        found["name"],
        found["default"],
        quoted=quoted,
        all_elements=bool(found["all"]),
        assigns=found["sign"] == ":=",
    )
