"""pip's own configuration on this machine, in uv's words; it never changes either program's files.

uv reads neither pip.conf nor ``PIP_*`` variables (uv 0.13), and a site's mirror, certificate or wheel folder is named
nowhere else.
"""

from __future__ import annotations

from argosy.pip_config.plan import UvSettings, plan_uv_settings, render_uv_settings
from argosy.pip_config.read import PipConfig, PipSetting, read_pip_config
from argosy.scrub import scrub

__all__ = [
    "PipConfig",
    "PipSetting",
    "UvSettings",
    "plan_uv_settings",
    "read_pip_config",
    "render_uv_settings",
    "scrub",
]
