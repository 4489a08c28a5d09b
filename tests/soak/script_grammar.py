"""Write job scripts as people do, from the rules in ``scripts.grammar``.

The scripts are valid bash, and depend on nothing but the random numbers that the caller gives.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

NAMES = ("A", "B", "LR", "N", "DATA_DIR", "OUT", "ARGS", "MODEL", "name", "SEED")
ARRAYS = ("LIST", "FLAGS", "lrs")
FUNCTIONS = ("run", "setup", "log", "helper", "echo", "prog")
FILES = {
    "env.sh": "export FROM_FILE=1\nDATA_DIR=/from/file\n",
    "script.sh": 'prog from-script "$@"\n',
    "input.txt": "some text\nof two lines\n",
    "a.txt": "1\n2\n",
    "venv/bin/activate": 'VIRTUAL_ENV=/home/ada/project/venv\nexport VIRTUAL_ENV\nPATH="$VIRTUAL_ENV/bin:$PATH"\n',
    "sub/data.txt": "x\n",
    "sub/more/y.txt": "y\n",
    "other/deep/x.txt": "z\n",
}
"""Files of the project in which the scripts run."""

SYMBOL = re.compile(r"@([a-z][a-z ]*)@")
ALTERNATIVE = re.compile(r"(?:(?P<weight>\d+): )?(?P<text>.*)")


@cache
def read_rules() -> dict[str, list[str]]:
    """Return the alternatives of each rule; one with a weight is there several times."""
    rules: dict[str, list[str]] = {"nothing": [""]}
    for line in Path(__file__).with_name("scripts.grammar").read_text().splitlines():
        if line.startswith("[") and line.endswith("]") and not line.startswith(("[ ", "[[")):
            found = rules.setdefault(line[1:-1], [])
        elif line and not line.startswith("# ") and (each := ALTERNATIVE.fullmatch(line)):
            text = re.sub(r"\\(.)", lambda sign: {"n": "\n"}.get(sign[1], sign[1]), each["text"])
            found += [text] * int(each["weight"] or 1)
    return rules


class Grammar:
    """Draws one script: the variables, arrays and functions that have a value so far decide what later lines use."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.known: dict[str, list[str]] = {"name": [], "array": [], "function": []}

    def draw(self, rule: str) -> str:
        """Draw an alternative of a rule, and what it contains, from left to right."""
        names: dict[str, str] = {}

        def replace(found: re.Match[str]) -> str:
            symbol = found[1]
            if symbol in read_rules():
                return self.draw(symbol)
            if symbol not in names:
                names[symbol] = self.name(symbol)
            return names[symbol]

        return SYMBOL.sub(replace, self.random.choice(read_rules()[rule]))

    def name(self, symbol: str) -> str:
        """Draw the name of a variable, an array or a function."""
        kind = symbol.removeprefix("new").strip().replace("other", "name") or "name"
        names, known = {"name": NAMES, "array": ARRAYS, "function": FUNCTIONS}[kind], self.known[kind]
        if symbol.startswith("new"):
            known.append(self.random.choice(names))
            return known[-1]
        return self.random.choice(known if known and self.random.random() < PART_KNOWN else names)


PART_KNOWN = 0.8
"""How often a script uses a name that has a value."""


def write_script(random: Random) -> str:
    """Return a script that these random numbers draw."""
    return Grammar(random).draw("script")
