"""Parse conda environment files from their YAML nodes, which keep the line of each entry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
import yaml

from argosy.core.errors import UsageError
from argosy.core.parse import refuse_deep
from argosy.core.shell import NAME as SHELL_NAME
from argosy.core.suggest import suggest_word
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.recipe import Asked, Channel, CondaSpec, Entry, Note, Part, Where, bad_line
from argosy.recipes.requirements import parse_requirements

KEYS = ("name", "channels", "dependencies", "variables", "prefix")
FILE = "an environment file"
INTERPRETER = ("python", "pip")
IGNORED_KEYS = ("platforms", "category", "channel_priority", "channel-priority", "pip-repositories")
"""Keys of conda-lock, mamba and conda that do not change the installed packages."""

# libyaml's parser, if PyYAML was built with it, is 20 times faster on long exports.
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SYNTAX = "correct the line: one '- PACKAGE' per line below 'dependencies:', indented by blanks, not tabs"
_NULL = "tag:yaml.org,2002:null"

TEMPLATE = re.compile(r"\{\{|\{%")
TEMPLATE_HINT = "the file is a template; fill it in first"
_SELECTOR = re.compile(r"\s#\s*\[(?P<words>[^\]]+)\]\s*\Z")
"""A selector of conda-build and conda-lock after a package; for conda it is a comment."""

_Pairs = dict[str, tuple[Where, yaml.Node]]


class _File(msgspec.Struct, frozen=True):
    """The file that is being parsed, with the data to find the position of a node."""

    name: str
    lines: tuple[str, ...]
    environment: Mapping[str, str]

    def where(self, node: yaml.Node) -> Where:
        return Where(self.name, node.start_mark.line + 1)

    def line(self, mark: yaml.Mark) -> str:
        return self.lines[mark.line] if mark.line < len(self.lines) else ""

    def error(self, what: str, node: yaml.Node, hint: str = "") -> UsageError:
        line = self.line(node.start_mark)
        return bad_line(what, self.where(node), line, hint=TEMPLATE_HINT if TEMPLATE.search(line) else hint)


def parse_environment(text: str, file: str, *, environment: Mapping[str, str]) -> tuple[Part, tuple[Entry, ...]]:
    """Parse an ``environment.yml``; return what it requests, and its pip lines."""
    here = _File(file, tuple(text.splitlines()), environment)
    top = _pairs(_compose(text, here), here, FILE)
    if "pip" in top and not _is_empty(top["pip"][1]):
        hint = "move it below 'dependencies:', as '- pip:'"
        raise bad_line("unexpected key 'pip' at the top of an environment file", top["pip"][0], "pip:", hint=hint)
    if "build_dependencies" in top:
        hint = "pass its requirements.txt, or the conda.yaml of the same model"
        where = top["build_dependencies"][0]
        raise bad_line(f"{file} is a python_env.yaml of MLflow", where, "build_dependencies:", hint=hint)
    notes = [*_note_keys(top, here)]
    if "prefix" in top:
        notes.append(Note("'prefix' is ignored: the path of the environment in an image is fixed", top["prefix"][0]))
    conda, pip = _parse_dependencies(top, here)
    notes += (*_note_empty_pip(top, here), *_note_selectors(conda, here))
    variables = tuple(_parse_variables(top, here))
    part = Part(
        name=_name(top, here),
        channels=tuple(_parse_channels(top, here)),
        conda=tuple(spec for spec in conda if spec.name not in INTERPRETER),
        interpreter=tuple(spec for spec in conda if spec.name in INTERPRETER),
        python=tuple(Asked("python", spec.version, spec.where) for spec in conda if spec.name == "python"),
        variables=variables,
        notes=(*notes, *_note_variables(variables)),
    )
    return part, pip


def _compose(text: str, here: _File) -> yaml.Node:
    refuse_deep(text, here.name)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error, here) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{here.name} is not valid YAML", evidence=f"{here.name}:1: {reason[:200]}", hint=_SYNTAX
        ) from error
    if node is None:
        raise UsageError(f"{here.name} is empty", hint="list packages under 'dependencies:'")
    return node


def _yaml_error(error: yaml.MarkedYAMLError, here: _File) -> UsageError:
    """Return the error for invalid YAML, with position and line."""
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "invalid syntax"
    if mark is None:
        return UsageError(f"{here.name} is not valid YAML", evidence=f"{here.name}:1: {problem}", hint=_SYNTAX)
    start = error.context_mark
    mark = start if start and not here.line(mark).strip() else mark
    line = here.line(mark)
    if "another document" in problem:
        where = Where(here.name, mark.line + 1)
        return bad_line(
            f"{here.name} contains two YAML documents", where, line, hint="move the second one into another file"
        )
    hint = f"the faulty value begins in line {start.line + 1}" if start and start.line != mark.line else ""
    if start and re.match(r"\s*-[^\s-]", here.line(start)):
        hint = f"write a space after the '-' in line {start.line + 1}"
    if "\t" in line:
        hint = "indent YAML with spaces, not with tabs"
    if TEMPLATE.search(line):
        hint = TEMPLATE_HINT
    shown = Where(here.name, mark.line + 1)
    broken = bad_line(f"{here.name} is not valid YAML: {problem}", shown, line, hint=hint)
    broken.evidence = broken.evidence.replace(f"{shown}:", f"{shown}:{mark.column + 1}:", 1)
    return broken


def _pairs(node: yaml.Node, here: _File, what: str) -> _Pairs:
    """Return the pairs of a mapping by key; a duplicate key is an error, because YAML would drop the first value."""
    if not isinstance(node, yaml.MappingNode):
        hint = f"known keys: {', '.join(KEYS)}" if what == FILE else "write NAME: VALUE, one per line"
        raise here.error(f"{what} must be a mapping", node, hint=hint)
    pairs: _Pairs = {}
    for key, value in node.value:
        word = _scalar(key, here, "a key")
        if word in pairs:
            raise here.error(f"duplicate key '{word}', first in line {pairs[word][0].line}", key)
        pairs[word] = (here.where(key), value)
    return pairs


def _scalar(node: yaml.Node, here: _File, what: str) -> str:
    """Return the text of a scalar as written: 3.10 does not become the number 3.1."""
    if not isinstance(node, yaml.ScalarNode):
        raise here.error(f"expected {what}, found a list or a mapping", node)
    if node.tag == _NULL and not node.style:
        raise here.error(f"expected {what}, found an empty value", node)
    return str(node.value)


def _name(top: _Pairs, here: _File) -> str:
    """Return the environment's name; conda exports ``null`` for an environment without a name."""
    if "name" not in top or _is_null(top["name"][1]):
        return ""
    return _scalar(top["name"][1], here, "a name")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL and not node.style


def _is_empty(node: yaml.Node) -> bool:
    return _is_null(node) or (isinstance(node, yaml.SequenceNode) and not node.value)


def _note_keys(top: _Pairs, here: _File) -> Iterator[Note]:
    others = {word: where for word, (where, _) in top.items() if word not in KEYS}
    for word, where in others.items():
        near = suggest_word(word, KEYS)
        if near and (near == "dependencies" or "dependencies" in top):
            hint = f"move its entries to '{near}:', or remove it" if near in top else f"did you mean {near}?"
            raise bad_line(f"unknown key '{word}' in an environment file", where, word, hint=hint)
    for word, where in others.items():
        if word not in IGNORED_KEYS and "dependencies" not in top:
            hint = f"the keys of an environment file are {', '.join(KEYS)}"
            raise bad_line(f"{here.name} is not an environment file", where, word, hint=hint)
        yield Note(f"the key '{word}' is ignored", where)


def _note_empty_pip(top: _Pairs, here: _File) -> Iterator[Note]:
    """Yield a note for ``- pip:`` without packages: those on the next lines are conda packages if not indented."""
    for node in _items(top["dependencies"][1], here, "'dependencies'") if "dependencies" in top else ():
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if _is_null(value):
                yield Note("'pip:' is empty: indent the packages that pip installs below it", here.where(key))


def _note_selectors(conda: list[CondaSpec], here: _File) -> Iterator[Note]:
    for spec in conda:
        if found := _SELECTOR.search(here.lines[spec.where.line - 1]):
            text = f"{spec.name} is installed: for conda, the selector '# [{found['words']}]' is a comment"
            yield Note(text, spec.where)


def _items(node: yaml.Node, here: _File, what: str) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if _is_null(node):
        return []
    raise here.error(f"{what} must be a list", node, hint="begin each entry with '- '")


def _parse_channels(top: _Pairs, here: _File) -> Iterator[Channel]:
    if "channels" in top:
        for node in _items(top["channels"][1], here, "'channels'"):
            yield Channel(_scalar(node, here, "a channel"), here.where(node))


def _parse_dependencies(top: _Pairs, here: _File) -> tuple[list[CondaSpec], tuple[Entry, ...]]:
    conda: list[CondaSpec] = []
    pip: list[Entry] = []
    nodes = _items(top["dependencies"][1], here, "'dependencies'") if "dependencies" in top else []
    for node in nodes:
        if isinstance(node, yaml.MappingNode):
            pip += _parse_pip(node, here)
        else:
            text = _scalar(node, here, "a package")
            if TEMPLATE.search(text):
                raise here.error("invalid conda package", node)
            if " - " in text:
                hint = "YAML read two lines as one: indent all lines of the list in the same way"
                raise here.error(f"invalid conda package '{text}'", node, hint=hint)
            conda.append(parse_conda_spec(text, here.where(node)))
    return conda, tuple(pip)


def _parse_pip(node: yaml.MappingNode, here: _File) -> Iterator[Entry]:
    for word, (where, value) in _pairs(node, here, "a list of pip packages").items():
        if word != "pip":
            hint = _suggest_for_key(word, value)
            raise here.error(f"unexpected key '{word}:'; only 'pip:' is allowed here", node, hint=hint)
        lines = [value] if isinstance(value, yaml.ScalarNode) and value.tag != _NULL else _items(value, here, "'pip'")
        for line in lines:
            # The text of a block scalar begins on the line after its mark.
            first = here.where(line).line + int(getattr(line, "style", None) in ("|", ">"))
            if isinstance(line, yaml.MappingNode) and line.value and isinstance(line.value[0][1], yaml.ScalarNode):
                hint = "quote the line: YAML reads a colon before a space or at the end as the end of a key"
                raise here.error("invalid pip line", line, hint=hint)
            text = _scalar(line, here, "a pip line")
            yield from parse_requirements(text, where.file, environment=here.environment, first_line=first)


def _suggest_for_key(word: str, value: yaml.Node) -> str:
    """Return the hint for another key than ``pip`` in the list of packages: for a list, or for a package as a key."""
    if not isinstance(value, yaml.ScalarNode):
        return "did you mean 'pip:'?" if suggest_word(word, ("pip",)) else ""
    version = f"={value.value}" if value.value else ""
    return f"did you mean {word}{version}?" if re.fullmatch(r"[\w.-]+", word) else ""


def _parse_variables(top: _Pairs, here: _File) -> Iterator[Asked]:
    if "variables" not in top:
        return
    node = top["variables"][1]
    if _is_null(node):
        return
    for name, (where, value) in _pairs(node, here, "'variables'").items():
        if not SHELL_NAME.match(name):
            raise bad_line(f"invalid variable name '{name}'", where, name, hint="use only letters, digits and _")
        empty = isinstance(value, yaml.ScalarNode) and value.tag == _NULL
        text = "" if empty else _scalar(value, here, "the variable's value")
        if "\0" in text:
            raise bad_line("a variable cannot contain a null byte", where, name)
        yield Asked(name, text, where)


def _note_variables(variables: tuple[Asked, ...]) -> Iterator[Note]:
    for one in variables:
        if one.name == "PATH":
            yield Note("the variable PATH is ignored: the image sets it, beginning with the environment", one.where)
        elif found := re.search(r"\$\{?\w+\}?", one.value):
            yield Note(f"{found[0]} in the value of {one.name} is not expanded, as in conda", one.where)
