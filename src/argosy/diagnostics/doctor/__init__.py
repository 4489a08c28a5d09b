"""Examine this machine."""
