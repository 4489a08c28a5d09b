"""The contract of every runtime: one identity and mount policy, variables and arguments verbatim, codes and signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from argosy.core.layout import NOT_FROM_CALLER
from argosy.core.model import Bind, Variable
from argosy.core.records import replace
from argosy.runtimes.runtime import load_runtime
from tests.unit.machines import make_host

if TYPE_CHECKING:
    from tests.contract.conftest import Stage

HOSTILE = (
    "",
    " ",
    "two words",
    "*",
    "-x",
    "--",
    "$HOME",
    "`id`",
    "$(id)",
    'double " quote',
    "single ' quote",
    "back \\ slash \\n",
    "line one\nline two",
    "a,b;c&d|e>f",
    "{x}",
    "ünïcødé ✓",
    "trailing\n",
)
ODD_NAMES = ("plain", "two words", "a,b", "a:b", 'quo"te', "apos'trophe", "do$HOME`llar", "ünï", "back\\slash", "-dash")

SIGNALLED = (
    # The program's output is the pipe's only writer, so a container that does not start ends the test as well.
    'rm -f out; mkfifo out; "$@" > out & pid=$!; '
    # podman drops a signal that comes before it waits for its container; a hang has an end.
    "again() {{ for n in $(seq 60); do sleep 5; kill -{signal} $pid; done; kill -KILL $pid; }}; "
    '{{ read -r line; [ "$line" != ready ] || kill -{signal} $pid; again > /dev/null 2>&1 & again=$!; cat; }} < out; '
    "kill $again; wait $pid"
)
"""A script around a start that sends a signal to it when the program has said that it is ready."""

AT_TERMINAL = """python3 -c '
import os, pty, sys
pid, terminal = pty.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
try:
    while b"ready" not in said:
        said += os.read(terminal, 100)
    os.write(terminal, b"\\x03")
    while block := os.read(terminal, 100):
        said += block
except OSError:
    pass
sys.stdout.write(said.decode())
sys.stdout.flush()
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(128 - code if code < 0 else code)
' "$@"
"""
"""A script around a start that gives it a terminal, and types ^C when the program has said that it is ready."""

SOAK = [pytest.mark.real, pytest.mark.soak]
SHOW_ARGUMENTS = 'for word; do printf "<%s>\\n" "$word"; done'


STORES = ("docker", "podman-hpc")
ONLY_NAMED = "only those that ranks need come along unnamed"
FEW_DEVICES = "it gives a few devices, and those asked for"
WRITABLE = {"podman-hpc": "the container is writable, because the site's flags copy files into it"}


@dataclass(frozen=True, slots=True)
class Case:
    """What is started, and what must come out; ``{home}``, ``{work}``, ``{name}``, ``{uid}`` are the stage's."""

    about: str
    script: str
    out: str = ""
    code: int = 0
    before: str = ":"
    after: str = ":"
    env: Mapping[str, str] = field(default_factory=dict)
    entry: Mapping[str, object] = field(default_factory=dict)
    stdin: str | None = None
    unlike: Mapping[str, str] = field(default_factory=dict)
    """Runtimes that do not keep it -> why."""


CASES = (
    Case("user name and ids are the caller's", "id -u; id -un; id -g; id -gn", "{uid}\n{name}\n{uid}\n{name}\n"),
    Case("the current directory is the one asked for", "pwd; touch made && ls made", "{work}\nmade\n"),
    Case("HOME is the caller's home", 'echo "$HOME"; cd && pwd', "{home}\n{home}\n"),
    Case(
        "home is seen and written on both sides",
        "cat ~/.note; echo inside > ~/.note",
        "outside\ninside\n",
        before='echo outside > "$HOME/.note"',
        after='cat "$HOME/.note"; rm "$HOME/.note"',
    ),
    *(
        Case(
            f"{place} is seen and written on both sides",
            f"cat {place}/argosy-contract; echo inside > {place}/argosy-contract",
            "outside\ninside\n",
            before=f"echo outside > {place}/argosy-contract",
            after=f"cat {place}/argosy-contract; rm {place}/argosy-contract",
        )
        for place in ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the very places under test
    ),
    *(
        Case(about, f"touch {path} 2>&1", f"touch: {path}: Read-only file system\n", code=1, unlike=WRITABLE)
        for about, path in (
            ("the image is read-only and says so", "/made"),
            ("a folder of the image is read-only too", "/etc/x"),
        )
    ),
    Case(
        "host files for names are there", "cat /etc/resolv.conf > /dev/null && grep -c localhost /etc/hosts > /dev/null"
    ),
    Case("processes are the machine's", "test -d /proc/1 && test -d /sys/class"),
    Case("devices are the machine's", "test -c /dev/fuse", unlike=dict.fromkeys(STORES, FEW_DEVICES)),
    Case("the image's own variables are set", 'echo "$NCCL_DEBUG $FROM_IMAGE"', "WARN yes\n"),
    Case(
        "a variable of the caller arrives",
        'echo "$MINE"',
        "a b\n",
        env={"MINE": "a b"},
        unlike=dict.fromkeys((*STORES, "enroot"), ONLY_NAMED),
    ),
    Case("what ranks find each other by arrives", 'echo "$PMI_RANK"', "a b\n", env={"PMI_RANK": "a b"}),
    Case(
        "which GPUs are a rank's own arrives",
        'echo "$CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $ZE_AFFINITY_MASK"',
        "1 2 3\n",
        env={"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "2", "ZE_AFFINITY_MASK": "3"},
    ),
    Case(
        "a profile of the home is not read",
        'echo "${FROM_PROFILE-unset}"',
        "unset\n",
        before='for f in .bash_profile .profile; do echo "echo NOISE; export FROM_PROFILE=1" > "$HOME/$f"; done',
        after='rm "$HOME/.bash_profile" "$HOME/.profile"',
    ),
    Case(
        "a forced variable beats the image's",
        'echo "$NCCL_DEBUG $FROM_IMAGE"',
        "INFO no\n",
        entry={"variables": (Variable("NCCL_DEBUG", "INFO"), Variable("FROM_IMAGE", "no"))},
    ),
    Case(
        "a value of the caller's environment beats the image's own",
        'echo "$NCCL_DEBUG ${ARGOSYENV_NCCL_DEBUG-none}"',
        "a `b` none\n",
        entry={"variables": (Variable("NCCL_DEBUG", "a `b`", inherited=True),)},
    ),
    Case(
        "what a caller forces elsewhere does not leak in",
        'echo "${LEAK-unset}"',
        "unset\n",
        env={"APPTAINERENV_LEAK": "1", "SINGULARITYENV_LEAK": "1", "APPTAINER_CONTAIN": "1"},
    ),
    Case(
        "software of the machine is not named inside",
        'echo "${PYTHONPATH-unset} ${VIRTUAL_ENV-unset}"; case "${LD_LIBRARY_PATH-}" in */host*) echo leaked ;; esac',
        "unset unset\n",
        env={"PYTHONPATH": "/host/python", "VIRTUAL_ENV": "/host/venv", "LD_LIBRARY_PATH": "/host/lib"},
        entry={"drop": NOT_FROM_CALLER},
    ),
    Case(
        "the search path is the image's, its layer first", 'echo "$PATH" | grep -c "^/opt/argosy/env/bin:.*/bin"', "1\n"
    ),
    Case("a program of the layer runs", "hello", "hello from /opt/argosy\n"),
    Case("code 42 passes", "exit 42", code=42),
    Case("death by a signal shows as 128 + its number", "kill -TERM $$", code=143),
    Case("the umask passes", "umask", "0027\n", before="umask 027"),
    Case("limits pass", "ulimit -n; ulimit -c", "700\n0\n", before="ulimit -n 700; ulimit -c 0"),
    Case("standard input passes", "cat", "given\n", stdin="given\n"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_every_runtime_keeps_the_policy(stage: Stage, case: Case) -> None:
    if stage.runtime in case.unlike:
        pytest.skip(case.unlike[stage.runtime])
    around = f'{case.before}; "$@"; code=$?; {case.after}; exit $code'
    reply = stage.start(
        stage.entry(**case.entry), ("sh", "-c", case.script), env=case.env, around=around, stdin=case.stdin
    )
    known = {"home": stage.person.home, "work": stage.work, "name": stage.person.name, "uid": stage.person.uid}
    assert (reply.stdout, reply.code) == (case.out.format(**known), case.code), reply.stderr


def test_every_runtime_passes_as_many_arguments_as_the_kernel_does(stage: Stage) -> None:
    words = tuple(f"{n}.jpg" for n in range(40_000))
    reply = stage.start(stage.entry(), ("sh", "-c", 'for last do :; done; echo "$# $last"', "sh", *words))
    assert reply.stdout == "40000 39999.jpg\n", reply.stderr


def test_every_runtime_passes_hostile_arguments_unchanged(stage: Stage) -> None:
    reply = stage.start(stage.entry(), ("sh", "-c", SHOW_ARGUMENTS, "sh", *HOSTILE))
    assert reply.stdout == "".join(f"<{word}>\n" for word in HOSTILE), reply.stderr


@pytest.mark.parametrize("layered", ["", "yes"], ids=["site's image", "image over it"])
@pytest.mark.parametrize(("mode", "told"), [("run", "runscript \n"), ("with-conda", " /opt/conda/envs/site\n")])
def test_every_runtime_enters_an_image_as_its_site_documents(stage: Stage, mode: str, told: str, layered: str) -> None:
    entry = stage.entry(image=replace(stage.image(), enter=mode, argosy=bool(layered)))
    script = 'echo "${STARTED_BY:-} ${CONDA_PREFIX:-}"; ' + SHOW_ARGUMENTS + "; exit 3"
    reply = stage.start(entry, ("sh", "-c", script, "sh", *HOSTILE))
    assert reply.stdout == told + "".join(f"<{word}>\n" for word in HOSTILE), reply.stderr
    assert reply.code == 3


def test_every_runtime_passes_an_argument_of_100_kb(stage: Stage) -> None:
    reply = stage.start(stage.entry(), ("sh", "-c", 'echo "${#1}"', "sh", "x" * 100_000))
    assert (reply.stdout, reply.code) == ("100000\n", 0), reply.stderr


def test_every_runtime_forces_values_verbatim(stage: Stage) -> None:
    variables = tuple(Variable(f"V{number}", word) for number, word in enumerate(HOSTILE))
    script = "".join(f'printf "<%s>\\n" "$V{number}"; ' for number in range(len(HOSTILE)))
    reply = stage.start(stage.entry(variables=variables), ("sh", "-c", script))
    assert reply.stdout == "".join(f"<{word}>\n" for word in HOSTILE), reply.stderr


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_runtime_binds_paths_with_odd_names(stage: Stage, name: str) -> None:
    source, target = f"{stage.work}/from {name}", f"/data/to {name}"
    binds = (Bind(str(stage.work), str(stage.work)), Bind(source, target), Bind(source, "/closed", read_only=True))
    script = 'cat "$1/seen" && echo b > "$1/made" && cat /closed/made && touch /closed/x 2>&1'
    if stage.runtime == "enroot" and ":" in name:
        assert "cannot mount a path with a colon" in load_runtime("enroot").refusal(
            stage.entry(binds=binds), make_host()
        )
        return
    stage.outside(("/bin/sh", "-c", 'mkdir -p "$1" && echo a > "$1/seen"', "sh", source), {"PATH": "/usr/bin:/bin"})
    reply = stage.start(stage.entry(binds=binds), ("sh", "-c", script, "sh", target))
    assert (reply.stdout, reply.code) == ("a\nb\ntouch: /closed/x: Read-only file system\n", 1), reply.stderr


def test_every_runtime_starts_in_a_directory_with_an_odd_name(stage: Stage) -> None:
    folder = f"{stage.work}/a, b: 'c' \"d\" $e"
    stage.outside(("mkdir", "-p", folder), {"PATH": "/usr/bin:/bin"})
    reply = stage.start(stage.entry(workdir=folder), ("pwd",))
    assert reply.stdout == f"{folder}\n", reply.stderr


def test_with_contain_only_the_requested_parts_of_the_machine_are_visible(stage: Stage) -> None:
    script = (
        'ls -A "$HOME"; find /tmp ! -type d; ls -A /dev/shm; echo "$TMPDIR"; cat /asked/note; '
        'touch "$HOME/x" /tmp/x /dev/null && ls /dev/kmsg /dev/fuse 2> /dev/null; ls "$1/note" 2> /dev/null; pwd'
    )
    asked = stage.work / "asked"
    stage.outside(
        ("/bin/sh", "-c", 'mkdir -p "$1"; echo note > "$1/note"', "sh", str(asked)), {"PATH": "/usr/bin:/bin"}
    )
    entry = stage.entry(contain=True, workdir="/", binds=(Bind(str(asked), "/asked"),))
    around = (
        'echo x > "$HOME/private"; echo x > /dev/shm/argosy-private; "$@"; rm "$HOME/private" /dev/shm/argosy-private'
    )
    reply = stage.start(entry, ("sh", "-c", script, "sh", str(asked)), env={"TMPDIR": str(stage.work)}, around=around)
    devices = ["/dev/fuse"] if stage.runtime == "enroot" else []  # it gives all of the machine's
    assert reply.stdout.splitlines() == ["/tmp", "note", *devices, "/"], reply.stderr  # noqa: S108 - TMPDIR's value


@pytest.mark.parametrize(
    "name", ["bwrap, user", *(pytest.param(f"{n}, user", marks=SOAK) for n in ("podman", "docker"))]
)
def test_a_terminal_is_one_inside_too_and_its_interrupt_reaches_all(
    stage_called: Callable[[str], Stage], name: str
) -> None:
    stage = stage_called(name)
    script = "test -t 0 && test -t 1 && test -t 2 && echo ready; sleep 600; echo slept"
    reply = stage.start(stage.entry(), ("sh", "-c", script), around=AT_TERMINAL)
    assert (reply.stdout.replace("^C", "").split(), reply.code) == (["ready"], 130), reply.stderr


def test_with_contain_a_program_can_start_what_it_creates(stage: Stage) -> None:
    script = 'for place in "$HOME" /tmp /var/tmp; do cp /bin/busybox "$place/" && "$place/busybox" echo "$place"; done'
    entry = stage.entry(contain=True, workdir="/", binds=())
    reply = stage.start(entry, ("sh", "-c", script))
    assert reply.stdout.splitlines() == [stage.person.home, "/tmp", "/var/tmp"], reply.stderr  # noqa: S108 - inside


def test_contained_shared_memory_has_room(stage: Stage) -> None:
    entry = stage.entry(contain=True, workdir="/", binds=())
    reply = stage.start(entry, ("sh", "-c", "head -c 80000000 /dev/zero > /dev/shm/x && echo fits"))
    assert reply.stdout == "fits\n", reply.stderr


def test_contained_a_program_ends_by_a_signal_as_anywhere(stage: Stage) -> None:
    if stage.runtime == "podman-hpc" and "version 4." in stage.outside(("podman", "--version"), {}).stdout:
        pytest.skip("a user's first podman 4 may end before it passes a signal on")
    entry = stage.entry(contain=True, workdir="/", binds=())
    reply = stage.start(entry, ("sh", "-c", "echo ready; exec sleep 600"), around=SIGNALLED.format(signal="TERM"))
    assert reply.stderr in {"", "Terminated\n"}, "it took more than signals to end it"
    assert reply.code == 143


def test_a_signal_to_the_started_process_reaches_the_program(stage: Stage) -> None:
    script = 'trap "echo warned; exit 9" USR1; echo ready; while :; do sleep 1 & wait $!; done'
    reply = stage.start(stage.entry(), ("sh", "-c", script), around=SIGNALLED.format(signal="USR1"))
    assert (reply.stdout, reply.code) == ("warned\n", 9), reply.stderr


def test_a_program_that_cannot_be_executed_is_reported_with_the_systems_reason(stage: Stage) -> None:
    reply = stage.start(stage.entry(), ("/etc/passwd",))
    assert reply.code == 126, reply.stderr
    assert "/etc/passwd: Permission denied" in reply.stderr
    assert "did not attach the layer" not in reply.stderr


def test_death_by_a_fatal_signal_passes(stage: Stage) -> None:
    reply = stage.start(stage.entry(), ("sh", "-c", "kill -KILL $$"))
    assert reply.code == 137, reply.stderr


def test_a_start_adds_no_output(stage: Stage) -> None:
    entry = stage.entry(variables=(Variable("A", "1"),), drop=NOT_FROM_CALLER)
    reply = stage.start(entry, ("sh", "-c", "echo out; echo err >&2"))
    assert (reply.stdout, reply.stderr) == ("out\n", "err\n")


def test_changes_that_a_program_makes_to_an_image_stay_in_its_folder(stage: Stage) -> None:
    if not load_runtime(stage.runtime).traits.overlays:
        pytest.skip(f"{stage.runtime} lays no folder over an image, and --dev says so")
    made = "mkdir -p dev/upper dev/work; [ $# = 0 ] || { mkdir trees; for t; do cp -r $t trees/${t##*/}; done; }"
    stage.outside(("/bin/sh", "-c", made, "sh", *stage.entry().trees), {"PATH": "/usr/bin:/bin"})
    own = tuple(f"{stage.work}/trees/{tree.rpartition('/')[2]}" for tree in stage.entry().trees)
    entry = stage.entry(dev=f"{stage.work}/dev", trees=own)
    change = "echo a > /opt/argosy/made; echo b >> /opt/argosy/env.sh; rm /opt/argosy/env/bin/hello /bin/cat"
    look = "tail -n 1 /opt/argosy/env.sh; grep a /opt/argosy/made; ls /opt/argosy/env/bin /bin/cat 2> /dev/null"
    first = stage.start(entry, ("sh", "-c", change))
    assert first.code == 0, first.stderr
    assert stage.start(entry, ("sh", "-c", look)).stdout == "b\na\n/opt/argosy/env/bin:\n"
    assert stage.start(stage.entry(), ("hello",)).stdout == "hello from /opt/argosy\n"
    stage.outside(("rm", "-rf", "dev", "trees"), {"PATH": "/usr/bin:/bin"})


def test_without_its_layer_an_image_does_not_run(stage: Stage) -> None:
    if stage.in_a_store or stage.runtime == "enroot":
        pytest.skip("the layer is a part of the image itself, and never left out")
    entry = stage.entry(trees=stage.entry().trees[1:])
    without_layer = "APPTAINER_UNDERLAY=1; export APPTAINER_UNDERLAY; "
    reply = stage.start(entry, ("sh", "-c", "echo ran"), around=without_layer + '"$@"')
    assert (reply.stdout, reply.code) == ("", 6)
    assert "did not attach the layer" in reply.stderr
    assert "->" in reply.stderr
