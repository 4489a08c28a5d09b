"""Expressions and defaults that the shell of each rank computes: what they need, and which it cannot compute; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from argosy.launch.import_script.model import Fate, Note
from argosy.launch.import_script.program import shell_line
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import Values, Word, WordPart, plain_text, taken_default

COMPUTED = "the script computes it: write its value, or set it in the program"
"""Reason why the value of a variable that a loop, a condition or ``read`` sets is not known."""


def statement_words(statement: Statement) -> tuple[Word, ...]:
    """Return the words of a command, of its input, and of the variables that precede it."""
    before = (word for _, words in statement.assigned for word in words)
    return (*before, *statement.words, *statement.inputs)


def default_notes(
    words: Iterable[Word], values: Values, computed: Collection[str] = (), *, exported: str = ""
) -> Iterator[Note]:
    """Report the variables of the user's shell whose defaults a job gets: later values of them do not reach it.

    Parameters
    ----------
    computed
        Variables that a loop, a condition or a command such as ``read`` sets.
    exported
        The variable that gets the words as its value, if it is exported.
    """
    for part in (part for word in words for part in word):
        name, default = part.text, taken_default(part, values)
        if not default:
            continue
        if name in computed:
            yield f"${name}", Fate.UNTRANSLATED, COMPUTED
            continue
        remedy = f"with --env {name}=VALUE" if name == exported else "in the table"
        note = f"fixed at {default}, whatever {name} is in your shell: change it {remedy}"
        yield part.reference, Fate.UNTRANSLATED, note


USED, ARITHMETIC = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)"), re.compile(r"\b([A-Za-z_]\w*)")
"""A variable in an expression; in those of `INDEX`, it needs no dollar sign."""

ARGUMENT = re.compile(r"\$(\{?[\d@*]|#|\{#\})")
"""An argument of the job script itself."""

ELEMENT = re.compile(r"\$\{[#!]?(\w+)\[")
"""An element of an array."""

INDEX = re.compile(r"\$\(\((.*)\)\)|\$\[(.*)\]|\$\{[#!]?\w+(?:\[(.*)\]|(?:\[[@*]\])?:(?![-+=?])(.*)\})", re.DOTALL)
"""The parts of expressions in which a variable needs no dollar sign: arithmetic, an index, the length of a part."""

INDIRECT = re.compile(r"\$\{!(\w+)(?![\w\[@*])")
"""The variable whose name is the value of another one."""

FIRST_ELEMENT = re.compile(r"\$\{(\w+)\[0\]\}")
HOST_NAMES = re.compile(r"(\$\(|`)\s*scontrol show hostnames?\b[^|]*")
FIRST_NODE = WordPart("variable", "MASTER_ADDR", quoted=True)
"""The name of the job's first node, which Argosy sets for each rank."""

FINDS_FIRST_NODE = re.compile(
    r"[$`]\(?\s*(?:hostname(?:\s+(?:-[sf]|--short|--fqdn))?"
    r"|scontrol\s+show\s+hostnames?(?:\s+[\"']?\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']?)?"
    r"\s*\|\s*(?:head\s+(?:-n\s*1|-1|--lines=1)|sed\s+-n\s+['\"]?1p['\"]?))\s*[)`]"
)
"""Commands that print the first node of a job, where sbatch runs the script."""

FINDS_ADDRESS = re.compile(
    r"[$`]\(?\s*srun\s(?=[^|]*?(?:-w\s*|--nodelist[=\s]\s*)[\"']?\$\{?(?P<node>\w+)\}?[\"']?\s)"
    r"[^|()`]*\bhostname(?:\s+-[\w-]+)*"
    r"\s*(?:\|\s*(?:awk|cut|head|tr|sed|xargs)\b[^|()`]*)*[)`]"
)
"""Commands that print the name or the address of a node: ``$(srun -N 1 -n 1 -w "$HEAD" hostname --ip-address)``."""

SLURM_COMMAND = re.compile(r"\b(srun|scontrol|sinfo|squeue)\b")

COMMAND = re.compile(r"\$\((?!\()|`|[<>]\(")
DIFFERS = re.compile(rf"{COMMAND.pattern}|\$[$!?]|\b(S?RANDOM|SECONDS|EPOCHSECONDS|EPOCHREALTIME|BASHPID)\b")
"""Expressions whose value may differ in each rank: commands, and numbers of the shell itself."""

ARGUMENT_NOTE = "an argument of the script: write its value"
DIFFERS_NOTE = "a shell computes it in each rank"


def with_first_node(words: Iterable[Word], values: Values) -> tuple[Word, ...]:
    """Replace commands that print the first node, and the first element of an array with the nodes of the job."""
    return tuple(tuple(FIRST_NODE if _is_first_node(part, values) else part for part in word) for word in words)


def _is_first_node(part: WordPart, values: Values) -> bool:
    if part.kind == "shell" and FINDS_FIRST_NODE.fullmatch(part.text):
        return True
    if part.kind == "shell" and (address := FINDS_ADDRESS.fullmatch(part.text)):
        node = values.get(address["node"], ())
        return [each for word in node for each in word if each.text] == [FIRST_NODE]
    found = FIRST_ELEMENT.fullmatch(part.text)
    name = part.text if part.kind == "variable" and not part.all_elements else found[1] if found else ""
    first = next(iter(values.get(name, ())), ())
    return len(first) == 1 and not first[0].quoted and bool(HOST_NAMES.fullmatch(first[0].text))


def why_unknown(part: WordPart, values: Values, computed: Collection[str]) -> str:
    """Return why the shell of a rank does not compute an expression as the script does; empty if it does.

    The variables that the expression uses may be unknown, too.

    `computed` has the variables that a loop, a condition or a command such as ``read`` sets.
    """
    used = [values[name] for name in definitions(((part,),), values)]
    parts = (part, *(each for words in used for each in expressions(words)))
    reason = next(filter(None, (_why_unknown(each, values) for each in parts)), "")
    return reason or (COMPUTED if any(uses_any(words, computed) for words in (((part,),), *used)) else "")


def uses_any(words: Iterable[Word], names: Collection[str]) -> bool:
    """Return whether words use one of these variables, in an expression or as they are."""
    return bool(names) and any(
        name in names
        for word in words
        for name in (*used_names(word), *(part.text for part in word if part.kind == "variable"))
    )


def _why_unknown(part: WordPart, values: Values) -> str:
    if ARGUMENT.search(part.text) and not COMMAND.search(part.text):
        return ARGUMENT_NOTE
    if found := ELEMENT.match(part.text):
        note = "the script does not set the array: write its value, or choose it in the program"
        return "" if found[1] in values else note
    if (found := INDIRECT.search(part.text)) and not _target(found[1], values):
        return f"{found[1]} has the name of the variable: write its value"
    if found := SLURM_COMMAND.search(part.text):
        command = f"each rank would run {found[0]}, which a container does not have"
        return f"{command}: use MASTER_ADDR and MASTER_PORT, which Argosy sets"
    return DIFFERS_NOTE if DIFFERS.search(part.text) else ""


def expressions(words: Iterable[Word]) -> Iterator[WordPart]:
    """Yield the parts of words that a shell computes."""
    return (part for word in words for part in word if part.kind == "shell")


def used_names(word: Word) -> Iterator[str]:
    """Yield the names of variables in the expressions of a word."""
    for part in expressions((word,)):
        numbers = " ".join(text for found in INDEX.findall(part.text) for text in found)
        yield from dict.fromkeys((*USED.findall(part.text), *ARITHMETIC.findall(numbers)))


def users(name: str, values: Values) -> list[str]:
    """Return the variables whose expressions use the present value of another one.

    Values that this value uses are older: ``X=/b$X; X=/c$X``.
    """
    older = {name, *definitions(values.get(name, ()), values)}
    return [
        each
        for each, words in values.items()
        if each not in older and any(name in part.text for part in expressions(words))
        if any(name in used_names(word) for word in words)
    ]


def itself(name: str) -> tuple[Word, ...]:
    """Return the value of a variable that only the shell of a rank knows."""
    return ((WordPart("variable", name, quoted=True),),)


def definitions(words: Sequence[Word], values: Values) -> Mapping[str, str]:
    """Return the script's variables that expressions in words use, with assignments, for example for ``$((N * G))``.

    A variable follows those that its own value uses.
    """
    found: list[str] = []
    arrays = set[str]()
    waiting, begun = _uses(words, values, arrays), set[str]()
    while waiting:
        name, is_done = waiting.pop()
        if is_done:
            found.append(name)
        elif name in begun or not values.get(name):
            continue
        elif values[name] == itself(name) or (len(values[name]) == 1 and name in used_names(values[name][0])):
            continue  # a value that contains itself is that of the user's shell
        else:
            begun.add(name)
            waiting += [(name, True), *_uses(values[name], values, arrays)]
    arrays |= {name for name in found if len(values[name]) > 1}
    lines = {name: shell_line(values[name]) for name in found}
    return {name: f"{name}=({line})" if name in arrays else f"{name}={line}" for name, line in lines.items()}


def _uses(words: Sequence[Word], values: Values, arrays: set[str]) -> list[tuple[str, bool]]:
    """Return the variables that expressions of words use, each with False; add those with an index to `arrays`."""
    arrays.update(name for part in expressions(words) for name in ELEMENT.findall(part.text))
    names = [name for word in words for name in used_names(word)]
    targets = [_target(name, values) for part in expressions(words) for name in INDIRECT.findall(part.text)]
    return [(name, False) for name in (*names, *targets)]


def _target(name: str, values: Values) -> str:
    """Return the name that is the value of a variable; empty if it is not known."""
    text = plain_text(values[name][0]) if values.get(name) else None
    return text if text and text.isidentifier() else ""


def new_definitions(words: Sequence[Word], values: Values, prelude: Sequence[str]) -> list[str]:
    """Return the assignments of `definitions` that a shell needs behind the lines of a prelude."""
    last = {line.partition("=")[0]: line for line in prelude}
    return [line for name, line in definitions(words, values).items() if last.get(name) != line]
