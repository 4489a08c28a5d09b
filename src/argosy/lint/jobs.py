"""What the rules for job scripts look at: the script, and the site that it is for; pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.lint.script import Script
from argosy.sites import Facts, Site

NOWHERE = Site()
"""No site: nothing is known of it."""


class Job(msgspec.Struct, frozen=True):
    """A job script, and the site that it is for, where that is known."""

    script: Script
    site: Site = NOWHERE

    @property
    def facts(self) -> Facts:
        """What conditions of the profile may ask, as far as the script tells."""
        script, node = self.script, self.site.node
        return Facts(
            nodes=str(script.nodes),
            gpus_per_node=str(script.gpus),
            vendor=node.gpu_vendor if script.gpus else "none",
            partition=script.option("partition"),
        )

    def variables(self, *names: str) -> Iterator[tuple[int, str, str]]:
        """Give line, name and value of what the script sets, of these names only where some are given."""
        for each in self.script.variables:
            if not names or each.name in names:
                yield each.line, each.name, each.value
