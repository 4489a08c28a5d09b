"""Argosy: from an environment file to a verified multi-node GPU run in a container."""
