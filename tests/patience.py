"""The bound on a hang: long, as tests also run on busy machines.  No test asserts a time."""

from __future__ import annotations

PATIENCE_S = 900
