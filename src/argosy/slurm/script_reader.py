"""Read a hand-written job script: its ``#SBATCH`` options and its statements, with the line of each; pure.

tree-sitter's grammar of bash does the parsing, so that quotes, continued lines, here-documents and nested commands are
read as bash reads them.  Nothing is run, and a variable keeps its place in a word until `expand` fills it in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain, groupby, pairwise, zip_longest
from typing import Literal

import msgspec
from tree_sitter import Node

from argosy.core.records import replace
from argosy.slurm.bash_tree import captured, decode_ansi_text, parse_bash
from argosy.slurm.sbatch import SBATCH_FLAGS, Option, split_options
from argosy.slurm.script_words import Word, WordPart, is_glob, without_quotes


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
    assigned: tuple[tuple[str, tuple[Word, ...]], ...] = ()
    """Variables that an assignment sets, or that precede a command: name and words. The first part of a value that
    ``+=`` appends, and the value that ``export NAME`` leaves as it is, are the variable itself."""
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


SHELL = re.compile(r"#!.*\b(?:ba|da|k|mk|z|a)?sh\b")
"""First line of a script that a POSIX shell runs; the grammar does not fit csh and Python."""


LAST_BACKSLASH = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*\Z")
"""A backslash at the end of a script, behind which no line follows that it could continue."""


def read_job_script(text: str) -> JobScript:
    """Read a job script.  A part that is not valid bash becomes a ``compound`` statement.

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
                split_options(_split(line[7:]), flags=SBATCH_FLAGS, line=number)[0] if number not in inner else ()
            )
        elif line.strip() and not line.lstrip().startswith("#"):
            into = late
    return JobScript(tuple(options), tuple(late), tuple(_statements(root)), _commands(root), texts)


def read_commands(text: str) -> tuple[Statement, ...]:
    """Read every command and assignment of shell text, at any depth."""
    return _commands(parse_bash(text))


def _commands(root: Node) -> tuple[Statement, ...]:
    substitutions = captured(root, "(command_substitution) @it")
    others = (*captured(root, "(heredoc_body) @it"), *(each for each in substitutions if _is_arithmetic(each)))
    ranges = [(node.start_byte, node.end_byte) for node in others]
    found = captured(root, "(command) @it (declaration_command) @it (variable_assignment) @it (unset_command) @it")
    return tuple(
        _simple(node)
        for node in sorted(found, key=lambda node: (node.start_byte, -node.end_byte))
        if not any(start <= node.start_byte < end for start, end in ranges)
        and not (node.type == "variable_assignment" and node.parent and node.parent.type in OWNERS)
    )


def _is_arithmetic(substitution: Node) -> bool:
    """Return whether commands are arithmetic: the grammar takes ``$((N * 2))`` in a default for a subshell."""
    text = substitution.text or b""
    return text.startswith(b"$((") and text.endswith(b"))")


OWNERS = frozenset({"command", "declaration_command"})
"""Nodes that contain the assignments which belong to them."""


def read_statements(text: str) -> tuple[Statement, ...]:
    """Read the statements of shell text, for example of the argument of ``bash -c``."""
    return tuple(_statements(parse_bash(text)))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _source(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _lines(node: Node) -> tuple[int, int]:
    return node.start_point[0] + 1, node.end_point[0] + 1


LISTS = frozenset({"program", "list"})
"""Nodes of the syntax tree whose children are statements that run in sequence."""

ASSIGNMENTS = frozenset({"variable_assignment", "variable_assignments", "declaration_command"})

EXPORT = re.compile(r"export\b|(declare|typeset|local)\s+-\w*x")
"""Declarations that export their variables."""


def _statements(root: Node) -> Iterator[Statement]:
    """Find the statements below a node in order; ``a && b`` and ``a; b`` are two.

    A list of a thousand commands is a tree of that depth, so this does not recurse.
    """
    waiting = [(root, False, "")]
    while waiting:
        node, background, condition = waiting.pop()
        if node.type not in LISTS:
            yield replace(_statement(node), background=background, condition=condition)
            continue
        children = node.children
        before = condition
        found: list[tuple[Node, bool, str]] = []
        for child, after in zip_longest(children, children[1:]):
            if child.is_named and child.type != "comment":
                found.append((child, background or (after is not None and after.type == "&"), before))
            before = child.type if child.type in {"&&", "||"} else ""
        waiting += reversed(found)


def _statement(node: Node) -> Statement:
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        if body is None or body.type != "command" or _has_document(node) or _has_document(body):
            return _compound(node)
        return _redirected(body, whole=node)
    if node.type == "pipeline":
        return _pipeline(node)
    is_simple = node.type in ASSIGNMENTS or node.type == "unset_command"
    is_command = node.type == "command" and not (node.has_error or _has_document(node))
    if _is_misread(node) or not (is_simple or is_command):
        return _compound(node)
    return _redirected(node, whole=node) if is_command else _simple(node)


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


def _redirected(command: Node, *, whole: Node) -> Statement:
    """Read a command with its redirections, which may stand before, between and behind its arguments.

    The grammar takes the arguments behind a redirection for further files of it.
    """
    line, end = _lines(whole)
    parents = dict.fromkeys((command, whole))
    redirects = [child for node in parents for child in node.named_children if child.type == "file_redirect"]
    files = {each: each.children_by_field_name("destination") for each in redirects}
    inputs = [each for each in redirects if any(child.type == "<" for child in each.children)]
    arguments = [_word(word) for words in files.values() for word in words[1:]]
    simple = _simple(command)
    return replace(
        simple,
        line=line,
        end=end,
        text=_source(whole),
        words=(*simple.words, *arguments),
        redirects=" ".join(_redirect_text(each, words) for each, words in files.items() if each not in inputs),
        inputs=tuple(_word(files[each][0]) for each in inputs if files[each]),
    )


def _redirect_text(redirect: Node, files: list[Node]) -> str:
    text = redirect.text or b""
    return (text[: files[0].end_byte - redirect.start_byte] if files else text).decode(errors="replace")


def _simple(node: Node) -> Statement:
    """Read one command or assignment."""
    line, end = _lines(node)
    text = _source(node)
    if node.type in ASSIGNMENTS:
        is_exported = bool(node.type == "declaration_command" and EXPORT.match(text))
        return Statement(line, end, "assignment", text, (), tuple(_assigned(node)), is_exported)
    if node.type == "unset_command":
        return Statement(line, end, "command", text, ((WordPart("text", "unset"),), *map(_word, node.named_children)))
    return Statement(line, end, "command", text, tuple(_words(node)), tuple(_assigned(node)))


def _compound(node: Node) -> Statement:
    line, end = _lines(node)
    return Statement(line, end, "compound", _source(node), commands=tuple(_command_names(node)))


def _command_names(node: Node) -> Iterator[str]:
    if node.type == "command_name":
        yield _source(node)
    elif node.type == "command_substitution":
        return
    for child in node.named_children:
        yield from _command_names(child)


def _pipeline(node: Node) -> Statement:
    """Read ``COMMAND | tee FILE`` as COMMAND with a redirection; any other pipeline is not taken apart."""
    _, end = _lines(node)
    first, *others = node.named_children
    is_output = all(each.type == "command" and _source(each).startswith(("tee", "ts", "cat")) for each in others)
    if not is_output:
        return _compound(node)
    inner = _statement(first)
    redirects = " ".join((inner.redirects, "|", *(_source(each) for each in others))).strip()
    return replace(inner, text=_source(node), end=end, redirects=redirects)


def _assigned(node: Node) -> Iterator[tuple[str, tuple[Word, ...]]]:
    children = [node] if node.type == "variable_assignment" else node.named_children
    options = [_source(each) for each in children if each.type == "word"]
    for each in children:
        if each.type == "variable_name" and not options:
            yield _source(each), ((WordPart("variable", _source(each), quoted=True),),)
        name, value = each.child_by_field_name("name"), each.child_by_field_name("value")
        if each.type != "variable_assignment" or name is None or name.type != "variable_name":
            continue
        before = WordPart("variable", _source(name), "", quoted=True)
        is_added = any(child.type == "+=" for child in each.children)
        if value is None:
            yield _source(name), ((WordPart("text", ""),),)
        elif value.type == "array":
            words = tuple(_word(part) for part in value.named_children if part.type != "comment")
            yield _source(name), ((replace(before, all_elements=True),), *words) if is_added else words
        else:
            text = tuple(_assigned_parts(_word(value)))
            yield _source(name), ((before, *text) if is_added else text,)


LATER_HOME = re.compile(r"(?<=:)~(?=[/:]|$)")
"""The home folder in a list of paths; only in the value of a variable, the shell replaces it."""


def _assigned_parts(word: Word) -> Iterator[WordPart]:
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


def _words(node: Node) -> Iterator[Word]:
    for child in node.named_children:
        if child.type == "command_name":
            yield _word(child.named_children[0] if child.named_children else child)
        elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "comment"}:
            yield _word(child)


def _word(node: Node) -> Word:
    parts: list[WordPart] = []
    for part in _parts(node, quoted=False):
        if parts and part.kind == parts[-1].kind == "text":
            parts[-1] = WordPart("text", parts[-1].text + part.text, quoted=part.quoted or parts[-1].quoted)
        else:
            parts.append(part)
    return tuple(parts)


BLANKS = re.compile(r"(\s|\\\n)*")
"""White space and ends of continued lines, which the grammar adds to the variable or command behind them in quotes."""


QUOTED = r"""|"[^"]*"|'[^']*'"""
BRACES = re.compile(rf"(?<![$\\])\{{(?:[^{{}}\s,.\"']|\.(?!\.){QUOTED})*(?:,|\.\.)(?:[^{{}}\s\"']{QUOTED})*\}}")
"""A brace expansion of bash, for example ``{a,b}`` or ``{1..3}``; sh does not have it."""


def _has_braces(concatenation: Node) -> bool:
    """Return whether a word contains braces that bash expands; those in quotes are text."""
    plain = {"word", "number", "brace_expression"}
    parts = (_source(each) if each.type in plain else "_" for each in concatenation.children)
    return bool(BRACES.search("".join(parts)))


def _joined_parts(concatenation: Node, *, quoted: bool) -> Iterator[WordPart]:
    """Read the parts of a word; the grammar cuts plain text with brackets, for example ``x[0-9]``."""
    groups = groupby(concatenation.children, lambda each: each.type in {"word", "number"})
    for number, (is_plain, nodes) in enumerate(groups):
        if is_plain:
            text = "".join(map(_source, nodes))
            is_tilde = text.startswith("~") and number > 0 and not quoted  # only at the beginning, ~ is the home folder
            yield _plain(f"\\{text}" if is_tilde else text, quoted=quoted)
        else:
            yield from chain.from_iterable(_parts(each, quoted=quoted) for each in nodes)


def _parts(node: Node, *, quoted: bool) -> Iterator[WordPart]:
    text = _source(node)
    if node.type.endswith(("expansion", "_substitution")) and (blanks := BLANKS.match(text)) and blanks[0]:
        yield _plain(blanks[0], quoted=quoted)
        text = text[blanks.end() :]
    match node.type:
        case "raw_string" | "ansi_c_string":
            plain = decode_ansi_text(text[2:-1]) if text.startswith("$") else text[1:-1]
            yield WordPart("text", plain, quoted=True)
        case "concatenation" if not quoted and _has_braces(node):
            yield WordPart("shell", text)
        case "concatenation":
            yield from _joined_parts(node, quoted=quoted)
        case "string":
            yield from _string_parts(node)
        case "command_substitution" if text in {"$(pwd)", "`pwd`"}:
            yield WordPart("variable", "PWD", quoted=quoted)
        case "simple_expansion" | "expansion":
            yield _variable(text, quoted=quoted)
        case "word" | "number" | "string_content" | "variable_name":
            yield _plain(text, quoted=quoted)
        case _:
            yield WordPart("shell", text, quoted=quoted) if node.is_named else _plain(text, quoted=quoted)


def _string_parts(node: Node) -> Iterator[WordPart]:
    """Read a text in double quotes; white space between its parts belongs to no node of the tree."""
    text = node.text or b""
    start, at = node.start_byte, 1
    yield WordPart("text", "", quoted=True)
    for child in node.named_children:
        gap = text[at : child.start_byte - start]
        if gap:
            yield _plain(gap.decode(errors="replace"), quoted=True)
        yield from _parts(child, quoted=True)
        at = child.end_byte - start
    gap = text[at:-1]
    if gap:
        yield _plain(gap.decode(errors="replace"), quoted=True)


def _plain(text: str, *, quoted: bool) -> WordPart:
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


VARIABLE = re.compile(r"(?P<name>\w+)(?P<all>\[[@*]\])?(?:(?P<sign>:[-=])(?P<default>.*))?", re.DOTALL)
"""A variable in braces that the shell replaces by its value or by a default."""


COMPUTED = frozenset({"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID"})
"""Variables that have another value each time when bash reads them."""


def _variable(text: str, *, quoted: bool) -> WordPart:
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
