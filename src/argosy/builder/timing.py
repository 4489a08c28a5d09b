"""Measure the time of each step of a build."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from argosy.builder.report import Timing
from argosy.core.session import Session, Step


class Clock(msgspec.Struct):
    """Collect the times of the steps, in the order in which they end."""

    session: Session
    timings: list[Timing] = msgspec.field(default_factory=list)
    started: float = msgspec.field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Report a step and record its time."""
        with self.session.step(name, what) as step:
            yield step
        self.timings.append(Timing(name, step.seconds))
