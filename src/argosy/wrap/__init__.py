"""Wrap environments and images as plain commands.

The docstrings of this package name an `ArgosyError` only if a caller handles it, or if its reason is not evident.
"""
