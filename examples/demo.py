"""Build the digits image, launch two ranks, and say in one line what came of it: what `make demo` runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parent / "digits"
ARGOSY = Path(sys.executable).parent / "argosy"
RANKS = 2


def main() -> int:
    """Run the demonstration; the exit code is that of the first command that fails."""
    with tempfile.TemporaryDirectory(prefix="argosy-demo-", dir="/var/tmp") as folder:
        image = Path(folder) / "digits.sif"
        report_file = Path(folder) / "build.json"
        with report_file.open("w") as report:
            words = ["build", str(EXAMPLE / "environment.yml"), "--base", "debian:bookworm", "-o", str(image), "--json"]
            if code := show(words, stdout=report):
                return code
        built = json.loads(report_file.read_text())
        return train(image, built, Path(folder))


def show(words: list[str], *, stdout: object = None) -> int:
    """Print a command as a user would type it, and run it."""
    print("$", shlex.join(["argosy", *words]), flush=True)
    return subprocess.run([ARGOSY, *words], stdout=stdout, check=False).returncode  # type: ignore[call-overload,no-any-return]


def train(image: Path, built: dict[str, object], folder: Path) -> int:
    """Launch the training, pass its lines on, and add the build's times to its last one."""
    program = [str(EXAMPLE.resolve() / "train.py"), "--epochs", "20", "--snapshot", str(folder / "digits.pt")]
    words = ["launch", str(image), "--ranks", str(RANKS), "--site", "local", "--", "python", *program]
    print("$", shlex.join(["argosy", *words]), flush=True)
    lines: list[str] = []
    with subprocess.Popen([ARGOSY, *words], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            lines.append(line)
            print(line, end="", flush=True)
    if child.returncode == 0:
        print(summary("".join(lines), built, start=start_time(image)))
    return child.returncode


def start_time(image: Path) -> float:
    """Measure how long an interpreter in the image takes to come up, in seconds; the image was used before."""
    start = time.monotonic()
    subprocess.run([ARGOSY, "run", image, "--", "python", "-c", "pass"], check=True)
    return time.monotonic() - start


def summary(text: str, built: dict[str, object], *, start: float) -> str:
    """Say accuracy, ranks, and where the time went."""
    result = re.search(r"^test accuracy .*$", text, re.MULTILINE)
    seconds = re.search(r"training: ([0-9.]+) seconds", text)
    timings = {t["step"]: t["seconds"] for t in built["timings"]}  # type: ignore[attr-defined]
    spent = ", ".join(f"{step} {timings[step]:.0f}" for step in ("base", "packages", "pack"))
    return (
        f"{result.group(0) if result else 'no accuracy was printed'} · build {built['seconds']:.0f} s ({spent})"
        f" · start {start:.1f} s · train {float(seconds.group(1)) if seconds else 0:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
