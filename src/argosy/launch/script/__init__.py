"""Render job scripts: POSIX sh that runs without Argosy."""
