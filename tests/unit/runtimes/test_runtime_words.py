"""The words of each runtime, by value and property; nothing is started."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import UsageError
from argosy.core.layout import ENTER as LAYER_ENTER
from argosy.core.model import (
    Attach,
    Bind,
    ContainerRequest,
    Devices,
    Entry,
    GpuMode,
    Image,
    ImageKind,
    Person,
    Variable,
)
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, ShellFunction, Word, literal_argv
from argosy.host.probe import PROGRAMS, parse_apptainer_conf, read_links
from argosy.runtimes.apptainer import APPTAINER, SINGULARITY, bind_option, leaks, parse_bind_variables
from argosy.runtimes.bwrap import BWRAP, ENTER_IMAGE, ENTER_PROGRAM, HOLD, JOIN
from argosy.runtimes.container_plan import (
    ContainerPlan,
    fileless_image,
    left_to_nodes,
    parse_bind,
    parse_container,
    parse_variable,
    plan_binds,
    plan_container,
    refuse_outside_jobs,
)
from argosy.runtimes.edf import EDF, Edf, parse_edf, render_edf
from argosy.runtimes.enroot import ENROOT, PYXIS, enroot_reference
from argosy.runtimes.runtime import RUNTIMES, Runtime, StepRuntime, forced_variables, image_refusal, load_runtime
from tests.unit.machines import make_host

ALICE = Person(2001, 2001, "alice", "/home/alice")
IMAGE = Image("/images/a.sif", ImageKind.SIF, "", "amd64", layer_offset=4096, layer_part=4)
ENTRY = Entry(
    image=IMAGE,
    attach=Attach.OVERLAY,
    binds=(),
    variables=(),
    workdir="/work",
    gpu=GpuMode.NONE,
    contain=False,
    person=ALICE,
    trees=("/cache/layer", "/cache/base"),
    scratch="/run/scratch",
)
HOST = make_host()
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
PATHS = TEXT.map(lambda text: "/" + text)
PARTS: Mapping[str, Any] = {
    "binds": (Bind("/data", "/d"),),
    "contain": True,
    "options": ("--odd",),
    "variables": (Variable("A", "b"),),
    "workdir": "/other",
}
"""Parts of an entry that no runtime may ignore -> a value."""


def start_of(runtime: Runtime, entry: Entry) -> tuple[object, ...]:
    """Return everything that starts a container."""
    words = (runtime.argv(entry, ("true",)), runtime.exports(entry))
    if isinstance(runtime, StepRuntime):
        return (*words, runtime.srun_options(entry), runtime.variables(entry), runtime.document(entry))
    return words


@pytest.mark.parametrize("name", RUNTIMES)
class TestEvery:
    def test_row_has_the_adapter_of_its_name(self, name: str) -> None:
        runtime = load_runtime(name)
        assert runtime.name == name
        assert runtime.proof in {"ran", "rendered"}
        assert runtime.program
        assert runtime.package

    def test_the_machine_is_searched_for_its_program(self, name: str) -> None:
        runtime = load_runtime(name)
        if name != "bare":
            assert runtime.program in PROGRAMS, "add the program to PROGRAMS in host/probe.py"

    @pytest.mark.parametrize("part", PARTS)
    def test_a_part_of_an_entry_changes_the_start_or_is_refused(self, name: str, part: str) -> None:
        runtime, changed = load_runtime(name), replace(ENTRY, **{part: PARTS[part]})
        if name == "bare" and part == "options":
            return  # they are for the program of a runtime
        assert runtime.refusal(changed, HOST) or start_of(runtime, changed) != start_of(runtime, ENTRY)

    @given(command=st.lists(TEXT, min_size=1, max_size=5))
    def test_the_command_comes_last_and_unchanged(self, name: str, command: list[str]) -> None:
        words = load_runtime(name).argv(ENTRY, tuple(command))
        assert words[-len(command) :] == tuple(command)

    @given(source=PATHS, target=PATHS)
    def test_path_and_value_never_becomes_part_of_a_script(self, name: str, source: str, target: str) -> None:
        plain = load_runtime(name).argv(ENTRY, ("true",))
        entry = replace(ENTRY, binds=(Bind(source, target),), workdir=source, variables=(Variable("A", target),))
        scripts = [word for word in plain if isinstance(word, str) and "\n" in word]
        assert [word for word in load_runtime(name).argv(entry, ("true",)) if word in scripts] == scripts

    def test_an_argosy_image_is_entered_through_its_layer(self, name: str) -> None:
        if ImageKind.HOST in load_runtime(name).traits.images:
            return  # there is no image
        words = load_runtime(name).argv(replace(ENTRY, image=replace(IMAGE, argosy=True)), ("true",))
        place = max(at for at, word in enumerate(words) if word == "-c")
        assert words[place - 1] == "/bin/sh"
        assert f". {LAYER_ENTER}" in str(words[place + 1])

    def test_a_possible_entry_is_not_refused(self, name: str) -> None:
        assert load_runtime(name).refusal(ENTRY, HOST) == ""


@pytest.mark.parametrize("command", [("true",), ("/bin/sh", "-c", ShellFunction("rank", 'exec "$@"'), "rank", "true")])
def test_a_start_without_the_layer_ends_with_a_message_and_its_exit_code(command: tuple[Word, ...]) -> None:
    odd = replace(IMAGE, path="/images/it's $HOME `a`.sif", argosy=True)
    words = literal_argv(APPTAINER.argv(replace(ENTRY, image=odd), command))
    started = words[words.index(odd.path) + 1 :]
    ended = subprocess.run(started, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (6, "")
    assert "did not attach the layer of /images/it's $HOME `a`.sif, so nothing was started\n  -> " in ended.stderr


def test_a_mistyped_runtime_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        load_runtime("aptainer")
    assert caught.value.hint == "did you mean --runtime apptainer?"
    assert "bwrap" in caught.value.evidence


def test_apptainer_gets_every_part_of_an_entry() -> None:
    entry = replace(
        ENTRY,
        binds=(Bind("/data", "/d"), Bind("/ro", "/ro", read_only=True), Bind("/a,b", "/c:d")),
        gpu=GpuMode.NVCCLI,
        contain=True,
        attach=Attach.BIND,
    )
    assert APPTAINER.argv(entry, ("python", ShellExpr("$x"))) == (
        *("apptainer", "--quiet", "exec", "--no-eval", "--nv", "--nvccli", "--contain"),
        *("-B", "/images/a.sif:/opt/argosy:id=4,image-src=/opt/argosy"),
        *("-B", "/data:/d,/ro:/ro:ro", "--mount", 'type=bind,"src=/a,b","dst=/c:d"'),
        *("--pwd", "/work", "/images/a.sif", "python", ShellExpr("$x")),
    )


@given(source=PATHS, target=PATHS, read_only=st.booleans())
def test_a_bind_option_parses_as_csv(source: str, target: str, read_only: bool) -> None:  # noqa: FBT001 - hypothesis
    option, word = bind_option(Bind(source, target, read_only))
    if option == "-B":
        assert word.split(":") == [
            source,
            *([target] if read_only or target != source else []),
            *(["ro"] if read_only else []),
        ]
    else:
        # Go's reader takes a carriage return before a newline for a line's end, so none is given to it.
        fields = (
            next(csv.reader([word.replace("\r", "")], strict=True)) if "\r" not in word and "\n" not in word else []
        )
        expected = ["type=bind", f"src={source}", f"dst={target}", *(["ro"] if read_only else [])]
        assert fields in ([], expected)


def test_a_variable_is_forced_under_the_name_that_the_program_reads() -> None:
    entry = replace(ENTRY, variables=(Variable("A", "x`y`"), Variable("B", ShellExpr("$b"))))
    assert APPTAINER.exports(entry) == (
        Variable("APPTAINERENV_A", "x`y`"),
        Variable("APPTAINERENV_B", ShellExpr("$b")),
    )
    assert [variable.name for variable in SINGULARITY.exports(entry)] == ["SINGULARITYENV_A", "SINGULARITYENV_B"]


def test_apptainer_refuses_cdi_and_a_home_of_ones_own_by_name() -> None:
    assert "cdi" in APPTAINER.refusal(replace(ENTRY, gpu=GpuMode.CDI), HOST)
    assert "HOME" in APPTAINER.refusal(replace(ENTRY, variables=(Variable("HOME", "/x"),)), HOST)


def test_bwrap_refuses_without_the_right_to_mount() -> None:
    root = replace(ENTRY, person=Person(0, 0, "root", "/root"))
    assert "user namespaces" in BWRAP.refusal(ENTRY, replace(HOST, user_namespaces=False))
    assert "not allowed to mount" in BWRAP.refusal(root, HOST)
    assert BWRAP.refusal(root, replace(HOST, can_mount=True, user_namespaces=False)) == ""
    assert "nvccli" not in BWRAP.refusal(replace(ENTRY, gpu=GpuMode.NV), HOST)
    assert "nvccli" in BWRAP.refusal(replace(ENTRY, gpu=GpuMode.NVCCLI), HOST)


def test_with_a_writable_folder_the_image_is_not_remounted_read_only() -> None:
    written = replace(ENTRY, dev="/project/.argosy/dev/x")
    assert "--remount-ro" in BWRAP.argv(ENTRY, ("true",))
    assert "--remount-ro" not in BWRAP.argv(written, ("true",))
    words = APPTAINER.argv(written, ("true",))
    assert words[words.index("--overlay") + 1] == "/project/.argosy/dev/x"
    assert "a,b" in APPTAINER.refusal(replace(ENTRY, dev="/a,b"), HOST)


def test_bwrap_needs_a_user_namespace_for_users_only() -> None:
    assert BWRAP.argv(ENTRY, ("true",))[:3] == ("unshare", "--user", "--map-root-user")
    assert "--user" not in BWRAP.argv(replace(ENTRY, person=Person(0, 0, "root", "/root")), ("true",))


def test_bwrap_makes_mount_points_but_never_hides_a_link_of_the_image() -> None:
    binds = tuple(Bind("/s", target) for target in ("/data/set/x", "/usr/lib64/x", "/run/x/y", "/top", "/opt/a/../b/c"))
    words = BWRAP.argv(replace(ENTRY, binds=binds), ("true",))
    assert "upper/home\nupper/data/set" in words


def test_tmpdir_points_to_the_private_tmp_unless_set() -> None:
    contained = replace(ENTRY, contain=True)
    assert forced_variables(contained) == (Variable("TMPDIR", "/tmp"),)  # noqa: S108 - a name
    asked = replace(contained, variables=(Variable("TMPDIR", "/mine"),))
    assert forced_variables(asked) == (Variable("TMPDIR", "/mine"),)


def test_a_private_home_in_a_private_tmp_is_not_hidden_by_it() -> None:
    at_tmp = replace(ENTRY, contain=True, person=Person(1000, 1000, "ci", "/tmp/ci"))  # noqa: S108 - a name
    words = BWRAP.argv(at_tmp, ("true",))
    paths = [words[at + 1] for at, word in enumerate(words) if word == "--tmpfs"]
    assert paths == ["/tmp", "/var/tmp", "/tmp/ci"]  # noqa: S108 - names


def test_the_callers_tmpdir_is_bound_if_it_exists() -> None:
    host = make_host("apptainer", "bwrap", environment={"TMPDIR": "/scratch/me"})
    mine = Bind("/scratch/me", "/scratch/me", optional=True)
    assert mine in plan_binds(ContainerRequest(), host)
    assert not plan_binds(ContainerRequest(contain=True), host)
    apptainer = plan_container(ContainerRequest(), IMAGE, host)
    assert mine not in left_to_nodes(apptainer).entry.binds
    words = BWRAP.argv(replace(ENTRY, binds=(mine,)), ("true",))
    at = words.index("/scratch/me")
    assert words[at - 1 : at + 2] == ("--bind-try", "/scratch/me", "/scratch/me")
    assert "TMPDIR" in plan_container(ContainerRequest(contain=True), IMAGE, host).entry.drop


def test_the_file_of_a_sites_certificates_is_bound_if_it_exists() -> None:
    host = make_host("apptainer", "bwrap", environment={"SSL_CERT_FILE": "/opt/site/ca.pem", "PIP_CERT": "relative"})
    found = {bind for bind in plan_binds(ContainerRequest(), host) if bind.optional}
    assert found == {Bind("/opt/site/ca.pem", "/opt/site/ca.pem", optional=True)}
    assert not plan_binds(ContainerRequest(contain=True), host)


def test_the_users_variables_win_over_the_drivers() -> None:
    devices = Devices(variables=(Variable("A", "driver"), Variable("B", "driver")))
    entry = replace(ENTRY, devices=devices, variables=(Variable("A", "mine"),))
    assert forced_variables(entry) == (Variable("B", "driver"), Variable("A", "mine"))


def test_variables_that_change_a_container_leak_and_caches_do_not() -> None:
    names = ("APPTAINERENV_X", "SINGULARITY_BIND", "APPTAINER_NV", "APPTAINER_CACHEDIR", "SINGULARITY_TMPDIR", "PATH")
    assert leaks(dict.fromkeys(names, "1")) == ("APPTAINERENV_X", "APPTAINER_NV", "SINGULARITY_BIND")


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("data", "/here/data", "/here/data"),
        ("./data:/d", "/here/data", "/d"),
        ("../data", "/data", "/data"),
        ("/a\\:b:/c", "/a:b", "/c"),
    ],
)
def test_a_mount_is_named_from_here_and_whole_inside(text: str, source: str, target: str) -> None:
    host = replace(make_host("apptainer"), cwd="/here")
    assert plan_binds(ContainerRequest(binds=(parse_bind(text),), contain=True), host) == (Bind(source, target),)


@pytest.mark.parametrize("text", ["~/data:/data", "~", "$SCRATCH/x:/x", "/project/${USER}/x"])
def test_a_source_that_only_a_shell_would_expand_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid bind mount") as caught:
        parse_bind(text)
    assert caught.value.hint == "write the full path"


def test_a_source_may_have_a_dollar_or_a_tilde_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a$b~").mkdir()
    assert parse_bind(f"{tmp_path}/a$b~").source == f"{tmp_path}/a$b~"


def test_a_relative_target_of_a_bind_mount_is_refused() -> None:
    with pytest.raises(UsageError, match="invalid bind mount"):
        parse_bind("/scratch/a:b")


HOME = "/home/alice"


@pytest.mark.parametrize(("cwd", "is_bound"), [("/opt", False), ("/usr/local", False), ("/opt/project", True)])
def test_a_system_folder_stays_the_images_even_as_working_folder(cwd: str, *, is_bound: bool) -> None:
    binds = plan_binds(ContainerRequest(), make_host("apptainer", cwd=cwd))
    assert (Bind(cwd, cwd) in binds) is is_bound


@pytest.mark.parametrize(
    ("cwd", "asked", "links", "binds"),
    [
        (f"{HOME}/p", "", {}, [(HOME, HOME)]),
        # A link out of home: what it leads to is mounted, and no more than its first step.
        (f"{HOME}/s/p", "", {f"{HOME}/s": "/scratch/me"}, [(HOME, HOME), ("/scratch/me/p",) * 2]),
        (
            f"{HOME}/s/p",
            "",
            {f"{HOME}/s": "/scratch/me", "/scratch/me": "/pfs/me"},
            [(HOME, HOME), ("/scratch/me/p",) * 2],
        ),
        (f"{HOME}/s/p", "", {f"{HOME}/s": f"{HOME}/t", f"{HOME}/t": "/data"}, [(HOME, HOME), ("/data/p",) * 2]),
        (f"{HOME}/s", "", {f"{HOME}/s": f"{HOME}/t"}, [(HOME, HOME)]),
        ("/tmp/s/p", "", {"/tmp/s": "/data"}, [(HOME, HOME), ("/data/p",) * 2]),  # noqa: S108 - names
        # Above all mounts a link is a folder inside.
        ("/scratch/me", "", {"/scratch": "/pfs"}, [(HOME, HOME), ("/scratch/me",) * 2]),
        # What is asked for is mounted where its link leads, too.
        (HOME, f"{HOME}/s/p", {f"{HOME}/s": "/data"}, [(HOME, HOME), ("/data/p",) * 2]),
        (HOME, f"/in:{HOME}/s", {f"{HOME}/s": "/data"}, [(HOME, HOME), ("/in", "/data")]),
        # Links that lead round and round end, somewhere.
        (HOME, f"{HOME}/a", {f"{HOME}/a": f"{HOME}/b", f"{HOME}/b": f"{HOME}/a"}, [(HOME, HOME)]),
        (HOME, f"{HOME}/a", {f"{HOME}/a": f"{HOME}/a/a"}, [(HOME, HOME)]),
    ],
)
def test_the_target_of_a_link_is_bound(
    cwd: str, asked: str, links: dict[str, str], binds: list[tuple[str, str]]
) -> None:
    host = make_host("apptainer", cwd=cwd, links=links)
    request = ContainerRequest(binds=(parse_bind(asked),) if asked else ())
    assert [(bind.source, bind.target) for bind in plan_binds(request, host)] == binds


def test_links_on_the_way_to_a_folder_are_found_with_their_targets(tmp_path: Path) -> None:
    for folder in ("home", "scratch/real/p"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "scratch/me").symlink_to("real")
    (tmp_path / "home/s").symlink_to(tmp_path / "scratch/me")
    (tmp_path / "home/round").symlink_to("round")
    found = read_links([f"{tmp_path}/home/s/p", f"{tmp_path}/home/round/x", f"{tmp_path}/none/p", "", "relative"])
    assert {link.removeprefix(f"{tmp_path}/"): target for link, target in found.items()} == {
        "home/s": f"{tmp_path}/scratch/me",
        "scratch/me": f"{tmp_path}/scratch/real",
        "home/round": f"{tmp_path}/home/round",
    }


def test_binds_of_a_sites_modules_are_read() -> None:
    environment = {"SINGULARITY_BIND": "/pfs,/scratch:/s:ro", "APPTAINER_BINDPATH": " /pfs:/pfs ,"}
    assert parse_bind_variables(environment) == {
        Bind("/pfs", "/pfs"): "SINGULARITY_BIND",
        Bind("/scratch", "/s", read_only=True): "SINGULARITY_BIND",
    }


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "yes"),
        ("# enable overlay = no\nenable overlay = try\n", "yes"),
        ("enable overlay = no\n", "no"),
        ("enable overlay = yes\nenable underlay = preferred\n", "no"),
        ("  enable   overlay=NO", "no"),
        ("enable overlay = driver\nenable underlay = no", "yes"),
    ],
)
def test_the_configuration_decides_whether_a_layer_is_mounted(text: str, answer: str) -> None:
    assert parse_apptainer_conf(text) == answer


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck")
@pytest.mark.parametrize("script", [JOIN, HOLD, ENTER_PROGRAM, ENTER_IMAGE], ids=["join", "hold", "enter", "image"])
def test_the_scripts_are_clean(script: str) -> None:
    # The image's files cannot be followed (SC1090); HOLD reads only to wait (SC2034); lists are split by IFS (SC2086).
    words = ["shellcheck", "--shell=sh", "--exclude=SC1090,SC2034,SC2086", "-"]
    done = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
    assert done.stdout == ""


SQUASHFS = Image("/images/a.sqsh", ImageKind.SQUASHFS, "", "")
REFERENCE = Image("nvcr.io/nvidia/pytorch:24.03-py3", ImageKind.REGISTRY, "", "")


def test_a_reference_is_written_as_enroot_reads_it() -> None:
    assert enroot_reference("nvcr.io/nvidia/pytorch:24.03-py3") == "nvcr.io#nvidia/pytorch:24.03-py3"
    assert enroot_reference("localhost:5000/a/b") == "localhost:5000#a/b"
    assert enroot_reference("library/ubuntu:24.04") == "library/ubuntu:24.04"
    assert enroot_reference("ubuntu") == "ubuntu"


def test_pyxis_gets_every_part_of_an_entry() -> None:
    home = Bind("/home/alice", "/home/alice")
    entry = replace(ENTRY, image=REFERENCE, binds=(home, Bind("/data", "/in", read_only=True)), gpu=GpuMode.NV)
    assert PYXIS.srun_options(entry) == (
        "--container-image=nvcr.io#nvidia/pytorch:24.03-py3",
        "--container-mounts=/tmp:/tmp,/var/tmp:/var/tmp,/data:/in:ro",
        "--container-workdir=/work",
        "--container-mount-home",
        "--no-container-remap-root",
        "--no-container-entrypoint",
        "--container-readonly",
        "--container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES",
    )


@pytest.mark.parametrize(("path", "shown"), [("a.sqsh", "./a.sqsh"), ("a/b.sqsh", "./a/b.sqsh"), ("/a.sqsh",) * 2])
def test_a_relative_image_file_is_not_taken_for_a_name_in_docker_hub(path: str, shown: str) -> None:
    entry = replace(ENTRY, image=replace(SQUASHFS, path=path))
    assert PYXIS.srun_options(entry)[0] == f"--container-image={shown}"
    assert f'image = "{shown}"' in EDF.document(entry)


def test_a_forced_variable_replaces_the_gpu_hooks() -> None:
    entry = replace(ENTRY, variables=(Variable("NVIDIA_VISIBLE_DEVICES", "0"),), gpu=GpuMode.NV)
    assert [v.value for v in PYXIS.variables(entry) if v.name == "NVIDIA_VISIBLE_DEVICES"] == ["0"]


@pytest.mark.parametrize(("name", "path"), [("pyxis", "/a,b"), ("edf", "/a b"), ("pyxis", "/a b"), ("enroot", "/a:b")])
def test_a_mount_that_enroot_cannot_express_is_refused(name: str, path: str) -> None:
    entry = replace(ENTRY, image=SQUASHFS, binds=(Bind(path, "/c"),))
    assert path in load_runtime(name).refusal(entry, HOST)


def test_enroot_mounts_paths_with_blanks_and_commas() -> None:
    entry = replace(ENTRY, image=SQUASHFS, binds=(Bind("/a, b\\\n", "/c d", read_only=True),))
    assert ENROOT.refusal(entry, HOST) == ""
    words = ENROOT.argv(entry, ("x",))
    assert "/a,\\040b\\134\\012:/c\\040d:none:x-create=auto,rbind,ro" in words


def test_enroot_gets_only_its_hooks_variables_and_others_are_exported_inside() -> None:
    odd = 'one\nPATH="two"'
    variables = (Variable("ODD", odd), Variable("MELLANOX_VISIBLE_DEVICES", "void"))
    words = ENROOT.argv(replace(ENTRY, image=SQUASHFS, gpu=GpuMode.NV, variables=variables), ("env",))
    outside, inside = words[: words.index("--")], words[words.index("argosy-enter") + 1 :]
    told = [outside[place + 1] for place, word in enumerate(outside) if word == "--env"]
    assert {str(word).partition("=")[0] for word in told} == {
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "MELLANOX_VISIBLE_DEVICES",
    }
    assert inside == ("/work", f"ODD={odd}", "--", "env")


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_a_variable_that_srun_itself_would_follow_is_set_in_the_container_only(name: str) -> None:
    entry = replace(ENTRY, variables=(Variable(name, "/x"), Variable("B", "1")))
    assert name not in {variable.name for variable in PYXIS.variables(entry)}
    assert "--container-env=B" in PYXIS.srun_options(entry)
    assert PYXIS.argv(entry, ("python", "t.py"))[:2] == ("env", f"{name}=/x")
    assert PYXIS.argv(ENTRY, ("python", "t.py"))[0] != "env"


def test_a_value_with_line_breaks_is_not_named_to_pyxis_which_would_set_a_variable_by_each() -> None:
    entry = replace(ENTRY, image=SQUASHFS, variables=(Variable("A", "x\nNCCL_DEBUG=EVIL"), Variable("B", "y")))
    assert "--container-env=B" in PYXIS.srun_options(entry)
    assert Variable("A", "x\nNCCL_DEBUG=EVIL") in PYXIS.variables(entry)


@pytest.mark.parametrize("name", ["enroot", "docker"])
def test_variables_that_give_a_rank_its_gpus_enter(name: str) -> None:
    program = next(word for word in load_runtime(name).argv(ENTRY, ("x",)) if isinstance(word, ShellFunction))
    listing = program[program.index("$(") + 2 : program.index('"); do')] + '"'
    given = {"CUDA_VISIBLE_DEVICES": "1", "ZE_AFFINITY_MASK": "2", "PMI_RANK": "3", "MINE": "4", "XPMI_RANK": "5"}
    environment = {"PATH": os.environ["PATH"], **given}
    done = subprocess.run(["/bin/sh", "-c", listing], env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["CUDA_VISIBLE_DEVICES", "PMI_RANK", "ZE_AFFINITY_MASK"]


def test_enroot_and_pyxis_start_no_login_shell_which_would_read_the_profile_of_the_home() -> None:
    assert Variable("ENROOT_LOGIN_SHELL", "no") in PYXIS.variables(ENTRY)
    assert "ENROOT_LOGIN_SHELL" not in " ".join(map(str, PYXIS.srun_options(ENTRY)))
    assert "ENROOT_LOGIN_SHELL=no\nexport ENROOT_LOGIN_SHELL\n" in str(ENROOT.argv(ENTRY, ("x",))[2])


def test_podman_hpc_takes_no_argument_of_the_program_as_its_own() -> None:
    entry = replace(ENTRY, image=REFERENCE, gpu=GpuMode.NV, options=("--nccl",))
    words = load_runtime("podman-hpc").argv(entry, ("python", "--gpu", "--help"))
    assert words[3:8] == ("argosy-podman-hpc", "--gpu", "--nccl", "--", "--rm")


def test_podman_hpc_gets_its_options_unsplit_and_the_umask_once(tmp_path: Path) -> None:
    program = tmp_path / "podman-hpc"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    entry = replace(ENTRY, image=REFERENCE, options=("--label", "note=two words", "--label=*"))
    argv = literal_argv(load_runtime("podman-hpc").argv(entry, ("echo", "--", "$x  y", "")))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/ada"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.split("\n")[:-1]
    assert lines[:5] == ["run", "--label", "note=two words", "--label=*", "--"]
    assert lines[5].startswith("--umask=0")
    assert lines[-4:] == ["echo", "--", "$x  y", ""]
    assert sum(line.startswith("--umask") for line in lines) == 1


def test_podman_hpc_keeps_the_callers_identity_home_gpus_and_temporary_folders() -> None:
    words = load_runtime("podman-hpc").argv(replace(ENTRY, image=REFERENCE), ("x",))
    assert {"--userns=keep-id", "HOME=/home/alice", "CUDA_VISIBLE_DEVICES"} <= set(words)
    assert "/tmp:/tmp" in words  # noqa: S108 - a mount
    as_root = replace(ENTRY, image=REFERENCE, person=Person(0, 0, "root", "/root"))
    assert "--userns=keep-id" not in load_runtime("podman-hpc").argv(as_root, ("x",))


def test_contained_enroot_and_pyxis_hide_home_and_shared_memory() -> None:
    entry = replace(ENTRY, image=SQUASHFS, contain=True, binds=(Bind("/asked", "/asked"),))
    words = ENROOT.argv(entry, ("x",))
    assert "tmpfs:/dev/shm:tmpfs:x-create=dir,mode=1777" in words
    assert "tmpfs:/home/alice:tmpfs:x-create=dir,mode=0700" in words
    mounts = next(str(word) for word in PYXIS.srun_options(entry) if "--container-mounts" in str(word))
    assert {"tmpfs:/dev/shm:mode=1777", "tmpfs:/home/alice:mode=700", "/asked:/asked"} <= set(
        mounts.removeprefix("--container-mounts=").split(",")
    )


def test_docker_quotes_a_mount_as_a_field_of_csv() -> None:
    binds = (Bind('/a,"b":', "/c", read_only=True),)
    words = load_runtime("docker").argv(replace(ENTRY, image=REFERENCE, binds=binds), ("x",))
    assert 'type=bind,"source=/a,""b"":",target=/c,readonly' in words


def test_docker_never_pulls_an_image_of_its_daemon() -> None:
    image = fileless_image("docker-daemon:mine:1", "docker")
    assert image is not None
    words = load_runtime("docker").argv(replace(ENTRY, image=image), ("x",))
    assert words[words.index("--pull=never") :][:3] == ("--pull=never", "--entrypoint=", "mine:1")


@pytest.mark.parametrize("name", ["podman", "podman-hpc"])
def test_a_mount_with_a_colon_uses_the_long_form(name: str) -> None:
    binds = (Bind("/a:b", "/c", read_only=True),)
    words = load_runtime(name).argv(replace(ENTRY, image=REFERENCE, binds=binds), ("x",))
    assert "type=bind,src=/a:b,dst=/c,ro=true" in words


def test_docker_and_podman_get_gpus_each_by_its_own_option() -> None:
    def gpu_words(name: str, way: GpuMode) -> str:
        return " ".join(map(str, load_runtime(name).argv(replace(ENTRY, image=REFERENCE, gpu=way), ("x",))))

    assert "--gpus all" in gpu_words("docker", GpuMode.NV)
    assert "--device nvidia.com/gpu=all" in gpu_words("podman", GpuMode.NV)
    for name in ("docker", "podman"):
        assert "--device /dev/kfd --device /dev/dri" in gpu_words(name, GpuMode.ROCM)


@pytest.mark.parametrize("name", ["apptainer", "pyxis", "docker", "bare"])
@pytest.mark.parametrize("kind", ImageKind)
def test_an_image_is_refused_exactly_by_runtimes_that_cannot_start_its_form(name: str, kind: ImageKind) -> None:
    runtime = load_runtime(name)
    refusal, hint = image_refusal(runtime, kind, "/x")
    assert bool(refusal) == bool(hint) == (kind not in runtime.traits.images)
    assert "apptainer" not in hint, "neither the site nor this machine may have it"


@given(mounts=st.lists(TEXT, max_size=3), env=st.dictionaries(st.from_regex(r"[A-Z_]{1,9}", fullmatch=True), TEXT))
def test_a_file_of_the_container_engine_is_read_as_it_was_written(mounts: list[str], env: dict[str, str]) -> None:
    edf = Edf(image="a.sqsh", mounts=tuple(mounts), workdir="/w", env=tuple(env.items()), annotations=(("a.b", "c"),))
    again = parse_edf("\n".join(map(str, render_edf(edf))), "x.toml")
    unexpanded = replace(again, mounts=tuple(str(m).replace("$${", "${") for m in again.mounts))
    plain = tuple(str(m).replace("$${", "${") for m in mounts)
    assert replace(unexpanded, mounts=plain, env=()) == replace(edf, mounts=plain, env=())
    assert {name: str(value).replace("$${", "${") for name, value in again.env} == {
        name: value.replace("$${", "${") for name, value in env.items()
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [("imge = 'a'", "did you mean image?"), ("mounts = 'a:b'", "EDF reference"), ("image = ", "correct the line")],
)
def test_an_invalid_environment_file_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"x\.toml") as caught:
        parse_edf(text, "x.toml")
    assert said in caught.value.hint


@pytest.mark.parametrize("name", ["pyxis", "edf"])
def test_a_runtime_for_jobs_only_is_refused_outside_jobs(name: str) -> None:
    with pytest.raises(UsageError, match="in jobs only"):
        refuse_outside_jobs(ContainerPlan(load_runtime(name), ENTRY, ()))


# Values of the caller's environment

PRIVATE = "hf_secret $(id)"


def test_a_value_of_the_callers_environment_is_exported_for_pyxis_and_no_argument_of_srun() -> None:
    variables = (parse_variable("TOKEN", {"TOKEN": PRIVATE}), parse_variable("PATH", {"PATH": "/evil"}))
    request = ContainerRequest(variables=variables)
    plan = plan_container(request, Image("x", ImageKind.SIF, "", "amd64"), make_host("apptainer"))
    entry = replace(plan.entry, image=Image("x.sqsh", ImageKind.SQUASHFS, "", "amd64"))
    assert [variable.name for variable in PYXIS.exports(entry)] == ["TOKEN"]
    assert "TOKEN" not in {variable.name for variable in PYXIS.variables(entry)}
    assert not [argument for argument in PYXIS.srun_options(entry) if PRIVATE in str(argument)]
    named = next(str(option) for option in PYXIS.srun_options(entry) if str(option).startswith("--container-env="))
    assert "TOKEN" in named.partition("=")[2].split(",")
    assert PYXIS.argv(entry, ("a",))[:2] == ("env", "PATH=/evil")


@pytest.mark.parametrize("name", ["apptainer", "bwrap", "podman", "podman-registry", "docker", "podman-hpc", "bare"])
def test_values_of_the_callers_environment_are_in_no_argument(name: str) -> None:
    asked = parse_variable("TOKEN", {"TOKEN": PRIVATE})
    kind = ImageKind.REGISTRY if name in {"podman-registry", "docker", "podman-hpc"} else ImageKind.SIF
    image = Image("x", ImageKind.HOST if name == "bare" else kind, "", "amd64")
    request, host = ContainerRequest(variables=(asked, Variable("OPEN", "open"))), make_host("apptainer")
    entry = replace(plan_container(request, replace(image, kind=ImageKind.SIF), host).entry, image=image)
    runtime = load_runtime(name.removesuffix("-registry"))
    words = runtime.argv(entry, ("true",))
    assert not [word for word in words if PRIVATE in str(word)]
    assert [variable.value for variable in runtime.exports(entry) if variable.name.endswith("TOKEN")] == [PRIVATE]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_value_passed_through_the_environment_is_set_in_the_container_without_its_temporary_variable(
    shell: str,
) -> None:
    words = ("sh", "-c", ENTER_PROGRAM, "argosy", "9", "/", "", "2", "TOKEN", "OPEN=a b")
    told = 'printf "%s|%s|%s" "$TOKEN" "$OPEN" "${ARGOSYENV_TOKEN-none}"'
    environment = {"PATH": os.environ["PATH"], "TOKEN": "the image's", "ARGOSYENV_TOKEN": PRIVATE}
    ran = subprocess.run(
        (shell, *words[1:], shell, "-c", told), env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{PRIVATE}|a b|none"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("path", [os.environ["PATH"], "/none"])
def test_control_characters_of_a_missing_folder_do_not_reach_the_terminal(shell: str, path: str) -> None:
    words = (shutil.which(shell) or shell, "-c", ENTER_PROGRAM, "argosy", "9", "/no\x1b[31m\nü", "", "0", "true")
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (
        125,
        [
            "argosy: the container has no directory /no?[31m?ü",
            "  -> check the path; to mount a folder of this machine: --bind /no?[31m?ü",
        ],
    )


def test_one_option_may_contain_several_bind_mounts_as_with_apptainer() -> None:
    binds = parse_container({"bind": ["/pfs,/data:/d:ro,/a,b"]}, {}).binds
    assert binds == (Bind("/pfs", "/pfs"), Bind("/data", "/d", read_only=True), Bind("/a,b", "/a,b"))
