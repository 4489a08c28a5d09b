"""Build an image from a recipe and a base.

Every step that cannot continue raises an `ArgosyError`, for example if a tool is missing or the disk is full. The
docstrings of this package name an error only if a caller handles it, or if its reason is not evident.
"""
