"""What all unit tests share: an example may take as long as the machine likes, since time is no property of code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
