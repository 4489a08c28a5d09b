"""Count up to a number as a trainer counts its steps: from a checkpoint, and with a new one when it is warned.

Words: FILE GOAL BEHAVIOUR.  When warned, `leave` saves and ends, `stay` saves and goes on, `never` saves none.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

STEP = 0.1


def say(text: str) -> None:
    """Print a line in one piece."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Count; every rank takes the signals, the first one saves."""
    file, goal, behaviour = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    first = os.environ["SLURM_PROCID"] == "0"
    warned: list[int] = []
    for each in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(each, lambda number, _frame: warned.append(number))
    count = int(file.read_text()) if file.exists() else 0
    say(f"from {count}" if first else "beside it")
    while count < goal:
        time.sleep(STEP)
        count += 1
        if not warned:
            continue
        number = warned.pop()
        if first and behaviour != "never":
            file.with_suffix(".part").write_text(str(count))
            file.with_suffix(".part").replace(file)
            say(f"saved {count}")
        if behaviour == "leave" or number == signal.SIGTERM:
            sys.exit(128 + number)
    if first:
        say(f"counted to {count}")


if __name__ == "__main__":
    main()
