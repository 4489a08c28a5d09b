"""Feed one parser with damaged samples: ``python -m tests.soak.fuzz PARSER [--seed N] [--inputs N] [--only N]``.

A parser returns, or raises an `ArgosyError`.  Every other exception, an input that takes more processor time than
`CPU_S`, and one that needs more memory than `MEMORY` are defects.  Each input has a generator of its own, so `--only`
repeats one.  `--keep FILE` writes it there.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

from argosy.core.errors import ArgosyError
from tests.soak.mutate import mutate
from tests.soak.parsers import PARSERS, Parser

CPU_S = 20
"""Seconds of processor time for an input: no property of the machine's load."""

MEMORY = 3 << 30
"""Bytes of address space of this process."""


class Hang(BaseException):
    """Raised by the timer of the processor's time."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Hang


def try_input(parser: Parser, data: bytes, folder: Path) -> str:
    """Feed one input, and return the traceback of a defect, or an empty text."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        parser.read(data, folder)
    except ArgosyError as error:
        # A message is printed: it has to be text of a usual size.
        shown = str(error)
        return "" if len(shown) < 1 << 20 else f"a message of {len(shown)} characters"
    except Hang:
        return f"more than {CPU_S} s of processor time\n{traceback.format_exc(limit=-4)}"
    except Exception:  # noqa: BLE001 - that is what is looked for
        return traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def fuzz(parser: Parser, seed: str, numbers: range, folder: Path) -> dict[str, tuple[int, str]]:
    """Feed inputs, and return the defects: place and kind -> number of the first input, and traceback."""
    found: dict[str, tuple[int, str]] = {}
    for number in numbers:
        data = mutate(parser.samples, random.Random(f"{seed}:{parser.name}:{number}"))  # noqa: S311 - repeatable
        if fault := try_input(parser, data, folder):
            found.setdefault("\n".join(fault.strip().splitlines()[-2:])[-300:], (number, fault))
    return found


def main() -> int:
    """Run one parser, and print the count of inputs and each kind of defect once."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.fuzz")
    options.add_argument("parser", choices=sorted(PARSERS))
    options.add_argument("--seed", default="20")
    options.add_argument("--inputs", type=int, default=2000)
    options.add_argument("--only", type=int)
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    parser = PARSERS[given.parser]
    signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    numbers = range(given.inputs) if given.only is None else range(given.only, given.only + 1)
    if given.keep:
        given.keep.write_bytes(mutate(parser.samples, random.Random(f"{given.seed}:{parser.name}:{given.only}")))  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(parser, given.seed, numbers, Path(folder))
    repeat = f"repeat: python -m tests.soak.fuzz {parser.name} --seed {given.seed} --only"
    lines = [f"{fault}\n{repeat} {number}\n" for number, fault in found.values()]
    lines.append(f"{parser.name}: {len(numbers)} inputs, {len(found)} defects (seed {given.seed})\n")
    sys.stdout.write("\n".join(lines))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
