"""Parse conda environment files by their YAML nodes, so that each entry keeps its line; it never opens a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
import yaml

from argosy.core.errors import UsageError
from argosy.core.shell import NAME as SHELL_NAME
from argosy.core.suggest import suggest_word
from argosy.core.yaml_text import refuse_deep
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.recipe import Asked, Channel, CondaSpec, Entry, Note, Where, bad_line
from argosy.recipes.requirements import parse_requirements

KEYS = ("name", "channels", "dependencies", "variables", "prefix")
FILE = "an environment file"
INTERPRETER = ("python", "pip")
OF_OTHERS = ("platforms", "category", "channel_priority", "channel-priority", "pip-repositories")
"""Words of conda-lock, mamba and conda itself that say nothing about what is installed."""

# libyaml's parser where PyYAML was built with it: 20 times faster on long exports.
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"

TEMPLATE = re.compile(r"\{\{|\{%")
TEMPLATE_HINT = "this is a template: fill it in first"
_SELECTOR = re.compile(r"\s#\s*\[(?P<words>[^\]]+)\]\s*\Z")
"""What conda-build and conda-lock read behind a package; a comment to conda."""

_Pairs = dict[str, tuple[Where, yaml.Node]]


class EnvironmentFile(msgspec.Struct, frozen=True):
    """What one environment file says, before the files that its pip lines include are read."""

    name: str = ""
    channels: tuple[Channel, ...] = ()
    conda: tuple[CondaSpec, ...] = ()
    interpreter: tuple[CondaSpec, ...] = ()
    python: tuple[Asked, ...] = ()
    pip: tuple[Entry, ...] = ()
    variables: tuple[Asked, ...] = ()
    notes: tuple[Note, ...] = ()


class _File(msgspec.Struct, frozen=True):
    """The file at hand: what is needed to say where a node stands."""

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


def parse_environment(text: str, file: str, *, environment: Mapping[str, str]) -> EnvironmentFile:
    """Parse an ``environment.yml``.

    Raises
    ------
    UsageError
        For YAML that does not parse (file:line:column and the line), a key that is there twice, and every entry that
        conda or pip would not understand.
    """
    here = _File(file, tuple(text.splitlines()), environment)
    top = _pairs(_compose(text, here), here, FILE)
    notes = [*_judge_keys(top, here)]
    if "prefix" in top:
        notes.append(Note("'prefix' is not followed: an image has its own place for the environment", top["prefix"][0]))
    conda, pip = _parse_dependencies(top, here)
    notes += _judge_selectors(conda, here)
    variables = tuple(_parse_variables(top, here))
    python = tuple(Asked("python", spec.version, spec.where) for spec in conda if spec.name == "python")
    return EnvironmentFile(
        name=_name(top, here),
        channels=tuple(_parse_channels(top, here)),
        conda=tuple(spec for spec in conda if spec.name not in INTERPRETER),
        interpreter=tuple(spec for spec in conda if spec.name in INTERPRETER),
        python=python,
        pip=pip,
        variables=variables,
        notes=(*notes, *_judge_variables(variables)),
    )


def _compose(text: str, here: _File) -> yaml.Node:
    refuse_deep(text, here.name)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error, here) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{here.name} is not YAML", evidence=f"{here.name}:1: {reason[:200]}") from error
    if node is None:
        raise UsageError(f"{here.name} is empty", hint="list packages under 'dependencies:'")
    return node


def _yaml_error(error: yaml.MarkedYAMLError, here: _File) -> UsageError:
    """Say where YAML broke, and show the line."""
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "it does not parse"
    if mark is None:
        return UsageError(f"{here.name} is not YAML", evidence=f"{here.name}:1: {problem}")
    began = error.context_mark
    mark = began if began and not here.line(mark).strip() else mark
    line = here.line(mark)
    if "another document" in problem:
        where = Where(here.name, mark.line + 1)
        return bad_line(
            f"{here.name} holds two documents", where, line, hint="put the second one into a file of its own"
        )
    hint = f"look at line {began.line + 1}, where it begins" if began and began.line != mark.line else ""
    if began and re.match(r"\s*-[^\s-]", here.line(began)):
        hint = f"write a blank behind the '-' of line {began.line + 1}"
    if "\t" in line:
        hint = "YAML indents with blanks, never with tabs"
    if TEMPLATE.search(line):
        hint = TEMPLATE_HINT
    shown = Where(here.name, mark.line + 1)
    broken = bad_line(f"{here.name} is not YAML: {problem}", shown, line, hint=hint)
    broken.evidence = broken.evidence.replace(f"{shown}:", f"{shown}:{mark.column + 1}:", 1)
    return broken


def _pairs(node: yaml.Node, here: _File, what: str) -> _Pairs:
    """Give a mapping's pairs by key; a key that is there twice is an error, not a silent loss of the first."""
    if not isinstance(node, yaml.MappingNode):
        hint = f"known words: {', '.join(KEYS)}" if what == FILE else "write NAME: VALUE, one a line"
        raise here.error(f"{what} maps words to values", node, hint=hint)
    pairs: _Pairs = {}
    for key, value in node.value:
        word = _scalar(key, here, "a word")
        if word in pairs:
            raise here.error(f"'{word}' is there twice, first in line {pairs[word][0].line}", key)
        pairs[word] = (here.where(key), value)
    return pairs


def _scalar(node: yaml.Node, here: _File, what: str) -> str:
    """Give the text of a scalar as it was written: 3.10 stays 3.10, never 3.1."""
    if not isinstance(node, yaml.ScalarNode):
        raise here.error(f"{what} was expected, not a list or a mapping", node)
    if node.tag == _NULL and not node.style:
        raise here.error(f"{what} was expected, but the value is empty", node)
    return str(node.value)


def _name(top: _Pairs, here: _File) -> str:
    """Give the environment's name; conda exports one that has none as ``null``."""
    if "name" not in top or _is_null(top["name"][1]):
        return ""
    return _scalar(top["name"][1], here, "a name")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL and not node.style


def _judge_keys(top: _Pairs, here: _File) -> Iterator[Note]:
    others = {word: where for word, (where, _) in top.items() if word not in KEYS}
    for word, where in others.items():
        near = suggest_word(word, KEYS)
        if near and (near == "dependencies" or "dependencies" in top):
            raise bad_line(f"an environment file knows no '{word}'", where, word, hint=f"did you mean {near}?")
    for word, where in others.items():
        if word not in OF_OTHERS and "dependencies" not in top:
            hint = f"an environment file has the words {', '.join(KEYS)}"
            raise bad_line(f"{here.name} is no environment file", where, word, hint=hint)
        yield Note(f"'{word}' is not followed", where)


def _judge_selectors(conda: list[CondaSpec], here: _File) -> Iterator[Note]:
    for spec in conda:
        if found := _SELECTOR.search(here.lines[spec.where.line - 1]):
            yield Note(f"'# [{found['words']}]' is a comment to conda: {spec.name} is asked for", spec.where)


def _items(node: yaml.Node, here: _File, what: str) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if _is_null(node):
        return []
    raise here.error(f"{what} is a list", node, hint="begin each entry with '- '")


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
                raise here.error("this is no conda package", node)
            conda.append(parse_conda_spec(text, here.where(node)))
    return conda, tuple(pip)


def _parse_pip(node: yaml.MappingNode, here: _File) -> Iterator[Entry]:
    for word, (where, value) in _pairs(node, here, "a list of pip packages").items():
        if word != "pip":
            version = f"={value.value}" if isinstance(value, yaml.ScalarNode) and value.value else ""
            hint = f"did you mean {word}{version}?" if re.fullmatch(r"[\w.-]+", word) else ""
            raise here.error(f"'{word}:' cannot stand here; only 'pip:' can", node, hint=hint)
        lines = [value] if isinstance(value, yaml.ScalarNode) and value.tag != _NULL else _items(value, here, "'pip'")
        for line in lines:
            # A block scalar's text begins on the line after its mark.
            first = here.where(line).line + int(getattr(line, "style", None) in ("|", ">"))
            if isinstance(line, yaml.MappingNode) and line.value and isinstance(line.value[0][1], yaml.ScalarNode):
                hint = "YAML takes a colon before a blank, or at the end, for a word of its own: put the line in quotes"
                raise here.error("this is no pip line", line, hint=hint)
            text = _scalar(line, here, "a pip line")
            yield from parse_requirements(text, where.file, environment=here.environment, first_line=first)


def _parse_variables(top: _Pairs, here: _File) -> Iterator[Asked]:
    if "variables" not in top:
        return
    node = top["variables"][1]
    if _is_null(node):
        return
    for name, (where, value) in _pairs(node, here, "'variables'").items():
        if not SHELL_NAME.match(name):
            raise bad_line(f"'{name}' is no name for a variable", where, name, hint="letters, digits and _ only")
        empty = isinstance(value, yaml.ScalarNode) and value.tag == _NULL
        text = "" if empty else _scalar(value, here, "the variable's value")
        if "\0" in text:
            raise bad_line("a variable cannot hold a zero byte", where, name)
        yield Asked(name, text, where)


def _judge_variables(variables: tuple[Asked, ...]) -> Iterator[Note]:
    for one in variables:
        if one.name == "PATH":
            yield Note("'PATH' is not followed: an image has its own, which begins with the environment's", one.where)
        elif found := re.search(r"\$\{?\w+\}?", one.value):
            yield Note(f"{one.name} is set to the letter, as conda does: {found[0]} in it is not expanded", one.where)
