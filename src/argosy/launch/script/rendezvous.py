"""Say in sh where the ranks of a Slurm job meet: an address and a free port, found when the job runs; text only."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import ShellFunction, render_functions
from argosy.sites.profile import Site

PORT_FIRST, PORT_COUNT = 20000, 10000
"""Ports for the rendezvous: below Linux's ephemeral range, 32768 to 60999 (ip(7), ip_local_port_range)."""

# To read /proc/net/tcp takes the kernel 20 ms and more: it goes through the whole table of connections.
PORT = ShellFunction(
    "port",
    """\
# A free port of the $2 after $1, from $3 on.
port=$3 left=$2
while [ "$left" -gt 0 ]; do
    busy=$(ss -Hltn "sport = :$port") || busy=$(grep -s ":$(printf %04X "$port") " /proc/net/tcp*) || :
    [ -n "$busy" ] || break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"
""",
)
"""By what a shell does itself: to start a program takes a millisecond and more, and here all ranks wait for it."""


def render_rendezvous(site: Site) -> Iterator[str]:
    """Choose where ranks meet: the first host of the node list, and a port that nobody has there.

    The port comes from job id and restart count: the ranks of a run that lost its node may still live there, and must
    not meet those of the next.  Launches within one allocation differ by the process number of their script, which is
    that of the task itself in a batch job.
    """
    yield "# The rendezvous: the first host, node03 of node[03-07,9], and a free port there, below the ephemeral ones."
    yield from render_functions((PORT,))
    yield r"list=${SLURM_JOB_NODELIST%%,*}[ n=${list#*\[}; first=${list%%\[*}${n%%[][x-]*}"
    suffix = site.slurm.master_suffix
    own = f"$(( (${{SLURM_TASK_PID:-0}} - $$) % {PORT_COUNT} + {PORT_COUNT} ))"
    yield f"set -- $((SLURM_JOB_ID * 7 + ${{SLURM_RESTART_COUNT:-0}} * 31)) {own}"
    spec = f"{PORT_FIRST} + ($1 + $2) % {PORT_COUNT}"
    yield f"MASTER_ADDR=${{first}}{suffix}; set -- {PORT_FIRST} {PORT_COUNT} $(({spec}))"
    yield 'if [ "${SLURMD_NODENAME:-}" = "$first" ]; then MASTER_PORT=$(eval "$port")'
    yield 'else MASTER_PORT=$(srun --overlap -N1 -n1 -w "$first" sh -c "$port" argosy-port "$@")  # as in salloc'
    yield 'fi || stop "no free port" 7'
    yield ""
