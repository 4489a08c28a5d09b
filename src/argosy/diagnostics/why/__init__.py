"""Explain why a job failed, from its output: `argosy why`."""
