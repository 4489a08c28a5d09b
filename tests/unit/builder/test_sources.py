"""Local folders are mounted as copies; git in the base gets the access that the user has."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from argosy.builder.backends.container import BuildContainer
from argosy.builder.backends.plan import RootfsSpec
from argosy.builder.bases.choose import find_needs
from argosy.builder.python import sources
from argosy.builder.python.installer import separate_builds
from argosy.builder.python.sources import (
    add_git_access,
    advise_on_git,
    bring_in,
    find_git_access,
    find_git_packages,
    repository_around,
    write_git_home,
)
from argosy.builder.python.uv_output import explain_uv
from argosy.core.model import Bind, Choice, Person
from argosy.core.process import Reply
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import UvSettings
from tests.unit.machines import make_host, make_session


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name in ("src/mine/__init__.py", ".git/HEAD", "venv/pyvenv.cfg", "venv/lib/x.py", "src/__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "pyproject.toml").touch()
    (folder / "big.sif").touch()
    (folder / "link").symlink_to("src")
    (folder / "gone").symlink_to("nowhere")
    return folder


def build_container(folder: Path) -> BuildContainer:
    return BuildContainer(Choice("build-backend", "root", "", ""), RootfsSpec("", 0), "", make_session(folder))


def test_a_package_is_copied_without_files_that_are_not_source(tmp_path: Path, package: Path) -> None:
    (bind,) = bring_in((str(package), "/no/such/folder"), build_container(tmp_path), tmp_path / "work")
    copy = Path(bind.source)
    assert (bind.target, bind.read_only, copy.is_relative_to(tmp_path / "work")) == (str(package), False, True)
    found = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_symlink() or path.is_file()}
    assert found == {"src/mine/__init__.py", ".git/HEAD", "pyproject.toml", "link", "gone"}


def test_the_repository_around_a_package_is_shown_for_its_tags(tmp_path: Path, package: Path) -> None:
    (package / "models").mkdir()
    (package / "models/pyproject.toml").touch()
    around, copy = bring_in((str(package / "models"),), build_container(tmp_path), tmp_path / "work")
    assert around == Bind(str(package), str(package), read_only=True)
    assert (copy.target, copy.read_only) == (str(package / "models"), False)
    assert repository_around(package / "models", package / "home") is None
    assert repository_around(package, tmp_path / "home") is None


def test_other_folders_and_files_are_bound_unchanged(tmp_path: Path) -> None:
    assert bring_in((str(tmp_path),), build_container(tmp_path), tmp_path / "work") == (
        Bind(str(tmp_path), str(tmp_path), read_only=True),
    )


def test_a_package_with_data_beside_it_is_built_in_place(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_FILES", 2)
    assert bring_in((str(package),), build_container(tmp_path), tmp_path / "work") == (
        Bind(str(package), str(package)),
    )
    assert list((tmp_path / "work/sources").iterdir()) == []


NO_CONTAINER = cast("BuildContainer", None)


def recipe_of(folder: Path, text: str) -> Recipe:
    (folder / "requirements.txt").write_text(text)
    return read_recipe(["requirements.txt"], cwd=folder)


@pytest.mark.parametrize(
    ("line", "packages"),
    [
        ("click", ()),
        ("x @ git+https://example.org/x.git@v1", ("git",)),
        ("git+https://example.org/x.git#egg=x", ("git",)),
        ("git+ssh://git@example.org/x.git", ("git", "openssh-client")),
    ],
)
def test_a_debian_base_gets_the_programs_that_fetch_repositories(tmp_path: Path, line: str, packages: object) -> None:
    recipe = recipe_of(tmp_path, f"{line}\n")
    assert find_git_packages(recipe) == packages
    assert find_needs(recipe)[:2] == ("python3", "python3-venv")


@pytest.mark.parametrize(
    "text",
    [
        '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\n',
        '[build-system]\nrequires = ["pdm-backend"]\n[tool.pdm.version]\nsource = "scm"\n',
        '[build-system]\nrequires = ["poetry-dynamic-versioning"]\n',
    ],
)
def test_a_folder_with_a_version_from_git_needs_git(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/pyproject.toml").write_text(text)
    assert find_git_packages(recipe_of(tmp_path, "-e ./mine\n")) == ()
    (tmp_path / "mine/.git").mkdir()
    assert find_git_packages(recipe_of(tmp_path, "-e ./mine\n")) == ("git",)


def test_ssh_inside_has_the_users_agent_and_known_hosts_and_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").touch()
    (tmp_path / ".ssh/id_ed25519").write_text("the key itself stays where it is")
    recipe = recipe_of(tmp_path, "git+ssh://git@example.org/x.git\n")
    ada = Person(1000, 1000, "ada", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        host = make_host(person=ada, environment={"SSH_AUTH_SOCK": str(tmp_path / "agent")})
        found = add_git_access(UvSettings(), recipe, find_git_access(host))
    words = dict(found.environment)
    assert words["SSH_AUTH_SOCK"] == str(tmp_path / "agent")
    assert "BatchMode=yes" in words["GIT_SSH_COMMAND"]
    assert set(found.local_paths) == {str(tmp_path / "agent"), str(tmp_path / ".ssh/known_hosts")}
    assert add_git_access(UvSettings(), Recipe(), find_git_access(host)) == UvSettings()


def test_git_reads_the_netrc_that_uv_reads(tmp_path: Path) -> None:
    for _ in range(2):
        write_git_home(tmp_path, UvSettings(environment=(("NETRC", "/home/ada/.netrc"),)))
    assert (tmp_path / ".netrc").readlink() == Path("/home/ada/.netrc")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("cause: Git executable not found. Ensure", "the base has no git"),
        ("Host key verification failed.", "connect to it once"),
        ("git@example.org: Permission denied (publickey).", "start an ssh agent"),
        ("something else", ""),
    ],
)
def test_a_repository_that_cannot_be_fetched_is_reported_with_a_next_step(said: str, advice: str) -> None:
    assert advice in advise_on_git(said, UvSettings())
    assert bool(advise_on_git(said, UvSettings())) == bool(advice)


def failed_build(folder: Path) -> str:
    return (
        f"error: Failed to build `p1 @ {folder.as_uri()}`\n  cause: The build backend returned an error\n"
        f"LookupError: Error getting the version from source `vcs`: setuptools-scm was unable to detect version for "
        f"{folder}.\n"
    )


def test_a_folder_without_a_repository_is_not_blamed_on_the_base(tmp_path: Path) -> None:
    text = failed_build(tmp_path / "from an archive")
    for has_git in (True, False):
        advice = advise_on_git(text, UvSettings(), partial(bool, has_git))
        assert advice.startswith(f"{tmp_path / 'from an archive'} has no .git folder")
        assert "clone the repository" in advice
        assert "export SETUPTOOLS_SCM_PRETEND_VERSION=VERSION" in advice
    named = advise_on_git(f"{text} Set SETUPTOOLS_SCM_PRETEND_VERSION_FOR_P1 or", UvSettings())
    assert "export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_P1=VERSION" in named
    named = advise_on_git(f"{text} the SETUPTOOLS_SCM_PRETEND_VERSION_FOR_<DIST> form cannot match", UvSettings())
    assert "export SETUPTOOLS_SCM_PRETEND_VERSION=VERSION" in named
    (tmp_path / ".git").mkdir()  # the root of a workspace
    assert advise_on_git(text, UvSettings(), lambda: False).startswith("the base has no git")
    assert "has no .git folder" in advise_on_git(text, UvSettings(), lambda: True)


def test_a_long_failure_of_a_build_shows_its_beginning_and_its_end(tmp_path: Path) -> None:
    frames = "".join(f"  File line-{number}\n" for number in range(100))
    text = failed_build(tmp_path).replace("LookupError", f"{frames}LookupError")
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    lines = error.evidence.splitlines()
    assert len(lines) == 40
    assert lines[0].startswith("Failed to build `p1 @")
    assert "unable to detect version" in lines[-1]
    assert "…" in lines


@pytest.mark.parametrize(
    ("said", "variable"),
    [
        ("pdm.backend.exceptions.ConfigError: Cannot find the version from SCM or SCM", "PDM_BUILD_SCM_VERSION"),
        ("RuntimeError: Unable to detect version control system. Checked: Git.", "POETRY_DYNAMIC_VERSIONING_BYPASS"),
        ("Versioning for this project requires either an sdist tarball, or access to an upstream git", "PBR_VERSION"),
        ("versioningit.errors.NotVCSError: /x is not in a Git repository", ""),
    ],
)
def test_other_tools_without_a_repository_have_their_own_variable(said: str, variable: str) -> None:
    advice = advise_on_git(said, UvSettings())
    assert advice.startswith("the source has no .git folder")
    assert (f"export {variable}=VERSION" in advice) == bool(variable)
    assert ("export" in advice) == bool(variable)


def test_a_version_set_by_the_user_reaches_the_builds_of_folders(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/pyproject.toml").touch()
    mine, version = recipe_of(tmp_path, "./mine\n"), ("SETUPTOOLS_SCM_PRETEND_VERSION_FOR_MINE", "1.2")
    host = make_host(environment=dict([version, ("SETUPTOOLS_SCM_DEBUG", "1"), ("PBR_VERSION", "")]))
    settings = add_git_access(UvSettings(), mine, find_git_access(host))
    assert settings.environment == (version,)
    assert settings.notes == (
        "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_MINE=1.2 sets the version of packages that are built",
    )
    # A package of an index has its version already.
    assert add_git_access(UvSettings(), recipe_of(tmp_path, "click\n"), find_git_access(host)) == UvSettings()


def test_what_is_built_with_a_set_version_is_not_used_with_another(tmp_path: Path) -> None:
    settings = [UvSettings(environment=((name, "1.2"),)) for name in ("SETUPTOOLS_SCM_PRETEND_VERSION", "HTTP_PROXY")]
    names = {separate_builds(tmp_path, "sha256:1", each) for each in (UvSettings(), *settings)}
    assert len(names) == 2


@pytest.mark.parametrize("before", ["", "  Failed to download and build `x @ git+https://e.org/x.git`\n"])
def test_an_unreachable_repository_is_reported_as_such(before: str) -> None:
    text = f"{before}error: Git operation failed\n  cause: failed to fetch branch or tag `v1`\n"
    error = explain_uv(NO_CONTAINER, ("pip", "install"), Reply(1, "", text), doing="choosing versions")
    assert str(error).startswith("cannot fetch a git repository")
    assert "branch or tag `v1`" in error.evidence
    assert "check the address" in error.hint
