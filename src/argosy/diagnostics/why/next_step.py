"""Choose the next step for an error from its own message; pure."""

from __future__ import annotations

import re

ADVICE = re.compile(
    r"(?:[Pp]lease (?:set|run|try|install|upgrade|update|use|check|specify|make sure|ensure|provide|pass|add|remove)\b"
    r"|[Tt]ry (?:to|using|setting|running|installing) |[Cc]onsider |You (?:should|must|need to|can|may) |[Hh]int: "
    r"|Did you (?:mean|forget)|[Uu]se (?:--|the )|[Ii]nstall (?:it|with) |pip install "
    r"|[Rr]un ['\"`]|[Ss]ee ['\"`]|Check (?:the|that|your|if|[A-Z_]{4,}:?) )\S?.{4,}"
)
"""A message's own advice, from the verb to the end of the line."""
BUILD_STEP = re.compile(r"\[/bin/(?:ba)?sh -[ce]\w* [^\]]*\]?")
"""The command of an image's build that failed; its words are not advice."""
SHOWN = 160

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


def find_advice(message: str) -> str:
    """Return a message's own advice; empty if it gives none."""
    advice = ADVICE.search(BUILD_STEP.sub("", message))
    return f"follow the advice of the message: {advice[0].strip()[:SHOWN]}" if advice else ""


def next_step(message: str) -> str:
    """Return the message's own advice, or the step that fits its words."""
    fitting = (step for words, step in STEPS if re.search(words, message))
    return find_advice(message) or next(fitting, "") or OTHERWISE
