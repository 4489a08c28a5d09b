"""What a site's apptainer.conf or singularity.conf says of overlays; parsing only, the file is read elsewhere."""

from __future__ import annotations

import re

SETTING = re.compile(r"^\s*enable\s+(overlay|underlay)\s*=\s*(\w+)", re.MULTILINE)


def parse_apptainer_conf(text: str) -> str:
    """Tell whether the overlay partition of an image is mounted: ``yes`` or ``no``.

    ``enable overlay = no`` and ``enable underlay = preferred`` both drop it without a word (Apptainer 1.4.5, tried).
    The defaults are ``yes`` (SingularityCE: ``try``) and ``yes``.
    """
    said = {key: value.lower() for key, value in SETTING.findall(text)}
    return "no" if said.get("overlay") == "no" or said.get("underlay") == "preferred" else "yes"
