"""Definition files and Dockerfiles: a wrong word is found on its line, and the engine gets the right words."""

from __future__ import annotations

import io
import re
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from argosy.builder.bases.choose import refuse_base_of_other_machine, suggesting_site_bases
from argosy.builder.bases.definitions import Format, base_images, definition_format, refuse_invalid_definition
from argosy.builder.bases.engines import (
    EngineOptions,
    describe_expected_engine,
    run_definition,
    run_dockerfile,
    run_export,
)
from argosy.builder.python.pins import CannotHave
from argosy.builder.records import BuildRequest
from argosy.builder.request import (
    NO_PATH,
    apply_project_file,
    make_build_request,
    named_project,
    request_of_project,
    split_sources,
)
from argosy.builder.resolve import complete_request, resolve_build
from argosy.cli.app import app
from argosy.cli.cmd_build import build
from argosy.cli.cmd_lock import bundle, lock
from argosy.core.errors import CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.model import Host
from argosy.core.process import Command, FakeRunner, OnLine, Reply
from argosy.core.records import replace
from argosy.core.session import PlainReporter, QuietReporter, Session
from argosy.host.probe import open_session
from argosy.images.formats import OutputFormat
from argosy.recipes.project_file import read_project
from argosy.sites.bases import bases_with
from argosy.sites.read import read_site
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind
from argosy.wrap.request import plan_recipe, with_package_options
from tests.unit.machines import make_host, make_session

HOST = make_host()

DEFINITION = """\
Bootstrap: localimage
From: base.sif
Stage: one

%post -c /bin/bash
    # Colour: not a header
    printf '%s\\n' x
Bootstrap: docker
From: debian:12
%files from one
    /a /b
%environment
    export A=1
"""
DOCKERFILE = """\
# escape=\\
FROM scratch AS one
ADD rootfs.tar /
RUN a && \\
    # a comment between
    b
COPY <<EOF /etc/motd
HELO is no instruction here
EOF
from one
ENV A=1
"""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("x.def", Format.DEFINITION),
        ("Dockerfile", Format.DOCKERFILE),
        ("Dockerfile.gpu", Format.DOCKERFILE),
        ("Containerfile", Format.DOCKERFILE),
        ("gpu.Dockerfile", Format.DOCKERFILE),
        ("Dockerfile-uv", Format.DOCKERFILE),
        ("Singularity", Format.DEFINITION),
        ("Singularity.cuda-12", Format.DEFINITION),
        ("Singularity_gpu", Format.DEFINITION),
        ("singularity.cpu", Format.DEFINITION),
        ("base.singularity", Format.DEFINITION),
        ("dockerfile", Format.DOCKERFILE),
        ("dockerfile.txt.bak", Format.DOCKERFILE),
        ("Dockerfile2", Format.DOCKERFILE),
        ("Dockerfile2.cuda", Format.DOCKERFILE),
        ("DockerFile", Format.DOCKERFILE),
        ("Dockerfile.cuda+mpi", Format.DOCKERFILE),
        ("Singularity.3.4+git", Format.DEFINITION),
        ("Dockerfile.dockerignore", None),
        ("Dockerfile.gpu.dockerignore", None),
        ("singularity", None),
        ("environment.yml", None),
        ("MyDockerfiles", None),
        ("x.default", None),
    ],
)
def test_the_name_of_a_file_gives_its_format(name: str, meant: Format | None) -> None:
    assert definition_format(Path(name)) is meant


def test_a_file_of_any_name_that_begins_with_bootstrap_is_a_definition(tmp_path: Path) -> None:
    (tmp_path / "Definition.nbody").write_text("# NVIDIA's example\nBootStrap: docker\nFrom: x\n")
    for name in ("Singularity2", "Singularityfile", "SingularityRecipe", "apptainer-def.txt", "Singularity.x:1"):
        (tmp_path / name).write_text("\n# an example\nBootstrap : docker\nFrom: x\n")
        assert definition_format(tmp_path / name) is Format.DEFINITION
    (tmp_path / "singularity").write_bytes(b"\x7fELF\0" * 9999)
    assert definition_format(tmp_path / "singularity") is None
    (tmp_path / "notes").write_text("The key Bootstrap: names the source.\n")
    assert definition_format(tmp_path / "Definition.nbody") is Format.DEFINITION
    assert definition_format(tmp_path / "notes") is None


@pytest.mark.parametrize(("kind", "text"), [(Format.DEFINITION, DEFINITION), (Format.DOCKERFILE, DOCKERFILE)])
def test_a_right_file_passes_with_all_its_stages(tmp_path: Path, kind: Format, text: str) -> None:
    (tmp_path / "file").write_text(text)
    refuse_invalid_definition(tmp_path / "file", kind)


@pytest.mark.parametrize(
    "key",
    ["ProductPGP", "RegisterURL", "Modules", "OtherURL3", "OtherURL12", "Filename", "Target", "Frontend", "BuildArgs"],
)
def test_every_header_of_apptainer_passes(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").write_text(f"Bootstrap: zypper\n{key}: x\n%post\n")
    refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)


@pytest.mark.parametrize("before", ["", "# syntax=docker/dockerfile:1\n", "# check=skip=all\n#syntax = x\n"])
def test_the_escape_directive_may_follow_other_directives(before: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"{before}# escape=`\nFROM scratch\nRUN a `\n  foo\n")
    refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)
    (tmp_path / "file").write_text(f"{before}FROM scratch\n# escape=`\nRUN a `\n  foo\n")
    with pytest.raises(UsageError, match="has no 'foo'"):
        refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)


def test_stages_are_found_whatever_the_case_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("FROM r.eu/a AS Build\nFROM build\nFROM BUILD AS last\n")
    assert base_images(tmp_path / "file") == ("r.eu/a",)


@pytest.mark.parametrize(
    ("kind", "text", "line", "meant"),
    [
        (Format.DEFINITION, DEFINITION.replace("%environment", "%enviroment"), 12, "%environment"),
        (Format.DEFINITION, DEFINITION.replace("From: base.sif", "Form: base.sif"), 2, "from"),
        (Format.DOCKERFILE, DOCKERFILE.replace("ENV", "ENVI"), 11, "ENV"),
        (Format.DOCKERFILE, DOCKERFILE.replace("ADD", "ADDD"), 3, "ADD"),
    ],
)
def test_an_unknown_keyword_is_refused_with_its_line_and_the_nearest(
    tmp_path: Path, kind: Format, text: str, line: int, meant: str
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError) as caught:
        refuse_invalid_definition(tmp_path / "file", kind)
    assert f"file:{line}:" in caught.value.evidence
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize("line", ["   %pip install x", "  %post", "\t%", "%"])
def test_an_accidental_section_in_the_middle_of_a_script_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "file").write_text(f"Bootstrap: docker\nFrom: x\n%post\n{line}\n")
    with pytest.raises(UsageError, match="is not a section") as caught:
        refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)
    assert "file:4:" in caught.value.evidence
    assert "even if it is indented" in caught.value.hint


def test_a_line_of_a_script_that_begins_with_a_percent_sign_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("Bootstrap: docker\nFrom: x\n%post\ncat > x <<EOF\n%matplotlib inline\nEOF\n")
    with pytest.raises(UsageError, match="has no '%matplotlib'") as caught:
        refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)
    assert "reads every line that begins with % as a section" in caught.value.hint
    assert "known: setup" in caught.value.hint


def test_a_byte_order_mark_before_a_definition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(DEFINITION, encoding="utf-8-sig")
    with pytest.raises(UsageError, match="byte order mark"):
        refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)


@pytest.mark.parametrize("kind", list(Format))
def test_a_definition_without_a_base_is_refused(tmp_path: Path, kind: Format) -> None:
    (tmp_path / "file").write_text("# nothing\n")
    with pytest.raises(UsageError, match="is no"):
        refuse_invalid_definition(tmp_path / "file", kind)


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN\\\n  echo x\nENV\\\n A=b\n",
        "FROM a\nENV A=C:\\\\\nUSER x\n",
        "FROM a\n# a page\x0cEND\nRUN echo x\n",
        "FROM a\n# one\u0085Two\nRUN echo '\u2028x y'\n",
        "FROM a\n# one\rtwo\nRUN x\n",
        "# Base for decoding: see the manual\nFROM a\nRUN x\n",
        "  # Escape = `\nFROM a\nRUN x `\n y\n",
        "FROM a\r\nRUN <<EOF\r\nfoo\r\nEOF\r\nUSER x\r\n",
        "FROM a\nRUN <<-EOF\n\tfoo\n\tEOF\nUSER x\n",
        "FROM a\nRUN <<END-OF-IT\nfoo\nEND-OF-IT\nUSER x\n",
        "FROM a\nRUN cat 3<<1EOF\nfoo\n1EOF\nUSER x\n",
        'FROM a\nCOPY <<"END IT" /a\nfoo\nEND IT\nUSER x\n',
        "FROM a\nCOPY <<one <<'two' /d/\na\none\nb\ntwo\nUSER x\n",
        "FROM a\nRUN cat <<EOF > /x && \\\n  cat /x\nfoo\nEOF\nUSER x\n",
        "FROM a\nONBUILD RUN <<EOF\nfoo\n  EOF\nEOF\nUSER x\n",
        "from a as b\n\tcopy\t--from=b\t/a\t/b\nRUN a && \\\n# c \\\n\n   # d\n b",
    ],
)
def test_a_dockerfile_is_read_line_by_line_as_docker_does(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_bytes(text.encode())
    refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)


@pytest.mark.parametrize(
    "line",
    [
        "RUN echo $((1<<n))",
        "RUN cat <<<word",
        'LABEL a="<<b"',
        "CMD cat <<EOF",
        'RUN ["sh", "-c", "cat <<EOF"]',
        "RUN <<END-OF-IT\nfoo\nEND-OF-IT",
        "RUN echo it\\'s <<EOF\nfoo\nEOF",
    ],
)
def test_what_is_no_here_document_does_not_hide_the_instructions_below(tmp_path: Path, line: str) -> None:
    (tmp_path / "file").write_text(f"FROM a\n{line}\nUSR x\n")
    with pytest.raises(UsageError, match="has no 'USR'"):
        refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)


@pytest.mark.parametrize(
    "body",
    [
        "%post\n  cat > y <<EOF\n  Bootstrap: docker\n  Name: z\nEOF\n",
        "%help\n   Bootstrap: one\n   Version: two\n",
        "Include: a \\\n  b:2 \\\nc\n%post\n",
        "# Foo: bar\nMirrorURL: http://x/ # Bar: baz\n%post\n",
        "%%post\n  x\n",
        "# a page\x0cFoo: bar\n%post\n echo '\u2028%bar'\n",
        "# decoding: fast\n%post\n",
        "%post\r\n x\r\n%environment\r\n",
        "%post\n x\n\nbootstrap: docker\nfrom: y\n# The second: stage\n%files from one\n a b\n",
    ],
)
def test_a_definition_is_read_line_by_line_as_apptainer_does(tmp_path: Path, body: str) -> None:
    (tmp_path / "file").write_bytes(f"Bootstrap: docker\nFrom: x\n{body}".encode())
    refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)


@pytest.mark.parametrize(
    ("kind", "text"), [(Format.DEFINITION, "Bootstrap: docker\nFrom: x\n"), (Format.DOCKERFILE, "FROM x\n")]
)
def test_a_comment_in_another_encoding_is_no_mistake_but_a_file_in_utf_16_is(
    tmp_path: Path, kind: Format, text: str
) -> None:
    (tmp_path / "file").write_bytes(b"# J\xf6rg\n" + text.encode())
    refuse_invalid_definition(tmp_path / "file", kind)
    (tmp_path / "file").write_text(text, encoding="utf-16")
    with pytest.raises(UsageError, match="is not text in UTF-8"):
        refuse_invalid_definition(tmp_path / "file", kind)


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("FROM\nRUN x\n", 1, "the arguments of 'FROM' are not valid", "FROM IMAGE"),
        ("FROM a as\n", 1, "the arguments of 'FROM' are not valid", "FROM IMAGE"),
        ("FROM a AS b # the base\n", 1, "the arguments of 'FROM' are not valid", "FROM IMAGE"),
        ("FROM a\ncopy --from=b x\n", 2, "the arguments of 'copy' are not valid", "COPY SOURCE... TARGET"),
        ("FROM a\nADD x\n", 2, "the arguments of 'ADD' are not valid", "ADD SOURCE... TARGET"),
        ("FROM a\nENV A\n", 2, "the arguments of 'ENV' are not valid", "ENV NAME=VALUE"),
        ("FROM a\nENV A=b \\\n C\n", 2, "the arguments of 'ENV' are not valid", "ENV NAME=VALUE"),
        ("FROM a\nLABEL a=b c d\n", 2, "the arguments of 'LABEL' are not valid", "LABEL NAME=VALUE"),
        ("FROM a\nWORKDIR\n", 2, "the arguments of 'WORKDIR' are not valid", "WORKDIR FOLDER"),
        ("FROM a\nSHELL /bin/bash -c\n", 2, "the arguments of 'SHELL' are not valid", 'SHELL ["/bin/bash", "-c"]'),
        ("ARG A=1\n\nRUN x\nFROM a\n", 3, "'RUN' stands before the first FROM", "only ARG"),
        ("FROM a\nRUN <<EOF\nx\n  EOF\nUSER y\n", 2, "the here-document 'EOF' does not end", "a line with only EOF"),
        ("FROM a\nCOPY <<-a <<b /\nx\n\ta\ny\n", 2, "the here-document 'b' does not end", "a line with only b"),
    ],
)
def test_an_incomplete_instruction_is_refused_before_the_build_with_its_line(
    tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError) as caught:
        refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)
    assert f"file:{line}:" in caught.value.evidence
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        'COPY ["a b", "/c"]',
        "COPY --chown=1:1 --chmod=755 --from=one /x* y /z/",
        'ADD --checksum=sha256:1 https://x/y.tar.gz "/z y/"',
        'ENV A b c=d "e',
        "ENV A=b C='d e' \\\n  F=g\\ h",
        'LABEL a.b="one \\"two\\" three" c=d',
        "LABEL about one two",
        'ENV A=$B C=${D:-e} G="$(h i)"',
        "CMD []",
        "ENTRYPOINT",
        "RUN",
        "ARG A B=c",
        "SHELL ['/bin/bash', '-c']".replace("'", '"'),
        "HEALTHCHECK --interval=5m CMD curl x",
        "FROM --platform=$BUILDPLATFORM a:${V} AS b-1.x",
        "FROM $A",
    ],
)
def test_a_complete_instruction_passes_in_each_of_its_forms(tmp_path: Path, line: str) -> None:
    (tmp_path / "file").write_text(f"ARG V\nFROM a as one\n{line}\n")
    refuse_invalid_definition(tmp_path / "file", Format.DOCKERFILE)


@pytest.mark.parametrize(
    ("body", "line", "message", "hint"),
    [
        ('DistType "debian"\n%post\n', 3, "has an invalid line in its header", "commands belong below %post"),
        ("export A=b\n%post\n", 3, "has an invalid line in its header", "commands belong below %post"),
        ("wget https://x\n%post\n", 3, "has no 'wget https'", "known: bootstrap"),
        ("%post\t\n x\n", 3, "has no '%post\\t'", "did you mean %post?"),
        ("%appinstall\n x\n", 3, "'%appinstall' does not name an app", "%appinstall NAME"),
    ],
)
def test_an_invalid_line_of_a_definition_is_refused_before_the_build(
    tmp_path: Path, body: str, line: int, message: str, hint: str
) -> None:
    (tmp_path / "file").write_text(f"Bootstrap: docker\nFrom: x\n{body}")
    with pytest.raises(UsageError) as caught:
        refuse_invalid_definition(tmp_path / "file", Format.DEFINITION)
    assert f"file:{line}:" in caught.value.evidence
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_a_file_that_is_no_definition_is_named_so_whatever_its_lines(tmp_path: Path) -> None:
    (tmp_path / "x.def").write_text("; a list of functions\nLIBRARY x\nEXPORTS\n")
    with pytest.raises(UsageError, match="is not a definition file") as caught:
        refuse_invalid_definition(tmp_path / "x.def", Format.DEFINITION)
    assert "Bootstrap: docker" in caught.value.hint
    assert "From: IMAGE" in caught.value.hint


def test_only_from_lines_name_images_and_not_a_script(tmp_path: Path) -> None:
    (tmp_path / "x.def").write_text(
        "Bootstrap: docker\nFrom: r.eu/a # the base\n%post\n  from: y\npython - <<EOF\nfrom os import path\nEOF\n"
        "Bootstrap: localimage\nFrom: base.sif\nStage: two\n"
    )
    assert base_images(tmp_path / "x.def") == ("r.eu/a",)
    (tmp_path / "Dockerfile").write_text(
        "FROM --platform=$P \\\n r.eu/a AS one\nRUN <<EOF python3\nfrom os import path\nEOF\nfrom one\n"
    )
    assert base_images(tmp_path / "Dockerfile") == ("r.eu/a",)


class Engine(FakeRunner):
    """An engine that writes down the image id it was told to."""

    def run(self, command: Command, on_line: OnLine | None = None) -> Reply:
        if "--version" in command.argv:
            return Reply(0, "", "")
        if "--iidfile" in command.argv:
            Path(command.argv[command.argv.index("--iidfile") + 1]).write_text("sha256:" + "a" * 64)
        return FakeRunner.run(self, command, on_line)


def machine(tmp_path: Path, *programs: str, **variables: str) -> tuple[Session, Engine]:
    session = open_session(reporter=QuietReporter())
    host = replace(session.host, programs=dict.fromkeys(programs, "/x"), cwd=str(tmp_path), environment=variables)
    runner = Engine()
    return replace(session, host=host, runner=runner), runner


@pytest.mark.parametrize(
    ("programs", "first", "second"),
    [
        (
            ("docker", "podman", "buildah"),
            "buildah build --force-rm --isolation chroot --format docker --layers",
            "buildah push",
        ),
        (("docker", "podman"), "podman build --force-rm --isolation chroot --format docker", "podman save"),
        (("docker",), "docker build --force-rm --build-arg", "docker save"),
    ],
)
def test_a_dockerfile_is_built_by_the_first_engine_that_is_here(
    tmp_path: Path, programs: tuple[str, ...], first: str, second: str
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    session, runner = machine(tmp_path, *programs, LD_LIBRARY_PATH="/x", STORAGE_DRIVER="vfs")
    made = run_dockerfile(tmp_path, EngineOptions(("A=b c",)), session, tmp_path)
    built, saved = runner.seen
    assert str(built).startswith(first)
    assert built.argv[built.argv.index("--build-arg") :][:2] == ("--build-arg", "A=b c")
    assert built.argv[-3:] == ("-f", str(tmp_path / "Dockerfile"), str(tmp_path))
    assert str(saved).startswith(second)
    assert "a" * 64 in str(saved)
    assert built.env
    assert built.env.keys() - {"TMPDIR"} == {"STORAGE_DRIVER"}
    assert first.split(maxsplit=1)[0] in made.how


@pytest.mark.parametrize(
    ("text", "without_tls"),
    [
        ("FROM reg.lan:5000/ada/my:1\n", True),
        ("FROM --platform=linux/amd64 reg.lan:5000/ada/my AS one\nFROM one\nFROM scratch\n", True),
        ("FROM reg.lan:5000/ada/my\nFROM debian:12\n", False),
        ("ARG BASE\nFROM $BASE\n", False),
        ("FROM debian:12\n", False),
    ],
)
def test_a_registry_without_tls_needs_the_user_s_permission_for_all_bases(
    tmp_path: Path, text: str, *, without_tls: bool
) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    for engine in ("buildah", "podman"):
        session, runner = machine(tmp_path, engine, ARGOSY_INSECURE_REGISTRIES="reg.lan:5000")
        run_dockerfile(tmp_path, EngineOptions(), session, tmp_path)
        assert ("--tls-verify=false" in runner.seen[0].argv) == without_tls
    (tmp_path / "x.def").write_text("Bootstrap: docker\nFrom: reg.lan:5000/ada/my:1\n")
    session, runner = machine(tmp_path, "apptainer", ARGOSY_INSECURE_REGISTRIES="reg.lan:5000")
    run_definition(tmp_path / "x.def", EngineOptions(), session, tmp_path)
    assert "--no-https" in runner.seen[0].argv


@pytest.mark.parametrize(
    ("engine", "step", "own"),
    [
        ("buildah", "RUN true", True),
        ("podman", "RUN true", True),
        ("docker", "RUN true", False),
        ("buildah", "RUN --mount=type=cache,target=/root/.cache true", False),
    ],
)
def test_copies_of_images_that_an_ended_engine_leaves_are_in_the_work_folder(
    tmp_path: Path, engine: str, step: str, *, own: bool
) -> None:
    session, runner = machine(tmp_path, engine, XDG_RUNTIME_DIR="/run/user/1")
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM scratch\n{step}\n")
    (tmp_path / "image-id").write_text("sha256:abc")
    run_dockerfile(path, EngineOptions(), session, tmp_path)
    first, *_, last = (command for command in runner.seen if command.argv[0] == engine)
    folder = str(tmp_path / "engine")
    assert ((first.env or {}).get("TMPDIR") == folder) is own
    assert ((last.env or {}).get("TMPDIR") == folder) is (engine != "docker")


def test_the_user_may_choose_the_format_in_which_buildah_builds(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    session, runner = machine(tmp_path, "buildah", BUILDAH_FORMAT="oci")
    run_dockerfile(tmp_path, EngineOptions(), session, tmp_path)
    assert "--format" not in runner.seen[0].argv
    assert (runner.seen[0].env or {})["BUILDAH_FORMAT"] == "oci"


def test_no_cache_and_another_file_reach_the_engine(tmp_path: Path) -> None:
    (tmp_path / "gpu.docker").write_text(DOCKERFILE)
    session, runner = machine(tmp_path, "buildah")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    run_dockerfile(tmp_path, EngineOptions(dockerfile="gpu.docker", no_cache=True), session, tmp_path)
    assert "--no-cache" in runner.seen[0].argv
    assert "--layers" not in runner.seen[0].argv
    assert str(tmp_path / "gpu.docker") in runner.seen[0].argv


def test_a_context_whose_dockerfile_is_elsewhere_or_has_another_name_is_one(tmp_path: Path) -> None:
    assert definition_format(tmp_path) is None
    assert definition_format(tmp_path, "gpu.docker") is Format.DOCKERFILE
    (tmp_path / "gpu.docker").write_text(DOCKERFILE)
    request = BuildRequest((tmp_path,), "", tmp_path / "x.sif", engine=EngineOptions(dockerfile="gpu.docker"))
    session, _ = machine(tmp_path, "buildah")
    settled = complete_request(request, session.host)
    assert (settled.base, settled.sources) == (str(tmp_path), ())


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("buildah version 1.28.2 (image-spec 1.1.0-rc2, runtime-spec 1.0.2-dev)", True),
        ("buildah version 1.33.0", False),
        ("buildah version 2.0.0", False),
        ("", False),
    ],
)
def test_here_documents_are_refused_before_the_build_if_the_engine_is_too_old(
    tmp_path: Path, version: str, *, old: bool
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY <<EOF /etc/y\nhello\nEOF\n")
    session, _ = machine(tmp_path, "buildah")
    runner = FakeRunner(
        [(("buildah", "--version"), Reply(0, version, "")), (("buildah", "build"), Reply(125, "", "failed"))]
    )
    session = replace(session, runner=runner)
    with pytest.raises(ToolMissing if old else ToolFailed) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), session, tmp_path)
    assert any("build" in command.argv for command in runner.seen) != old
    assert ("buildah 1.33" in caught.value.hint) == old
    if old:
        assert "Dockerfile:2: COPY <<EOF /etc/y" in caught.value.evidence
        with pytest.raises(ToolMissing, match="too old"):
            describe_expected_engine(str(tmp_path / "Dockerfile"), EngineOptions(), session, here=True)


@pytest.mark.parametrize(
    ("text", "image", "hints"),
    [
        (
            "FROM ada/tools:1\n",
            "ada/tools:1",
            ("write 'docker.io/ada/tools:1'", 'unqualified-search-registries = ["docker.io"]'),
        ),
        ("FROM x AS Build\nFROM build\n", "build", ("write 'FROM Build'",)),
    ],
)
def test_an_image_without_a_registry_and_a_stage_in_another_case_have_hints(
    tmp_path: Path, text: str, image: str, hints: tuple[str, ...]
) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    session, _ = machine(tmp_path, "buildah")
    said = (
        f'Error: creating build container: short-name "{image}" did not resolve to an alias and no unqualified-search '
        'registries are defined in "/etc/containers/registries.conf"'
    )
    runner = FakeRunner([(("buildah", "build"), Reply(125, "", said))])
    with pytest.raises(ToolFailed) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), replace(session, runner=runner), tmp_path)
    for hint in hints:
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "Could not fetch URL https://pypi.org/simple/six/: [SSL: CERTIFICATE_VERIFY_FAILED] certificate",
            "argosy build Dockerfile requirements.txt",
        ),
        (
            "initializing source docker://ghcr.io/ada/tools:1: pinging container registry ghcr.io: no such host",
            "skopeo copy docker://ghcr.io/ada/tools:1 oci-archive:base.tar",
        ),
    ],
)
def test_a_dockerfile_that_the_network_stops_has_another_way(tmp_path: Path, said: str, hint: str) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    session, _ = machine(tmp_path, "buildah")
    runner = FakeRunner([(("buildah", "build"), Reply(125, "", said))])
    with pytest.raises(ToolFailed) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), replace(session, runner=runner), tmp_path)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "said",
    [
        "[Warning] one or more build args were not consumed: [VERSON]",
        "[Warning] One or more build-args [VERSON] were not consumed",
    ],
)
def test_a_build_argument_that_the_dockerfile_does_not_use_is_named(tmp_path: Path, said: str) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nARG VERSION=1\n")
    session, runner = machine(tmp_path, "buildah")
    runner.replies.append((("buildah", "build"), Reply(0, "", said)))
    shown = io.StringIO()
    run_dockerfile(tmp_path, EngineOptions(("VERSON=2",)), replace(session, reporter=PlainReporter(shown)), tmp_path)
    assert shown.getvalue() == "Dockerfile does not use the build argument VERSON\n"


def test_a_shift_in_a_script_is_not_taken_for_a_here_document(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN echo $((1<<n)); false\n")
    session, _ = machine(tmp_path, "buildah")
    runner = FakeRunner(
        [(("buildah", "--version"), Reply(0, "buildah version 1.28.2", "")), (("buildah",), Reply(1, "", "failed"))]
    )
    with pytest.raises(ToolFailed) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), replace(session, runner=runner), tmp_path)
    assert "show the instruction that failed" in caught.value.hint


@pytest.mark.parametrize(("engine", "file"), [("buildah", "Dockerfile"), ("apptainer", "x.def")])
def test_a_build_argument_without_a_value_has_that_of_the_environment(tmp_path: Path, engine: str, file: str) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "x.def").write_text(DEFINITION)
    session, runner = machine(tmp_path, engine, A="b c")
    run = run_dockerfile if file == "Dockerfile" else run_definition
    run(tmp_path / file, EngineOptions(("A", "NOTHERE", "B=")), session, tmp_path)
    argv = runner.seen[0].argv
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--build-arg"] == ["A=b c", "B="]


def test_a_missing_dockerfile_that_was_named_has_the_hint_to_check_it(tmp_path: Path) -> None:
    session, _ = machine(tmp_path, "buildah")
    with pytest.raises(UsageError, match="nothere") as caught:
        run_dockerfile(tmp_path, EngineOptions(dockerfile="nothere"), session, tmp_path)
    assert caught.value.hint == "check the path after -f; it is relative to the current folder"


@pytest.mark.parametrize(("uid", "sub_users"), [(0, False), (1000, True)])
def test_only_an_ordinary_user_needs_subordinate_users_and_colours_are_removed(
    tmp_path: Path, uid: int, *, sub_users: bool
) -> None:
    (tmp_path / "x.def").write_text(DEFINITION)
    session, _ = machine(tmp_path, "apptainer")
    person = replace(session.host.person, uid=uid)
    said = "\x1b[91mERROR  : created 0 sockets: exit status 2\x1b[0m"
    runner = FakeRunner([(("apptainer",), Reply(255, "", said))])
    session = replace(session, host=replace(session.host, person=person), runner=runner)
    with pytest.raises(ToolFailed) as caught:
        run_definition(tmp_path / "x.def", EngineOptions(), session, tmp_path)
    assert ("newuidmap" in caught.value.hint) == sub_users
    assert "ERROR  : created" in caught.value.evidence
    assert "\x1b" not in caught.value.evidence


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "DOCKER_HOST"),
        ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", "unset DOCKER_BUILDKIT"),
    ],
)
def test_a_fault_of_docker_itself_is_not_reported_as_a_failed_instruction(
    tmp_path: Path, message: str, hint: str
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    session, _ = machine(tmp_path, "docker")
    runner = FakeRunner([(("docker",), Reply(1, "", message))])
    with pytest.raises(ToolFailed) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), replace(session, runner=runner), tmp_path)
    assert hint in caught.value.hint


def test_a_definition_is_built_in_the_folder_of_its_relative_paths(tmp_path: Path) -> None:
    (tmp_path / "x.def").write_text(DEFINITION)
    session, runner = machine(tmp_path, "apptainer", APPTAINER_BIND="/scratch")
    run_definition(tmp_path / "x.def", EngineOptions(("A=1",)), session, tmp_path)
    command = runner.seen[0]
    assert command.argv[:2] == ("apptainer", "build")
    assert command.cwd == str(tmp_path)
    assert command.env == {"APPTAINER_TMPDIR": str(tmp_path), "SINGULARITY_TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("FATAL:   Unable to get library client configuration: remote has no library client (see https://x.org)",
         "apptainer knows no library by default: write 'Bootstrap: docker'"),
        (("FATAL:   While performing build: conveyor failed to get: debootstrap is not in PATH... Perhaps 'apt-get "
         "install' it: exec: \"debootstrap\": executable file not found in $PATH"), "install the program that the"),
    ],
)  # fmt: skip
def test_a_bootstrap_that_apptainer_cannot_do_here_has_the_usual_alternative(
    tmp_path: Path, said: str, hint: str
) -> None:
    (tmp_path / "x.def").write_text(DEFINITION)
    session, _ = machine(tmp_path, "apptainer")
    runner = FakeRunner([(("apptainer",), Reply(255, "", f"INFO:    Starting build...\n{said}\n"))])
    with pytest.raises(ToolFailed) as caught:
        run_definition(tmp_path / "x.def", EngineOptions(), replace(session, runner=runner), tmp_path)
    assert caught.value.hint.startswith(hint)


def test_a_missing_engine_is_reported_with_its_package_and_another_place_to_build(tmp_path: Path) -> None:
    (tmp_path / "x.def").write_text(DEFINITION)
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    session, _ = machine(tmp_path)
    with pytest.raises(ToolMissing) as caught:
        run_definition(tmp_path / "x.def", EngineOptions(), session, tmp_path)
    assert "install apptainer" in caught.value.hint
    with pytest.raises(ToolMissing) as caught:
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), session, tmp_path)
    assert "install buildah" in caught.value.hint
    assert "docker: not found" in caught.value.evidence
    with pytest.raises(ToolMissing, match="neither podman nor buildah"):
        run_export("x", session, tmp_path)


@pytest.mark.parametrize("argument", ["=b", ""])
def test_a_build_argument_needs_a_name(argument: str) -> None:
    with pytest.raises(UsageError, match="build argument"):
        EngineOptions((argument,))


@pytest.fixture
def here(tmp_path: Path) -> Host:
    """Give a machine on whose current folder some files are."""
    for name in ("a.def", "Dockerfile", "e.yml", "pyproject.toml"):
        (tmp_path / name).touch()
    return replace(HOST, cwd=str(tmp_path))


def test_a_definition_among_the_sources_is_the_base(here: Host) -> None:
    request = complete_request(BuildRequest((Path("a.def"), Path("e.yml")), "", Path("/x.sif")), here)
    assert (request.base, request.sources) == ("a.def", (Path("e.yml"),))


@pytest.mark.parametrize(
    ("sources", "base", "said"),
    [
        (("a.def", "Dockerfile"), "", "an image has one"),
        (("a.def",), "b.sif", "another one"),
        (("debian:bookworm", "e.yml"), "", "debian:bookworm is a base"),
    ],
)
def test_a_build_needs_exactly_one_base(sources: tuple[str, ...], base: str, said: str, here: Host) -> None:
    with pytest.raises(UsageError, match=said):
        complete_request(BuildRequest(tuple(map(Path, sources)), base, Path("x.sif")), here)


def test_a_build_argument_needs_a_file_that_an_engine_builds(here: Host) -> None:
    options = EngineOptions(("A=1",))
    with pytest.raises(UsageError, match="--build-arg needs a definition file or a Dockerfile"):
        complete_request(BuildRequest((Path("e.yml"),), "", NO_PATH, engine=options), here)
    for source, base in (("Dockerfile", ""), ("e.yml", "a.def")):
        complete_request(BuildRequest((Path(source),), base, NO_PATH, engine=options), here)
    complete_request(BuildRequest((), "", NO_PATH, engine=options, locked="argosy.lock"), here)  # it names the base


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("d.yml", "did you mean e.yml?"),
        ("Dockerfil", "did you mean Dockerfile?"),
        ("pyprojct.toml[gpu]", "did you mean pyproject.toml?"),
        ("nothing.txt", "check the path"),
        ("sub/e.yml", "the folder {cwd}/sub does not exist either"),
    ],
)
def test_a_missing_source_is_reported_first(named: str, hint: str, here: Host) -> None:
    with pytest.raises(UsageError, match="no such file: " + re.escape(named.partition("[")[0])) as error:
        complete_request(BuildRequest((Path("e.yml"), Path(named)), "", NO_PATH), here)
    assert error.value.hint == hint.format(cwd=here.cwd)


def test_the_extra_of_a_project_is_not_part_of_its_file_name(here: Host) -> None:
    source = Path("pyproject.toml[gpu]")
    assert complete_request(BuildRequest((source,), "b.sif", Path("x.sif")), here).sources == (source,)


def test_without_a_base_the_default_is_used(here: Host) -> None:
    request = complete_request(BuildRequest((Path("e.yml"),), "", Path("x.sif")), here)
    assert (request.base, request.default_base) == ("debian:bookworm", True)
    described = complete_request(BuildRequest((Path("a.def"), Path("e.yml")), "", Path("x.sif")), here)
    assert (described.base, described.default_base) == ("a.def", False)
    locked = complete_request(BuildRequest((), "", Path("x.sif"), locked="argosy.lock"), here)
    assert (locked.base, locked.default_base) == ("", False)


@pytest.mark.parametrize(("site", "base", "lines"), [("lumi-g", "", 6), ("lumi-g", "x.sif", 0), ("karolina", "", 0)])
def test_with_the_default_base_those_of_the_site_are_alternatives(
    site: str, base: str, lines: int, tmp_path: Path, here: Host
) -> None:
    (tmp_path / "e.yml").write_text("dependencies: [numpy]\n")
    stream = io.StringIO()
    session = replace(make_session(tmp_path, here), reporter=PlainReporter(stream))
    resolve_build(BuildRequest((tmp_path / "e.yml",), base, tmp_path / "x.sif", site=site), session)
    shown = stream.getvalue()
    assert len(shown.splitlines()) == lines
    if lines:
        assert "bases of lumi-g, alternatives to debian:bookworm: --base NAME\n" in shown
        assert "lumi-multitorch-latest.sif: python, torch" in shown


def test_if_another_torch_is_needed_the_error_names_bases_of_the_site_that_have_it() -> None:
    wanted = Requirement("torch>=2.3")
    with pytest.raises(CheckFailed, match="cannot be had") as error, suggesting_site_bases(read_site("mn5-acc")):
        raise CannotHave(wanted, "torch>=2.3 cannot be had", evidence="the base has torch==2.1")
    assert "docker://nvcr.io/nvidia/pytorch:24.04-py3" in error.value.evidence
    assert bases_with(read_site("mn5-acc").images, Requirement("torch>=2.4")) == ()
    assert bases_with(read_site("mn5-acc").images, Requirement("numpy")) == ()


def test_a_base_of_another_site_is_reported() -> None:
    lumi = read_site("lumi-g")
    with pytest.raises(UsageError, match="is not on this machine") as error:
        refuse_base_of_other_machine(lumi.images.bases[0].name, lumi)
    assert error.value.evidence == "it is a base of lumi-g"
    refuse_base_of_other_machine("debian:bookworm", lumi)
    refuse_base_of_other_machine("/nowhere", None)


def test_references_are_distinguished_from_files() -> None:
    assert split_sources(("docker://debian:12", "e.yml")) == ((Path("e.yml"),), "docker://debian:12")
    assert split_sources(("e.yml", "containers-storage:me/it")) == ((Path("e.yml"),), "containers-storage:me/it")
    assert split_sources(("e.yml",), "docker.sif") == ((Path("e.yml"),), "docker.sif")
    with pytest.raises(UsageError, match="an image has one"):
        split_sources(("docker://debian:12",), "docker.sif")


def test_the_project_file_completes_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text(
        "[image]\nbase = 'debian:bookworm'\nconda = 'e.yml'\npip = 'r.txt'\noutput = 'mine.sif'\n"
        "[image.build_arg]\nA = '1'\n"
    )
    project = read_project(tmp_path / "argosy.toml")
    request = request_of_project(project, BuildRequest((), "", NO_PATH))
    assert request.sources == (tmp_path / "e.yml", tmp_path / "r.txt")
    assert (request.base, request.output) == ("debian:bookworm", tmp_path / "mine.sif")
    assert request.engine.arguments == ("A=1",)
    said = BuildRequest((), "other.sif", Path("/o.sif"), flatten=True, engine=EngineOptions(("A=2",)))
    request = request_of_project(project, said)
    assert (request.base, request.output, request.flatten) == ("other.sif", Path("/o.sif"), True)
    assert request.engine.arguments == ("A=1", "A=2")


def test_a_build_from_a_lock_writes_the_output_of_the_project_file(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text("[image]\npip = 'r.txt'\noutput = 'mine.sqsh'\n")
    here = replace(HOST, cwd=str(tmp_path))
    request = apply_project_file(BuildRequest((), "", NO_PATH, locked="argosy.lock"), here)
    assert (request.output, request.form) == (tmp_path / "mine.sqsh", OutputFormat.SQSH)
    assert (request.sources, request.project) == ((), None)  # the lock has them
    (tmp_path / "argosy.toml").write_text("[broken")
    given = BuildRequest((), "", Path("/o.sif"), locked="argosy.lock")
    assert apply_project_file(given, here) == given


def test_a_project_file_with_jobs_alone_builds_nothing(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text('[job.train]\ncommand = ["python", "train.py"]\n')
    with pytest.raises(UsageError, match="does not say what to build") as raised:
        request_of_project(read_project(tmp_path / "argosy.toml"), BuildRequest((), "", NO_PATH))
    assert "argosy build requirements.txt" in raised.value.hint


def test_a_project_without_a_base_gets_the_default(tmp_path: Path) -> None:
    (tmp_path / "argosy.toml").write_text("\n[image]\nconda = 'e.yml'\n")
    (tmp_path / "e.yml").touch()
    asked = request_of_project(read_project(tmp_path / "argosy.toml"), BuildRequest((), "", NO_PATH))
    request = complete_request(asked, replace(HOST, cwd=str(tmp_path)))
    assert (request.base, request.default_base) == ("debian:bookworm", True)


@pytest.fixture
def in_project(tmp_path: Path) -> Path:
    (tmp_path / "argosy.toml").write_text("[image]\nbase = 'debian:bookworm'\npip = 'r.txt'\n")
    return tmp_path


@pytest.mark.parametrize("named", ["", "argosy.toml"])
def test_a_project_file_or_its_folder_as_the_source_is_the_project(in_project: Path, named: str) -> None:
    request = apply_project_file(BuildRequest((in_project / named,), "", NO_PATH), HOST)
    assert (request.base, request.sources) == ("debian:bookworm", (in_project / "r.txt",))
    assert request.output == in_project / f"{in_project.name}.sif"
    assert request.project is not None


def test_a_fault_in_a_named_project_file_is_shown_with_the_path_that_was_typed(
    in_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_project / "argosy.toml").write_text("[image]\nbsae = 'x'\n")
    monkeypatch.chdir(in_project.parent)
    with pytest.raises(UsageError) as caught:
        named_project([Path(in_project.name)])
    assert caught.value.evidence == f"{in_project.name}/argosy.toml:2: image.bsae"


def test_sources_beside_a_project_file_are_refused(in_project: Path) -> None:
    with pytest.raises(UsageError, match="lists all files of the build"):
        named_project([in_project / "argosy.toml", Path("e.yml")])


def test_a_folder_with_a_dockerfile_is_its_context_even_with_a_project_file(in_project: Path) -> None:
    (in_project / "Dockerfile").write_text("FROM scratch\n")
    assert named_project([in_project]) is None
    assert named_project([in_project / "argosy.toml"]) is not None


def test_wrapping_what_describes_an_image_is_refused_with_the_command_to_build_it(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    for named in (tmp_path, tmp_path / "Dockerfile"):
        with pytest.raises(UsageError, match="Dockerfile describes an image") as caught:
            plan_recipe((str(named),))
        assert caught.value.hint.startswith(f"first build it: argosy build {named} -o IMAGE")


def test_wrapping_a_project_file_is_refused_with_the_command_to_build_it(in_project: Path) -> None:
    for named in (in_project, in_project / "argosy.toml"):
        with pytest.raises(UsageError, match="it is a project file") as caught:
            plan_recipe((str(named),))
        assert caught.value.hint.startswith(f"first build its image: argosy build {in_project}/argosy.toml -o")


@pytest.mark.parametrize("command", [build, lock, bundle])
def test_every_command_takes_the_same_package_options(command: click.Command) -> None:
    words = ["e.yml", "-o", "x", "--no-build-isolation", "apex", "--build-arg", "A=1", "--torch-backend", "cpu"]
    given = command.make_context("argosy", words, click.Context(app, **app.context_settings)).params
    request = make_build_request(given["sources"], Path("/x"), given, {})
    assert (request.unisolated, request.engine.arguments, request.torch_backend) == (("apex",), ("A=1",), "cpu")


def test_package_options_are_refused_when_an_image_is_wrapped() -> None:
    with pytest.raises(UsageError, match="--cuda needs environment files"):
        with_package_options(PrefixRecipe(PrefixSourceKind.IMAGE, ("x.sif",)), {"cuda": "12", "allow_replace": ()}, {})
    assert with_package_options(PrefixRecipe(PrefixSourceKind.FILES, ("e.yml",)), {"cuda": "12"}, {}).cuda == "12"


def test_a_missing_project_file_that_was_named_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*argosy\.toml"):
        named_project((tmp_path / "argosy.toml",))
    assert named_project((tmp_path / "environment.yml",)) is None


def test_a_definition_file_with_another_name_is_recognised_by_its_first_line(tmp_path: Path) -> None:
    for text, meant in (("# for LUMI\n\nBootstrap: docker\nFrom: debian:12\n", Format.DEFINITION), ("numpy\n", None)):
        (tmp_path / "Definition.nbody").write_text(text, encoding="utf-8")
        assert definition_format(tmp_path / "Definition.nbody") is meant


@pytest.mark.parametrize(
    ("output", "given", "form"),
    [
        ("x.sqsh", {}, OutputFormat.SQSH),
        ("x.sqsh", {"format": "sif"}, OutputFormat.SIF),
        ("x.sif", {}, OutputFormat.SIF),
    ],
)
def test_the_name_of_the_output_gives_its_format_unless_it_is_given(
    output: str, given: dict[str, str], form: OutputFormat
) -> None:
    assert make_build_request(("e.yml",), Path(output), given, {}).form is form


def test_empty_folders_of_buildah_are_removed_also_after_a_failure(tmp_path: Path) -> None:
    class Failing(FakeRunner):
        def run(self, _command: Command, _on_line: OnLine | None = None) -> Reply:
            (tmp_path / "containers-user-1000/containers").mkdir(parents=True)
            return Reply(1, "", "error building")

    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN false\n")
    host = make_host("buildah", cwd=str(tmp_path), environment={"TMPDIR": str(tmp_path)})
    session = make_session(tmp_path, host, Failing())
    with pytest.raises(ToolFailed):
        run_dockerfile(tmp_path / "Dockerfile", EngineOptions(), session, tmp_path)
    assert not (tmp_path / "containers-user-1000").exists()


def test_nothing_to_build_names_the_environment_file_of_this_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(UsageError, match="nothing to build") as refused:
        apply_project_file(BuildRequest((), "", NO_PATH), replace(HOST, cwd=str(tmp_path)))
    assert refused.value.hint == "for example: argosy build pyproject.toml -o my.sif"


def test_an_image_among_the_sources_is_refused(tmp_path: Path) -> None:
    (tmp_path / "my.sqsh").write_bytes(b"hsqs" + bytes(92))
    with pytest.raises(UsageError, match="is an image, not a list of packages") as caught:
        complete_request(BuildRequest((Path("my.sqsh"),), "", Path("x.sif")), make_host(cwd=str(tmp_path)))
    assert "--base my.sqsh" in caught.value.hint
