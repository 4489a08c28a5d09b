"""The figures of docs/reference/figures.md: ``python -m bench`` measures Argosy side by side with the usual ways.

Everything that is compared is measured in one run on one machine.  Nothing here is part of the installed program.
"""
