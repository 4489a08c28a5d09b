"""Files of packages that are not what the packages' own lists say."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from argosy.builder.finish import find_altered_packages
from argosy.images.squashfs.pack import describe_noted

SITE = "opt/argosy/env/lib/python3.11/site-packages"


def row(name: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text)}\n"


def judged(tree: Path, *packages: str) -> list[str]:
    return list(find_altered_packages(tree / "layer", describe_noted(tree / "layer"), packages))


def test_a_file_that_was_damaged_in_the_cache_is_named(tmp_path: Path) -> None:
    site = tmp_path / "layer" / SITE
    info = site / "My_Pkg-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_pkg").mkdir()
    (site / "my_pkg/one,two.py").write_text("whole\n")
    (site / "../../../bin").mkdir()
    (site / "../../../bin/mine").write_text("#!python\n")
    rows = ('"my_pkg/one,two.py"' + row("", "whole\n"), row("../../../bin/mine", "#!python\n"), row("gone.py", "x"))
    (info / "RECORD").write_text("".join((*rows, "My_Pkg-1.0.dist-info/RECORD,,\n", "odd,sha256=!,\n")))
    assert judged(tmp_path, "my-pkg") == []
    (site / "my_pkg/one,two.py").write_text("half")
    [said] = judged(tmp_path, "my-pkg")
    assert said.startswith("my-pkg has files that differ from its RECORD: my_pkg/one,two.py; ")
    assert judged(tmp_path, "another") == []
