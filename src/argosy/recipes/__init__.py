"""Environment files, project files and locks.

Readers and parsers raise `UsageError` for a file that they cannot use: it names file and line, and has a hint. The
docstrings of this package list other errors only.
"""
