"""Show and change the defaults of options: config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from argosy.api.session import use_session
from argosy.core.session import Session
from argosy.launch.request import configured_settings
from argosy.recipes import project_file
from argosy.recipes.user_config import Setting, check_key, write_config


def list_settings(*, session: Session | None = None) -> dict[str, Setting]:
    """Return all configured values with their sources, as ``argosy config`` and ``argosy config get`` do."""
    return configured_settings(use_session(session).host)


def set_setting(key: str, value: str, *, session: Session | None = None) -> Path:
    """Write a key to your configuration file, as ``argosy config set`` does, and return the file."""
    check_key(key)
    return write_config(use_session(session).host.environment, key, value)


def unset_setting(key: str, *, session: Session | None = None) -> Path:
    """Remove a key from your configuration file, as ``argosy config unset`` does, and return the file."""
    return write_config(use_session(session).host.environment, key, "")


def project_schema() -> dict[str, Any]:
    """Return the JSON schema of ``argosy.toml``, as ``argosy config schema`` does."""
    return project_file.project_schema()
