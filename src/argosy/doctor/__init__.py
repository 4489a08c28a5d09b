"""Look at this machine: whether it has what Argosy needs, what its site should have, and what would hurt."""

from argosy.doctor.judging import Finding, judge_machine
from argosy.doctor.looking import Folder, Seen, look
from argosy.doctor.story import examine

__all__ = ["Finding", "Folder", "Seen", "examine", "judge_machine", "look"]
