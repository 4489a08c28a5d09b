"""Wrap: an environment or an image whose commands feel installed."""

from argosy.wrap.records import Recipe, Settings, SourceKind, UpdateRequest, WrapReport, WrapRequest
from argosy.wrap.story import history, prune, rollback, update, wrap

__all__ = [
    "Recipe",
    "Settings",
    "SourceKind",
    "UpdateRequest",
    "WrapReport",
    "WrapRequest",
    "history",
    "prune",
    "rollback",
    "update",
    "wrap",
]
