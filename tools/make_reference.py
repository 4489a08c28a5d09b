# noqa: INP001 - a program, not a package
"""Write the generated pages of docs/reference: the command line, the keys of a profile, the runtimes, the sites.

Run it after a change of an option, of a profile, or of a profile's record. It starts no other program.

Usage: python tools/make_reference.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))  # a program finds only the modules of its own folder

from argosy.recipes.project_file import project_schema  # noqa: E402
from tools.reference.commands import render_commands  # noqa: E402
from tools.reference.options import render_options, render_project, render_python  # noqa: E402
from tools.reference.profiles import render_runtimes, render_site  # noqa: E402
from tools.reference.sites import render_sites  # noqa: E402

REFERENCE = REPO / "docs" / "reference"


def main() -> None:
    """Write the pages."""
    for name, text in render_pages().items():
        (REFERENCE / name).parent.mkdir(exist_ok=True)
        (REFERENCE / name).write_text(text, encoding="utf-8")


def render_pages() -> dict[str, str]:
    """Render every generated page: name and text."""
    own = {"options.md": render_options(), "python.md": render_python(), "argosy-toml.md": render_project()}
    own["argosy.schema.json"] = json.dumps(project_schema(), indent=2) + "\n"
    own |= {"site-profile.md": render_site(), "runtimes.md": render_runtimes()}
    return {**own, **render_commands(), **render_sites()}


if __name__ == "__main__":
    main()
