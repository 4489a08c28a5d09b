"""Measure what starting a command costs."""
