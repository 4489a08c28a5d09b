"""Run commands of Slurm, and explain a missing Slurm, a silent controller and a rejected job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from argosy.core.errors import ArgosyError, CheckFailed, SiteError, ToolMissing
from argosy.core.model import Choice, ChoiceKey, Mark
from argosy.core.process import Argv, Command, Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.tool_errors import tool_error

NO_CLUSTER = "Could not establish a configuration source"

ASK_SUPPORT = "run this command in your shell; if it fails there too, ask the support of your site"
ASK_HIDDEN = (
    "it belongs to another user, or Slurm does not show it to users here (PrivateData in slurm.conf): ask the support "
    "of your site"
)
SEE_LIMITS = (
    "see the limits of the partitions with 'argosy queues', and your accounts with 'sacctmgr show associations'"
)
"""Hints for a failure that Argosy does not know."""

DENIED = "Access/permission denied"
"""Slurm's message for a job of another user, and for a query that slurm.conf allows to administrators only."""


NO_SUCH_CLUSTER = "invalid entry for --cluster"
ASK_CLUSTERS = "SLURM_CLUSTERS selects this cluster: see 'sacctmgr list clusters', or unset SLURM_CLUSTERS"
"""Slurm's message about a cluster that its database does not know, and the hint."""


NOT_REACHED = re.compile(r"\(connect failure\)|Connection refused|Communication connection failure", re.IGNORECASE)
"""Messages of a command that could not send its request (slurm_errno.c)."""


ANSWER_LOST = re.compile(
    r"timed out|Zero Bytes|Unable to contact slurm controller(?! \(connect)|Unexpected message received|"
    r"Message (send|receive) failure|Communication shutdown failure",
    re.IGNORECASE,
)
"""Messages of a command that lost the answer: the controller may have carried out the request."""


def says_no_answer(text: str) -> bool:
    """Return whether a Slurm command reports that the controller does not answer."""
    return bool(NOT_REACHED.search(text) or ANSWER_LOST.search(text))


def may_be_done(text: str) -> bool:
    """Return whether the controller may have carried out a request that failed without its answer."""
    return bool(ANSWER_LOST.search(text))


def ask_slurm(session: Session, words: Argv, *, doing: str, otherwise: str = "", denied: str = "") -> str:
    """Run a Slurm command and return its output.

    Parameters
    ----------
    otherwise
        As `no_answer`.
    denied
        Hint if Slurm does not allow the command to this user; by default, `ASK_HIDDEN`.

    Raises
    ------
    ToolMissing, CheckFailed, ToolFailed
        If Slurm is not installed here, its controller does not answer, or the command fails.
    """
    command = Command(words)
    reply = run_slurm(session, command)
    if reply.code != 0:
        hints = {DENIED: denied or ASK_HIDDEN, NO_SUCH_CLUSTER: ASK_CLUSTERS}
        hint = next((hint for message, hint in hints.items() if message in reply.stderr), ASK_SUPPORT)
        raise (
            no_answer(reply, otherwise=otherwise)
            if says_no_answer(reply.stderr)
            else tool_error(command, reply, doing=doing, hint=hint)
        )
    return reply.stdout


def list_hosts(session: Session, nodes: str) -> tuple[str, ...]:
    """Return the names of the nodes in Slurm's notation, for example ``n[1-2]``; errors as `ask_slurm`."""
    return tuple(ask_slurm(session, ("scontrol", "show", "hostnames", nodes), doing="listing the nodes").split())


def run_slurm(session: Session, command: Command) -> Reply:
    """Run a Slurm command and return its reply, whatever its exit code.

    Raises
    ------
    ToolMissing
        If Slurm is not installed here.
    CheckFailed
        If its commands find no cluster.
    """
    try:
        reply = session.runner.run(without_filters(session, command))
    except ToolMissing as error:
        raise ToolMissing(
            "Slurm is not installed on this machine",
            evidence=error.evidence,
            hint="run this on a login node of the cluster, if necessary after 'module load slurm'; launch, jobs and "
            "queues also work from here with --ssh HOST",
        ) from error
    if reply.code != 0 and NO_CLUSTER in reply.stderr:
        raise CheckFailed(
            "Slurm's commands are installed, but find no cluster",
            evidence=reply.stderr.strip().splitlines()[-1],
            hint="run this on a login node; or export SLURM_CONF=FILE, or load Slurm's module, as your site says",
        )
    return reply


FILTERS = re.compile(r"(SCANCEL|SCONTROL|SINFO|SQUEUE)_")
"""Variables with the user's defaults of Slurm's commands, for example SQUEUE_STATES."""


def without_filters(session: Session, command: Command) -> Command:
    """Return the command without the user's variables that hide jobs and partitions, or make scancel ask."""
    environment = session.host.environment
    if command.env is not None or not any(map(FILTERS.match, environment)):
        return command
    return replace(command, env={name: value for name, value in environment.items() if not FILTERS.match(name)})


def no_answer(reply: Reply, *, otherwise: str = "") -> CheckFailed:
    """Return the error for a controller that does not answer.

    Parameters
    ----------
    otherwise
        Hint for a request that may have succeeded without an answer; empty for a query.
    """
    again = "try again in some minutes"
    if otherwise:
        again = otherwise if may_be_done(reply.stderr) else f"nothing was submitted or changed; {again}"
    return CheckFailed("the Slurm controller does not answer", evidence=reply.stderr.strip(), hint=again)


HINTS = (
    (NO_SUCH_CLUSTER, ASK_CLUSTERS),
    (r"unrecognized option", "the Slurm of this site does not know this option: correct --sbatch-arg"),
    (
        r"mutually exclusive",
        "remove one of them; variables such as SBATCH_GPUS_PER_NODE count as options, see: env | grep SBATCH_",
    ),
    (r"nvalid account", "see your accounts with: sacctmgr show associations user=$USER; then set --account"),
    (
        r"No partition specified",
        "there is no default partition: see the partitions with 'argosy queues'; then add --partition",
    ),
    (r"nvalid partition", "see the partitions with 'argosy queues'; then change --partition"),
    (
        r"group not permitted|Access/permission denied",
        "you may not use this partition: see your partitions with 'argosy queues', or ask for access",
    ),
    (
        r"nvalid qos",
        "see yours with: sacctmgr show associations user=$USER, a partition's with: scontrol show partition; set --qos",
    ),
    (
        r"accounting/QOS policy",
        "the job is above the limits of your account or QOS, or you have too many jobs: 'argosy queues'",
    ),
    (r"[Mm]emory specification", "request less with --mem, or use another --partition"),
    (r"nvalid feature", "see what nodes have with: sinfo -o '%N %f'; then change --constraint"),
    (
        r"nvalid generic resource|GRES specification",
        "see what nodes have with: sinfo -o '%N %G'; then change --gpu-type",
    ),
    (r"nvalid license", "see the licenses with: scontrol show licenses"),
    (r"job array", "see MaxArraySize in 'scontrol show config'; then change --array"),
    (r"eservation is invalid", "see the reservations with: scontrol show reservation; then change --reservation"),
    (r"ependency problem", "the job does not exist, or it failed: see 'argosy jobs'; then change --after"),
    (
        r"[Nn]ode configuration is not available",
        "request fewer nodes, GPUs or cores, or use another --partition, other nodes or another --constraint",
    ),
    (
        r"ode count specification|More processors",
        "request fewer nodes or cores, or use another --partition: 'argosy queues'",
    ),
    (
        r"nvalid node name|node not in this partition",
        "see the nodes with: sinfo -N; then change --nodelist or --exclude",
    ),
    (r"time limit|MaxTime", "request less with --time, or use another --partition"),
    (r"partition not available", "the partition is closed: wait, or use another --partition"),
    (
        r"^Unspecified error|cli_filter plugin terminated",
        "a rule of this site rejects the job: do what the message above says, or ask the support of your site",
    ),
)
"""Pattern in Slurm's message (slurm_errno.c) -> hint; the first match counts."""

FAILURE = re.compile(r"(?:job submission failed|Unable to allocate resources|Job submit/allocate failed): (.*)")
"""Slurm's own message; the site's job_submit plug-in prints lines of its own before."""

EARLIER = re.compile(r"^\w+: error: (Memory specification can not be satisfied)$", re.MULTILINE)
"""Slurm's own message before a final one that tells less (seen with 24.11)."""


def explain_sbatch(
    command: Command, reply: Reply, site: str, choices: Iterable[Choice] = (), *, ssh: str = ""
) -> ArgosyError:
    """Return the error for a job that sbatch rejected: its message, and a hint.

    Parameters
    ----------
    choices
        Choices of the plan, which show the source of options that the user did not type.
    ssh
        Host on which the job was submitted; empty for this machine.
    """
    error = tool_error(command, reply, doing="submitting the job", hint=SEE_LIMITS)
    text = reply.stderr
    if says_no_answer(text):
        look = f"argosy jobs{f' --ssh {ssh}' if ssh else ''}"
        return no_answer(
            reply,
            otherwise=f"the job may be in the queue nevertheless: check with '{look}' before you submit it again",
        )
    cause = EARLIER.findall(text) or FAILURE.findall(text)[-1:] or [text]
    found = next((hint for pattern, hint in HINTS if re.search(pattern, cause[0])), "")
    evidence = "\n".join((error.evidence, *_sources(choices, found)))
    if found:
        return SiteError(f"{site} rejects this job", evidence=evidence, hint=found)
    error.evidence = evidence
    return error


WRITTEN = re.compile(r"ARGOSY_\w+$|.+:\d+$")
"""Source of a value that the user did not type: a variable, or file and line."""


def _sources(choices: Iterable[Choice], hint: str) -> Iterator[str]:
    """Yield the options that variables set, and those of the hint that files set."""
    for row in choices:
        option = "--partition" if row.key == ChoiceKey.PARTITION else row.key
        if not option.startswith("--") or row.mark is Mark.UNUSED:
            continue
        if row.source == "environment":
            yield f"{option}={row.value} is {row.why}"
        elif WRITTEN.match(row.source) and (row.source.startswith("ARGOSY_") or option in hint):
            yield f"{row.source}: {option}={row.value}"
