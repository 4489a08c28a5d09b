"""What other users may read."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from argosy.core.shared_folders import is_public


def test_a_file_is_public_if_each_user_may_read_it_and_enter_the_folders_above() -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))  # the folders above tmp_path are private
    try:
        base.chmod(0o755)
        private, image = base / "private", base / "private/a.sif"
        private.mkdir()
        image.touch()
        image.chmod(0o644)
        private.chmod(0o755)
        assert is_public(image)
        assert is_public(private)
        private.chmod(0o700)
        assert not is_public(image)
        private.chmod(0o711)
        image.chmod(0o640)
        assert not is_public(image)
    finally:
        shutil.rmtree(base)
