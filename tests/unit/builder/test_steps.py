"""Scripts of the user: where they run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from argosy.builder.steps import RUN_SCRIPT


def test_a_script_does_not_run_if_its_folder_cannot_be_entered(tmp_path: Path) -> None:
    script = tmp_path / "setup.sh"
    script.write_text("touch ran\n")
    words = ["/bin/sh", "-c", RUN_SCRIPT, "sh"]
    done = subprocess.run([*words, tmp_path / "gone", script, ":"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, b"gone" in done.stderr) == (1, True)
    assert not (tmp_path / "ran").exists()
    subprocess.run([*words, tmp_path, script, ":"], cwd="/", check=True)
    assert (tmp_path / "ran").exists()
