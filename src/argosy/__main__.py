"""Run the command line: ``python -m argosy``."""

from argosy.cli.__main__ import main

if __name__ == "__main__":
    main()
