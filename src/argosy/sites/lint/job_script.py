"""Parse a job script for the rules: directives, variables and commands, each with its line number."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from argosy.sites.conditions import Facts
from argosy.sites.profile import Site

DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$")
OPTION = re.compile(r"--?([A-Za-z][\w-]*)(?:[=\s]\s*(\"[^\"]*\"|'[^']*'|[^\s-]\S*))?")
ASSIGNED = re.compile(
    r"(?:^|[\s;&(])([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|[^\s;&]*)"
)
HERE_DOCUMENT = re.compile(r"<<-?\s*['\"](\w+)['\"]")
WORD = re.compile(r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"'])+")
INSIDE = re.compile(r"^(?:APPTAINERENV|SINGULARITYENV)_")
SHORT = {
    "A": "account", "c": "cpus-per-task", "J": "job-name", "N": "nodes", "n": "ntasks", "p": "partition", "q": "qos",
    "t": "time", "G": "gpus", "o": "output", "e": "error", "C": "constraint", "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""Short sbatch options and srun, by their long names (sbatch(1))."""


class Named(msgspec.Struct, frozen=True):
    """A name with a value, and its line number from 1."""

    line: int
    name: str
    value: str = ""


class Script(msgspec.Struct, frozen=True):
    """A job script.

    Attributes
    ----------
    lines
        Number and text of each command, with continued lines joined.
    directives, late_directives
        Options of sbatch. sbatch ignores the late ones, which follow the first command.
    variables
        Assigned or exported variables, without prefixes for containers (APPTAINERENV_).
    """

    path: str
    raw: str
    lines: tuple[tuple[int, str], ...]
    directives: tuple[Named, ...]
    late_directives: tuple[Named, ...]
    variables: tuple[Named, ...]

    def option(self, *names: str) -> str:
        """Return the value of the last directive of these names; empty without one."""
        return next((each.value for each in reversed(self.directives) if each.name in names), "")

    def number(self, *names: str) -> int:
        """Return the first number in a directive's value; 0 without one."""
        found = re.search(r"\d+", self.option(*names).rsplit(":", maxsplit=1)[-1])
        return int(found[0]) if found else 0

    @property
    def nodes(self) -> int:
        """Number of nodes; 1 by default."""
        found = re.match(r"\d+", self.option("nodes"))
        return int(found[0]) if found else 1

    @property
    def gpus(self) -> int:
        """GPUs per node; 0 by default."""
        per_node = self.number("gpus-per-node", "gres")
        return per_node or self.number("gpus") // max(1, self.nodes)

    @property
    def starts(self) -> tuple[tuple[int, str], ...]:
        """Commands that call srun."""
        return tuple((n, text) for n, text in self.lines if re.search(r"(^|[\s;&|])srun\s", text))


def parse_script(path: str, raw: str) -> Script:
    """Parse a job script."""
    lines = tuple(_join_lines(raw))
    directives: list[Named] = []
    late: list[Named] = []
    begun = False
    for number, text in lines:
        match = DIRECTIVE.match(text)
        if match:
            (late if begun else directives).extend(_options(number, match[1]))
        elif text.strip() and not text.lstrip().startswith("#"):
            begun = True
    commands = tuple((n, text) for n, text in lines if text.strip() and not text.lstrip().startswith("#"))
    variables = tuple(
        Named(n, INSIDE.sub("", name), _unquoted(value))
        for n, text in commands
        for name, value in ASSIGNED.findall(text)
    )
    return Script(path, raw, commands, tuple(directives), tuple(late), variables)


def _join_lines(raw: str) -> list[tuple[int, str]]:
    """Join lines that end with a backslash, and the lines of a quoted text; a comment ends with its line.

    Quoted here-documents are skipped: other shells run them, on other nodes.
    """
    out: list[tuple[int, str]] = []
    quote, continued, end = "", False, ""
    for number, line in enumerate(raw.splitlines(), 1):
        if end:
            end = "" if line.strip() == end else end
            continue
        if quote:
            out[-1] = (out[-1][0], f"{out[-1][1]}\n{line}")
        elif continued:
            out[-1] = (out[-1][0], f"{out[-1][1][:-1].rstrip()} {line.strip()}")
        else:
            out.append((number, line))
        quote, comment = _scan(line, quote)
        continued = line.endswith("\\") and not quote and not comment
        document = HERE_DOCUMENT.search(line)
        end = document[1] if document and not quote and not comment else ""
    return out


def _scan(line: str, quote: str) -> tuple[str, bool]:
    """Return the quote that is open at the end of a line, and whether the line ends with a comment."""
    before, skip = " ", False
    for sign in line:
        if skip:
            skip = False
        elif sign == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and before.isspace():
            return "", True
        before = sign
    return quote, False


def _options(line: int, text: str) -> list[Named]:
    """Parse the options of one ``#SBATCH`` line."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    out: list[Named] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            out.append(Named(line, name, value))
        elif word.startswith("-") and len(word) > 1:
            out.append(Named(line, SHORT.get(word[1], word[1]), word[2:]))
        elif out:
            out[-1] = Named(line, out[-1].name, word)
    return out


def srun_options(text: str) -> tuple[str, ...]:
    """Return the arguments of a command between srun and the program that it starts."""
    words = WORD.findall(re.split(r"(?:^|[\s;&|])srun\s", text, maxsplit=1)[-1])
    out: list[str] = []
    for word in words:
        after = out[-1] if out else ""
        is_value = after[:1] == "-" and "=" not in after and (len(after) == 2 or re.match(r"\"?[\d$]", word))  # noqa: PLR2004
        if not (word.startswith(("-", "$", '"$')) or (is_value and (after[1:] in SHORT or after.startswith("--")))):
            break
        out.append(word)
    return tuple(out)


def _unquoted(text: str) -> str:
    """Return a value without the quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


NO_SITE = Site()
"""The site of a script without ``--site``: nothing is known about it."""


class Job(msgspec.Struct, frozen=True):
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
