"""The address of the first node, which scripts compute from the nodes of the job, becomes MASTER_ADDR."""

from __future__ import annotations

import pytest

from argosy.launch.import_script.importer import import_script
from argosy.launch.import_script.model import Fate, ImportedScript

HEAD = ('HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)',)
ARRAY = ("NODES=($(scontrol show hostnames))", "HEAD=${NODES[0]}")
ADDRESS = 'srun --nodes=1 --ntasks=1 -w "$HEAD" hostname --ip-address'


def read(*lines: str) -> ImportedScript:
    return import_script("j.sh", "\n".join(("#!/bin/bash", "#SBATCH --nodes=2", *lines, "")))


def command(*lines: str) -> str:
    (job,) = read(*lines).jobs
    return str(job.keys["command"][-1])


@pytest.mark.parametrize("head", [HEAD, ARRAY])
@pytest.mark.parametrize(
    "find",
    [
        f"$({ADDRESS})",
        f"`{ADDRESS}`",
        "$(srun -N1 -n1 --overlap --nodelist=${HEAD} hostname -I | awk '{print $1}')",
        "$(srun --nodelist $HEAD -N 1 hostname -i | cut -d' ' -f1)",
    ],
)
def test_the_address_that_srun_finds_on_the_first_node_is_master_addr(head: tuple[str, ...], find: str) -> None:
    lines = (*head, f"IP={find}", "srun ./a --addr $IP:45000")
    assert command(*lines) == "exec ./a --addr ${MASTER_ADDR}:45000"
    assert not read(*lines).untranslated


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("./a '$IP:1' \\$SLURM_PROCID", 'exec ./a "${MASTER_ADDR}":1 ${SLURM_PROCID}'),
        ("./a '$IP:1'; ./b '\\$X' '$USER'", "./a ''\"${MASTER_ADDR}\"':1'; ./b '$X' ''\"${USER}\"''"),
        ('./a \\"it\'s $IP\\"', "exec ./a 'it'\"'\"'s '\"${MASTER_ADDR}\""),
    ],
)
def test_single_quotes_do_not_keep_a_variable_of_the_script_from_the_shell(script: str, expected: str) -> None:
    lines = (*HEAD, f"IP=$({ADDRESS})", f'srun bash -c "{script}"')
    assert not read(*lines).untranslated
    assert command(*lines) == expected


def test_the_address_of_another_node_is_reported() -> None:
    lines = ("NODE=$1", f"IP=$({ADDRESS.replace('HEAD', 'NODE')})", "srun ./a $IP")
    found = [each for each in read(*lines).translations if each.text.startswith("$(srun")]
    note = (
        "each rank would run srun, which a container does not have: use MASTER_ADDR and MASTER_PORT, which Argosy sets"
    )
    assert [(each.fate, each.note) for each in found] == [(Fate.UNTRANSLATED, note)]
