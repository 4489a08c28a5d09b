"""Let a venv inside an image carry venvs of the user's own on top of it; text only.

Two things stand in the way.  A venv names the base's interpreter as its ``home``, so one made on top would link to
``/usr/bin/python3`` and start the host's.  And a venv does not see what its parent venv has.
"""

from __future__ import annotations

from argosy.wrap.model import InContainer

CONFIG = "pyvenv.cfg"
ON_TOP = ".on-top"
"""Folder of DIR, seen inside only, that Python searches where it was called from a venv on top."""

FIRST_WITHOUT = 14
"""From Python 3.14 on getpath alone knows a venv, and wants its ``home``; before, site.py found it without."""


def render_venv(inside: InContainer) -> str:
    """Render the ``pyvenv.cfg`` of DIR: that of the image without its ``home``; empty where it must stay as it is.

    Without ``home`` site.py still makes DIR the prefix (Python 3.8 to 3.13), and ``sys._base_executable`` stays
    ``DIR/bin/python``: a venv made on top links there, which is right inside and outside.
    """
    settings = dict(inside.venv)
    version = settings.get("version") or settings.get("version_info") or ""
    minor = version.split(".")[1] if version.count(".") else ""
    if not settings or not minor.isdigit() or int(minor) >= FIRST_WITHOUT:
        return ""
    return "".join(
        f"{key} = {value}\n" for key, value in inside.venv if key in {"include-system-site-packages", "version"}
    )


def render_customize(inside: InContainer) -> str:
    """Render the ``sitecustomize`` that shows the packages of the image to a venv that wants those of its parent."""
    above = inside.programs[0].rsplit("/", 2)[0] if inside.programs else ""
    return f"""\
import os
import site
import sys

try:
    with open(os.path.join(sys.prefix, "pyvenv.cfg")) as config:
        wanted = any(line.replace(" ", "").lower().strip() == "include-system-site-packages=true" for line in config)
except OSError:
    wanted = False
if wanted:
    site.addsitedir("{above}/lib/python%d.%d/site-packages" % sys.version_info[:2])
"""
