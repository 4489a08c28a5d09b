"""Define the subject of the rules for profiles: a profile with its text, which has the lines."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

import msgspec

from argosy.core.records import replace
from argosy.core.toml_lines import find_line
from argosy.sites.profile import Identity, Site
from argosy.sites.profile_parts import Evident
from argosy.sites.software import Images

FORMAT = "the format of site profiles"
"""Source of a rule that follows from the meaning of the keys."""

SECTIONS = ("identity", "node", "slurm", "runtime", "modules", "launcher", "network", "images", "build")
LISTS = ("settings", "caches", "binds", "options", "avoid", "partitions")


class Profile(msgspec.Struct, frozen=True):
    """A profile, its text, and the current date."""

    site: Site
    text: str
    today: dt.date
    stem: str
    """The name of the file without ``.toml``."""

    def line(self, *keys: str) -> int:
        """Return the line of a key; for a part of a fragment the line of ``use``."""
        return find_line(self.text, keys)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Evident]]:
        """Yield every part that is not empty, with its keys."""
        for section in SECTIONS:
            part: Evident = getattr(self.site, section)
            own = replace(part, bases=()) if isinstance(part, Images) else part
            if own != type(part)() and not (isinstance(part, Identity) and not part.has_marks):
                yield (section,), own
        for number, base in enumerate(self.site.images.bases):
            yield ("images", "bases", str(number)), base
        for name in LISTS:
            for part in getattr(self.site, name):
                yield (name, str(self.index(name, part))), part
        for name, mode in self.site.modes.items():
            yield ("modes", name), mode

    def index(self, key: str, part: Evident) -> int:
        """Return the index of a part within this file: parts of fragments come first in the merged list."""
        parts: tuple[Evident, ...] = getattr(self.site, key)
        here = len(re.findall(rf"^\s*\[\[\s*{key}\s*\]\]", self.text, re.MULTILINE))
        return parts.index(part) - (len(parts) - here)

    def part_line(self, key: str, part: Evident, *keys: str) -> int:
        """Return the line of a part of a list, or of a key in it."""
        return self.line(key, str(self.index(key, part)), *keys)
