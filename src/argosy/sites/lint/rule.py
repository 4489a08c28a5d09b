"""Define a lint rule and its faults, and what rules check: a profile with its text, or a job script with its calls."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import zip_longest
from math import ceil
from typing import Generic, NamedTuple, TypeVar

import msgspec

from argosy.core.findings import FileFinding, State
from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.core.toml_lines import find_line
from argosy.sites.conditions import Facts
from argosy.sites.profile import Identity, Site
from argosy.sites.profile_parts import Evident
from argosy.sites.software import Images
from argosy.slurm.sbatch import SRUN_FLAGS, SRUN_SHORT, Option, complete_option, split_options
from argosy.slurm.script_reader import Statement, parse_commands, parse_job_script
from argosy.slurm.script_words import Values, Word, WordPart, expand, source_text

Subject = TypeVar("Subject")

FORMAT = "the format of site profiles"
"""Source of a rule that follows from the meaning of the keys."""

SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher", "network", "images", "build")
LISTS = ("settings", "caches", "binds", "options", "avoid", "partitions")

INSIDE = re.compile(r"^(?:APPTAINERENV|SINGULARITYENV)_")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

PRINTING = frozenset("echo printf cat grep egrep sed awk logger alias which type man".split())  # noqa: SIM905
"""Commands whose arguments may look like commands but are text."""

SHELL_TEXT = re.compile(
    r"\b(?:srun|mpirun|mpiexec|torchrun|python3?|export|singularity|apptainer|accelerate|deepspeed)\s|\w=|(?:^|\s)--?[a-z]"
)
"""Text in quotes that a shell or srun runs later, as opposed to prose."""

DEPTH = 3
"""Levels of shell text inside shell text that are read: ``CMD="bash -c 'torchrun …'"`` has two."""

OPTIONS_NAME = re.compile(r"\$\{?\w*(?:OPT|ARG|FLAG|PARAM|SRUN|BIND|CPU|TASK)\w*\}?$|\$\{?[@*]", re.IGNORECASE)
"""A variable between srun and its program that probably contains options."""


class Fault(msgspec.Struct, frozen=True):
    """One place in a file that breaks a rule."""

    line: int
    """Line number from 1, or 0 for the whole file."""
    what: str
    hint: str = ""
    """Correction, if it is known."""
    source: str = ""
    """URL that documents this fault, if it differs from the rule's source."""


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A lint rule."""

    name: str
    why: str
    """Consequence of such a fault."""
    source: str
    """A public address that documents the rule."""
    check: Callable[[Subject], Iterable[Fault]]


def add_rule(
    rules: list[Rule[Subject]], name: str, why: str, source: str
) -> Callable[[Callable[[Subject], Iterable[Fault]]], Callable[[Subject], Iterable[Fault]]]:
    """Return a decorator that adds a function to `rules`, as the check of the rule with this name."""

    def add(check: Callable[[Subject], Iterable[Fault]]) -> Callable[[Subject], Iterable[Fault]]:
        rules.append(Rule(name, why, source, check))
        return check

    return add


def file_finding(path: str, rule: Rule[Subject], fault: Fault) -> FileFinding:
    """Return the finding for a fault in a file."""
    source = fault.source or rule.source
    return FileFinding(
        rule.name, State.FAIL, fault.what, fault.hint, path=path, line=fault.line, why=rule.why, source=source
    )


class Profile(msgspec.Struct, frozen=True):
    """A profile, its text, and the current date."""

    site: Site
    text: str
    today: dt.date
    stem: str
    """The name of the file without ``.toml``."""

    def line(self, *keys: str) -> int:
        """Return the line of a key; for a part of a fragment the line of ``use``."""
        return find_line(self.text, keys)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Evident]]:
        """Yield every part that is not empty, with its keys."""
        for section in SECTIONS:
            part: Evident = getattr(self.site, section)
            own = replace(part, bases=()) if isinstance(part, Images) else part
            if own != type(part)() and not (isinstance(part, Identity) and not part.has_marks):
                yield (section,), own
        for number, base in enumerate(self.site.images.bases):
            yield ("images", "bases", str(number)), base
        for name in LISTS:
            for part in getattr(self.site, name):
                yield (name, str(self.index(name, part))), part
        for name, mode in self.site.modes.items():
            yield ("modes", name), mode

    def index(self, key: str, part: Evident) -> int:
        """Return the index of a part within this file: parts of fragments come first in the merged list."""
        parts: tuple[Evident, ...] = getattr(self.site, key)
        here = len(re.findall(rf"^\s*\[\[\s*{key}\s*\]\]", self.text, re.MULTILINE))
        return parts.index(part) - (len(parts) - here)

    def part_line(self, key: str, part: Evident, *keys: str) -> int:
        """Return the line of a part of a list, or of a key in it."""
        return self.line(key, str(self.index(key, part)), *keys)


class Call(NamedTuple):
    """An argument list: a command, an array, or a quoted text that contains a command or options."""

    line: int
    """Line number from 1."""
    words: tuple[Word, ...]
    text: str
    """The arguments without quotes; quoted commands are left out, because they are calls of their own."""
    depth: int = 0
    """0 for words that the batch shell expands; more for text in quotes."""


class Assigned(NamedTuple):
    """A variable that the script sets, with its line; `depth` is that of `Call`."""

    line: int
    name: str
    value: str
    word: Word
    depth: int = 0


class SrunCall(NamedTuple):
    """A call of srun: its options and its program; `is_open` if an unknown variable may contain more options."""

    line: int
    options: tuple[Option, ...]
    program: tuple[str, ...]
    is_open: bool

    def names(self) -> set[str]:
        """Return the long names of the options."""
        return {option.name for option in self.options}

    def value(self, name: str) -> str:
        """Return the value of an option; empty without it."""
        return next((option.value for option in reversed(self.options) if option.name == name), "")


class Script:
    """A job script.

    Attributes
    ----------
    written, written_late
        Options of sbatch as they are written. sbatch ignores the late ones, which follow the first command.
    options
        The same with complete names.
    calls
        Argument lists.
    variables
        Assigned or exported variables, without prefixes for containers (APPTAINERENV_).
    texts
        First and last line of each here-document, and of each quoted text from its second line.
    values
        Variables and their longest values.
    """

    def __init__(self, path: str, raw: str) -> None:
        read = parse_job_script(raw)
        self.path, self.raw, self.texts = path, raw, read.texts
        self.written, self.written_late = read.options, read.late_options
        self.options = tuple(Option(each.line, _name(each.name), each.value) for each in read.options)
        self.calls, self.variables = _read(read.commands)
        self.values = _values(read.commands)

    def option(self, *names: str) -> str:
        """Return the value of the last directive of these names; empty without one."""
        return next((each.value for each in reversed(self.options) if each.name in names), "")

    def number(self, *names: str) -> int:
        """Return the first number in a directive's value; 0 without one."""
        found = re.search(r"\d+", self.option(*names))
        return parse_int(found[0]) if found else 0

    def has(self, *names: str) -> bool:
        """Return whether there is a directive of one of these names."""
        return any(each.name in names for each in self.options)

    @property
    def nodes(self) -> int:
        """Number of nodes; 1 by default."""
        if given := self.number("nodes"):
            return given
        each = self.number("ntasks-per-node")
        return max(1, ceil(self.number("ntasks") / each)) if each else 1

    @property
    def tasks(self) -> int:
        """Number of tasks of the job; 1 by default."""
        return self.number("ntasks") or self.nodes * max(
            1, self.number("ntasks-per-node") or self.number("ntasks-per-gpu") * self.gpus
        )

    @property
    def gpus(self) -> int:
        """GPUs per node; 0 by default."""
        per_node = count_gpus(self.option("gpus-per-node")) or count_gpus(self.option("gres"), of_gres=True)
        per_task = count_gpus(self.option("gpus-per-task")) * max(1, self.number("ntasks-per-node"))
        return per_node or per_task or count_gpus(self.option("gpus")) // max(1, self.nodes)

    @cached_property
    def starts(self) -> tuple[SrunCall, ...]:
        """Calls of srun."""
        return tuple(start for call in self.calls if (start := _start(call, self.values)))

    def inner_lines(self) -> set[int]:
        """Return the lines inside here-documents and quoted texts."""
        return {line for first, last in self.texts for line in range(first, last + 1)}


def count_gpus(value: str, *, of_gres: bool = False) -> int:
    """Return the number of GPUs in ``a100:4`` or, of ``--gres``, in ``gpu:a100:4,nvme:950``."""
    total = 0
    for part in value.split(","):
        match = re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](.*))?", part) if of_gres else re.fullmatch(r"(.+)", part)
        if match:
            number = re.search(r"(?:^|[:=])(\d+)(?:\(|$)", match[1] or "")
            total += parse_int(number[1]) if number else 1
    return total


def _values(commands: Iterable[Statement]) -> Values:
    """Return the longest value of each variable that the batch shell sets."""
    found: dict[str, tuple[Word, ...]] = {}
    for name, words in (pair for command in commands for pair in command.assigned):
        is_own = any(part.kind == "variable" and part.text == name for word in words for part in word)
        if not is_own and len(_text(words)) >= len(_text(found.get(name, ()))):
            found[name] = words
    return found


def _name(name: str) -> str:
    full = complete_option(name)
    return "ntasks-per-node" if full == "tasks-per-node" else full


def _text(words: Iterable[Word]) -> str:
    return " ".join(source_text(word) for word in words)


def _read(commands: Iterable[Statement]) -> tuple[tuple[Call, ...], tuple[Assigned, ...]]:
    calls: list[Call] = []
    variables: list[Assigned] = []
    for command in commands:
        _read_command(command, 0, 0, calls, variables)
    return tuple(calls), tuple(variables)


def _read_command(command: Statement, offset: int, depth: int, calls: list[Call], variables: list[Assigned]) -> None:
    """Collect the argument lists and variables of one command, and those of the texts in its quotes."""
    line = command.line + offset
    nested: list[Word] = []
    for name, words in command.assigned:
        variables += (Assigned(line, INSIDE.sub("", name), source_text(word), word, depth) for word in words)
        inner = [word for word in words if _is_shell_text(word)]
        nested += inner
        calls.append(Call(line, words, _text(word for word in words if word not in inner), depth))
    words = command.words
    if words and source_text(words[0]).rpartition("/")[2] not in PRINTING:
        inner = [word for word in words if _is_shell_text(word)]
        nested += inner
        calls.append(Call(line, words, _text(word for word in words if word not in inner), depth))
        variables += (Assigned(line, INSIDE.sub("", n), v, w, depth) for n, v, w in _passed(words))
    for word in nested if depth < DEPTH else ():
        text = source_text(word)
        text = f"_ {text}" if text.lstrip().startswith("-") else text
        for each in parse_commands(text):
            _read_command(each, line - 1, depth + 1, calls, variables)


def _is_shell_text(word: Word) -> bool:
    text = source_text(word)
    return len(text.split()) > 1 and word[0].kind != "shell" and bool(SHELL_TEXT.search(text))


def _passed(words: tuple[Word, ...]) -> Iterator[tuple[str, str, Word]]:
    """Find variables in the arguments of env, ``--env``, ``--export`` and ``-x``."""
    texts = [source_text(word) for word in words]
    is_env = False
    for before, text, word in zip(["", *texts], texts, words, strict=False):
        is_env = is_env or before.rpartition("/")[2] == "env"
        option = re.match(r"--(?:env|export)=", text)
        if option or before in {"--env", "-x", "-e"} or is_env:
            parts = text[option.end() :].split(",") if option else [text]
            matches = (ASSIGNED.fullmatch(part) for part in parts)
            yield from ((match[1], match[2], word) for match in matches if match)


BEFORE_SRUN = re.compile(r"time|exec|nohup|eval|timeout|stdbuf|env|command|_|-.*|\d+\w?|\w+=.*|.*/time", re.DOTALL)


def _start(call: Call, values: Values) -> SrunCall | None:
    """Read a call of srun; None if the call is of another command."""
    texts = [source_text(word) for word in call.words]
    at = next((n for n, text in enumerate(texts) if not BEFORE_SRUN.fullmatch(text)), len(texts))
    if at == len(texts) or texts[at].rpartition("/")[2] != "srun":
        return None
    rest = [source_text(part) for word in call.words[at + 1 :] for part in expand(word, values, nested=True)]
    options: list[Option] = []
    is_open = False
    while rest:
        found, used = split_options(rest, flags=SRUN_FLAGS, short=SRUN_SHORT, line=call.line)
        options += (Option(each.line, each.name.replace("_", "-"), each.value) for each in found)
        rest = rest[used:]
        if not rest or not OPTIONS_NAME.match(rest[0]):
            break
        is_open, rest = True, rest[1:]
    return SrunCall(call.line, tuple(options), tuple(rest), is_open)


def option_values(call: Call, name: str) -> Iterator[tuple[str, Word]]:
    """Find the values of an option in an argument list: the text, and the word that contains it.

    Parameters
    ----------
    name
        A regular expression of the name without dashes, for example ``rdzv[-_]id``.
    """
    for word, after in zip_longest(call.words, call.words[1:], fillvalue=()):
        match = re.match(rf"--?(?:{name})(=|$)", source_text(word), re.DOTALL)
        if match and match[1]:
            yield source_text(word)[match.end() :], word
        elif match and after:
            yield source_text(after), after


def flat_parts(call: Call) -> tuple[WordPart, ...]:
    """Return the parts of all words in order, with a space between two words."""
    space = WordPart("text", " ")
    return tuple(part for word in call.words for part in (*word, space))


NO_SITE = Site()
"""The site of a script without ``--site``: nothing is known about it."""


class Job(NamedTuple):
    """A job script and its site."""

    script: Script
    site: Site = NO_SITE

    @property
    def facts(self) -> Facts:
        """The facts for conditions of the profile that the script contains."""
        script, node = self.script, self.site.node
        return Facts(
            nodes=str(script.nodes),
            gpus_per_node=str(script.gpus),
            vendor=node.gpu_vendor if script.gpus else "none",
            partition=script.option("partition"),
        )

    def variables(self, *names: str) -> Iterator[tuple[int, str, str]]:
        """Yield line, name and value of the variables that the script sets; only of `names` if they are given."""
        for each in self.script.variables:
            if not names or each.name in names:
                yield each.line, each.name, each.value
