"""Wait for signals as a trainer does: USR1 and USR2 write a checkpoint, which takes a while; TERM does, and leaves."""

import os
import signal
import sys
import time
from pathlib import Path

SECONDS = float(os.environ.get("SAVE_SECONDS", "2"))


def say(text: str) -> None:
    """Print a line in one piece."""
    sys.stdout.write(f"rank {os.environ.get('RANK') or os.environ.get('SLURM_PROCID', '0')} {text}\n")
    sys.stdout.flush()


def save(name: str) -> None:
    """Write a checkpoint as slowly as a large one is written."""
    say(f"got {name} at {time.time():.2f}")
    time.sleep(SECONDS)
    Path(f"saved-{name}-{os.environ.get('RANK') or os.environ.get('SLURM_PROCID', '0')}").write_text("saved\n")
    say(f"saved after {name}")


def main() -> None:
    """Sleep until TERM, or for the seconds of the first word; signals are taken between two naps."""
    got: list[str] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, lambda n, _frame: got.append(signal.Signals(n).name))
    say("ready")
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        time.sleep(0.05)
        if got:
            name = got.pop(0)
            save(name)
            if name == "SIGTERM":
                sys.exit(143)
    say("done")


if __name__ == "__main__":
    main()
