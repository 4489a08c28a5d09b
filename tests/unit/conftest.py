"""What all unit tests share: an example may take as long as the machine likes, since time is no property of code.

A run of all unit tests tries a sample of examples, other ones each time; ``make soak`` tries many.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("sample", deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=1000)
settings.load_profile("soak" if os.environ.get("ARGOSY_SOAK") else "sample")
