"""Slurm in words: its replies of two releases, its states, its directives and the user's defaults."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, ToolFailed, UsageError
from argosy.core.process import Command, FakeRunner, Reply
from argosy.jobs.queues import (
    Account,
    Qos,
    Queue,
    list_qos,
    list_queues,
    parse_associations,
    parse_qos,
    parse_sinfo,
    render_accounts,
    with_partition_qos,
)
from argosy.slurm.calls import explain_sbatch, may_be_done, says_no_answer
from argosy.slurm.queries import (
    has_task,
    parse_exit_code,
    parse_scontrol_job,
    parse_scontrol_jobs,
    parse_squeue,
    plan_squeue,
    plan_squeue_scripts,
    share_task,
    sort_tasks,
)
from argosy.slurm.sbatch import JobOptions, choose_defaults, parse_job_id, render_directive
from argosy.slurm.states import ENDED, RUNNING, STATES, WAITING, advise_waiting, describe_state, exit_code_of_state
from tests.unit.machines import make_session

# Printed by `scontrol show job --oneliner` of Slurm 24.11 and 22.05, addresses and times as they came.
SHOWN_24 = (
    "JobId=2 JobName=a b=c UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=1 Nice=0 Account=(null) "
    "QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 "
    "ExitCode=42:0 RunTime=00:00:03 TimeLimit=UNLIMITED TimeMin=N/A NodeList=node[1-2] BatchHost=node1 NumNodes=2 "
    "Command=/home/alice/.local/state/argosy/runs/x/job.sh WorkDir=/home/alice StdErr=/home/alice/my out-2.out "
    "StdIn=/dev/null StdOut=/home/alice/my out-2.out TresPerTask=cpu=2"
)
SHOWN_22 = (
    "JobId=7 JobName=pi UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=4294901757 Nice=0 Account=(null) "
    "QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:01 NodeList=node1 BatchHost=node1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=1,node=1,billing=1 Socks/Node=* Command=/shared/job.sh WorkDir=/shared StdErr=/shared/pi-7.out "
    "StdIn=/dev/null StdOut=/shared/pi-7.out Power= "
)


def test_a_job_is_read_from_both_releases() -> None:
    new, old = parse_scontrol_job(SHOWN_24), parse_scontrol_job(SHOWN_22)
    assert (new["JobState"], new["ExitCode"], new["Restarts"]) == ("FAILED", "42:0", "3")
    assert new["StdOut"] == "/home/alice/my out-2.out"
    assert new["TresPerTask"] == "cpu=2"
    assert (old["JobState"], old["ReqB:S:C:T"], old["CPUs/Task"]) == ("RUNNING", "0:0:*:*", "1")
    assert (old["StdOut"], old["Power"]) == ("/shared/pi-7.out", "")


# Of 25.05: the line of submission, an empty StdErr; the program's words look like Slurm's own.
SHOWN_25 = (
    "JobId=9 JobName=JobState=COMPLETED x UserId=alice(2001) JobState=FAILED Reason=NonZeroExitCode Restarts=0 "
    "ExitCode=3:0 NodeList=n3 BatchHost=n3 ReqTRES=cpu=1,mem=2G,node=1,billing=1 "
    "Licenses=(null) LicensesAlloc=(null) Network=(null) Command=/x/train.sh lr=0.1 model=vit NodeList=all "
    "SubmitLine=sbatch --export=ALL,A=1 /x/train.sh lr=0.1 model=vit NodeList=all WorkDir=/x "
    "Comment=a JobState=RUNNING StdErr= StdIn=/dev/null StdOut=/x/9.out TresPerTask=cpu=1"
)


# Of 26.05: the submission comes before the folder.
SHOWN_26 = (
    "JobId=1 JobName=wrap UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=1 Nice=0 Account=(null) "
    "QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:01 TimeLimit=365-00:00:00 TimeMin=N/A NodeList=node[1-2] BatchHost=node1 NumNodes=2 NumCPUs=2 "
    "NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* ReqTRES=cpu=2,mem=32000M,node=2,billing=2 "
    "AllocTRES=cpu=2,node=2,billing=2 OverSubscribe=NO Exclusive=NO Contiguous=0 Licenses=(null) LicensesAlloc=(null) "
    "Network=(null) Command=(null) SubmitLine=sbatch --wrap sleep 300 -N2 WorkDir=/shared StdErr= StdIn=/dev/null "
    "StdOut=/shared/slurm-1.out"
)


def test_a_job_of_26_05_is_read() -> None:
    told = parse_scontrol_job(SHOWN_26)
    assert (told["JobState"], told["NodeList"], told["StdOut"]) == ("RUNNING", "node[1-2]", "/shared/slurm-1.out")
    assert (told["SubmitLine"], told["WorkDir"]) == ("sbatch --wrap sleep 300 -N2", "/shared")


def test_program_arguments_and_comments_are_not_parsed_as_slurms() -> None:
    told = parse_scontrol_job(SHOWN_25)
    assert (told["JobState"], told["ExitCode"], told["NodeList"]) == ("FAILED", "3:0", "n3")
    assert (told["StdErr"], told["StdOut"], told["WorkDir"]) == ("", "/x/9.out", "/x")


def test_names_and_comments_of_several_lines_make_no_further_jobs() -> None:
    text = "JobId=29 JobName=a\nb UserId=x(1) JobState=COMPLETED Command=(null) Comment=x\nJobState=y  StdOut=/o\n"
    copied = "Comment=as in\nJobId=7 JobName=c JobState=FAILED Command=/x StdOut=/p\nJobId=8 ArrayJobId=7 \nx StdOut=/o"
    (first,) = parse_scontrol_jobs(text, "29")
    assert (first["JobName"], first["JobState"], first["StdOut"]) == ("a\nb", "COMPLETED", "/o")
    (first,) = parse_scontrol_jobs(text.replace("Comment=x", copied), "29")
    assert (first["JobId"], first["JobState"], first["StdOut"]) == ("29", "COMPLETED", "/o")
    assert parse_scontrol_jobs("slurm_load_jobs error: Invalid job id specified\n", "29") == ()


@pytest.mark.parametrize(
    ("job", "rows"),
    [
        ("7", ("JobId=9 ArrayJobId=7 ArrayTaskId=1", "JobId=7 ArrayJobId=7 ArrayTaskId=2-4")),
        ("7_1", ("JobId=9 ArrayJobId=7 ArrayTaskId=1",)),
        ("9", ("JobId=9 ArrayJobId=7 ArrayTaskId=1",)),
        ("7", ("JobId=7 HetJobId=7 HetJobOffset=0", "JobId=8 HetJobId=7 HetJobOffset=1")),
        ("7+1", ("JobId=8 HetJobId=7 HetJobOffset=1",)),
    ],
)
def test_tasks_and_components_have_rows_of_their_own(job: str, rows: tuple[str, ...]) -> None:
    text = "".join(f"{row} JobName=c JobState=RUNNING Command=/x StdOut=/p\n" for row in rows)
    assert [row["JobId"] for row in parse_scontrol_jobs(text, job)] == [row[6] for row in rows]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Priority", ""),
        ("Resources", ""),
        ("QOSMaxJobsPerUserLimit", ""),
        ("AssocGrpCPURunMinutesLimit", ""),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", ""),
        ("JobHeldUser", "it is held: scontrol release 7"),
        ("launch failed requeued held", "its start failed on a node, and it is held: scontrol release 7"),
        ("launch_failed_requeued_held", "its start failed on a node, and it is held: scontrol release 7"),
        (
            "uid_2001_not_in_group_permitted_to_use_this_partition_(gpu)._groups_allowed:_root",
            "you may not use that partition: argosy cancel 7, and use another",
        ),
        ("QOSMaxNodePerJobLimit", "it requests more than its QOS or account allows for one job: 'argosy queues'"),
        (
            "AssocMaxWallDurationPerJobLimit",
            "it requests more than its QOS or account allows for one job: 'argosy queues'",
        ),
        (
            "MaxMemPerLimit",
            "its memory is above the limit of the partition: argosy cancel 7, and request less with --mem",
        ),
        (
            "QOSMinGRES",
            "it requests less than its QOS demands: argosy cancel 7, and request more or use another --qos",
        ),
        (  # 25.11 and newer accept such a job, unless slurm.conf sets EnforcePartLimits
            "PartitionConfig",
            "the partition has fewer nodes or cores than it requests, or excludes it: argosy cancel 7; request less",
        ),
        ("AssocGrpBillingMinutes", "the account's budget is used up: ask its owner, or use another account"),
    ],
)
def test_a_lasting_reason_to_wait_has_advice(reason: str, advice: str) -> None:
    assert advise_waiting(reason, "7") == advice


def test_a_queue_is_parsed_even_if_names_contain_bars() -> None:
    text = (
        "12|PENDING|Resources|2026-11-20T12:00:00|2|0:00|1:00:00|main||a|b c\n"
        "11|RUNNING|None|2026-11-20T11:00:00|1|5:00|UNLIMITED|main|node1|pi\n"
        "slurm_load_jobs error: something\n"
    )
    first, second = parse_squeue(text)
    assert (first.id, first.reason, first.node_list, first.name) == ("12", "Resources", "", "a|b c")
    assert (second.state, second.elapsed, second.node_list) == ("RUNNING", "5:00", "node1")


@pytest.mark.parametrize("text", ["123\n", "123;cluster\n", "sbatch: lua: hello\n123\n"])
def test_the_job_number_is_read_from_sbatchs_output(text: str) -> None:
    assert parse_job_id(text) == "123"


@pytest.mark.parametrize("text", ["", "Submitted batch job 12", "12a", "sbatch: error"])
def test_output_without_a_job_number_is_reported(text: str) -> None:
    with pytest.raises(ToolFailed, match="did not print a job id"):
        parse_job_id(text)


@pytest.mark.parametrize(
    ("text", "code"), [("0:0", 0), ("42:0", 42), ("0:15", 143), ("1:9", 137), ("", 1), ("x:y", 1), ("3", 3)]
)
def test_exit_codes_are_a_shells(text: str, code: int) -> None:
    assert parse_exit_code(text) == code


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_kind_and_meaning(state: str) -> None:
    kind, meaning = describe_state(state)
    assert kind in {WAITING, RUNNING, ENDED}
    assert meaning


@given(st.text(max_size=30))
def test_unknown_states_are_shown_unchanged(state: str) -> None:
    kind, meaning = describe_state(state)
    assert kind in {WAITING, RUNNING, ENDED}
    assert meaning


def test_states_come_in_the_forms_of_squeue_and_sacct() -> None:
    assert describe_state("CANCELLED by 2001")[0] == ENDED
    assert describe_state("CANCELLED+")[0] == ENDED
    assert describe_state("NEW_STATE") == (RUNNING, "is NEW_STATE")


@pytest.mark.parametrize(
    ("state", "code", "ours"),
    [
        ("COMPLETED", 0, 0),
        ("FAILED", 42, 42),
        ("FAILED", 0, 1),
        ("TIMEOUT", 0, 143),
        ("CANCELLED by 2001", 0, 143),
        ("CANCELLED+", 0, 143),
        ("NODE_FAIL", 0, 1),
        ("OUT_OF_MEMORY", 137, 137),
    ],
)
def test_a_failed_job_never_exits_with_0(state: str, code: int, ours: int) -> None:
    assert exit_code_of_state(state, code) == ours


def test_a_controller_that_does_not_answer_is_recognised() -> None:
    assert says_no_answer(
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    )
    assert says_no_answer("slurm_load_jobs error: Socket timed out on send/recv operation")
    assert not says_no_answer("sbatch: error: invalid partition specified: nowhere")


@pytest.mark.parametrize(
    ("said", "maybe"),
    [
        ("Unable to contact slurm controller (connect failure)", False),
        ("Unable to contact slurm controller (send failure)", True),
        ("Unable to contact slurm controller (receive failure)", True),
        ("Socket timed out on send/recv operation", True),
        ("Zero Bytes were transmitted or received", True),
        ("Unexpected message received", True),
        ("Connection refused", False),
    ],
)
def test_only_a_request_that_was_never_sent_is_certainly_not_carried_out(said: str, *, maybe: bool) -> None:
    text = f"sbatch: error: Batch job submission failed: {said}"
    assert says_no_answer(text)
    assert may_be_done(text) == maybe


def test_only_given_options_become_lines() -> None:
    options = JobOptions(account="a", time="1:00", mem_per_gpu="8G", exclusive=True)
    assert list(options.lines()) == ["--account=a", "--time=1:00", "--mem-per-gpu=8G", "--exclusive"]
    assert list(JobOptions().lines()) == []


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30))
def test_a_directive_is_one_line_that_reads_back(value: str) -> None:
    line = render_directive(f"--job-name={value}")
    assert "\n" not in line
    assert line.startswith("#SBATCH --job-name=")
    assert shlex.split(line.removeprefix("#SBATCH ")) == [f"--job-name={value}"]


def test_a_hash_in_an_enroot_reference_is_escaped() -> None:
    line = render_directive("--container-image=nvcr.io#nvidia/pytorch:24.03-py3")
    assert line == r"#SBATCH --container-image=nvcr.io\#nvidia/pytorch:24.03-py3"


@pytest.mark.parametrize("value", ["a b", "a #b", "it's", 'a"b', "a\\b", "$HOME", "~x", ""])
def test_shell_characters_are_quoted(value: str) -> None:
    line = render_directive(f"--job-name={value}")
    assert (line == "#SBATCH --job-name=") if not value else line.endswith('"')


def test_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match="line break"):
        render_directive("--comment=a\nb")


def test_environment_defaults_apply_only_to_options_not_given() -> None:
    environment = {"SBATCH_ACCOUNT": "p1", "SBATCH_TIMELIMIT": "10", "SBATCH_QOS": "", "SLURM_ACCOUNT": "no"}
    assert choose_defaults(JobOptions(time="5"), environment) == {"account": "p1"}


def test_queues_are_read() -> None:
    text = "main|up|infinite|1-infinite|0/2/0/2|8|16000|gpu:2\ndebug|down|30:00|1-2|1/0/1/2|4+|8000+|(null)\nbad row\n"
    assert parse_sinfo(text) == (
        Queue(
            "main",
            up=True,
            limit="infinite",
            sizes="1-infinite",
            free=2,
            nodes=2,
            cpus="8",
            memory="16000",
            gres="gpu:2",
        ),
        Queue("debug", up=False, limit="30:00", sizes="1-2", free=0, nodes=2, cpus="4+", memory="8000+", gres=""),
    )


def test_accounts_are_read() -> None:
    assert parse_associations("c|p1||normal,debug\nc|p2|main|\n") == (
        Account("c", "p1", "", "normal,debug"),
        Account("c", "p2", "main", ""),
    )


def test_accounts_of_several_clusters_are_told_apart() -> None:
    here, there = Account("hydra", "p1", "gpu", ""), Account("lerna", "p1", "", "normal")
    assert [*render_accounts((here,))] == ["account p1 on gpu, QOS default"]
    assert [*render_accounts((here, there))] == [
        "account p1 on gpu of cluster hydra, QOS default",
        "account p1 on cluster lerna, QOS normal",
    ]


def test_qos_of_accounts_and_partitions_are_listed_with_their_limits() -> None:
    text = "normal|||||\nlong|2-00:00:00|cpu=64,node=2|gres/gpu=16|3|10\nothers|1:00:00||||\n"
    found = parse_qos(text, ("normal", "long", ""))
    assert found == (
        Qos("normal", "", "", "", "", ""),
        Qos("long", "2-00:00:00", "cpu=64,node=2", "gres/gpu=16", "3", "10"),
    )
    assert [qos.limits for qos in found] == [
        "no limits",
        "up to 2-00:00:00, cpu=64,node=2 in a job, gres/gpu=16 in total, 3 running jobs, 10 jobs",
    ]


def test_a_job_that_is_larger_than_the_cluster_is_to_request_less() -> None:
    reply = Reply(1, "", "sbatch: error: Batch job submission failed: Requested node configuration is not available\n")
    assert explain_sbatch(Command(("sbatch", "x")), reply, "lab").hint.startswith("request fewer nodes, GPUs or cores")


def test_options_that_exclude_each_other_are_blamed_on_variables_too() -> None:
    """Since 26.05, SBATCH_GPUS_PER_NODE excludes --gres=gpu."""
    reply = Reply(1, "", "sbatch: fatal: --gpus-per-node and --gres=gpu are mutually exclusive.\n")
    error = explain_sbatch(Command(("sbatch", "--gres=gpu:1", "x")), reply, "lab")
    assert error.hint.startswith("remove one of them; variables such as SBATCH_GPUS_PER_NODE count as options")


@pytest.mark.parametrize("program", ["sbatch", "sinfo"])
def test_a_cluster_that_the_database_does_not_know_is_blamed_on_its_variable(program: str) -> None:
    text = f"{program}: error: No cluster 'other' known by database.\n{program}: error: 'other' can't be reached now, "
    reply = Reply(1, "", f"{text}or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see more.\n")
    error: ArgosyError = explain_sbatch(Command(("sbatch", "x")), reply, "lab")
    if program == "sinfo":
        with pytest.raises(ToolFailed) as failed:
            list_queues(make_session(runner=FakeRunner([(("sinfo",), reply)])))
        error = failed.value
    assert error.hint.endswith("or unset SLURM_CLUSTERS")


@pytest.mark.parametrize(
    ("array", "tasks"),
    [("0-3", "0123"), ("1,4-8:2%3", "1468"), ("[2-3]", "23"), ("7", "7"), ("1-5:2,2", "1235"), ("", ""), ("x-y", "")],
)
def test_the_tasks_of_an_array_are_known(array: str, tasks: str) -> None:
    assert [str(task) for task in range(10) if has_task(array, task)] == list(tasks)


PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE Nodes=n[1-2]
PartitionName=gpu AllowGroups=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=limited DefaultTime=NONE Nodes=n3
"""


def test_the_limits_of_the_qos_of_a_partition_are_listed() -> None:
    sinfo = "main|up|infinite|1-infinite|0/2/0/2|8|16000|(null)\ngpu|up|infinite|1|0/1/0/1|8|16000|gpu:2\n"
    replies = {"sinfo": sinfo, "scontrol": PARTITIONS, "sacctmgr": "normal|||||\nlimited|1:00:00||gres/gpu=1||\n"}
    session = make_session(runner=FakeRunner([((name,), Reply(0, text, "")) for name, text in replies.items()]))
    queues = with_partition_qos(session, list_queues(session))
    assert [queue.qos for queue in queues] == ["", "limited"]
    assert list_qos(session, (), queues) == (Qos("limited", "1:00:00", "", "gres/gpu=1", "", ""),)


def test_jobs_in_hidden_partitions_are_listed() -> None:
    assert "--all" in plan_squeue()
    assert "--all" in plan_squeue_scripts("ada")


def test_tasks_are_listed_by_number_where_their_array_was_first() -> None:
    ids = ("60_[3-5%2]", "9", "60_10", "60_2", "8+1", "60_1")
    rows = parse_squeue("".join(f"{each}|RUNNING|None|N/A|1|0:01|1:00|main|n1|train\n" for each in ids))
    assert [row.id for row in sort_tasks(rows)] == ["60_1", "60_2", "60_[3-5%2]", "60_10", "9", "8+1"]


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("4-70000%2", "[66000-66005]", True),
        ("[5-69000]", "4", False),
        ("0-10:2", "[1,3,5]", False),
        ("0-10:2", "3-4", True),
        ("[1-2,8]", "8%1", True),
        ("x", "1", False),
    ],
)
def test_two_lists_of_tasks_share_one(one: str, other: str, *, shared: bool) -> None:
    """An array may have tasks up to 4 million (MaxArraySize)."""
    assert share_task(one, other) is share_task(other, one) is shared
