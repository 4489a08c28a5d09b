"""The words of tykky: what they ask of `argosy wrap`, and that each of its options is taken, explained or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.compat import PROGRAMS
from argosy.compat.tykky import OURS, Words, parse_words, plan_advanced, plan_new, plan_settings, plan_update
from argosy.compat.tykky_site import Conf, merge_conf, read_conf
from argosy.errors import UsageError
from argosy.model import Bind
from argosy.wrap.records import Recipe, Settings, SourceKind, WrapRequest

CWD = Path("/project/me")


def read(file: str) -> str:
    return {"env.txt": "numpy=1.26\n", "list.txt": "@EXPLICIT\nhttps://x/y.conda\n", "vars": "export A='x y'\n"}.get(
        file, "scipy  # why\n# no\n\npandas>=2\n"
    )


def new(line: str, conf: Conf | None = None) -> WrapRequest:
    program, *words = line.split()
    return plan_new(parse_words(program, words), conf or Conf(), CWD, read)


def test_each_command_of_tykky_is_installed() -> None:
    assert {name for name, program in PROGRAMS.items() if program.tool == "tykky"} == set(OURS)


def test_a_conda_environment_sees_the_host_as_under_tykky() -> None:
    asked = new("conda-containerize new --mamba --prefix env -r req.txt --post post.sh environment.yml")
    assert asked.prefix == CWD / "env"
    assert asked.recipe == Recipe(
        SourceKind.FILES,
        ("/project/me/environment.yml", "/project/me/req.txt"),
        base="debian:bookworm",
        after=("/project/me/post.sh",),
    )
    assert asked.settings == Settings(host=True)
    assert not new("conda-containerize new --prefix e environment.yml", Conf(isolate=True)).settings.host


def test_further_paths_come_beside_those_of_the_environment() -> None:
    asked = new("conda-containerize new --prefix e -w libexec/bin,/usr/bin/git environment.yml")
    assert asked.settings.paths == ("/opt/argosy/env/bin", "/opt/argosy/env/libexec/bin", "/usr/bin/git")


def test_a_list_of_conda_packages_is_never_installed_by_pip() -> None:
    assert new("conda-containerize new --prefix e list.txt").recipe.sources == ("/project/me/list.txt",)
    with pytest.raises(UsageError, match="leaves their versions open"):
        new("conda-containerize new --prefix e env.txt")


def test_a_version_of_python_is_one_of_the_base() -> None:
    assert new("pip-containerize new --prefix e req.txt").recipe.base == "debian:bookworm"
    assert new("pip-containerize new --slim --prefix e req.txt").recipe.base == "docker://python:3-slim"
    slim = new("pip-containerize new --uv --pyver 3.12 --prefix e req.txt")
    assert slim.recipe.base == "docker://python:3.12-slim"
    assert not slim.settings.host


def test_a_container_is_copied_unless_the_site_shares_it() -> None:
    asked = new("wrap-container -w /opt/venv/bin --environ vars --prefix e vendor.sif")
    assert asked.recipe == Recipe(SourceKind.IMAGE, ("/project/me/vendor.sif",), copy=True)
    assert asked.settings == Settings(paths=("/opt/venv/bin",), variables=(("A", "x y"),))
    shared = new("wrap-container -w /bin --prefix e docker://python:3", Conf(share=True)).recipe
    assert (shared.sources, shared.copy) == (("docker://python:3",), False)


def test_an_installation_is_masked_only_where_it_is_asked() -> None:
    beside = new("wrap-install --prefix e -w /project/me/tools/bin,sbin tools/")
    assert (beside.recipe.at, beside.settings.paths) == ("/opt/argosy/installation", ("bin", "sbin"))
    masked = new("wrap-install --mask --prefix e -w bin tools")
    assert (masked.recipe.sources, masked.recipe.at) == (("/project/me/tools",), "/project/me/tools")


def test_an_update_adds_packages_and_keeps_how_commands_start() -> None:
    words = parse_words(
        "pip-containerize", ["update", "env", "-r", "req.txt", "--post-install", "post.sh", "--nocache"]
    )
    asked = plan_update(words, CWD, read)
    assert (asked.prefix, asked.packages) == (CWD / "env", ("scipy", "pandas>=2"))
    assert asked.after == ("/project/me/post.sh",)
    assert len(words.notes) == 1
    old = Settings(paths=("/x",), variables=(("B", "1"),), host=True)
    recipe = Recipe(SourceKind.FILES, ("/a",))
    assert plan_settings(words, Conf(), old, recipe, read) == old
    more = parse_words("conda-containerize", ["update", "env", "--environ", "vars"])
    assert plan_settings(more, Conf(), old, recipe, read).variables == (("B", "1"), ("A", "x y"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pip-containerize new --system-site-packages --prefix e r.txt", "argosy wrap FILE --base IMAGE"),
        ("conda-containerize new --uv --prefix e e.yml", "leave --uv away"),
        ("conda-containerize new e.yml", "--prefix DIR"),
        ("wrap-container --prefix e x.sif", "argosy wrap IMAGE -w PATHS"),
        ("wrap-install --prefix e x -w bin --unknown", "argosy wrap FOLDER"),
        ("conda-containerize", "argosy wrap environment.yml"),
    ],
)
def test_what_has_no_word_of_ours_is_an_error_that_names_what_to_use(line: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        new(line)
    assert said in error.value.hint


def test_an_update_runs_nothing_before() -> None:
    with pytest.raises(UsageError, match="--pre-install"):
        plan_update(parse_words("pip-containerize", ["update", "env", "--pre", "x.sh"]), CWD, read)


def test_the_sections_of_a_site_are_joined_as_tykky_does() -> None:
    site = {
        "defaults": {"container_src": "a.sif", "isolate": "no", "mount_points": ["/scratch"], "num_cpus": 8},
        "appends": {"mount_points": ["/opt/cray"]},
        "prepends": {"wrapper_paths": ["first"]},
        "force": {"share_container": "yes"},
    }
    merged = merge_conf(site, {"isolate": "yes", "wrapper_paths": ["mine"], "installation_prefix": "/x/$USER"})
    assert read_conf(merged, {"USER": "me"}) == Conf(
        base="a.sif",
        isolate=True,
        share=True,
        prefix="/x/me",
        binds=(Bind("/opt/cray", "/opt/cray"),),
        paths=("first", "mine"),
    )
    with pytest.raises(UsageError, match="no section 'default'"):
        merge_conf({"default": {}}, {})


def test_a_configuration_sets_variables_and_refuses_what_must_be_computed() -> None:
    rows = [{"type": "set", "name": "A", "value": 1}]
    assert read_conf({"extra_envs": rows, "container_src": "auto"}, {}) == Conf(variables=(("A", "1"),))
    with pytest.raises(UsageError, match="fixed value"):
        read_conf({"extra_envs": [{"type": "append", "name": "PATH", "value": "/x"}]}, {})


@pytest.mark.parametrize(("key", "hint"), [("post_install", "--post-install FILE"), ("isolat", "did you mean isolate")])
def test_a_key_without_a_word_of_ours_is_an_error_that_names_what_to_use(key: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        read_conf({key: "x"}, {})
    assert hint in error.value.hint


def test_a_configuration_alone_says_what_to_install() -> None:
    conf = read_conf({"installation_file_paths": ["environment.yml", "req.txt"], "installation_prefix": "/p/env"}, {})
    words = plan_advanced(Words("conda-containerize", "advanced", "conf.yaml"), conf)
    asked = plan_new(words, conf, CWD, read)
    assert asked.prefix == Path("/p/env")
    assert asked.recipe.sources == ("/project/me/environment.yml", "/project/me/req.txt")
    with pytest.raises(UsageError, match="nothing to install"):
        plan_advanced(words, Conf())
