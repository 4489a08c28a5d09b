"""Build an image, launch a program in it, wait for the end, and verify the run: all from Python.

Usage: python from_python.py ENVIRONMENT IMAGE [SITE [ACCOUNT]] -- COMMAND ...

    python examples/from_python.py examples/digits/environment.yml digits.sif -- python examples/digits/train.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from argosy import api


def main(arguments: list[str]) -> int:
    """Return the exit code of the program, or 7 if it did not use what was planned."""
    if "--" not in arguments or len(arguments) < 4:  # noqa: PLR2004 - two files, the dashes, a command
        print(__doc__, file=sys.stderr)
        return 2
    dashes = arguments.index("--")
    environment, image, *place = arguments[:dashes]
    site, account = [*place, "local", ""][:2] if len(place) < 2 else place  # noqa: PLR2004 - site and account
    try:
        build(environment, image)
        return launch(image, arguments[dashes + 1 :], site, account)
    except api.ArgosyError as error:
        print(f"cannot continue: {error}", file=sys.stderr)
        return error.code


def build(environment: str, image: str) -> None:
    """Build the image if it does not exist."""
    if not Path(image).exists():
        report = api.build(environment, base="debian:bookworm", output=image)
        print(f"{image}: {report.packages} packages in {report.seconds:.0f} s")


def launch(image: str, command: list[str], site: str, account: str) -> int:
    """Launch two ranks, wait for the job, and check what it used."""
    plan = api.plan_launch(image, command, site=site, account=account, ranks=2)
    print(f"{plan.shape.ranks} ranks, {plan.shape.ranks_per_node} per node")
    launched = api.launch(image, command, site=site, account=account, ranks=2)
    if not launched.job:  # the site "local" has no queue: the program has ended
        return launched.code
    end = api.follow_job(launched.job)
    print(end.verdict)
    _, verdict = api.verify_run(launched.job)
    print(verdict.line)
    return end.code or (0 if verdict.ok else 7)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
