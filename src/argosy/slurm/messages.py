"""Messages that Slurm's programs on the nodes write into the output of a job."""

STEPD = (
    r"(?:slurmstepd\S*:"
    r"|\[(?:\d{4}-\d\d-\d\dT[\d:.+-]+|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d[^\]\n]*)\]) error: "
)
"""Pattern of the begin of an error of slurmstepd, which starts the tasks of a step on a node.

Up to 24.11 it is ``slurmstepd-NODE: error: ``; since 25.05, ``[2026-11-29T20:47:04.208] error: ``, with the time in the
form of LogTimeFormat in slurm.conf (log.c).
"""
