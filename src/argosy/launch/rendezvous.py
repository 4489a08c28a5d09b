"""Say in sh where the ranks of a Slurm job meet: an address and a free port, found when the job runs; text only."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.shell import Program, render_programs
from argosy.sites import Site

PORT_FIRST, PORT_COUNT = 20000, 10000
"""Ports for the rendezvous: below Linux's ephemeral range, 32768 to 60999 (ip(7), ip_local_port_range)."""

# To read /proc/net/tcp takes the kernel 20 ms and more: it goes through the whole table of connections.
PORT = Program(
    "port",
    """\
# A free port of the $2 after $1, from $3 on; a folder keeps it from others, until old.
port=$3 left=$2
while taken=/tmp/argosy-port-$port; [ "$left" -gt 0 ]; do
    [ ! -d "$taken" ] || find "$taken" -maxdepth 0 -mmin +10 -exec rmdir {} +
    busy=$(ss -Hltn "sport = :$port") || busy=$(grep -s ":$(printf %04X "$port") " /proc/net/tcp*)
    [ -z "$busy" ] && { mkdir "$taken" || [ ! -d "$taken" ]; } && break
    port=$(($1 + (port - $1 + 1) % $2)) left=$((left - 1))
done 2>/dev/null
[ "$left" -gt 0 ] && echo "$port"
""",
)


def render_rendezvous(site: Site) -> Iterator[str]:
    """Choose where ranks meet: the first host of the node list, and a port that nobody has there.

    The port comes from job id and restart count: the ranks of a run that lost its node may still live there, and must
    not meet those of the next.
    """
    yield "# The rendezvous: the list's first host, and a free port there, below the ephemeral range."
    yield from render_programs((PORT,))
    yield 'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST"); first=${hosts%%[!A-Za-z0-9_.-]*}'
    suffix = site.slurm.master_suffix
    yield f"MASTER_ADDR=${{first}}{suffix}" if suffix else "MASTER_ADDR=$first"
    yield "# A batch job's shell runs on that host; that of salloc may not."
    yield 'there="srun --overlap --nodes=1 --ntasks=1 --nodelist=$first"'
    yield '[ "${SLURMD_NODENAME:-}" != "$first" ] || there='
    yield f"wish=$(({PORT_FIRST} + (SLURM_JOB_ID * 7 + ${{SLURM_RESTART_COUNT:-0}} * 31) % {PORT_COUNT}))"
    yield f'MASTER_PORT=$($there sh -c "$port" argosy-port {PORT_FIRST} {PORT_COUNT} $wish) || stop "no free port" 7'
    yield ""
