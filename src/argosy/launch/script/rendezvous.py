"""Find where the ranks of a Slurm job meet: an address and a free port, when the job runs; text only."""

from __future__ import annotations

from argosy.core.shell import quote
from argosy.sites.profile import Site


def render_rendezvous(site: Site) -> str:
    """Render the call that chooses where ranks meet: the first host of the node list, and a free port there.

    The port lies below Linux's ephemeral range, 32768 to 60999 (ip(7), ip_local_port_range). It comes from job id and
    restart count: the ranks of a run that lost its node may still exist there, and must not meet those of the next.
    Launches within one allocation differ by the process number of their script.
    """
    suffix = site.slurm.master_suffix
    call = f"find_rendezvous {quote(suffix)}" if suffix else "find_rendezvous"
    return f"{call}  # MASTER_ADDR, MASTER_PORT"
