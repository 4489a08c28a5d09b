"""What a run proved: the network it used, the GPUs its ranks saw, the cores they were bound to."""

from argosy.launch.ranks import RankFacts, parse_ranks
from argosy.verify.judging import Check, Expected, Verdict, judge_run
from argosy.verify.netlog import NetFacts, parse_netlog
from argosy.verify.story import find_bad_nodes_of, read_evidence, verify_job, verify_logs

__all__ = [
    "Check",
    "Expected",
    "NetFacts",
    "RankFacts",
    "Verdict",
    "find_bad_nodes_of",
    "judge_run",
    "parse_netlog",
    "parse_ranks",
    "read_evidence",
    "verify_job",
    "verify_logs",
]
