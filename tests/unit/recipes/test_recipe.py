"""What environment files ask for: by value and by property."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.os_errors import suggest_file
from argosy.recipes.conda_spec import parse_conda_spec, render_conda_spec
from argosy.recipes.environment_file import parse_environment
from argosy.recipes.merge import refuse_other_python
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import CondaSpec, PipKind, PipLine, Recipe, Where
from argosy.recipes.requirements import parse_requirements
from argosy.recipes.uv_options import render_requirements

HERE = Where("environment.yml", 3)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
NUMBERS = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}", fullmatch=True)
CONDA_VERSIONS = st.one_of(
    st.just(""),
    st.builds("={}".format, NUMBERS),
    st.builds("=={}".format, NUMBERS),
    st.builds(">={},<{}".format, NUMBERS, NUMBERS),
    st.builds("=={}|>={}".format, NUMBERS, NUMBERS),
)
WORDS = (
    *("numpy", "python", "python=3", "1.26", "==", ">=", "=", "<", ";", ",", "[", "]", "(", ")", "@", "::", "#", "\\"),
    *(
        "\n",
        "-",
        "-r",
        "-e",
        "-i",
        "--hash=",
        "--index-url",
        "pip",
        ":",
        "{}",
        "'",
        '"',
        "${A}",
        "$",
        "~",
        "!",
        "*",
        ".",
    ),
    *("/", "http://", "git+", "file://", "\t", "&", "|", ">", "!!python/object", "\x00", "é"),
    *("name:", "dependencies:", "channels:", "variables:"),
)
FRAGMENTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def asks(text: str) -> PipLine:
    (entry,) = parse_requirements(text, "r.txt", environment={"TOKEN": "secret"})
    assert isinstance(entry, PipLine)
    return entry


@given(st.text(max_size=60) | FRAGMENTS)
@example("http://[")
@example("a @ http://[x")
@example("--hash")
@example("[[[[" * 500)
def test_any_text_parses_or_raises_an_argosy_error(text: str) -> None:
    for parse in (
        lambda: parse_requirements(text, "r.txt", environment={"A": "b"}),
        lambda: parse_environment(text, "e.yml", environment={}),
        lambda: parse_environment(f"dependencies:\n  - {text}\n", "e.yml", environment={}),
        lambda: parse_conda_spec(text, HERE),
        lambda: refuse_other_python(text, "3.11.2", HERE),
    ):
        with contextlib.suppress(ArgosyError):
            parse()


@given(
    name=NAMES,
    version=CONDA_VERSIONS,
    build=st.sampled_from(["", "py311*", "h1_0"]),
    channel=st.sampled_from(["", "cf"]),
)
def test_a_conda_spec_reads_back_as_it_was_rendered(name: str, version: str, build: str, channel: str) -> None:
    spec = CondaSpec(name, version, build, channel, HERE)
    assert parse_conda_spec(render_conda_spec(spec), HERE) == spec


@pytest.mark.parametrize(
    ("text", "version", "build"),
    [
        ("numpy", "", ""),
        ("numpy=1.26", "=1.26", ""),
        ("numpy=1.26.*", "=1.26", ""),
        ("numpy 1.26.*", "=1.26", ""),
        ("numpy=1.26,<1.26.5", "=1.26,<1.26.5", ""),
        ("numpy=1.26.*,!=1.26.3=py311*", "=1.26,!=1.26.3", "py311*"),
        ("numpy<2,>1|=3", "<2,>1|=3", ""),
        ("numpy=1.26|=2.1", "=1.26|=2.1", ""),
        ("numpy=1!2.0", "=1!2.0", ""),
        ("numpy=1!157.2=h7b6447c_0", "==1!157.2", "h7b6447c_0"),
        ("numpy 1!157.2 h7b6447c_0", "==1!157.2", "h7b6447c_0"),
        ("numpy==1!157.2=h7b6447c_0", "==1!157.2", "h7b6447c_0"),
        ("numpy=1!157.*=h7b6447c_0", "=1!157", "h7b6447c_0"),
        ("numpy=1.26|2.1=py311*", "=1.26|==2.1", "py311*"),
        ("numpy==1.26", "==1.26", ""),
        ("numpy 1.26", "==1.26", ""),
        ("numpy>=1", ">=1", ""),
        ("numpy >= 1 , < 2", ">=1,<2", ""),
        ("numpy>=1.8,<2=py*", ">=1.8,<2", "py*"),
        ("numpy=1.26=py311*", "==1.26", "py311*"),
        ("numpy=*=*cuda*", "", "*cuda*"),
        ("numpy!=1.26.*", "!=1.26.*", ""),
        ("numpy~=1.26", "~=1.26", ""),
        ("NumPy[version='>=1,<2', build=h*]", ">=1,<2", "h*"),
        ("numpy=1.26  # why", "=1.26", ""),
    ],
)
def test_a_conda_spec_has_one_normal_form(text: str, version: str, build: str) -> None:
    assert parse_conda_spec(text, HERE) == CondaSpec("numpy", version, build, "", HERE)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("conda-forge/linux-64::cupy", "conda-forge::cupy[subdir='linux-64']"),
        ("pkgs/main/linux-64::tensorflow-gpu>=2", "pkgs/main::tensorflow-gpu>=2[subdir='linux-64']"),
        ("https://c.example/x/noarch::six", "https://c.example/x::six[subdir='noarch']"),
        ("nvidia/label/cuda-12.4::cuda", "nvidia/label/cuda-12.4::cuda"),
    ],
)
def test_a_channel_may_be_named_with_the_folder_of_a_platform(text: str, rendered: str) -> None:
    assert render_conda_spec(parse_conda_spec(text, HERE)) == rendered


@pytest.mark.parametrize("text", ["", "=1.2", "numpy=>1", "numpy>=", "numpy===1", "numpy[bogus=1]", "numpy,scipy"])
def test_an_invalid_conda_spec_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_conda_spec(text, HERE)
    assert "environment.yml:3" in caught.value.evidence


@given(name=NAMES, version=NUMBERS, marker=st.sampled_from(["", ' ; python_version >= "3.9"']))
def test_a_requirement_reads_back_as_it_was_rendered(name: str, version: str, marker: str) -> None:
    line = asks(f"{name}=={version}{marker} --hash=sha256:{'a' * 64}") if name != "python" else asks("x")
    rendered = render_requirements(Recipe(pip=(line,)))
    again = asks(rendered)
    assert (again.name, again.requirement, again.hashes) == (line.name, line.requirement, line.hashes)


@pytest.mark.parametrize(
    "package", ["cffi==1.17.1", "./mine", "https://example.org/a.whl ", "a @ https://example.org/a.whl "]
)
def test_a_marker_that_uv_cannot_read_is_refused_with_its_line(package: str) -> None:
    text = f'tqdm\n{package}; implementation_name === "pypy" and os_name == "==="\n'
    with pytest.raises(UsageError, match="invalid environment marker") as error:
        parse_requirements(text, "m.txt", environment={})
    assert error.value.evidence.startswith("m.txt:2: ")
    assert 'write implementation_name == "pypy" and os_name == "==="' in error.value.hint
    assert asks('a===1.0; os_name == "==="').kind is PipKind.INDEX


def test_a_continued_line_keeps_the_number_of_its_first() -> None:
    entries = parse_requirements("a\n\nb \\\n  >=1 \\\n# no more\nc", "r.txt", environment={})
    assert [(e.where.line, e.requirement) for e in entries if isinstance(e, PipLine)] == [
        (1, "a"),
        (3, "b   >=1"),
        (6, "c"),
    ]


def test_a_hash_sign_within_a_url_does_not_begin_a_comment() -> None:
    assert (
        asks("git+https://example.org/a.git#egg=tool  # but this is").spec == "git+https://example.org/a.git#egg=tool"
    )


def test_a_variable_reaches_uv_and_no_message() -> None:
    line = asks("tool @ https://${TOKEN}@example.org/tool-1.tar.gz")
    assert "secret" in line.requirement
    assert "secret" not in line.text


def test_a_variable_cannot_smuggle_in_a_line() -> None:
    with pytest.raises(UsageError):
        parse_requirements("${A}", "r.txt", environment={"A": "numpy\n-r /etc/passwd"})


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("Zope.Interface>=5", PipKind.INDEX, "zope-interface"),
        ("-e git+ssh://git@example.org/a.git@main#egg=My_Tool", PipKind.VCS, "my-tool"),
        ("./wheels/a-1-py3-none-any.whl", PipKind.LOCAL, ""),
        ("a-1-py3-none-any.whl", PipKind.LOCAL, ""),
        ("file:///srv/a%20b/a-1.tar.gz", PipKind.LOCAL, ""),
        ("a @ file:///srv/a-1.tar.gz", PipKind.LOCAL, "a"),
        ("https://example.org/a-1.tar.gz", PipKind.URL, ""),
        ("--editable=.[test]", PipKind.LOCAL, ""),
    ],
)
def test_each_form_of_a_requirement_is_recognised(text: str, kind: PipKind, name: str) -> None:
    line = asks(text)
    assert (line.kind, line.name) == (kind, name)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("3.11", "3.11.2"),
        ("=3.11", "3.11.2"),
        ("=3.11.*", "3.11.2"),
        ("3.11.*", "3.11.2"),
        ("=3.11.2", "3.11.2"),
        (">=3.10,<3.12", "3.11.2"),
        ("=3.9|=3.11", "3.11.2"),
        ("~=3.10", "3.11.2"),
        ("!=3.10.*", "3.11.2"),
        ("", "3.6.8"),
        (">=3.13", "3.13.0"),
    ],
)
def test_a_python_that_fits_is_taken(asked: str, found: str) -> None:
    refuse_other_python(asked, found, HERE)


@pytest.mark.parametrize("asked", ["3.1", "=3.12", "=3.11.7", "==3.11", ">=3.12", "<3.11", ">=3.10,<3.11", "!=3.11.*"])
def test_a_python_that_does_not_fit_is_refused_with_both_versions_named(asked: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        refuse_other_python(asked, "3.11.2", HERE)
    assert "3.11.2" in caught.value.what
    assert asked.lstrip("=") in caught.value.what
    assert "environment.yml:3" in caught.value.evidence


def test_the_bases_that_would_fit_are_named() -> None:
    with pytest.raises(CheckFailed) as caught:
        refuse_other_python("=3.13", "3.11.2", HERE)
    assert "debian:trixie" in caught.value.hint
    with pytest.raises(CheckFailed) as caught:
        refuse_other_python("=3.11.7", "3.11.2", HERE)
    assert "python=3.11," in caught.value.hint
    assert "debian:" not in caught.value.hint


def write(folder: Path, **files: str) -> list[str]:
    names = [name.replace("_", ".") for name in files]
    for name, text in zip(names, files.values(), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    return names


def test_files_that_agree_are_merged(tmp_path: Path) -> None:
    names = write(
        tmp_path,
        a_yml="name: one\nchannels: [x, y]\ndependencies: [python>=3.10, {pip: [numpy]}]\nvariables: {A: 1}\n",
        b_yml="channels: [y, z]\ndependencies: ['python<3.13']\nvariables: {A: 1, B: 2}\n",
        c_txt="scipy\n",
    )
    recipe = read_recipe(names, cwd=tmp_path)
    assert recipe.name == "one"
    assert recipe.python == ">=3.10,<3.13"
    assert [channel.name for channel in recipe.channels] == ["x", "y", "z"]
    assert recipe.variables == (("A", "1"), ("B", "2"))
    assert [line.name for line in recipe.pip] == ["numpy", "scipy"]
    assert [source.path for source in recipe.sources] == names


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("dependencies: [python=3.11]", "dependencies: [python=3.12]", "Python"),
        ("channels: [x, y]\ndependencies: []", "channels: [y, x]\ndependencies: []", "channels"),
        ("variables: {A: 1}\ndependencies: []", "variables: {A: 2}\ndependencies: []", "A to different"),
    ],
)
def test_files_that_contradict_each_other_are_refused_with_both_lines(
    tmp_path: Path, one: str, other: str, said: str
) -> None:
    names = write(tmp_path, a_yml=one, b_yml=other)
    with pytest.raises(UsageError) as caught:
        read_recipe(names, cwd=tmp_path)
    assert said in caught.value.what
    assert "a.yml:1" in caught.value.evidence
    assert "b.yml:1" in caught.value.evidence


@pytest.mark.parametrize("name", ["Dockerfile", "tox.ini", "notes.md"])
def test_a_file_of_another_kind_is_refused_with_the_supported_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x y", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_recipe([name], cwd=tmp_path)
    assert "environment.yml" in caught.value.hint
    assert "requirements.txt" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (b"# mine\nBootstrap: docker\nFrom: debian:12\n", "a definition file; rename it to 'the recipe.def'"),
        (b"ARG V=12\nfrom debian:$V AS one\n", "a Dockerfile; write: argosy build -f 'the recipe' ."),
        (b"name: mine\ndependencies:\n- numpy\n", "a conda environment; rename it to 'the recipe.yml'"),
        (
            b"numpy\n\n# and\nscipy>=1.2,<2\ntransformers[torch] == 4\n",
            "packages for pip; rename it to 'the recipe.txt'",
        ),
        (b"numpy and scipy\n", "supported: "),
        (b"", "supported: "),
        (b"from x\n\0", "supported: "),
    ],
)
def test_a_file_with_an_unknown_name_is_recognised_by_its_text(tmp_path: Path, text: bytes, hint: str) -> None:
    (tmp_path / "the recipe").write_bytes(text)
    with pytest.raises(UsageError, match="cannot recognise the recipe as an environment file") as caught:
        read_recipe(["the recipe"], cwd=tmp_path)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "kind", "hint"),
    [
        ("packages.txt", "name: x\ndependencies:\n  - numpy\n", "a conda environment", "rename it to packages.yml"),
        ("p.in", "---\ndependencies: [numpy]\n", "a conda environment", "rename it to p.yml"),
        ("d.txt", "FROM debian:12\nRUN true\n", "a Dockerfile", "write: argosy build -f d.txt ."),
        ("b.txt", "Bootstrap: docker\nFrom: debian:12\n", "a definition file", "rename it to b.def"),
    ],
)
def test_another_kind_of_file_with_the_suffix_of_a_list_is_recognised_by_its_text(
    name: str, text: str, kind: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(
        UsageError, match=f"{name} is read as a list of packages for pip, but it looks like {kind}"
    ) as e:
        read_recipe([name], cwd=tmp_path)
    assert e.value.hint == hint
    assert e.value.evidence.startswith(f"{name}:1: ")


def test_an_invalid_line_of_a_list_has_its_own_message(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("numpy\nname: x\n")
    with pytest.raises(UsageError, match="invalid requirement"):
        read_recipe(["r.txt"], cwd=tmp_path)


def test_a_missing_file_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, environment_yml="dependencies: []\n")
    with pytest.raises(UsageError) as caught:
        read_recipe(["enviroment.yml"], cwd=tmp_path)
    assert "environment.yml" in caught.value.hint


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.txt").mkdir()
    with pytest.raises(UsageError):
        read_recipe(["r.txt"], cwd=tmp_path)


def test_a_local_package_is_found_beside_its_file_before_the_current_directory(tmp_path: Path) -> None:
    for folder in ("pkg", "sub/pkg"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "setup.py").touch()
    (tmp_path / "sub" / "r.txt").write_text("./pkg\n", encoding="utf-8")
    recipe = read_recipe(["sub/r.txt"], cwd=tmp_path)
    assert recipe.pip[0].path == str((tmp_path / "sub" / "pkg").resolve())


def test_a_folder_that_is_not_a_package_is_passed_over_for_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.txt").write_text(".[torch,docs]\n")
    (tmp_path / "setup.py").write_text("")
    recipe = read_recipe(["docs/requirements.txt"], cwd=tmp_path)
    assert [(line.path, line.extras) for line in recipe.pip] == [(str(tmp_path), "[torch,docs]")]


def test_a_missing_find_links_folder_is_dropped_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, r_txt="-f nowhere\nnumpy\n")
    recipe = read_recipe(["r.txt"], cwd=tmp_path)
    assert recipe.options == ()
    assert "nowhere" in str(recipe.notes[0])


def test_the_same_files_render_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path, r_txt=f"b\na --hash=sha256:{'b' * 64} --hash=sha256:{'a' * 64}\n")
    texts = {render_requirements(read_recipe(["r.txt"], cwd=tmp_path)) for _ in range(2)}
    assert texts == {f"# r.txt:1\nb\n# r.txt:2\na \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"}


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UsageError, match=r"pipe\.txt is a device or a pipe, not a file"):
        read_recipe(["pipe.txt"], cwd=tmp_path)


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").symlink_to("gone.txt")
    with pytest.raises(UsageError, match=r"no such file: requirements\.txt") as error:
        read_recipe(["requirements.txt"], cwd=tmp_path)
    assert error.value.hint == "it is a broken link to gone.txt"
    assert suggest_file(tmp_path / "requirements.txt") == ""


def test_a_suggested_name_with_a_blank_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "my list.txt").touch()
    assert suggest_file(tmp_path / "my") == f"'{tmp_path}/my list.txt'"


def test_a_name_of_two_lines_ends_no_comment(tmp_path: Path) -> None:
    (tmp_path / "a\nb.txt").write_text("six\n")
    assert render_requirements(read_recipe(["a\nb.txt"], cwd=tmp_path)) == "# a b.txt:1\nsix\n"


def test_an_unrelated_yaml_file_is_not_reported_as_misspelt(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("site_name: mine\nplugins: []\n")
    with pytest.raises(UsageError, match="is not an environment file"):
        read_recipe(["mkdocs.yml"], cwd=tmp_path)
    (tmp_path / "e.yml").write_text("dependancies: []\n")
    with pytest.raises(UsageError) as caught:
        read_recipe(["e.yml"], cwd=tmp_path)
    assert caught.value.hint == "did you mean dependencies?"


def test_the_short_form_of_ssh_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("git@github.com:me/it.git@v1.0\n")
    with pytest.raises(UsageError, match="ssh's short form") as caught:
        read_recipe(["r.txt"], cwd=tmp_path)
    assert caught.value.hint == "write git+ssh://git@github.com/me/it.git@v1.0"


def test_a_file_may_have_any_name_and_a_folder_of_a_package_one_that_is_text(tmp_path: Path) -> None:
    strange = os.fsdecode(b"bad\xff.txt")
    (tmp_path / strange).write_text("six\n")
    assert render_requirements(read_recipe([strange], cwd=tmp_path)) == "# bad\\udcff.txt:1\nsix\n"
    folder = tmp_path / os.fsdecode(b"mine\xff")
    folder.mkdir()
    (folder / "setup.py").touch()
    (folder / "r.txt").write_text(".\n")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_recipe([str(folder / "r.txt")], cwd=tmp_path)
