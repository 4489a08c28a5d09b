"""Check whether an image works at a site: `argosy check`."""
