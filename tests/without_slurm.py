"""Hide Slurm's commands from tests: with them, a machine is a login node, and Argosy says and does other things."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

COMMANDS = re.compile(r"s(alloc|batch|cancel|control|info|queue|run|acct|acctmgr|trigger)")


def path_without_slurm(folder: Path) -> str:
    """Return a PATH without Slurm's commands; if there are any, the folder gets links to all other programs."""
    if not shutil.which("sbatch"):
        return os.environ["PATH"]
    folder.mkdir(exist_ok=True)
    there = [Path(each) for each in reversed(os.get_exec_path()) if Path(each).is_dir()]
    for program in (program for each in there for program in each.iterdir()):
        link = folder / program.name
        if not COMMANDS.fullmatch(program.name):
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    return str(folder)
