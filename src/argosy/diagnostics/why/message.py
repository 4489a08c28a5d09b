"""Read from an unknown error what the program reports, and choose the next step; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from argosy.diagnostics.why.failure import HEADLINE
from argosy.diagnostics.why.phrases import LineKind

LABEL = re.compile(
    r"\s*(?:\[[^\]\n]*\](?::|(?=[\s\[]))|\([^()\n]* pid=[^()\n]*\)|[-*#!|>=+&]+\s"
    r"|\d{1,4}[-/:.]\d\d[-/:.]\d\d[\dT:.,+Z-]*|\d+:\s|[\w.-]+:\d+:\d+ \[\w+\]|(?:pe|PE|rank|Rank|node|Node)[ =]\d+[: ]"
    r"|(?:ERROR|CRITICAL) \d\d-\d\d [\d:]{8} \[?[\w./]+:\d+\]"
    r"|(?:[EF] )?[\w./+-]+\.(?:c|cc|cpp|cu|h|py|f90|F90):\d+(?:\]|(?=\s+[Ee]rror)"
    r"|\s+NCCL WARN|\s+UCX +(?:ERROR|FATAL)))\s*"
)
"""Decoration in front of a message: rank, host, process, time, the border of a box."""
MARK = (
    r"(?:(?:[Ff]atal|FATAL|[Ii]nternal|[Rr]untime|[Ii]nput|[Uu]ser) )?"
    r"(?:error|Error|ERROR|ERRO|[Ff]atal|FATAL|SEVERE|CRITICAL|FAIL|PANIC)"
)
INSIDE = "(?:while|when|during|in|at|of|from|code|reading|opening|writing|to|is|was)"
"""Words that continue the sentence that the mark begins, as in 'Error while reading'."""
STATED = re.compile(
    rf"(?P<program>[\w./+-]*[A-Za-z][\w./+-]*): {MARK}(?: \([^()]*\)|\[\w+\])?: +(?P<program_says>\S.*)"
    r"|[Ff]atal error in (?P<function>[\w.: ]{2,60}): (?P<function_says>\S.*)"
    rf"|{MARK}(?: CALLED)?(?: (?:from|on|in) [\w# ]{{1,24}})?(?:\[\w+\]| \(\S*\))?"
    rf"\s*(?:!+|:|-+|\s(?!{INSIDE}\b))\s*(?P<says>\S.*)"
    r"|(?P<command>(?:\.{0,2}/)?[\w./+-]*[a-z][\w./+-]*): (?:line \d+: )?(?P<command_says>[^\s:].*)"
)
"""A message after the mark of an error, or after the name of the program."""
VAGUE = re.compile(
    r"(?i)^(?:an? |the )?(?:\w+ )?errors? (?:has |have )?(?:occur\w*|detected|found|encountered)\W*$|^unknown error\W*$"
    r"|see (?:above|below|the (?:log|output))"
    r"|^\W*(?:program|run|job|step|task|simulation|execution) (?:\w+ )?(?:failed|aborted|stopped)\W*$"
    r"|^(?:in|at|from) (?:line|file|routine|rank|process|node)\b[^:]*$|[{};]\s*$|\braise\b|\breturn\b"
)
"""A message that does not tell what went wrong, or a line of code."""
SENTENCE = re.compile(r".{24,}?[.!](?= [A-Z])")
FUNCTION = re.compile(r"[a-z][a-z\d]*(?:[A-Z][a-z\d]*)+")
"""A name such as socketTryAccept, which is that of a function, not of a program."""
NAMELESS = frozenset({"error", "fatal", "failed", "message", "reason", "cause", "what", "info", "root", "exception"})
SHOWN = 160
CHAIN = 3
"""Colons of a chain of reasons, as programs in Go print it: the last one tells most."""
HEAD = 60
"""Characters of the first link of a chain that is shown with the last ones."""
LEAST_WORDS = 3

ADVICE = re.compile(
    r"(?:[Pp]lease (?:set|run|try|install|upgrade|update|use|check|specify|make sure|ensure|provide|pass|add|remove)\b"
    r"|[Tt]ry (?:to|using|setting|running|installing) |[Cc]onsider |You (?:should|must|need to|can|may) |[Hh]int: "
    r"|Did you (?:mean|forget)|[Uu]se (?:--|the )|[Ii]nstall (?:it|with) |pip install "
    r"|[Rr]un ['\"`]|[Ss]ee ['\"`]|Check (?:the|that|your|if|[A-Z_]{4,}:?) )\S?.{4,}"
)
"""A message's own advice, from the verb to the end of the line."""
BUILD_STEP = re.compile(r"\[/bin/(?:ba)?sh -[ce]\w* [^\]]*\]?")
"""The command of an image's build that failed; its words are not advice."""
STEPS = (
    (r"No such file or directory|does ?n[o']t exist|[Cc]annot (?:open|find|stat) |command not found",
     "check with 'ls -l PATH' on the node that it has what the line names; a container sees bound folders only"),
    (r"[Pp]ermission denied|[Rr]ead-only file system",
     "check who may use what the line names, with 'namei -l PATH' on the node"),
    (r"[Oo]peration not permitted",
     "the system forbids this call: of a file check the owner ('namei -l PATH'), else try it outside of the container"),
    (r"unrecognized (?:option|argument)|unknown (?:option|flag|argument)|invalid (?:option|argument|choice):",
     "correct the option that the line names; '--help' lists those that this version knows"),
    (r"[Vv]ersions? (?:mismatch|conflict|\S+ (?:is|does|required))|[Ii]ncompatible|no attribute|unexpected keyword",
     "compare the versions that the line is about, and install the one that the other side expects"),
    (r"[Tt]imed out|[Uu]nreachable|No route to host|Connection refused|Couldn't reach|could not resolve",
     "check on the node that the address in the line can be reached, and that its server runs"),
    (r"[Oo]ut of memory|[Cc]annot allocate",
     "the line names what was full: memory of the GPU ('nvidia-smi', 'rocm-smi') or of the job (--mem, 'ulimit -a')"),
    (r"No space left|[Qq]uota",
     "compare the limit that the line is about with what the job has ('df -h', 'df -i', the quota of the project)"),
)  # fmt: skip
"""The next step by the words of the message; the first that matches counts."""
OTHERWISE = "read the lines around it, and search for its text in the documentation of the program that wrote it"


def state_message(line: str, below: Sequence[str], *, boxed: bool) -> str:
    """Return the message that the program reports; empty if the line does not tell what went wrong.

    Parameters
    ----------
    below
        The next lines of the message.
    boxed
        Whether the line begins a message in a box, which continues below it.
    """
    text = _without_labels(line)
    if boxed or HEADLINE.search(text):
        text = " ".join([text, *(_without_labels(each) for each in below)])
    match = STATED.match(text)
    names = {name: value for name, value in match.groupdict().items() if value} if match else {}
    says = next((value for name, value in names.items() if name.endswith("says")), text)
    message = _first_sentence(says.strip(" *|-=!"))
    if not _tells(message):
        return ""
    program = (names.get("program") or names.get("command") or "").rpartition("/")[2]
    named = program and program.lower() not in NAMELESS
    function = program if FUNCTION.fullmatch(program) else names.get("function", "").strip()
    subject = program if named and not function else "the program"
    return f"{subject} reports '{message}'{f' in {function}' if function else ''}"


def _without_labels(line: str) -> str:
    text = line.strip()
    while (label := LABEL.match(text)) and label.end() < len(text):
        text = text[label.end() :]
    return text


def _first_sentence(text: str) -> str:
    sentence = SENTENCE.match(text)
    text = " ".join((sentence[0] if sentence else text).split())
    if len(text) <= SHOWN:
        return text
    first, *others = text.split(": ")
    if len(others) < CHAIN or len(first) > HEAD:
        return f"{text[: SHOWN - 1]}…"
    tail = ""
    while others and len(others[-1]) + len(tail) < SHOWN - len(first):
        tail = f": {others.pop()}{tail}"
    return f"{first} … {tail.removeprefix(': ')}" if tail else f"{text[: SHOWN - 1]}…"


def _tells(message: str) -> bool:
    """Return whether a message tells what went wrong: it has a few words and is not a heading."""
    words = re.findall(r"[A-Za-z][A-Za-z']+", message)
    enough = len(words) >= LEAST_WORDS or (len(words) > 1 and LineKind.REFUSED.matches(message))
    return enough and not VAGUE.search(message)


def find_advice(message: str) -> str:
    """Return a message's own advice; empty if it gives none."""
    advice = ADVICE.search(BUILD_STEP.sub("", message))
    return f"follow the advice of the message: {advice[0].strip()[:SHOWN]}" if advice else ""


def next_step(message: str) -> str:
    """Return the message's own advice, or the step that fits its words."""
    fitting = (step for words, step in STEPS if re.search(words, message))
    return find_advice(message) or next(fitting, "") or OTHERWISE
