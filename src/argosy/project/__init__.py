"""The project file ``argosy.toml``: what a folder's image is made of and how its jobs run, so that options need not be.

``read_project`` turns the file into frozen records; it asks no machine, and says what is wrong with file and line.
"""

from __future__ import annotations

from argosy.project.read import PROJECT_FILE, check_project, find_project, read_project
from argosy.project.records import Fetch, ImageTable, JobTable, Project, StageTable, StepTable

__all__ = [
    "PROJECT_FILE",
    "Fetch",
    "ImageTable",
    "JobTable",
    "Project",
    "StageTable",
    "StepTable",
    "check_project",
    "find_project",
    "read_project",
]
