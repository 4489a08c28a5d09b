"""Translate a hand-written job script into jobs of ``argosy.toml``."""
