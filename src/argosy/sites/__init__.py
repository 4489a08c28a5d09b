"""Site profiles: every value with its evidence, read from TOML; no site's name appears in Python code."""

from __future__ import annotations

from argosy.sites.conditions import Facts
from argosy.sites.reading import read_site, search_path, site_names, whose_profile
from argosy.sites.records import Node, Partition, Setting, Site, Slurm

__all__ = [
    "Facts",
    "Node",
    "Partition",
    "Setting",
    "Site",
    "Slurm",
    "read_site",
    "search_path",
    "site_names",
    "whose_profile",
]
