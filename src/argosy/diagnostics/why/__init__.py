"""Explain why a job failed, from what it printed."""
