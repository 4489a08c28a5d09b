"""Check this machine: `argosy doctor`."""
